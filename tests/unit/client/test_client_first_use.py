"""What a new user meets: the first login, a first failure, kernels of two architectures."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from gdn_client import settings
from gdn_client.document import read_document
from gdn_client.report import codeobject, roofline
from gdn_client.report.cases import problems
from gdn_judge.document import Case, Check, Kernel, Outcome, Suite, Verdict
from support import sample_documents as sample
from support.fake_service import TOKEN, FakeService

Client = Callable[..., int]


@pytest.fixture
def at_home(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings whose token comes from stdin."""
    for name in ("GDN_SERVER", "GDN_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GDN_CONFIG_DIR", str(tmp_path / "home"))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TOKEN}\n"))
    return tmp_path / "home"


def test_the_first_login_says_which_server_all_commands_use(
    client: Client, service: FakeService, at_home: Path
) -> None:
    assert client("login", "--server", service.url) == 0
    assert settings.read_file(at_home / "config.toml") == {"server": service.url}
    assert client("status") == 0


def test_login_elsewhere_leaves_the_setting_and_says_so(
    client: Client, service: FakeService, at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client("config", "set", "server", "http://127.0.0.1:9") == 0
    assert client("login", "--server", service.url) == 0
    assert settings.read_file(at_home / "config.toml") == {"server": "http://127.0.0.1:9"}
    assert "warning: other commands go to http://127.0.0.1:9 (from " in capsys.readouterr().err


def test_a_reason_that_repeats_the_first_failed_check_is_left_out() -> None:
    checks = [
        Check(name="ssm_state_rel_l2", passed=False, value=0.5, bound=4e-05),
        Check(name="out_exact", passed=False, value=0.1, bound=0.98, relation=">="),
    ]
    reason = "ssm_state_rel_l2 is 0.5, should be <= 4e-05 (and 1 more)"
    case = Case(id="a", params={}, outcome=Outcome.FAILED, checks=checks, reason=reason)
    told = dataclasses.replace(case, id="b", reason="the predicate said yes")
    made = sample.document(Suite.CORRECTNESS, Verdict.FAILED, [case, told])
    first, second = problems(read_document(made.to_dict()))
    assert (first.checks[0], first.why) == ("ssm_state_rel_l2 is 0.5, should be <= 4e-05", "")
    assert second.why == "the predicate said yes"


def test_each_architecture_has_a_table_with_its_own_resources() -> None:
    hopper = Kernel(name="k", digest="c" * 64, arch="sm90", resources={"registers": 168})
    made = sample.codeobject()
    made = dataclasses.replace(made, kernels=[*made.kernels, hopper])
    amd, nvidia, _ = codeobject.tables(read_document(made.to_dict()))
    assert (amd.title, len(amd.rows)) == ("Kernels for gfx950", 2)
    assert nvidia.title == "Kernels for sm90"
    assert [column.title for column in nvidia.columns] == ["kernel", "registers", "digest"]


def test_the_bytes_of_the_chain_stand_beside_those_of_the_op() -> None:
    made = sample.roofline_without_timers()
    (table,) = roofline.tables(read_document(made.to_dict()))
    assert "chain bytes" not in [column.title for column in table.columns]
    first = made.cases[0]
    chain = dataclasses.replace(first.measurements[0], name="chain", measured_bytes=282_680)
    case = dataclasses.replace(first, measurements=[*first.measurements, chain])
    made = dataclasses.replace(made, cases=[case, *made.cases[1:]])
    (table,) = roofline.tables(read_document(made.to_dict()))
    assert table.columns[-1].title == "chain bytes"
    assert table.rows[0][-1].text == "282 680"


def test_compare_without_any_result_says_so(
    client: Client,
    service: FakeService,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(repository)
    assert client("compare", "HEAD~1", "HEAD") == 6
    assert (
        "neither HEAD~1 nor HEAD has a stored roofline or codeobject result"
        in capsys.readouterr().err
    )
