"""Each check sees what it is for, and nothing else."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest

from gdn_judge import compare, generate, twists
from gdn_judge.contract import Heads
from gdn_judge.numerics import bf16_to_float, quantise
from gdn_judge.operands import CallOptions, CallResult, TensorForm
from gdn_judge.truth import Truth
from gdn_judge.truth import of as step_of
from support import local_call, plain_op

SEED = generate.Seed(b"compare")
OPTIONS = CallOptions(fp8=True)


@pytest.fixture(scope="module")
def truth() -> Truth:
    before = generate.operands(SEED.rng("base"), Heads(2, 4), 5, slots=9, pads="mixed")
    return truth_of(before)


def truth_of(before: generate.Operands) -> Truth:
    return step_of(before, OPTIONS)


@pytest.fixture
def result(truth: Truth) -> CallResult:
    return local_call.call(plain_op.fused_gdn_decode_qkvz, truth.before, OPTIONS)


def failed(truth: Truth, result: CallResult, **declared: str) -> set[str]:
    rules = compare.Rules(declarations=declared)
    return {check.name for check in compare.judge(truth, result, rules) if not check.passed}


def live_slot(truth: Truth) -> int:
    rows = truth.before.live_rows(-1)
    return int(truth.before.ssm_state_indices[rows[0]]) + truth.before.guard


def free_slot(truth: Truth) -> int:
    live = set(truth.before.ssm_state_indices.tolist())
    return next(s for s in range(truth.before.slots) if s not in live) + truth.before.guard


def test_a_right_result_passes(truth: Truth, result: CallResult) -> None:
    assert failed(truth, result) == set()


SPOILS: dict[str, tuple[Callable[[Truth, CallResult], None], set[str]]] = {
    "an untouched slot of the state": (
        lambda t, r: r.after["ssm_state"][free_slot(t)].__setitem__((0, 0, 0), 9.0),
        {"untouched_slots_changed"},
    ),
    "an untouched slot of the window, one bit": (
        lambda t, r: r.after["conv_state"][free_slot(t)].__setitem__((0, 0), 1),
        {"untouched_slots_changed"},
    ),
    "memory before the pool": (
        lambda t, r: r.after["ssm_state"][0].__setitem__((0, 0, 0), 9.0),
        {"guard_bands_changed"},
    ),
    "memory after the pool": (
        lambda t, r: r.after["conv_state"][-1].__setitem__((0, 0), 1),
        {"guard_bands_changed"},
    ),
    "a weight": (
        lambda t, r: r.after["conv_weight"].__setitem__((0, 0), 1),
        {"inputs_changed"},
    ),
    "one element of a live window": (
        lambda t, r: r.after["conv_state"][live_slot(t)].__setitem__((7, 2), 1),
        {"conv_state_wrong"},
    ),
    "a NaN in a live state": (
        lambda t, r: r.after["ssm_state"][live_slot(t)].__setitem__((1, 5, 5), np.nan),
        {"ssm_state_nonfinite_wrong"},
    ),
    "one head's state by a hair": (
        lambda t, r: np.multiply(
            r.after["ssm_state"][live_slot(t), 1],
            np.float32(1.001),
            out=r.after["ssm_state"][live_slot(t), 1],
        ),
        {"ssm_state_worst_of_bound"},
    ),
    "one scale by one ulp": (
        lambda t, r: np.nextafter(
            r.results["scales"][t.before.live_rows(-1)[0]],  # type: ignore[index]
            np.float32(1),
            out=r.results["scales"][t.before.live_rows(-1)[0]],  # type: ignore[index]
        ),
        {"scales_wrong"},
    ),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_spoiled_result_fails_in_the_right_place(
    spoil: str, truth: Truth, result: CallResult
) -> None:
    change, names = SPOILS[spoil]
    change(truth, result)
    assert failed(truth, result) == names


@pytest.mark.parametrize(("right", "close"), [(0x0000, 0x8000), (0x7FC0, 0x7FC1)])
def test_a_live_window_is_held_to_its_bits(
    truth: Truth, result: CallResult, right: int, close: int
) -> None:
    """Zeros of either sign, or two NaN, are equal as values; the history moves bits."""
    slot = live_slot(truth)
    truth = dataclasses.replace(truth, after=truth.after.copy())
    truth.after.conv_state[slot, 7, 2] = right
    result.after["conv_state"][slot, 7, 2] = right
    assert failed(truth, result) == set()
    result.after["conv_state"][slot, 7, 2] = close
    assert failed(truth, result) == {"conv_state_wrong"}


def test_minus_zero_code_is_zero(truth: Truth, result: CallResult) -> None:
    codes = result.results["quantized"]
    assert codes is not None
    live = truth.before.live_rows(-1)
    codes[live] = np.where(codes[live] == 0, 0x80, codes[live])
    assert failed(truth, result) == set()


def test_pad_rows_may_be_declared_unspecified(truth: Truth, result: CallResult) -> None:
    out = result.results["out"]
    assert out is not None
    pad = next(row for row in range(5) if row not in truth.before.live_rows(-1))
    out[pad] = 0x4242
    assert failed(truth, result) == {"pad_rows_wrong"}
    assert failed(truth, result, pad_output="unspecified") == set()


def test_minus_zero_in_a_pad_row_is_wrong(truth: Truth, result: CallResult) -> None:
    out = result.results["out"]
    assert out is not None
    pad = next(row for row in range(5) if row not in truth.before.live_rows(-1))
    out[pad, 0, 0] = 0x8000
    assert failed(truth, result) == {"pad_rows_wrong"}


def test_codes_of_nonfinite_elements_may_be_declared_unspecified() -> None:
    before = generate.operands(SEED.rng("nan"), Heads(1, 2), 2, slots=4)
    truth = truth_of(twists.apply("nan-z", before, SEED.rng("at")))
    result = local_call.call(plain_op.fused_gdn_decode_qkvz, truth.before, OPTIONS)
    codes = result.results["quantized"]
    assert codes is not None
    assert failed(truth, result) == set()
    codes[(codes & 0x7F) == 0x7F] = 0xFE
    assert failed(truth, result) == {"codes_wrong"}
    assert failed(truth, result, nonfinite_codes="unspecified") == set()


@pytest.mark.parametrize("twist", twists._WAYS)
def test_a_right_op_passes_every_twist(twist: str) -> None:
    before = generate.operands(SEED.rng(twist), Heads(2, 4), 2, slots=4)
    truth = truth_of(twists.apply(twist, before, SEED.rng(twist, "at")))
    result = local_call.call(plain_op.fused_gdn_decode_qkvz, truth.before, OPTIONS)
    assert failed(truth, result) == set()


def test_codes_follow_the_candidates_own_out(truth: Truth, result: CallResult) -> None:
    """out within its bounds, but quantised from something else."""
    out, codes = result.results["out"], result.results["quantized"]
    assert out is not None
    assert codes is not None
    live = truth.before.live_rows(-1)
    doubled = quantise(out[live] + np.uint16(8))[0]
    codes[live] = doubled.reshape(len(live), -1)
    assert failed(truth, result) == {"codes_wrong"}


@pytest.mark.parametrize(
    ("forms", "message"),
    [
        ({"out": TensorForm(dtype="float32", shape=(5, 4, 128))}, "out should be bfloat16"),
        ({"out": TensorForm(dtype="bfloat16", shape=(5, 512))}, r"out should be bfloat16 \(5, 4"),
        ({"scales": TensorForm.of_none()}, "scales should be float32"),
    ],
)
def test_form_is_exact(
    forms: dict[str, TensorForm], message: str, truth: Truth, result: CallResult
) -> None:
    wrong = dataclasses.replace(result, forms={**result.forms, **forms})
    check = compare.judge(truth, wrong, compare.Rules())[0]
    assert not check.passed
    assert re.search(message, check.detail)


def test_relative_l2() -> None:
    one = np.ones((2, 3))
    assert compare.relative_l2(one * 1.5, one) == pytest.approx(0.5)
    assert compare.relative_l2(np.zeros((1, 3)), np.zeros((1, 3))) == 0.0
    assert compare.relative_l2(one, np.zeros((2, 3))) == float("inf")


def test_one_wrong_element_of_a_head_shows_in_a_single_row() -> None:
    """One of 128, where too few heads are pooled for a share of exact elements."""
    before = generate.operands(SEED.rng("one element"), Heads(1, 2), 1, slots=2)
    truth = truth_of(before)
    result = local_call.call(plain_op.fused_gdn_decode_qkvz, before, CallOptions(fp8=False))
    truth = dataclasses.replace(truth, options=CallOptions(fp8=False))
    assert failed(truth, result) == set()
    out = result.results["out"]
    assert out is not None
    out[:, 0, np.abs(bf16_to_float(out[0, 0])).argmax()] = 0
    assert failed(truth, result) == {"out_illegal"}
