"""Operands from a secret seed: every case and every step draws fresh contents.

Inputs hold no rounding ties: where the convolution's output or beta lies within
fp32 error of a place where bfloat16 rounds the other way, the element is drawn
again. So a right kernel with another summation order has the same y and beta,
and the bounds on the state can be tight.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge import bounds
from gdn_judge.contract import PAD_SLOT, Heads, W, operand_shapes
from gdn_judge.numerics import Bf16, Float, bf16_nearest, bf16_to_float
from gdn_judge.operands import Operands
from gdn_judge.reference import split_ba, split_qkvz

GUARD_SLOTS = 2
_REDRAWS = 40
_LEAST_TAP = 1 / 8


@dataclass(frozen=True)
class Seed:
    """The secret; every stream is keyed by its name, so cases do not depend on each other."""

    secret: bytes

    def rng(self, *names: str | int) -> np.random.Generator:
        text = "\0".join(str(name) for name in names).encode()
        digest = hashlib.sha256(self.secret + b"\0" + text).digest()
        return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


STATE_SCALE = {"unit": 1.0, "small": 0.02, "zero": 0.0}
INPUT_SCALE = {"unit": 1.0, "tiny": 1e-3}  # tiny: sums of squares near the norms' eps


def weights(
    rng: np.random.Generator, heads: Heads, inputs: str = "unit"
) -> dict[str, NDArray[Any]]:
    """The layer's weights: magnitudes of a trained layer, decays over the whole of (0, 1).

    The newest tap is never so small that another token would not move a tie away.
    """
    taps = rng.normal(0, 0.5, (heads.channels, W))
    taps[:, -1] += np.copysign(_LEAST_TAP, taps[:, -1])
    return {
        "conv_weight": _bf16(taps),
        "conv_bias": _bf16(rng.normal(0, 0.2 * INPUT_SCALE[inputs], heads.channels)),
        "A_log": np.log(rng.uniform(0.05, 8.0, heads.value)).astype(np.float32),
        "dt_bias": _bf16(rng.uniform(-5.0, 1.0, heads.value)),
        "norm_weight": _bf16(rng.normal(1.0, 0.3, 128)),
    }


def pools(
    rng: np.random.Generator,
    heads: Heads,
    slots: int,
    state: str,
    guard: int = GUARD_SLOTS,
    inputs: str = "unit",
) -> dict[str, NDArray[Any]]:
    """Both pools with guard slots on either side; guards are never zero."""
    count = slots + 2 * guard
    window = rng.standard_normal((count, heads.channels, W - 1), np.float32)
    conv = _bf16(window * np.float32(INPUT_SCALE[inputs]))
    ssm = rng.standard_normal((count, heads.value, 128, 128), np.float32)
    inner = slice(guard, guard + slots)
    ssm[inner] *= np.float32(STATE_SCALE[state])
    if state == "zero":
        conv[inner] = 0
    return {"conv_state": conv, "ssm_state": ssm}


_SPARSE = 3  # live rows of a sparse batch


def slot_vector(
    rng: np.random.Generator, rows: int, slots: int, pads: str, pad_slot_id: int = PAD_SLOT
) -> NDArray[np.int32]:
    """Distinct slots in random order, with pad rows as `pads` says.

    none | first | last | mixed (about a third; at least one row is live) | sparse
    (three rows are live) | all
    """
    usable = np.array([slot for slot in range(slots) if slot != pad_slot_id], np.int32)
    indices = rng.permutation(usable)[:rows].astype(np.int32)
    mask = np.zeros(rows, bool)
    if pads == "all":
        mask[:] = True
    elif pads in ("first", "last") and rows:
        mask[0 if pads == "first" else -1] = True
    elif pads == "mixed" and rows > 1:
        mask = rng.random(rows) < 1 / 3
        pad, live = rng.permutation(rows)[:2]
        mask[pad], mask[live] = True, False
    elif pads == "sparse":
        mask[rng.permutation(rows)[_SPARSE:]] = True
    indices[mask] = pad_slot_id
    return indices


def rows(
    rng: np.random.Generator, base: Operands, indices: NDArray[np.int32], inputs: str = "unit"
) -> Operands:
    """`base` with fresh projections for `indices`, free of rounding ties.

    `base`'s pools give the convolution history and the state.
    """
    count, heads, spread = len(indices), base.heads, INPUT_SCALE[inputs]
    shapes = operand_shapes(heads, count, base.slots)
    fresh = base.replace(
        projected_qkvz=_bf16(rng.normal(0, spread, shapes["projected_qkvz"])),
        projected_ba=_bf16(rng.normal(0, 1.5, shapes["projected_ba"])),
        ssm_state_indices=indices,
    )
    return without_ties(rng, fresh, inputs)


def without_ties(rng: np.random.Generator, operands: Operands, inputs: str = "unit") -> Operands:
    """`operands` with every projection drawn again that leads to a rounding tie.

    Raises RuntimeError where ties remain after many draws; none of the plan's inputs do.
    """
    if not operands.rows:
        return operands
    for _ in range(_REDRAWS):
        qkvz, ba = _tie_columns(operands)
        if not qkvz.any() and not ba.any():
            return operands
        projected_qkvz, projected_ba = operands.projected_qkvz.copy(), operands.projected_ba.copy()
        projected_qkvz[qkvz] = _bf16(rng.normal(0, INPUT_SCALE[inputs], int(qkvz.sum())))
        projected_ba[ba] = _bf16(rng.normal(0, 1.5, int(ba.sum())))
        operands = operands.replace(projected_qkvz=projected_qkvz, projected_ba=projected_ba)
    raise RuntimeError(f"rounding ties remain after {_REDRAWS} draws")


def operands(
    rng: np.random.Generator,
    heads: Heads,
    count: int,
    *,
    slots: int,
    state: str = "unit",
    pads: str = "none",
    pad_slot_id: int = PAD_SLOT,
    guard: int = GUARD_SLOTS,
    inputs: str = "unit",
) -> Operands:
    """A whole set of operands for one call."""
    shapes = operand_shapes(heads, 0, slots)
    base = Operands(
        heads=heads,
        projected_qkvz=np.zeros(shapes["projected_qkvz"], np.uint16),
        projected_ba=np.zeros(shapes["projected_ba"], np.uint16),
        ssm_state_indices=np.zeros(0, np.int32),
        guard=guard,
        **pools(rng, heads, slots, state, guard, inputs),
        **weights(rng, heads, inputs),
    )
    return rows(rng, base, slot_vector(rng, count, slots, pads, pad_slot_id), inputs)


def _tie_columns(operands: Operands) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which elements of projected_qkvz and projected_ba lead to a tie, live or pad alike."""
    heads, indices = operands.heads, operands.ssm_state_indices
    inside = np.where((indices >= 0) & (indices < operands.slots), indices, 0)
    history = operands.pool("conv_state")[inside]
    x, _ = split_qkvz(operands.projected_qkvz, heads)
    b, _ = split_ba(operands.projected_ba, heads)
    channels = _conv_ties(np.concatenate([history, x[..., None]], axis=-1), operands)
    qkvz = _channels_to_columns(channels, heads)
    beta = 1 / (1 + np.exp(-b))
    ties = _near_tie(beta, beta * bounds.sigmoid_error(b))
    ba = np.zeros(operands.projected_ba.shape, bool)
    ba.reshape(len(indices), heads.key, 2, heads.ratio)[:, :, 0] = ties.reshape(
        len(indices), heads.key, heads.ratio
    )
    return qkvz, ba


def _conv_ties(window: Bf16, operands: Operands) -> NDArray[np.bool_]:
    products = _wide(window) * _wide(operands.conv_weight)
    bias = _wide(operands.conv_bias)
    acc = products.sum(axis=-1) + bias
    magnitude = np.abs(products).sum(axis=-1) + np.abs(bias)
    return _near_tie(acc / (1 + np.exp(-acc)), bounds.activation_error(acc, magnitude))


def _near_tie(values: Float, margin: Float) -> NDArray[np.bool_]:
    """Whether fp32 error could change bfloat16 rounding, to nearest or by truncation."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = values - margin, values + margin
        cut = _cut(low) != _cut(high)
    differs = (bf16_nearest(low) != bf16_nearest(high)) | cut
    return np.asarray(differs & np.isfinite(values), bool)


def _cut(values: Float) -> NDArray[np.uint32]:
    return np.right_shift(values.astype(np.float32).view(np.uint32), np.uint32(16))


def _channels_to_columns(channels: NDArray[np.bool_], heads: Heads) -> NDArray[np.bool_]:
    """[T, C] by convolution channel -> [T, KH*(2K+2rV)] by column of projected_qkvz."""
    count, r = len(channels), heads.ratio
    q, k, v = np.split(channels, [heads.key * 128, 2 * heads.key * 128], axis=-1)
    z = np.zeros((count, heads.key, r * 128), bool)
    parts = [part.reshape(count, heads.key, -1) for part in (q, k, v)]
    return np.concatenate([*parts, z], axis=-1).reshape(count, -1)


def _wide(codes: Bf16) -> Float:
    return bf16_to_float(codes).astype(np.float64)


def _bf16(values: NDArray[Any]) -> Bf16:
    return bf16_nearest(np.asarray(values))
