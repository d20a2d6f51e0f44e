"""Hold what came back from a call against the reference, check by check.

Every value is measured over the live rows of the case. State and out are held to the
bounds that `truth` derives for each element; the pooled distances beside them are for the
reader. Formats: bfloat16 as uint16, FP8 as uint8.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.contract import (
    DRIFT_REL_L2,
    FP8_ZERO_SCALE,
    OPERANDS,
    OUT_EXACT,
    POOLED_FROM,
    POOLS,
    RESULT_DTYPES,
    RESULTS,
    V,
    result_shapes,
)
from gdn_judge.document import Check
from gdn_judge.numerics import Rounding, bf16_to_float, e4m3_to_float, quantise
from gdn_judge.operands import Array, CallResult, Operands
from gdn_judge.truth import Truth

PAD_OUTPUT = "pad_output"  # declaration: what pad rows hold
NONFINITE_CODES = "nonfinite_codes"  # declaration: FP8 codes of NaN and infinity
UNSPECIFIED = "unspecified"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the target declared, and which e4m3 casts count as exact."""

    declarations: Mapping[str, str] = field(default_factory=dict)
    casts: Sequence[Rounding] = (Rounding.NEAREST,)


def judge(truth: Truth, result: CallResult, rules: Rules) -> list[Check]:
    """All checks of one call. A wrong form ends the list, since nothing else can be read."""
    checks = [form(truth, result)]
    if not checks[0].passed:
        return checks
    live = truth.before.live_rows(truth.options.pad_slot_id)
    checks += [inputs(truth, result), untouched(truth, result, live)]
    checks += [guards(truth, result)] if truth.before.guard else []
    if live.size:
        checks += live_pools(truth, result, live)
        checks += live_out(truth, result, live)
    if live.size < truth.before.rows and rules.declarations.get(PAD_OUTPUT) != UNSPECIFIED:
        checks.append(pads(truth, result, live))
    if truth.options.fp8:
        checks += quantisation(truth, result, live, rules)
    return checks


def form(truth: Truth, result: CallResult) -> Check:
    """dtype and shape of the three results, exactly; None where there is no quant_dtype."""
    problem = result.form_error or next(_form_problems(truth, result), "")
    return Check(name="form", passed=not problem, relation="holds", detail=problem)


def _form_problems(truth: Truth, result: CallResult) -> Any:
    shapes = result_shapes(truth.before.heads, truth.before.rows)
    for name in RESULTS:
        got = result.forms[name]
        if name != "out" and not truth.options.fp8:
            if got.dtype is not None:
                yield f"{name} should be None without quant_dtype, got {got.dtype} {got.shape}"
        elif (got.dtype, got.shape) != (RESULT_DTYPES[name], shapes[name]):
            yield (
                f"{name} should be {RESULT_DTYPES[name]} {shapes[name]}, "
                f"got {got.dtype} {got.shape}"
            )
        elif result.results.get(name) is None:
            yield f"{name} did not come back"


def inputs(truth: Truth, result: CallResult) -> Check:
    """The eight operands that are not pools keep their bits."""
    changed = [
        name
        for name in OPERANDS
        if name not in POOLS and not _same_bits(truth.before.arrays()[name], result.after[name])
    ]
    return Check(
        name="inputs_changed",
        passed=not changed,
        value=len(changed),
        bound=0,
        detail=", ".join(changed),
    )


def untouched(truth: Truth, result: CallResult, live: NDArray[np.intp]) -> Check:
    """Slots that no live row names keep their bits."""
    mask = np.ones(truth.before.slots, bool)
    mask[truth.before.ssm_state_indices[live]] = False
    bad = np.zeros(truth.before.slots, bool)
    for name in POOLS:
        differs = _differing_slots(truth.before.pool(name), _pool(truth, result, name))
        bad |= differs & mask
    slots = np.flatnonzero(bad)
    detail = f"slots {slots[:8].tolist()}" if slots.size else ""
    return Check(
        name="untouched_slots_changed",
        passed=not slots.size,
        value=int(slots.size),
        bound=0,
        detail=detail,
    )


def guards(truth: Truth, result: CallResult) -> Check:
    """Memory before slot 0 and after the last slot keeps its bits."""
    bad = []
    for name in POOLS:
        before, after, g = truth.before.arrays()[name], result.after[name], truth.before.guard
        for side, part in (("before", slice(0, g)), ("after", slice(len(before) - g, None))):
            if not _same_bits(before[part], after[part]):
                bad.append(f"{name} {side} the pool")
    return Check(
        name="guard_bands_changed", passed=not bad, value=len(bad), bound=0, detail=", ".join(bad)
    )


def live_pools(truth: Truth, result: CallResult, live: NDArray[np.intp]) -> list[Check]:
    """The convolution window bit for bit, each element of the state within its bound."""
    slots = truth.before.ssm_state_indices[live]
    window = _pool(truth, result, "conv_state")[slots]
    right = truth.after.pool("conv_state")[slots]
    wrong = int((window != right).sum())
    state = _pool(truth, result, "ssm_state")[slots]
    want = truth.after.pool("ssm_state")[slots]
    return [
        Check(name="conv_state_wrong", passed=wrong == 0, value=wrong, bound=0),
        _class_check("ssm_state_nonfinite_wrong", state, want),
        _within(truth, state, want, slots),
        _measured("ssm_state_rel_l2", relative_l2(state, want)),
    ]


def drift(got: Operands, want: Operands, live_slots: NDArray[np.int32]) -> Check:
    """How far the states of many steps lie from the reference's own, which began as they did."""
    a, b = got.pool("ssm_state")[live_slots], want.pool("ssm_state")[live_slots]
    value = relative_l2(a, b)
    return Check(
        name="ssm_state_drift",
        passed=value <= DRIFT_REL_L2,
        value=value if math.isfinite(value) else "inf",
        bound=DRIFT_REL_L2,
    )


def _within(truth: Truth, state: Array, want: Array, slots: NDArray[np.int32]) -> Check:
    """The largest error of an element of the live states, in units of its own bound."""
    before, bound = truth.before.pool("ssm_state"), truth.limits.state

    def worst_of(row: int) -> tuple[float, tuple[int, ...]]:
        errors = _errors(state[row], want[row])
        limits = bound.at(row, before[slots[row]], want[row])
        ratio = np.divide(errors, limits, out=np.zeros_like(errors), where=errors > 0)
        at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        return float(ratio[at]), (row, *map(int, at))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        worst, at = max(pool.map(worst_of, range(len(slots))))
    place = f"slot {slots[at[0]]}{list(at[1:])}"
    detail = f"{place} is {state[at]:.9g}, right is {want[at]:.9g}"
    passed = worst <= 1
    return Check(
        name="ssm_state_worst_of_bound",
        passed=passed,
        value=worst,
        bound=1.0,
        detail="" if passed else detail,
    )


def _errors(got: Array, want: Array) -> NDArray[np.float64]:
    """|got - want|, and 0 where either is not finite."""
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - want)
    return np.where(np.isfinite(error), error, 0.0)


def live_out(truth: Truth, result: CallResult, live: NDArray[np.intp]) -> list[Check]:
    got, want = _result(result, "out")[live], truth.expected.out[live]
    exact = float((_bf16_key(got) == _bf16_key(want)).mean())
    a, b = bf16_to_float(got), bf16_to_float(want)
    pooled = got.shape[0] * got.shape[1] >= POOLED_FROM
    return [
        _class_check("out_nonfinite_wrong", a, b),
        _inside(truth, a, b, live),
        Check(
            name="out_exact",
            passed=exact >= OUT_EXACT or not pooled,
            value=exact,
            bound=OUT_EXACT if pooled else None,
            relation=">=" if pooled else "measured",
        ),
        _measured("out_rel_l2", relative_l2(a, b)),
    ]


def _inside(
    truth: Truth, got: NDArray[np.float32], want: NDArray[np.float32], live: NDArray[np.intp]
) -> Check:
    """Elements of out that no right kernel could give."""
    low, high = bf16_to_float(truth.limits.out_low), bf16_to_float(truth.limits.out_high)
    outside = np.isfinite(got) & np.isfinite(want) & ((got < low) | (got > high))
    count, detail = int(outside.sum()), ""
    if count:
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        row, head, v = int(live[at[0]]), at[1], at[2]
        detail = (
            f"out[{row}, {head}, {v}] is {got[at]:g}, right is {want[at]:g}, "
            f"legal from {low[at]:g} to {high[at]:g}"
        )
    return Check(name="out_illegal", passed=not count, value=count, bound=0, detail=detail)


def pads(truth: Truth, result: CallResult, live: NDArray[np.intp]) -> Check:
    """Pad rows are +0, their codes 0, their scale that of an all-zero group."""
    pad = np.setdiff1d(np.arange(truth.before.rows), live)
    wrong = int((_result(result, "out")[pad] != 0).sum())
    if truth.options.fp8:
        wrong += int((_result(result, "quantized")[pad] != 0).sum())
        zero = np.float32(FP8_ZERO_SCALE)
        wrong += int((~np.isclose(_result(result, "scales")[pad], zero, rtol=2e-7, atol=0)).sum())
    return Check(name="pad_rows_wrong", passed=wrong == 0, value=wrong, bound=0)


def quantisation(
    truth: Truth, result: CallResult, live: NDArray[np.intp], rules: Rules
) -> list[Check]:
    """Scales and codes are the exact quantisation of the candidate's own out (live rows)."""
    out = _result(result, "out")[live]
    codes = _result(result, "quantized")[live].reshape(len(live), truth.before.heads.value, V)
    scales = _result(result, "scales")[live]
    counted = np.ones(out.shape, bool)
    if rules.declarations.get(NONFINITE_CODES) == UNSPECIFIED:
        counted = np.isfinite(bf16_to_float(out))
    wrong = np.full(out.shape, True)
    right_scales = quantise(out)[1]
    for cast in rules.casts:
        right, _ = quantise(out, cast)
        a, b = e4m3_to_float(codes), e4m3_to_float(right)
        wrong &= ~((a == b) | (np.isnan(a) & np.isnan(b)))
    bad_scales = int((scales != right_scales).sum())
    bad_codes = int((wrong & counted).sum())
    return [
        Check(name="scales_wrong", passed=bad_scales == 0, value=bad_scales, bound=0),
        Check(name="codes_wrong", passed=bad_codes == 0, value=bad_codes, bound=0),
    ]


def relative_l2(got: NDArray[Any], want: NDArray[Any]) -> float:
    """||got - want|| / ||want|| over the entries finite in both; inf when want is 0 and got is not.

    float64 sums, an axis at a time, so that a pool of gigabytes needs no float64 copy.
    """
    error = norm = 0.0
    for a, b in zip(got, want, strict=True):
        error_part, norm_part = _squares(a, b)
        error, norm = error + error_part, norm + norm_part
    return _ratio(error, norm)


def _squares(got: NDArray[Any], want: NDArray[Any]) -> tuple[float, float]:
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    return float(np.square(a - b).sum()), float(np.square(b).sum())


def _ratio(error: float, norm: float) -> float:
    if error == 0:
        return 0.0
    return math.sqrt(error / norm) if norm else math.inf


def _class_check(name: str, got: NDArray[Any], want: NDArray[Any]) -> Check:
    """NaN and infinities are where they should be, infinities with the right sign."""
    odd = ~(np.isfinite(got) & np.isfinite(want))  # few, in pools of gigabytes
    wrong = int((_nonfinite_class(got[odd]) != _nonfinite_class(want[odd])).sum())
    return Check(name=name, passed=wrong == 0, value=wrong, bound=0)


def _nonfinite_class(values: NDArray[Any]) -> NDArray[np.int8]:
    signs = np.where(np.isinf(values), np.sign(np.nan_to_num(values, posinf=1, neginf=-1)), 0)
    return np.where(np.isnan(values), 2, signs).astype(np.int8)


def _bf16_key(codes: NDArray[Any]) -> NDArray[Any]:
    """Codes with one NaN and one zero, so that equal keys are equal values."""
    magnitude = codes & 0x7FFF
    key = np.where(magnitude > 0x7F80, np.uint16(0x7FC0), codes)
    return np.where(magnitude == 0, np.uint16(0), key)


def _measured(name: str, value: float) -> Check:
    shown = value if math.isfinite(value) else "inf"
    return Check(name=name, passed=True, value=shown, relation="measured")


def _pool(truth: Truth, result: CallResult, name: str) -> Array:
    guard, slots = truth.before.guard, truth.before.slots
    pool: Array = result.after[name][guard : guard + slots]
    return pool


def _result(result: CallResult, name: str) -> Array:
    array = result.results[name]
    assert array is not None, name  # `form` has passed
    return array


def _same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _differing_slots(a: Array, b: Array) -> NDArray[np.bool_]:
    kind = np.dtype(f"u{a.dtype.itemsize}")
    differs = (a.view(kind) != b.view(kind)).reshape(len(a), -1)
    return np.asarray(differs.any(axis=1), bool)
