"""Rendered results against golden files; `--update-golden` rewrites them."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gdn_client.document import read_document
from gdn_client.models import read_job
from gdn_client.report import junit, markdown
from gdn_client.report.build import job_report, section
from gdn_client.report.table import Report
from gdn_client.report.terminal import print_report, print_section
from gdn_judge.document import Document
from support import sample_documents as sample
from support.fake_service import job

GOLDEN = Path(__file__).parents[2] / "golden" / "client"

DOCUMENTS: dict[str, Callable[[], Document]] = {
    "roofline": sample.roofline,
    "roofline_without_timers": sample.roofline_without_timers,
    "correctness": sample.correctness,
    "correctness_failed": sample.correctness_failed,
    "determinism": sample.determinism,
    "codeobject": sample.codeobject,
}


Compare = Callable[[str, str], None]


@pytest.fixture
def same_as_golden(pytestconfig: pytest.Config) -> Compare:
    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if pytestconfig.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare


def console(width: int) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        color_system=None,
        highlight=False,
        markup=False,
        legacy_windows=False,
    )


def printed(document: Document, width: int) -> str:
    to = console(width)
    print_section(section(read_document(document.to_dict())), to)
    assert isinstance(to.file, io.StringIO)
    lines = to.file.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_terminal(name: str, width: int, same_as_golden: Compare) -> None:
    text = printed(DOCUMENTS[name](), width)
    assert max(map(len, text.splitlines())) <= width
    same_as_golden(f"{name}_{width}.txt", text)


def test_a_long_line_of_the_candidate_does_not_push_the_result_away() -> None:
    data = sample.correctness_failed().to_dict()
    data["log_tail"] = "".join(f"line {n}\n" for n in range(60)) + "x" * 50_000 + "\nlast\n"
    shown = section(read_document(data))
    to = console(100)
    print_section(shown, to)
    assert isinstance(to.file, io.StringIO)
    for text in (to.file.getvalue(), markdown.render(Report("t", "", "failed", [], [shown]))):
        assert text.count("x" * 60) > 0
        assert text.count("xx") < 300
        assert text.rstrip().endswith("last")
    assert "last lines of the candidate's output (15):" in to.file.getvalue()


def test_kernels_stand_in_the_order_of_the_plan() -> None:
    """Not in that of their digests, which change with each compilation."""

    def kernel(name: str, digest: str, batches: str, arch: str = "sm90") -> dict[str, Any]:
        resources = {"batches": batches, "registers": 96}
        return {"name": name, "digest": digest, "arch": arch, "resources": resources}

    data = sample.codeobject().to_dict()
    data["kernels"] = [
        kernel("fused", "a", "128,256"),
        kernel("fused", "b", "16"),
        kernel("fused", "c", "5,8"),
        kernel("fused", "d", "1,2,3", "gfx950"),
        kernel("norm", "e", "5,8"),
    ]
    data["cases"] = [
        {"id": f"{arch}-T{size}", "params": {"arch": arch, "T": size}, "outcome": "passed"}
        for arch in ("sm90", "gfx950")
        for size in (5, 8, 16, 128, 256)
    ]
    for _ in range(2):
        hopper, cdna, *_ = section(read_document(data)).tables
        assert [table.title for table in (hopper, cdna)] == [
            "Kernels for sm90",
            "Kernels for gfx950",
        ]
        assert [row[-1].text for row in hopper.rows] == ["c", "e", "b", "a"]
        data["kernels"].reverse()


def test_a_baseline_says_how_far_behind_it_is() -> None:
    data = sample.codeobject().to_dict()
    cases = {
        (3, "2025-12-30T09:30:00Z"): "3 commits behind, judged 2 d 17 h before",
        (1, "2026-01-02T04:04:05Z"): "1 commit behind, judged 1 h 00 min after",
        (None, "2026-01-02T03:04:00Z"): "judged 5.0 s before",
        (2, "once"): "2 commits behind",
        (2, "2026-01-02T03:04:00"): "2 commits behind",
    }
    for (behind, started), words in cases.items():
        data["baseline"] |= {"commits_behind": behind, "started_at": started}
        facts = section(read_document(data)).facts
        assert [fact for fact in facts if "baseline" in fact] == [f"baseline cccccccccccc, {words}"]
    data["baseline"] = None
    assert not any("baseline" in fact for fact in section(read_document(data)).facts)


def whole_report() -> Report:
    documents = {f"r{n}": make() for n, make in enumerate(DOCUMENTS.values())}
    runs = [
        {
            "id": run,
            "suite": d.suite,
            "verdict": d.verdict,
            "state": "finished",
            "reason": d.reason,
            "device": "gpu-1/sm90/0",
            "duration_s": 1.0,
            "partial": d.partial,
        }
        for run, d in documents.items()
    ]
    found = read_job(job("j1", "failed", subject=sample.HOSTILE, runs=runs, reason="wrong"))
    return job_report(found, {run: read_document(d.to_dict()) for run, d in documents.items()})


def test_markdown(same_as_golden: Compare) -> None:
    same_as_golden("report.md", markdown.render(whole_report()))


def test_markdown_of_hostile_text_is_inert() -> None:
    text = markdown.render(whole_report())
    for active in ("<b>", "@everyone", "](http", "://", "#12", "\x1b", "\u202e", "`x`"):
        assert active not in text.replace("\\`", "").replace("\\]", "")
    row = next(line for line in text.splitlines() if "T256-4x8-small" in line)
    assert row.replace("\\|", "").count("|") == 5  # four columns, whatever the reason holds


@pytest.mark.parametrize(
    "text", ["- item", "+ item", "# head", "1. one", "2) two", "=== ", "> quote", "    code"]
)
def test_markdown_blocks_do_not_start(text: str) -> None:
    shown = markdown.inert(text)
    assert not shown.startswith(("-", "+", "#", "1.", "2)", "=", ">", " "))


def test_junit(same_as_golden: Compare) -> None:
    outcomes = [
        junit.Outcome(d.suite, d.device_kind, d.verdict, d.reason, read_document(d.to_dict()))
        for d in (make() for make in DOCUMENTS.values())
    ]
    outcomes.append(junit.Outcome("roofline", "gfx950", "error", "host busy: pid 7", None))
    text = junit.render("Job j1", {"commit": "1" * 40}, outcomes)
    same_as_golden("report.xml", text)
    root = ET.fromstring(text)
    assert root.attrib["tests"] == str(len(root.findall("testsuite/testcase")))
    counts = {
        tag: len(root.findall(f"testsuite/testcase/{tag}"))
        for tag in ("failure", "error", "skipped")
    }
    assert counts == {"failure": 3, "error": 2, "skipped": 2}
    assert (root.attrib["failures"], root.attrib["errors"], root.attrib["skipped"]) == (
        "3",
        "2",
        "2",
    )


def test_junit_reports_a_run_that_did_not_pass_though_its_cases_did() -> None:
    document = sample.determinism()
    outcome = junit.Outcome(
        "determinism", "sm90", "suspect", "times contradict", read_document(document.to_dict())
    )
    root = ET.fromstring(junit.render("x", {}, [outcome]))
    problem = root.find("testsuite/testcase[@name='run']/failure")
    assert problem is not None
    assert problem.attrib == {"type": "suspect", "message": "times contradict"}


def test_the_worst_rows_come_first() -> None:
    shown = section(read_document(sample.correctness_failed().to_dict()))
    rows = [[cell.text for cell in row[:4]] for row in shown.tables[0].rows[:4]]
    assert rows == [
        ["33", "no", "2/3", "out_exact"],  # wrong
        ["256", "no", "2/3", "crashed"],
        ["predicate", "", "0/1", "refuses conv_bias:none"],
        ["256", "yes", "1/3", "not_run"],  # not known to be wrong
    ]


def test_many_bad_cases_are_cut_with_a_count() -> None:
    many = [sample._judged(n, False, "unit", state=9e-5, exact=0.9) for n in range(1, 51)]
    document = sample.document(sample.Suite.CORRECTNESS, sample.Verdict.FAILED, many)
    text = printed(document, 120)
    assert "Not passed: 50 of 50" in text
    assert "and 30 more; --json has them all" in text


def test_an_unknown_suite_still_shows() -> None:
    document = sample.correctness().to_dict() | {"suite": "novelty"}
    shown = section(read_document(document))
    assert shown.suite == "novelty"
    assert len(shown.tables[0].rows) == 18


def test_a_job_without_runs_says_why() -> None:
    found = read_job(job("j1", "error", failure_class="host", reason="no worker for sm90"))
    to = console(100)
    print_report(job_report(found, {}), to)
    assert isinstance(to.file, io.StringIO)
    assert "no worker for sm90" in to.file.getvalue()
