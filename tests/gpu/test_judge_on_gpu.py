"""The judge's suites against the project's own op on a CUDA device, and attacks on its timing."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device; this machine has none", allow_module_level=True)

from gdn_judge.document import Case, Document, Outcome  # noqa: E402
from gdn_kernels import fused_gdn_decode_qkvz  # noqa: E402
from gdn_kernels.chain import unfused_gdn_decode_qkvz  # noqa: E402
from support import hand_cases  # noqa: E402

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
CANDIDATES = sorted((Path(__file__).parent / "candidates").glob("*.py"))
RUN = list(hand_cases.by_mode("right", "refuse_or_right", "refuse"))
OP = "gdn_kernels:fused_gdn_decode_qkvz"
CHAIN = "gdn_kernels.chain:unfused_gdn_decode_qkvz"


def judge(tmp_path: Path, *arguments: str, target: Path = ROOT, op: str = OP) -> Document:
    out = tmp_path / "verdict.json"
    command = [sys.executable, "-m", "gdn_judge", "run", "--target", str(target)]
    command += ["--import-path", op, "--device", "sm90", "--quick", "--out", str(out), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "service")}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=550)
    assert out.exists(), ended.stderr
    return Document.from_json(out.read_text())


def failures(document: Document) -> str:
    bad = [f"{c.id}: {c.reason}" for c in document.cases if c.outcome is not Outcome.PASSED]
    return "\n".join([document.reason, *bad, document.log_tail[-3000:]])


@pytest.mark.parametrize("case", RUN, ids=lambda case: case["id"])
def test_fused_op_on_the_hand_checked_cases(case: dict[str, Any]) -> None:
    hand_cases.outcome(case, fused_gdn_decode_qkvz, "cuda")


@pytest.mark.parametrize(
    "case", [case for case in RUN if "sparse" not in case], ids=lambda case: case["id"]
)
def test_chain_on_the_hand_checked_cases(case: dict[str, Any]) -> None:
    hand_cases.outcome(case, unfused_gdn_decode_qkvz, "cuda")


def test_correctness(tmp_path: Path) -> None:
    document = judge(tmp_path, "--python-path", "kernels", "--suite", "correctness")
    assert document.verdict.value == "passed", failures(document)
    assert document.kernel_digest is not None
    values = {
        check.name: check.value
        for case in document.cases
        if case.id.endswith("T129-unit-fp8")
        for check in case.checks
    }
    assert 0 < values["ssm_state_rel_l2"] < 1.3e-5  # type: ignore[operator]
    assert values["out_exact"] > 0.987  # type: ignore[operator]


def test_determinism_and_invariance(tmp_path: Path) -> None:
    document = judge(tmp_path, "--python-path", "kernels", "--suite", "determinism")
    assert document.verdict.value == "passed", failures(document)
    for case in document.cases:
        measured = {check.name: check.value for check in case.checks}
        assert measured.get("rows_changed_by_permutation", 0) == 0, case.id


def test_roofline(tmp_path: Path) -> None:
    document = judge(
        tmp_path,
        "--python-path",
        "kernels",
        "--suite",
        "roofline",
        "--chain",
        CHAIN,
        "--batch-sizes",
        "1,256",
    )
    assert document.verdict.value == "passed", failures(document)
    small, large = (case for case in document.cases if case.params["fp8"])
    for case in (small, large):
        fused = _named(case, "fused")
        assert len(fused.samples) >= 20
        assert fused.median is not None
        assert fused.calls_per_sample is not None
        assert fused.median * fused.calls_per_sample >= 100
        assert case.ratios["chain_over_fused"] > 1
        assert len(case.kernels) == 1
        assert _named(case, "host_call").median is not None
    assert _named(small, "fused").regime == "latency"
    assert _named(large, "fused").regime == "bandwidth"
    assert 50 < (_named(large, "fused").percent_of_rmw_ceiling or 0) < 104
    names = {ceiling.name for ceiling in document.ceilings}
    assert {"rmw_ceiling before", "copy_ceiling after", "launch_floor before"} <= names


def _named(case: Case, name: str) -> Any:
    return next(m for m in case.measurements if m.name == name)


@pytest.mark.parametrize("path", CANDIDATES, ids=lambda path: path.stem)
def test_attacks_on_the_timing(path: Path, tmp_path: Path) -> None:
    tree = ast.parse(path.read_text()).body
    expected = next(
        ast.literal_eval(node.value)
        for node in tree
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EXPECT"
    )
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "kernels" / "gdn_kernels", checkout / "gdn_kernels")
    shutil.copy(path, checkout / "target_op.py")
    document = judge(
        tmp_path,
        "--suite",
        "roofline",
        "--batch-sizes",
        "64",
        target=checkout,
        op="target_op:fused_gdn_decode_qkvz",
    )
    failed = {c.name for case in document.cases for c in case.checks if not c.passed}
    assert document.verdict.value == expected["verdict"], failures(document)
    assert expected["check"] in failed
