from __future__ import annotations

from typing import Any

import pytest

from gdn_judge.document import DeviceKind, FailureClass, Verdict
from gdn_service.clock import now
from gdn_service.jobs.canary import Canary
from gdn_service.jobs.flow import given_up
from gdn_service.jobs.idleness import Assertion, Stay
from gdn_service.jobs.judging import Judged, Result
from gdn_service.runner.probe import DeviceFacts, IdleReport, Sample
from gdn_service.runner.watch import Watch

IDLE = Assertion(at=now(), report=IdleReport(used_bytes=5), others=[{"device": "bench/sm90/1"}])
USUAL = {"before": Canary(words="copy 1 us"), "after": Canary(words="copy 2 us")}
SLOW = USUAL | {"after": Canary(words="copy 9 us", why="copy 9 us")}
BUSY = Assertion(at=now(), report=IdleReport(why="in use by pid 7"), others=[])


def stay(kind: DeviceKind = DeviceKind.SM90, visitor: str = "", **values: Any) -> Stay:
    watch = Watch(Sample, 1)
    watch.visitor = visitor
    facts = DeviceFacts(kind=kind, index=0, name="GPU", measures=())
    ends: dict[str, Any] = {"before": IDLE, "after": IDLE, "canaries": USUAL}
    return Stay(device_id="bench/sm90/0", facts=facts, watch=watch, **ends | values)


@pytest.mark.parametrize(
    ("seen", "void"),
    [
        (stay(), ""),
        (stay(after=BUSY), "the device did not stay idle during the run: in use by pid 7"),
        (
            stay(visitor="pid 8 (x)", after=BUSY),
            "someone else used the device during the run: pid 8 (x)",
        ),
        (stay(canaries=SLOW), "the canary after the run is slower than usual: copy 9 us"),
        (stay(canaries={}), ""),
    ],
)
def test_why_a_run_does_not_count(seen: Stay, void: str) -> None:
    assert seen.void == void


def test_the_ends_of_a_run_have_memory_canary_and_the_other_gpus() -> None:
    before, after = stay(after=BUSY).readings("r1", 2)
    assert (before.attempt, before.moment, before.why, before.used_bytes) == (2, "before", "", 5)
    assert before.others == [{"device": "bench/sm90/1"}]
    assert (before.canary, after.canary) == ("copy 1 us", "copy 2 us")
    assert (after.why, after.others) == ("in use by pid 7", [])


def test_a_canary_that_there_cannot_be_is_not_one_that_is_missing() -> None:
    for kind in (DeviceKind.INTERPRETER, DeviceKind.GFX950_EMULATED):
        rows = stay(kind=kind, canaries={}).readings("r1", 1)
        assert {row.canary for row in rows} == {
            "not applicable: this device has no clock of its own"
        }
    rows = stay(canaries={"before": USUAL["before"]}).readings("r1", 1)
    assert [row.canary for row in rows] == [
        "copy 1 us",
        "not taken: the judge did not come so far",
    ]


def test_the_last_spoiled_try_is_the_hosts_error_and_no_verdict_on_the_op() -> None:
    spoiled = Judged(
        result=Result.HOST,
        reason="the device did not stay idle",
        failure_class=FailureClass.HOST,
        verdict=Verdict.INCONCLUSIVE,
    )
    last = given_up(spoiled, 3)
    assert (last.verdict, last.failure_class) == (Verdict.ERROR, FailureClass.HOST)
    assert last.reason == "the device did not stay idle (given up after 3 tries)"
    judged = Judged(result=Result.DOCUMENT, verdict=Verdict.INCONCLUSIVE)
    assert given_up(judged, 3) is judged
