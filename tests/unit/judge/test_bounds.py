"""Derived bounds: no right kernel is outside, whatever its order; a tie moves what it may."""

from __future__ import annotations

import numpy as np
import pytest

from gdn_judge import bounds, compare, generate, truth, twists
from gdn_judge.contract import Heads
from gdn_judge.document import Check
from gdn_judge.numerics import Rounding, bf16_to_float, round_bf16
from gdn_judge.operands import CallOptions
from support import fp32_step, right_draws

SEED = generate.Seed(b"bounds")


@pytest.mark.parametrize("number", range(60))
def test_no_right_kernel_is_accused(number: int) -> None:
    """The short form of `tests/bench/right_draws.py`, which draws 100,000."""
    failed = [check for check in right_draws.judged(SEED, number) if not check.passed]
    assert failed == []


def values(style: fp32_step.Style, number: int) -> dict[str, Check]:
    before = generate.operands(SEED.rng("rough", number), Heads(2, 4), 8, slots=9)
    right = truth.of(before, CallOptions())
    result = fp32_step.call(before, CallOptions(), style, number)
    return {check.name: check for check in compare.judge(right, result, compare.Rules())}


@pytest.mark.parametrize("number", range(8))
def test_functions_a_hundred_ulps_off_are_seen(number: int) -> None:
    """2 ulps are what fast functions of GPUs err by; pooled distances saw 300 and more."""
    assert all(check.passed for check in values(fp32_step.Style(ulps=2), number).values())
    rough = values(fp32_step.Style(ulps=100), number)
    assert not (rough["out_illegal"].passed and rough["ssm_state_worst_of_bound"].passed)


def interval(core: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    ones = np.ones_like(core)
    ends = bounds.out_interval(core, np.full_like(core, error), ones, ones, 1e-6, Rounding.NEAREST)
    low, high = (round_bf16(end, Rounding.NEAREST) for end in ends)
    return low, high


def test_a_tie_of_the_largest_element_moves_the_whole_head_by_its_share() -> None:
    core = np.full((1, 1, 128), 0.125)
    core[0, 0, 0] = 8.28125  # between 8.25 and 8.3125, whose squares differ by 1.5 %
    low, high = interval(core, 1e-7)
    assert (low[0, 0, 0], high[0, 0, 0]) == (11.125, 11.125)  # it dominates its own norm
    norms = [np.sqrt((127 * 0.125**2 + end**2) / 128 + 1e-6) for end in (8.25, 8.3125)]
    right = [round_bf16(np.array(0.125 / norm), Rounding.NEAREST) for norm in norms]
    assert (low[0, 0, 1], high[0, 0, 1]) == (right[1], right[0])
    assert right[0] != right[1]


def test_without_a_tie_every_element_is_decided() -> None:
    core = np.full((1, 1, 128), 0.125)
    core[0, 0, 0] = 8.26
    low, high = interval(core, 1e-7)
    assert (low == high).all()


def test_an_element_of_a_core_that_may_be_either_sign_may_be_zero() -> None:
    core = np.full((1, 1, 128), 1.0)
    core[0, 0, 5] = 1e-9
    low, high = interval(core, 1e-6)
    assert low[0, 0, 5] < 0 < high[0, 0, 5]


@pytest.mark.parametrize("twist", ["", *twists._WAYS])
def test_bounds_are_finite_wherever_the_reference_is(twist: str) -> None:
    """A bound that is not a number would let anything through, or nothing."""
    before = generate.operands(SEED.rng(twist), Heads(2, 4), 2, slots=4)
    right = truth.of(twists.apply(twist, before, SEED.rng(twist, "at")), CallOptions())
    finite = np.isfinite(bf16_to_float(right.expected.out))
    for end in (right.limits.out_low, right.limits.out_high):
        assert np.isfinite(bf16_to_float(end)[finite]).all()
    for row, slot in enumerate(right.before.ssm_state_indices):
        state = right.after.pool("ssm_state")[slot]
        limit = right.limits.state.at(row, right.before.pool("ssm_state")[slot], state)
        assert np.isfinite(limit[np.isfinite(state)]).all()
        assert (limit[np.isfinite(state)] > 0).all()


def test_the_reference_lies_within_its_own_bounds() -> None:
    right = truth.of(generate.operands(SEED.rng("own"), Heads(2, 4), 6, slots=8), CallOptions())
    out = bf16_to_float(right.expected.out)
    assert (bf16_to_float(right.limits.out_low) <= out).all()
    assert (out <= bf16_to_float(right.limits.out_high)).all()


def test_a_state_that_drifts_is_seen_over_many_steps() -> None:
    """bfloat16 states drift to 1e-2 over 64 steps."""
    pools = generate.operands(SEED.rng("drift"), Heads(1, 2), 2, slots=2)
    live = pools.ssm_state_indices
    assert compare.drift(pools, pools, live).passed
    rounded = pools.replace(
        ssm_state=round_bf16(pools.ssm_state.astype(np.float64), Rounding.NEAREST).astype(
            np.float32
        )
    )
    check = compare.drift(rounded, pools, live)
    assert not check.passed
    assert check.value == pytest.approx(1.7e-3, rel=0.1)
