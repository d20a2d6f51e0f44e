"""A candidate whose compiled code has a known erratum is told where, and fails for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gdn_judge import candidate, cli, prepare
from gdn_judge.cases import Scope
from gdn_judge.codeobject import errata, suite
from gdn_judge.codeobject.compiler import Compiler
from gdn_judge.contract import Heads
from gdn_judge.document import Check, DeviceKind, Document, Outcome, Verdict
from gdn_judge.judged import Judged
from gdn_judge.operands import CallOptions
from gdn_judge.session import Session

ROOT = Path(__file__).parents[2]
OPS = ROOT / "tests" / "data" / "emulator"
KERNELS = ROOT / "kernels"
pytestmark = pytest.mark.slow


def judged(
    op: str, device: DeviceKind = DeviceKind.GFX950, sizes: tuple[int, ...] = (17,)
) -> Judged:
    """The last of these cases of the codeobject suite, none of which executes anything."""
    process = candidate.Launch(root=OPS, import_path=f"errata_ops:{op}", python_path=[OPS, KERNELS])
    session = Session(factory=lambda: Compiler(process), device=DeviceKind.GFX950_EMULATED)
    try:
        plan = suite.plan(Scope(device=device, batches=list(sizes), heads=Heads(1, 2)))
        return [suite.judge(planned, session) for planned in plan][-1]
    finally:
        session.drop()


UPDATE = "fused_gluon.py:updated = state + "  # the sum that LLVM packs


def line_of(what: str) -> str:
    """ "file.py:text" as "file.py:number of the line that has it"."""
    name, _, text = what.partition(":")
    (path,) = [path for path in (OPS / name, KERNELS / "gdn_kernels" / name) if path.exists()]
    lines = path.read_text().splitlines()
    return f"{name}:{next(number for number, line in enumerate(lines, 1) if text in line)}"


def only(found: Judged, name: str) -> Check:
    (check,) = [check for check in found.checks if check.name == name]
    return check


@pytest.mark.parametrize(
    ("op", "kernel", "source", "instruction"),
    [
        ("as_before", "fused_decode_gluon_kernel", UPDATE, "op_sel:[0,1,0]"),
        ("by_hand", "assembly_kernel", "errata_ops.py:inline_asm_elementwise", "op_sel:[0,1]"),
    ],
)
def test_the_instruction_and_its_source_line_are_named(
    op: str, kernel: str, source: str, instruction: str
) -> None:
    found = judged(op)
    assert found.outcome is Outcome.FAILED
    (failed,) = [check for check in found.checks if not check.passed]
    assert failed.name == f"known errata of {kernel}"
    assert int(str(failed.value)) >= 1
    assert (failed.relation, failed.bound) == ("<=", 0)
    assert failed.detail.startswith("v_pk_fma_f32 v[")
    text, _, place = failed.detail.partition(" (")
    assert text.endswith(instruction)
    assert place.startswith(f"{line_of(source)}, assembly line ")
    assert place.endswith("https://github.com/ROCm/rocMLIR/pull/2459")


@pytest.mark.parametrize("op", ["as_it_is", "by_hand_plain"])
def test_the_right_controls_pass(op: str) -> None:
    found = judged(op)
    assert found.outcome is Outcome.PASSED
    assert only(found, f"known errata of {found.kernels[0]}").value == 0


def test_what_is_not_known_to_corrupt_is_told() -> None:
    found = judged("by_hand_other")
    assert found.outcome is Outcome.PASSED
    told = only(found, "told errata of assembly_kernel")
    assert told.relation == "measured"
    assert "op_sel:[1,0,0] (errata_ops.py:" in str(told.value)


def test_another_chip_has_another_table() -> None:
    assert judged("as_before", DeviceKind.SM90).outcome is Outcome.PASSED


@pytest.mark.parametrize("sizes", [(17,), (17, 18)])
def test_a_kernel_that_cannot_be_parsed_is_searched(sizes: tuple[int, ...]) -> None:
    """Also in a later case, when its code has been handed over already."""
    found = judged("by_hand_unreadable", sizes=sizes)
    assert found.outcome is Outcome.FAILED
    assert "op_sel:[0,1,0] (errata_ops.py:" in only(found, "known errata of assembly_kernel").detail
    assert "'[v0]' is not understood" in str(only(found, "not judged").value)


def test_verdict_and_listing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = ["--target", str(OPS), "--python-path", "."]
    for op, verdict, errors in (
        ("by_hand", Verdict.FAILED, 1),
        ("by_hand_plain", Verdict.PASSED, 0),
        ("by_hand_unreadable_plain", Verdict.INCONCLUSIVE, None),
    ):
        out, named = tmp_path / f"{op}.json", ["--import-path", f"errata_ops:{op}"]
        words = ["run", *target, *named, "--suite", "codeobject", "--device", "gfx950-emulated"]
        words += ["--heads", "1x2", "--batch-sizes", "3", "--out", str(out)]
        assert cli.main(words) == (0 if verdict is Verdict.PASSED else 1)
        document = Document.from_json(out.read_text())
        assert document.verdict is verdict, document.reason
        assert ("known errata of assembly_kernel is 1" in document.reason) is bool(errors)
        if errors is None:
            continue
        capsys.readouterr()
        words = ["codeobject", *target, *named, "--heads", "1x2", "--batch-sizes", "3", "--json"]
        assert cli.main(words) == 0
        (row,) = json.loads(capsys.readouterr().out)["kernels"]
        assert row["errata"] == errors


@pytest.mark.parametrize("op", ["chain:unfused_gdn_decode_qkvz", "op:fused_gdn_decode_qkvz"])
def test_no_kernel_of_this_repository_has_one_as_it_is_launched(op: str) -> None:
    """With the options of real launches: all head counts, with and without FP8.

    The chain is compiled with packed fp32, and comes without the form.
    """
    compiler = Compiler(prepare.process(KERNELS, f"gdn_kernels.{op}", ["."]))
    seen = set()
    try:
        compiler.start()
        for key_heads in (1, 2, 4, 8, 16):
            for fp8 in (True, False):
                heads = Heads(key_heads, 2 * key_heads)
                options = CallOptions(fp8=fp8)
                for event, code in compiler.compiled("gfx950", heads, 8, options, 300.0):
                    seen.add(code.name)
                    assert list(map(str, errata.find("gfx950", code.assembly))) == [], event
    finally:
        compiler.close()
    chain = {"split_kernel", "convolve_kernel", "recur_kernel", "norm_kernel", "quantise_kernel"}
    assert seen == (chain if op.startswith("chain") else {"fused_decode_gluon_kernel"})
