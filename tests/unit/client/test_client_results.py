from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdn_judge.document import Case, Check, Document, Kernel, Outcome
from support import sample_documents as sample
from support.fake_service import FakeService, job
from support.user_repository import git

Client = Callable[..., int]


def store(
    service: FakeService,
    sha: str,
    *documents: Document,
    environment: str = "e1",
    digest: str = "d1",
) -> None:
    """What the service keeps of a commit: results that point to documents."""
    service.known.setdefault(sha, "A subject")
    items = service.results.setdefault(sha, [])
    for document in documents:
        run = f"r{len(service.documents)}"
        service.documents[run] = document.to_dict()
        items.append(
            {
                "run_id": run,
                "suite": document.suite,
                "device_kind": document.device_kind,
                "verdict": document.verdict,
                "reason": document.reason,
                "judge_version": "0.1.0",
                "kernel_digest": digest,
                "environment_id": environment,
                "finished_at": "2026-01-02T03:04:05Z",
                "document": f"/api/v1/runs/{run}/document",
            }
        )


@pytest.fixture
def head(repository: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(repository)
    return git(repository, "rev-parse", "HEAD")


def faster(document: Document, factor: float) -> Document:
    data = document.to_dict()
    for case in data["cases"]:
        for m in case["measurements"]:
            m["median"] *= factor
    return Document.from_dict(data)


def test_show_head_in_suite_order(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, head, sample.roofline(), sample.determinism(), sample.correctness())
    assert client("show") == 0
    said = capsys.readouterr().out
    assert f"Commit {head[:12]}  passed" in said
    places = [
        said.index(f"{suite} on sm90: passed")
        for suite in ("correctness", "determinism", "roofline")
    ]
    assert places == sorted(places)
    assert "4.31 [4.27-4.40]" in said


def test_a_narrowed_result_stands_beside_the_whole_plan(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, head, sample.correctness_failed(), sample.correctness())
    service.results[head][1] |= {"batch_sizes": [8, 256], "heads": None, "quick": True}
    assert client("show") == 1
    said = capsys.readouterr().out
    assert f"Commit {head[:12]}  failed" in said
    assert "only a part of the suite was asked for: batch sizes 8, 256, quick" in said
    assert said.count("only a part of the suite") == 1
    assert client("history") == 0
    assert "failed" in capsys.readouterr().out


def test_show_narrows_by_suite_and_device(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, head, sample.roofline(), sample.correctness(), sample.roofline_without_timers())
    assert client("show", "--suite", "roofline", "--device", "gfx950-emulated") == 0
    said = capsys.readouterr().out
    assert "roofline on gfx950-emulated" in said
    assert "sm90" not in said


def test_show_of_a_codeobject_result(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, head, sample.codeobject())
    assert client("show") == 1
    said = capsys.readouterr().out
    assert "fused_small_t    96     0    40   2048        0" in said
    assert "registers spill to memory" in said


def test_show_a_job(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, head, sample.correctness_failed())
    run = {
        "id": "r0",
        "suite": "correctness",
        "verdict": "failed",
        "state": "finished",
        "reason": "",
        "duration_s": 1.0,
        "device": "gpu-1/sm90/0",
        "partial": True,
    }
    lost = {
        "id": "r9",
        "suite": "roofline",
        "verdict": None,
        "state": "finished",
        "reason": "device busy: pid 7",
        "duration_s": None,
        "device": None,
        "partial": False,
    }
    service.jobs["j1"] = job("j1", "failed", runs=[run, lost])
    assert client("show", "j1") == 1
    said = capsys.readouterr().out
    assert "Not passed: 3 of 19" in said
    assert "roofline on sm90: finished  device busy: pid 7" in said


def test_show_of_a_running_job_is_pending(client: Client, service: FakeService) -> None:
    service.jobs["j1"] = job("j1", "running")
    assert client("show", "j1") == 8


def test_show_formats(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, head, sample.roofline())
    assert client("show", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["results"][0]["document"] == sample.roofline().to_dict()
    assert client("show", "--format", "markdown") == 0
    assert "| 1 | no | 4.31 \\[4.27-4.40\\] |" in capsys.readouterr().out
    assert client("show", "--format", "junit") == 0
    root = ET.fromstring(capsys.readouterr().out)
    assert (root.attrib["tests"], root.attrib["failures"]) == ("10", "0")


def test_show_without_results_says_how_to_get_them(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client("show") == 6
    assert f"gdn-client submit --commit {head[:12]}" in capsys.readouterr().err


def test_show_strict(client: Client, service: FakeService, head: str) -> None:
    store(service, head, sample.document(sample.Suite.ROOFLINE, sample.Verdict.UNSTABLE, []))
    assert client("show") == 0
    assert client("show", "--strict") == 7


def test_environment_of_one_commit(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, head, sample.roofline(), sample.correctness())
    assert client("show", "--environment") == 0
    assert capsys.readouterr().out.splitlines() == [
        "roofline on sm90, correctness on sm90",
        "  device_name    NVIDIA H200",
        "  driver         570.86.15",
        "  power_limit_w  700",
        "  torch          2.13.0",
        "  triton         3.8.0",
    ]


def test_environments_differ_in_words(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other: dict[str, Any] = {**sample.ENVIRONMENT, "driver": "580.1", "governor": "performance"}
    del other["torch"]
    store(service, git(Path.cwd(), "rev-parse", "HEAD~1"), sample.roofline())
    store(service, head, sample.roofline(environment=other))
    assert client("show", "--environment", "HEAD~1", "HEAD") == 0
    assert capsys.readouterr().out.splitlines() == [
        "A is HEAD~1, B is HEAD",
        "",
        "roofline on sm90: 3 differences, 3 equal",
        "  driver is 570.86.15 in A and 580.1 in B",
        "  governor is performance in B and not stated in A",
        "  torch is 2.13.0 in A and not stated in B",
    ]


def test_show_takes_two_only_for_environments(client: Client, head: str) -> None:
    assert client("show", "HEAD", "HEAD~1") == 2


def compared(
    client: Client,
    service: FakeService,
    head: str,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
    **second: str,
) -> str:
    store(service, git(Path.cwd(), "rev-parse", "HEAD~1"), sample.roofline())
    store(service, head, faster(sample.roofline(), 0.9), **second)
    assert client("compare", "HEAD~1", *arguments) == 0
    return capsys.readouterr().out


def test_compare_gives_changes_but_no_verdict(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = compared(client, service, head, capsys, digest="d2")
    assert "no statistics, so no verdict" in said
    row = next(line for line in said.splitlines() if line.split()[:2] == ["256", "no"])
    assert row.split() == ["256", "no", "71.20", "64.08", "-10.0%"]


def test_compare_over_environments_gives_no_percentage(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = compared(client, service, head, capsys, environment="e2")
    assert "incomparable" in said
    assert "-10.0%" not in said
    assert "64.08" in said


def test_compare_knows_the_same_binary(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = compared(client, service, head, capsys)
    assert "same binary" in said


def test_compare_as_json(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(compared(client, service, head, capsys, "--json", digest="d2"))
    assert data["caution"].endswith("no statistics, so no verdict")
    assert data["items"][0]["rows"][0]["change"] == "-10.0%"


def test_compare_without_a_common_device(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, head, sample.roofline())
    assert client("compare", "HEAD~1") == 6
    assert "(none against roofline on sm90)" in capsys.readouterr().err


def test_compare_needs_one_suite_of_both(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, git(Path.cwd(), "rev-parse", "HEAD~1"), codeobject())
    store(service, head, sample.roofline())
    assert client("compare", "HEAD~1") == 6
    assert "(codeobject on sm90 against roofline on sm90)" in capsys.readouterr().err


def codeobject(*kernels: tuple[str, str, str, dict[str, Any]], **changes: Any) -> Document:
    """A result for T = 1, 2 and 8 on sm90; `kernels` are (name, digest, batches, resources)."""
    counts = changes.pop("counts", {})
    cases = [
        Case(
            id=f"sm90-4x8-T{rows}",
            params={
                "T": rows,
                "KH": 4,
                "VH": 8,
                "fp8": False,
                "kind": "codeobject",
                "arch": "sm90",
            },
            outcome=Outcome.PASSED,
            checks=[
                Check(name=name, passed=True, value=value, relation="measured")
                for name, value in {"against the baseline: x": "changed", **counts}.items()
            ],
        )
        for rows in changes.pop("rows", (1, 2, 8))
    ]
    return sample.document(
        sample.Suite.CODEOBJECT,
        sample.Verdict.PASSED,
        cases,
        kernels=[
            Kernel(name=name, digest=digest, arch="sm90", resources={"batches": at, **used})
            for name, digest, at, used in kernels
        ],
        **changes,
    )


OLD = {"registers": 96, "shared": 2048, "blocks_per_sm": 8, "mix": "valu 70", "cubin_bytes": 9000}
NEW = {**OLD, "registers": 168, "blocks_per_sm": 5, "mix": "valu 80", "instructions": 700}


def test_compare_sets_the_kernels_of_two_commits_beside_each_other(
    client: Client,
    service: FakeService,
    head: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    before = git(Path.cwd(), "rev-parse", "HEAD~1")
    old = [("gdn", "a", "1", OLD), ("gdn", "z", "2,8", OLD), ("norm", "n", "8", OLD)]
    new = [("gdn", "q", "1,2", NEW), ("gdn", "z", "8", OLD), ("added", "m", "2", NEW)]
    counts = {"bytes moved": 100, "workgroups of gdn": 4}
    store(service, before, codeobject(*old, counts=counts), sample.roofline())
    store(service, head, codeobject(*new, counts={**counts, "bytes moved": 90}), sample.roofline())
    assert client("compare", "HEAD~1") == 0
    said = capsys.readouterr().out
    assert said.index("roofline on sm90: no verdict") < said.index("codeobject on sm90: no verdict")
    assert f"old is {before[:9]}, new is {head[:9]}" in said
    table = said[said.index("Kernels for sm90, old -> new") :].splitlines()
    columns = re.split(r"\s{2,}", table[1].strip())
    rows = [re.split(r"\s{2,}", line.strip()) for line in table[3:9]]
    shown = [dict(zip(columns, row, strict=False)) for row in rows]
    assert columns[:6] == ["kernel", "T", "binary", "registers", "shared", "blocks per sm"]
    assert [(row["kernel"], row["T"], row["binary"]) for row in shown[:5]] == [
        ("gdn", "1", "changed"),
        ("gdn", "2", "changed"),
        ("added", "2", "new"),
        ("gdn", "8", "same"),
        ("norm", "8", "gone"),
    ]
    assert [row["registers"] for row in shown[:5]] == ["96 -> 168"] * 2 + ["168", "96", "96"]
    assert [row["blocks per sm"] for row in shown[:2]] == ["8 -> 5"] * 2
    assert (shown[0]["mix"], shown[0]["instructions"]) == ("valu 70 -> valu 80", "700")
    assert shown[0]["cubin bytes"] == "9000"
    assert re.search(r"sm90-4x8-T1\s+bytes moved\s+100 -> 90", said)
    assert "workgroups of gdn" not in said
    assert "3 counts of cases did not change" in said

    monkeypatch.setenv("COLUMNS", "70")  # what changed is given up last
    assert client("compare", "HEAD~1") == 0
    narrow = capsys.readouterr().out
    assert "96 -> 168" in narrow
    assert "not shown for lack of width: cubin bytes, shared" in narrow

    assert client("compare", "HEAD~1", "--json") == 0
    roofline, kernels = json.loads(capsys.readouterr().out)["items"]
    assert (roofline["suite"], kernels["suite"]) == ("roofline", "codeobject")
    first = kernels["rows"][0]
    assert first["batches"] == [1]
    assert first["kernel"] == {"old": "gdn", "new": "gdn"}
    assert first["digest"] == {"old": "a", "new": "q"}
    assert first["resources"]["registers"] == {"old": 96, "new": 168}
    assert first["resources"]["instructions"] == {"old": None, "new": 700}
    assert kernels["rows"][4]["kernel"] == {"old": "norm", "new": None}
    changed = [count for count in kernels["counts"] if count["old"] != count["new"]]
    assert {count["name"] for count in changed} == {"bytes moved"}
    assert len(kernels["counts"]) == 6


def test_compare_takes_a_new_name_for_the_old_kernel_and_leaves_out_what_one_alone_has(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = git(Path.cwd(), "rev-parse", "HEAD~1")
    other = {**sample.ENVIRONMENT, "triton": "3.9.0"}
    store(service, before, codeobject(("gdn", "a", "1,2", OLD), rows=(1, 2)))
    store(service, head, codeobject(("fused", "b", "1,8", NEW), rows=(1, 8), environment=other))
    assert client("compare", "HEAD~1", "--json") == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    (row,) = item["rows"]
    assert (row["kernel"], row["batches"]) == ({"old": "gdn", "new": "fused"}, [1])
    assert row["binary"] == "changed"
    assert item["facts"] == [
        f"old is {before[:9]}, new is {head[:9]}",
        "compiled by Triton 3.8.0 and 3.9.0: a change need not be the commit's",
        f"1 case of {before[:9]} alone not shown",
        f"1 case of {head[:9]} alone not shown",
    ]
    assert client("compare", "HEAD~1") == 0
    assert "gdn -> fused" in capsys.readouterr().out


def test_history_follows_first_parents(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    git(Path.cwd(), "checkout", "-q", "-b", "side", "HEAD~1")
    git(Path.cwd(), "commit", "-q", "--allow-empty", "-m", "On the side")
    side = git(Path.cwd(), "rev-parse", "HEAD")
    git(Path.cwd(), "checkout", "-q", "main")
    git(Path.cwd(), "merge", "-q", "--no-ff", "-m", "Merge side", "side")
    merge = git(Path.cwd(), "rev-parse", "HEAD")
    store(service, merge, sample.correctness(), sample.roofline())
    store(service, head, sample.correctness_failed())
    store(service, side, sample.correctness())
    assert client("history", "--limit", "3") == 0
    said = capsys.readouterr().out
    assert side[:12] not in said
    merged = next(line for line in said.splitlines() if merge[:12] in line).split()
    assert merged[1:] == [
        "passed",
        "passed",
        "4.31",
        "5.87",
        "19.80",
        "71.20",
        "273.6",
        "Merge",
        "side",
    ]
    failed = next(line for line in said.splitlines() if head[:12] in line).split()
    assert failed[1:] == ["failed", "Commit", "4"]
    assert client("history", "--limit", "2", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert [entry["commit"] for entry in data] == [merge, head]
    assert [r["suite"] for r in data[0]["results"]] == ["correctness", "roofline"]


def test_history_without_results(
    client: Client, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client("history", "--limit", "2") == 0
    assert "no stored result in the last 2 commits" in capsys.readouterr().err


def test_report_writes_a_whole_file(
    client: Client,
    service: FakeService,
    head: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store(service, head, sample.correctness_failed())
    path = tmp_path / "report.md"
    assert client("report", "--output", str(path)) == 0
    assert path.read_text().startswith(f"## ❌ Commit {head[:12]}: failed\n")
    assert capsys.readouterr().out == ""
    assert list(tmp_path.glob(".*")) == []
    assert client("report", "--format", "junit") == 0
    assert ET.fromstring(capsys.readouterr().out).attrib["failures"] == "2"


def test_report_into_a_folder_that_is_not_there(
    client: Client, service: FakeService, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(service, head, sample.correctness())
    assert client("report", "-o", "nowhere/report.md") == 2
    assert "cannot write nowhere/report.md: No such file" in capsys.readouterr().err


def test_report_is_not_a_table(client: Client, head: str) -> None:
    assert client("report", "--format", "table") == 2
