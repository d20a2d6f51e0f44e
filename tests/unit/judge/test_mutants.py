"""Every way to get the step wrong is rejected by the judge's bounds.

The right control is the same op without a fault. The last tests show what the
usual bound, atol = rtol = 0.05 on out alone, would have let through.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from gdn_judge import compare, generate, reference, truth
from gdn_judge.contract import Heads
from gdn_judge.document import Check
from gdn_judge.numerics import bf16_to_float
from gdn_judge.operands import CallOptions, Operands
from gdn_judge.truth import Truth
from support import local_call, plain_op

SEED = generate.Seed(b"mutants")
CASES = {
    "unit": {"heads": Heads(2, 4), "count": 9, "state": "unit", "pads": "mixed"},
    "small": {"heads": Heads(2, 4), "count": 8, "state": "small", "pads": "none"},
    "zero": {"heads": Heads(1, 2), "count": 4, "state": "zero", "pads": "none"},
    "tiny": {"heads": Heads(1, 2), "count": 8, "state": "unit", "pads": "none", "inputs": "tiny"},
}
# What a bound of 0.05 on out alone does not see in any of the cases above.
HIDDEN_FROM_OUT = {
    "bf16_products",
    "bf16_state",
    "beta_fp32",
    "core_fp32",
    "fp8_truncated",
    "history_after_silu",
    "history_not_written",
    "l2_eps_1e5",
    "l2_eps_outside",
    "norm_rounded",
    "off_by_one_slot",
    "scale_per_row",
    "scales_zero",
    "state_not_written",
    "y_fp32",
}


@functools.cache
def right(name: str) -> Truth:
    case = CASES[name]
    rng = SEED.rng(name)
    count = case["count"]
    before = generate.operands(rng, slots=count + 3, **case)  # type: ignore[arg-type]
    return truth.of(before, CallOptions(fp8=True))


def checks(name: str, fault: str) -> list[Check]:
    op = functools.partial(plain_op.fused_gdn_decode_qkvz, fault=fault)
    result = local_call.call(op, right(name).before, right(name).options)
    return compare.judge(right(name), result, compare.Rules())


def out_is_close(name: str, fault: str) -> bool:
    op = functools.partial(plain_op.fused_gdn_decode_qkvz, fault=fault)
    result = local_call.call(op, right(name).before, right(name).options).results["out"]
    want = right(name).expected.out
    assert result is not None
    if result.dtype != np.uint16 or result.shape != want.shape:
        return False
    return np.allclose(bf16_to_float(result), bf16_to_float(want), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", CASES)
def test_right_control_passes_with_room(name: str) -> None:
    results = {check.name: check for check in checks(name, "")}
    assert [check for check in results.values() if not check.passed] == []
    assert results["ssm_state_rel_l2"].value < 2e-6  # type: ignore[operator]
    assert results["out_exact"].value > 0.99  # type: ignore[operator]


@pytest.mark.parametrize("fault", plain_op.FAULTS)
def test_each_fault_is_rejected(fault: str) -> None:
    failed = {
        name: [check.name for check in checks(name, fault) if not check.passed] for name in CASES
    }
    assert any(failed.values()), f"{fault}: {plain_op.FAULTS[fault]}"


def test_what_the_usual_bound_would_let_through() -> None:
    hidden = {
        fault for fault in plain_op.FAULTS if all(out_is_close(name, fault) for name in CASES)
    }
    assert hidden == HIDDEN_FROM_OUT


@pytest.mark.parametrize("fault", ["no_scale", "no_q_norm", "scales_zero"])
def test_the_norm_hides_factors_of_core(fault: str) -> None:
    """Where states are long-lived the usual bound passes a missing scale and a missing q norm."""
    before = right("unit").before
    slow = before.replace(A_log=np.full_like(before.A_log, -4.0))
    options = CallOptions(fp8=True)
    expected = reference.step(slow.copy(), options)
    op = functools.partial(plain_op.fused_gdn_decode_qkvz, fault=fault)
    out = local_call.call(op, slow, options).results["out"]
    assert out is not None
    assert np.allclose(bf16_to_float(out), bf16_to_float(expected.out), rtol=0.05, atol=0.05)


def test_operands_hold_no_rounding_ties() -> None:
    operands: Operands = right("unit").before
    qkvz, ba = generate._tie_columns(operands)
    assert not qkvz.any()
    assert not ba.any()
