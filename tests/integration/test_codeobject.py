"""The codeobject suite, its listing, and the deliberate bugs, on the op of this repository."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from gdn_judge import cli, prepare
from gdn_judge.cases import Scope
from gdn_judge.codeobject import bugs, suite
from gdn_judge.codeobject.compiler import Compiler
from gdn_judge.contract import Heads
from gdn_judge.document import Case, Check, DeviceKind, Document, Kernel, Outcome, Suite, Verdict
from gdn_judge.run import describe
from gdn_judge.session import Session

ROOT = Path(__file__).parents[2]
OP = "gdn_kernels:fused_gdn_decode_qkvz"
BETWEEN_WORKGROUPS = ("release removed", "acquire removed", "store one element on")
pytestmark = pytest.mark.slow


def test_listing_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    for arch, registers in (("gfx950", "vgpr"), ("sm90", "registers")):
        words = ["codeobject", "--arch", arch, "--json", "--target", str(ROOT)]
        assert cli.main([*words, "--batch-sizes", "1,64"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert (listed["arch"], listed["heads"]) == (arch, "4x8")
        batches = ",".join(str(row["batches"]) for row in listed["kernels"])
        assert sorted(batches.split(",")) == ["1", "64"]
        assert all(0 < row[registers] <= 512 for row in listed["kernels"])


def test_a_bad_target_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["codeobject", "--target", str(ROOT), "--import-path", "nowhere:op"]
    assert cli.main(words) == 5
    assert "cannot be compiled for gfx950" in capsys.readouterr().err
    assert cli.main(["codeobject", "--target", str(ROOT), "--heads", "4"]) == 2


def judged(baseline: Document | None) -> tuple[list[Check], Session]:
    process = prepare.process(ROOT, OP, ["kernels"])
    device = DeviceKind.GFX950_EMULATED
    session = Session(factory=lambda: Compiler(process), device=device, baseline=baseline)
    try:
        (planned,) = suite.plan(Scope(device=DeviceKind.GFX950, batches=[1], heads=Heads(1, 2)))
        found = suite.judge(planned, session)
        assert found.outcome in (Outcome.PASSED, Outcome.FAILED)
        return found.checks, session
    finally:
        session.drop()


def test_the_suite_audits_traffic_and_compares_with_a_baseline() -> None:
    checks, session = judged(None)
    found = {check.name: check for check in checks}
    assert all(check.passed for check in checks)
    assert 1.0 <= float(str(found["bytes moved over the model"].value)) < 1.05
    assert found["waits before the first state load"].value is not None
    (run,) = session.kernels.values()
    assert run.resources["batches"] == "1"
    before = Kernel(
        name=run.name,
        digest="0" * 64,
        arch="gfx950",
        resources={**run.resources, "groups_per_cu": int(str(run.resources["groups_per_cu"])) + 1},
    )
    document = Document(
        suite=Suite.CODEOBJECT,
        device_kind=DeviceKind.GFX950_EMULATED,
        verdict=Verdict.INCONCLUSIVE,
        reason="",
        planned=["gfx950-1x2-T1"],
        cases=[Case(id="gfx950-1x2-T1", params={}, outcome=Outcome.PASSED)],
        judge_version="0",
        target="t",
        import_path=OP,
        commit=None,
        started_at="2026-01-01T00:00:00.000Z",
        duration_s=1.0,
        kernels=[before],
    )
    lost = [check for check in judged(document)[0] if not check.passed]
    assert [check.name for check in lost] == [f"resident workgroups of {run.name}"]
    spilling = dataclasses.replace(before, resources={**run.resources, "vgpr_spills": 4})
    allowed = dataclasses.replace(document, kernels=[spilling])
    bounds = {check.name: check.bound for check in judged(allowed)[0]}
    assert bounds[f"spills of {run.name}"] == 4


def test_a_size_that_launches_nothing_fails() -> None:
    small = ROOT / "tests" / "data" / "emulator"
    process = prepare.process(small, "small_ops:skips_many", ["."])
    session = Session(factory=lambda: Compiler(process), device=DeviceKind.GFX950_EMULATED)
    scope = Scope(device=DeviceKind.GFX950, batches=[3], heads=Heads(1, 2))
    try:
        (planned,) = suite.plan(scope)
        found = suite.judge(planned, session)
    finally:
        session.drop()
    assert found.outcome is Outcome.FAILED
    (failed,) = [check for check in found.checks if not check.passed]
    assert describe(failed) == "launches is 0, should be >= 1 (launches nothing at T = 3)"


def test_deliberate_bugs_are_caught() -> None:
    process = prepare.process(ROOT, OP, ["kernels"])
    found = bugs.hunt(process, Heads(1, 2), 2, per_kind=2)
    assert {finding.mutant.kind for finding in found} == set(bugs.KINDS)
    by_kind: dict[str, set[str]] = {}
    for finding in found:
        by_kind.setdefault(finding.mutant.kind, set()).add(finding.outcome)
    for kind, outcomes in by_kind.items():
        assert "caught" in outcomes, f"{kind}: {outcomes}"
    certain = ("barrier removed", "release removed", "acquire removed", "store one element on")
    for kind in certain:
        assert by_kind[kind] == {"caught"}
    assert set().union(*by_kind.values()) <= {"caught", "equivalent"}


def test_a_wait_that_another_covers_is_equivalent_and_no_hole() -> None:
    """A second wait behind each first one changes nothing, and so does leaving it out."""
    process = prepare.process(ROOT, OP, ["kernels"])
    bench = bugs.Bench(process, Heads(1, 2), 2)
    try:
        lines = bench.start().splitlines()
        wait = next(
            m for m in bugs.mutants("\n".join(lines), 1, bench.entry_line) if m.kind == bugs.WAIT
        )
        assert bench.judge(wait).outcome == "caught"
        lines.insert(wait.line - 1, "\t" + wait.text)
        bench.spoil("\n".join(lines))
        twice = next(
            m
            for m in bugs.mutants("\n".join(lines), first=wait.line + 1)
            if m.kind == bugs.WAIT and m.line == wait.line + 1
        )
        finding = bench.judge(twice)
        assert finding.outcome == "equivalent"
        assert finding.by.startswith("nothing in flight in ")
    finally:
        bench.close()


def test_deliberate_bugs_are_the_same_in_several_processes() -> None:
    """Races between workgroups among them; 512 waves make two batches."""
    process = prepare.process(ROOT, OP, ["kernels"])
    found = []
    for count in (1, 2, 3):
        bench = bugs.Bench(process, Heads(1, 2), 8, processes=count)
        try:
            chosen = [m for m in bugs.mutants(bench.start(), 1) if m.kind in BETWEEN_WORKGROUPS]
            found.append([(f.mutant.kind, f.outcome, f.by) for f in map(bench.judge, chosen)])
        finally:
            bench.close()
    assert {kind for kind, _, _ in found[0]} == set(BETWEEN_WORKGROUPS)
    assert all(outcome == "caught" for _, outcome, _ in found[0])
    assert found[0] == found[1] == found[2]
