"""Non-finite and extreme inputs: each spoils one row or one head of a good draw."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gdn_judge.contract import K, V, W
from gdn_judge.numerics import bf16_nearest
from gdn_judge.operands import Operands

_NAN, _INF, _MINUS_INF = 0x7FC0, 0x7F80, 0xFF80  # bfloat16 codes
RATE_DECLARATION = "infinite_rate"  # declaration of a target that gives NaN for inf * 0


def apply(twist: str, operands: Operands, rng: np.random.Generator) -> Operands:
    """A copy of `operands` with the twist done; "" changes nothing."""
    if not twist:
        return operands
    spoiled = operands.copy()
    _WAYS[twist](spoiled, rng)
    return spoiled


def _projection(code: int, part: str) -> Callable[[Operands, np.random.Generator], None]:
    def spoil(operands: Operands, rng: np.random.Generator) -> None:
        heads = operands.heads
        start = {"q": 0, "k": K, "v": 2 * K, "z": 2 * K + heads.ratio * V}[part]
        group = int(rng.integers(heads.key)) * heads.group_width
        operands.projected_qkvz[0, group + start + int(rng.integers(K))] = code

    return spoil


def _inf_v(operands: Operands, rng: np.random.Generator) -> None:
    """An infinity whose convolution is +inf; that of the other sign is NaN, as nan-v has it."""
    heads = operands.heads
    group, at = int(rng.integers(heads.key)), int(rng.integers(heads.ratio * V))
    channel = 2 * heads.key * K + group * heads.ratio * V + at
    negative = operands.conv_weight[channel, W - 1] & 0x8000
    code = _MINUS_INF if negative else _INF
    operands.projected_qkvz[0, group * heads.group_width + 2 * K + at] = code


def _ba(value: float, part: int) -> Callable[[Operands, np.random.Generator], None]:
    def spoil(operands: Operands, rng: np.random.Generator) -> None:
        heads = operands.heads
        rows = operands.projected_ba.reshape(operands.rows, heads.key, 2, heads.ratio)
        rows[0, int(rng.integers(heads.key)), part, 0] = bf16_nearest(np.array(value))

    return spoil


def _nan_state(operands: Operands, rng: np.random.Generator) -> None:
    slot = operands.ssm_state_indices[0]
    at = (int(rng.integers(operands.heads.value)), int(rng.integers(V)), int(rng.integers(K)))
    operands.pool("ssm_state")[(slot, *at)] = np.nan


def _rate_overflow(operands: Operands, rng: np.random.Generator) -> None:
    """exp(A_log) is infinite in fp32 and softplus is not 0: the state is forgotten."""
    operands.A_log[0] = 200.0
    operands.dt_bias[0] = bf16_nearest(np.array(0.5))


def _rate_overflow_softplus_zero(operands: Operands, rng: np.random.Generator) -> None:
    """exp(A_log) is infinite and softplus is exactly 0: the state is kept."""
    operands.A_log[0] = 200.0
    operands.dt_bias[0] = bf16_nearest(np.array(-300.0))


def _zero_inputs(operands: Operands, rng: np.random.Generator) -> None:
    """Nothing to convolve: q and k are zero vectors, and only eps is under the root."""
    operands.projected_qkvz[0] = 0
    operands.conv_bias[:] = 0
    operands.pool("conv_state")[operands.ssm_state_indices[0]] = 0


_WAYS: dict[str, Callable[[Operands, np.random.Generator], None]] = {
    "nan-q": _projection(_NAN, "q"),
    "nan-v": _projection(_NAN, "v"),
    "nan-z": _projection(_NAN, "z"),
    "inf-z": _projection(_INF, "z"),
    "minus-inf-z": _projection(_MINUS_INF, "z"),
    "inf-v": _inf_v,
    "nan-a": _ba(np.nan, 1),
    "nan-b": _ba(np.nan, 0),
    "huge-a": _ba(3e38, 1),
    "nan-state": _nan_state,
    "rate-overflow": _rate_overflow,
    "rate-overflow-softplus-zero": _rate_overflow_softplus_zero,
    "zero-inputs": _zero_inputs,
}
