"""The step in fp32 with the sums in a chosen order: right kernels, as many as one likes.

Every operation rounds to fp32 on its own, or contracts a product into a sum; exponentials,
roots and quotients err by some ulps more, drawn anew for each value, as the fast ones of
GPUs do. What differs from kernel to kernel is a `Style`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.contract import K, V
from gdn_judge.numerics import bf16_nearest, bf16_to_float, quantise
from gdn_judge.operands import CallOptions, CallResult, Operands, TensorForm

Single = NDArray[np.float32]
F = np.float32
U = 2.0**-24

ORDERS: dict[str, Callable[[np.random.Generator], list[NDArray[np.intp]]]] = {
    "sequential": lambda rng: [np.arange(128)],
    "reversed": lambda rng: [np.arange(128)[::-1]],
    "shuffled": lambda rng: [rng.permutation(128)],
    "32 lanes of 4": lambda rng: list(np.arange(128).reshape(32, 4)),
    "8 lanes of 16": lambda rng: list(np.arange(128).reshape(16, 8).T),
    "tree": lambda rng: list(np.arange(128).reshape(128, 1)),
    "tree, shuffled": lambda rng: list(rng.permutation(128).reshape(128, 1)),
}
"""Lists of lanes: each lane adds its elements in turn, then the lanes are added as a tree."""


@dataclass(frozen=True)
class Style:
    """How one right kernel computes. `ulps`: what its functions err by at most."""

    order: str = "tree"
    contracts: bool = True  # products into sums, as fused multiply-adds
    algebra: str = "fused"  # core as D q + residual (k q), or "chain": from the new state
    decay: str = "state"  # scales the state before it is summed, or the "sums"
    ulps: float = 2.0


class Machine:
    """fp32 arithmetic of one style."""

    def __init__(self, style: Style, rng: np.random.Generator) -> None:
        self.style, self.rng = style, rng
        self.lanes = ORDERS[style.order](rng)

    def dot(self, a: NDArray[Any], b: NDArray[Any]) -> Single:
        """sum(a*b) over the last axis, of 128."""
        return self._tree([self._lane(a, b, lane) for lane in self.lanes])

    def _lane(self, a: NDArray[Any], b: NDArray[Any], lane: NDArray[np.intp]) -> Single:
        total = (a[..., lane[0]] * b[..., lane[0]]).astype(F)
        for i in lane[1:]:
            total = self.multiply_add(a[..., i], b[..., i], total)
        return total

    def _tree(self, parts: list[Single]) -> Single:
        while len(parts) > 1:
            half = len(parts) // 2
            rest = parts[2 * half :]
            parts = [x + y for x, y in zip(parts[:half], parts[half : 2 * half], strict=True)]
            parts += rest
        return parts[0]

    def multiply_add(self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> Single:
        if not self.style.contracts:
            return a * b + c
        wide: Single = (a.astype(np.float64) * b + c).astype(F)
        return wide

    def rough(self, values: NDArray[Any]) -> Single:
        """`values` as a function of a GPU gives them: some ulps off."""
        noise = self.rng.uniform(-2, 2, values.shape) * self.style.ulps * U
        found: Single = (values.astype(np.float64) * (1 + noise)).astype(F)
        return found

    def exp(self, x: NDArray[Any]) -> Single:
        """By powers of two, whose argument is rounded."""
        return self.rough(np.exp2((x * F(1.4426950408889634)).astype(np.float64)))

    def sigmoid(self, x: NDArray[Any]) -> Single:
        return self.rough(F(1) / (F(1) + self.exp(-x)))

    def log(self, x: NDArray[Any]) -> Single:
        """With an absolute error where the argument is near 1, as lg2.approx has."""
        base = np.log2(x.astype(np.float64)) + self.rng.uniform(-1, 1, x.shape) * 2.0**-23
        found: Single = (base.astype(F) * F(0.6931471805599453)).astype(F)
        return found

    def rsqrt(self, x: NDArray[Any]) -> Single:
        return self.rough(1 / np.sqrt(x.astype(np.float64)))


def call(operands: Operands, options: CallOptions, style: Style, seed: int = 0) -> CallResult:
    """The whole call; results and pools as a candidate's process sends them back."""
    m = Machine(style, np.random.default_rng(seed))
    after = operands.copy()
    out = np.zeros((operands.rows, operands.heads.value, V), np.uint16)
    live = operands.live_rows(options.pad_slot_id)
    with np.errstate(all="ignore"):
        out[live] = _live_rows(m, after, options, live)
    codes, scales = quantise(out) if options.fp8 else (None, None)
    results = {
        "out": out,
        "quantized": None if codes is None else codes.reshape(len(out), -1),
        "scales": scales,
    }
    dtypes = {"out": "bfloat16", "quantized": "float8_e4m3fn", "scales": "float32"}
    forms = {
        name: TensorForm.of_none()
        if value is None
        else TensorForm(dtype=dtypes[name], shape=value.shape)
        for name, value in results.items()
    }
    return CallResult(forms=forms, results=results, after=after.arrays())


def _live_rows(
    m: Machine, after: Operands, options: CallOptions, live: NDArray[np.intp]
) -> NDArray[np.uint16]:
    heads, slots = after.heads, after.ssm_state_indices[live]
    groups = after.projected_qkvz[live].reshape(len(live), heads.key, heads.group_width)
    parts = np.split(groups, [K, 2 * K, 2 * K + heads.ratio * V], axis=-1)
    x = np.concatenate([part.reshape(len(live), -1) for part in parts[:3]], axis=-1)
    z = bf16_to_float(parts[3]).reshape(len(live), heads.value, V)
    y_q, y_k, y_v = _convolve(m, after, x, slots)
    q = np.repeat(_normalise(m, y_q) * F(options.scale), heads.ratio, axis=1)
    k = np.repeat(_normalise(m, y_k), heads.ratio, axis=1)
    ba = bf16_to_float(after.projected_ba[live]).reshape(len(live), heads.key, 2, heads.ratio)
    b, a = (ba[:, :, i].reshape(len(live), heads.value) for i in (0, 1))
    beta = bf16_to_float(bf16_nearest(m.sigmoid(b)))
    core = _delta(m, after.pool("ssm_state"), slots, (q, k, y_v), _decay(m, a, after), beta)
    return _gate(m, core, z, bf16_to_float(after.norm_weight), options.norm_eps)


def _convolve(
    m: Machine, after: Operands, x: NDArray[np.uint16], slots: NDArray[np.int32]
) -> tuple[Single, Single, Single]:
    heads, conv = after.heads, after.pool("conv_state")
    window = np.concatenate([conv[slots], x[..., None]], axis=-1)
    conv[slots] = window[..., 1:]
    taps, acc = bf16_to_float(after.conv_weight), bf16_to_float(after.conv_bias)[None]
    values = bf16_to_float(window)
    for tap in m.rng.permutation(4):
        acc = m.multiply_add(values[..., tap], taps[None, :, tap], acc)
    y = bf16_to_float(bf16_nearest(acc * m.sigmoid(acc)))
    q, k, v = np.split(y, [heads.key * K, 2 * heads.key * K], axis=-1)
    shapes = (heads.key, heads.key, heads.value)
    found = [part.reshape(len(x), n, 128) for part, n in zip((q, k, v), shapes, strict=True)]
    return found[0], found[1], found[2]


def _normalise(m: Machine, y: Single) -> Single:
    return y * m.rsqrt(m.dot(y, y) + F(1e-6))[..., None]


def _decay(m: Machine, a: Single, operands: Operands) -> Single:
    u = a + bf16_to_float(operands.dt_bias)
    softplus = np.where(u > 20, u, m.log(F(1) + m.exp(np.minimum(u, F(20)))))
    return m.exp(-(m.exp(operands.A_log) * softplus))


def _delta(
    m: Machine,
    pool: NDArray[Any],
    slots: NDArray[np.int32],
    qkv: tuple[Single, Single, Single],
    decay: Single,
    beta: Single,
) -> Single:
    q, k, v = qkv
    state, scale = pool[slots], decay[..., None]
    late = m.style.decay == "sums"
    decayed = state * scale[..., None]
    summed = state if late else decayed
    seen = m.dot(summed, k[..., None, :]) * (scale if late else F(1))
    residual = (v - seen) * beta[..., None]
    new = m.multiply_add(residual[..., None], k[..., None, :], decayed)
    pool[slots] = new
    if m.style.algebra == "chain":
        return bf16_to_float(bf16_nearest(m.dot(new, q[..., None, :])))
    read = m.dot(summed, q[..., None, :]) * (scale if late else F(1))
    core = m.multiply_add(residual, m.dot(k, q)[..., None], read)
    return bf16_to_float(bf16_nearest(core))


def _gate(
    m: Machine, core: Single, z: Single, weight: Single, norm_eps: float
) -> NDArray[np.uint16]:
    mean = m.dot(core, core) * F(1 / V)
    normed = core * m.rsqrt(mean + F(norm_eps))[..., None] * weight
    return bf16_nearest(normed * (z * m.sigmoid(z)))


def styles() -> list[Style]:
    """Every order with every algebra, contracted and not."""
    return [
        Style(order, contracts, algebra, decay)
        for order in ORDERS
        for contracts in (True, False)
        for algebra in ("fused", "chain")
        for decay in ("state", "sums")
    ]
