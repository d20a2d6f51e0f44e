"""The tables of devices and suites: a row is all that a new one costs."""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdn_judge import cli, run, schema
from gdn_judge.cases import Planned, Scope
from gdn_judge.contract import Heads
from gdn_judge.document import Check, DeviceKind, Document, Suite, Verdict
from gdn_judge.judged import Judged
from gdn_judge.session import Session
from gdn_judge.verdicts import Request
from gdn_judge.wire import devices, suites
from gdn_judge.wire.devices import DeviceSpec, Runs, Vendor
from gdn_judge.wire.suites import Needs, SuiteSpec
from support.local_executor import LocalExecutor
from support.plain_op import fused_gdn_decode_qkvz

ROOT = Path(__file__).parents[3]


@pytest.fixture
def gfx942() -> Iterator[DeviceKind]:
    row = DeviceSpec(
        kind=DeviceKind.add("gfx942"),
        runs=Runs.ON_A_GPU,
        architecture="gfx942",
        archs=("gfx950",),
        vendor=Vendor.AMD,
        driver_name="gfx942",
        cache=256 << 20,
        peak=5.3e12,
    )
    yield devices.add(row)
    devices.remove(row.kind)


def test_a_row_is_all_that_a_device_kind_costs(gfx942: DeviceKind) -> None:
    assert DeviceKind("gfx942") is gfx942 is DeviceKind.GFX942
    assert devices.named_by_driver(Vendor.AMD, "gfx942") is gfx942
    assert "gfx942" in schema.text()
    assert devices.best({gfx942, DeviceKind.SM90}) == [DeviceKind.SM90, gfx942]
    words = "run --target . --import-path a:b --suite roofline --out x --device gfx942"
    options = cli.parser().parse_args(words.split())
    assert options.device is gfx942


def test_the_service_serves_a_device_kind_of_a_row(gfx942: DeviceKind) -> None:
    from gdn_service.runner import kfd
    from gdn_service.settings import Settings, best_kind

    assert kfd.kind_of("gfx942") is gfx942
    assert Settings(device_kinds=("gfx942",)).device_kinds == ("gfx942",)
    assert best_kind(["interpreter", "gfx942"]) == "interpreter"  # rows stand best first
    assert best_kind(["gfx942"]) is gfx942


def test_nothing_decides_by_the_name_of_a_kind() -> None:
    """But for the table, what is said of a kind is read from its row."""
    by_name = re.compile(r"\bDeviceKind\.[A-Z]|\bSuite\.[A-Z]")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "service").rglob("*.py")
        for line in path.read_text().splitlines()
        if by_name.search(line) and "`" not in line
    ]
    assert found == []


class Pings(types.ModuleType):
    """A suite of one case: the op runs at all."""

    @staticmethod
    def plan(scope: Scope) -> list[Planned]:
        return [Planned(id="ping", kind="step", heads=Heads(1, 2), rows=1)]

    @staticmethod
    def judge(planned: Planned, session: Session) -> Judged:
        session.executor()
        return Judged([Check(name="started", passed=True, relation="holds")])


@pytest.fixture
def ping(monkeypatch: pytest.MonkeyPatch) -> Iterator[Suite]:
    import sys

    monkeypatch.setitem(sys.modules, "pings", Pings("pings"))
    row = SuiteSpec(name=Suite.add("ping"), title="the op runs", module="pings", needs=Needs.CALLS)
    yield suites.add(row)
    suites.remove(row.name)


def test_a_module_and_a_row_are_all_that_a_suite_costs(ping: Suite) -> None:
    scope = Scope(device=DeviceKind.INTERPRETER)
    request = Request(
        suite=ping,
        scope=scope,
        target="t",
        import_path="a:b",
        commit=None,
        device_index=0,
        environment={},
        why_shared="",
        notes=[],
    )
    session = Session(
        factory=lambda: LocalExecutor(fused_gdn_decode_qkvz), device=DeviceKind.INTERPRETER
    )
    document = run.run(request, session, run.Events())
    assert document.verdict is Verdict.PASSED
    assert Document.from_json(document.to_json()).suite is ping
    assert '"ping"' in schema.text()


def test_a_job_has_a_suite_of_a_row_in_its_order(ping: Suite) -> None:
    from gdn_service.targets import new_target

    target = new_target(name="t", repository="/r", import_path="a:b")
    assert target.suites == ["correctness", "determinism", "roofline", "codeobject", "ping"]
    assert suites.defaults() == ["correctness", "determinism", "roofline", "ping"]


def test_names_outside_the_tables_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'sm91' is no DeviceKind; known: gfx950, sm90, "):
        DeviceKind("sm91")
    with pytest.raises(ValueError, match="'sm90' is a DeviceKind already"):
        DeviceKind.add("sm90")
    with pytest.raises(AttributeError, match="there is no Suite SERVING"):
        _ = Suite.SERVING


@pytest.mark.parametrize("row", list(suites.SUITES.values()), ids=lambda row: str(row.name))
def test_each_suite_has_what_its_row_promises(row: SuiteSpec) -> None:
    module = row.load()
    assert callable(module.plan)
    assert callable(module.judge)
    assert not row.compares or callable(module.words)


@pytest.mark.parametrize("row", list(devices.DEVICES.values()), ids=lambda row: str(row.kind))
def test_each_device_says_what_is_asked_of_its_way_of_running(row: DeviceSpec) -> None:
    assert dataclasses.is_dataclass(row)
    if row.on_cpu:
        assert row.title
        assert row.measures
    else:
        assert row.vendor is not None
        assert row.driver_name
        assert row.peak > 1e12
        assert row.cache > 1 << 20
