"""Where N identical steps take a slot: the reference's first steps, then a closed form.

With constant inputs the convolution window is constant from the fourth step on,
and S' = d*S*(I - beta*k k^T) + beta*v k^T has the solution

    S_N = d^N * S_perp + (S_N k) k^T / |k|^2
    S_N k = l^N * (S_0 k) + beta*|k|^2 * v * (1 - l^N) / (1 - l),  l = d*(1 - beta*|k|^2)

where S_perp is the part of S_0 that k does not see. A replay that was left out
shows in S_perp by 1 - d.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gdn_judge import numerics, reference
from gdn_judge.numerics import Bf16, Float, Rounding
from gdn_judge.operands import CallOptions, Operands

_ITERATED = 3  # until the window holds the constant input alone


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """After N steps, per row: state [T, VH, V, K], window [T, C, W-1], out [T, VH, V].

    `step_size` [T, VH] is 1 - d: what one step more or less changes in S_perp.
    """

    state: Float
    window: Bf16
    out: Bf16
    k: Float
    step_size: Float


def after(operands: Operands, options: CallOptions, steps: int) -> Fixed:
    """`steps` >= 4 identical steps of every row of `operands`, whose slots are 0..T-1."""
    rows = np.arange(operands.rows)
    window, state = operands.pool("conv_state").copy(), operands.pool("ssm_state").copy()
    with np.errstate(all="ignore"):
        for _ in range(_ITERATED):
            side = reference.front(operands, options, rows, window)
            state = reference.recur(side, state).state
            window = side.window
        side = reference.front(operands, options, rows, window)
        final = _closed_form(side, state.astype(np.float64), steps - _ITERATED)
        core = numerics.round_bf16(np.matmul(final, side.q[..., None])[..., 0], Rounding.NEAREST)
        out = reference.gate(core, side.z, operands.norm_weight, options.norm_eps)
    return Fixed(
        state=final,
        window=side.window,
        out=numerics.bf16_nearest(out),
        k=side.k,
        step_size=1 - side.decay,
    )


def hidden_error(got: NDArray[np.float32], fixed: Fixed) -> Float:
    """Relative error of S_perp per row and head, in steps: a step too few gives 1."""
    want, _ = _split(fixed.state, fixed.k)
    have, _ = _split(got.astype(np.float64), fixed.k)
    norm = np.sqrt(np.square(want).sum((-1, -2)))
    error = np.sqrt(np.square(have - want).sum((-1, -2)))
    return np.asarray(error / norm / fixed.step_size, np.float64)


def _split(state: Float, k: Float) -> tuple[Float, Float]:
    """S_perp and S k: what k does not see of the state, and what it reads."""
    seen = np.matmul(state, k[..., None])[..., 0]
    return np.asarray(state - _spread(seen, k), np.float64), seen


def _spread(seen: Float, k: Float) -> Float:
    """(S k) k^T / |k|^2."""
    size = np.square(k).sum(-1)[..., None, None]
    return np.asarray(seen[..., None] * k[..., None, :] / size, np.float64)


def _closed_form(side: reference.Front, state: Float, steps: int) -> Float:
    k, beta, decay = side.k, side.beta[..., None], side.decay[..., None]
    size = np.square(k).sum(-1, keepdims=True)
    hidden, seen = _split(state, k)
    factor = decay * (1 - beta * size)
    power = factor**steps
    seen = power * seen + beta * size * side.v * (1 - power) / (1 - factor)
    return np.asarray(decay[..., None] ** steps * hidden + _spread(seen, k), np.float64)
