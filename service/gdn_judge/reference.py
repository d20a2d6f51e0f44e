"""The contract's step in float64, with its rounding points; the judge's truth.

`step` works on numpy operands. `fused_gdn_decode_qkvz` is the op's own signature
on CPU tensors, so that anyone can hold a kernel against it. Written from the
contract alone: it shares no code with any kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gdn_judge import bounds, numerics
from gdn_judge.contract import (
    DTYPES,
    L2_EPS,
    OPERANDS,
    PAD_SLOT,
    SOFTPLUS_THRESHOLD,
    Heads,
    K,
    V,
    W,
    check_indices,
    operand_shapes,
)
from gdn_judge.numerics import Bf16, Float, Fp8, Rounding, Single, bf16_to_float, round_bf16
from gdn_judge.operands import STORAGE, CallOptions, Operands

if TYPE_CHECKING:
    import torch

_FP32_MAX = float(np.finfo(np.float32).max)
T = TypeVar("T")
_ROWS_AT_ONCE = 8  # rows per thread: 8 rows of 32 heads of float64 state are 32 MiB


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Right outputs: out [T, VH, V], and with FP8 the codes [T, VH*V] and scales [T, VH]."""

    out: Bf16
    quantized: Fp8 | None
    scales: Single | None

    @classmethod
    def of(cls, out: Bf16, options: CallOptions, rounding: Rounding) -> Expected:
        """`out` and, where the options ask for it, its quantisation."""
        if not options.fp8:
            return cls(out=out, quantized=None, scales=None)
        codes, scales = numerics.quantise(out, rounding)
        return cls(out=out, quantized=codes.reshape(len(out), out.shape[1] * V), scales=scales)


@dataclass(frozen=True, kw_only=True)
class Front:
    """All that a row contributes before its state is touched, per value head, float64.

    q and k [T, VH, K] (normalised, q scaled), v and z [T, VH, V], decay and beta
    [T, VH]; window [T, C, W-1] is the new convolution history. `decay_error` is what
    the decay of a right fp32 kernel may err by, relative (see `bounds`).
    """

    q: Float
    k: Float
    v: Float
    z: Float
    decay: Float
    decay_error: Float
    beta: Float
    window: Bf16


@dataclass(frozen=True, kw_only=True)
class Recurred:
    """The delta rule's values: S' as it is stored [T, VH, V, K]; the rest [T, VH, V].

    predicted is D k, residual (v - predicted)*beta, core S' q before its rounding.
    """

    state: Single
    predicted: Float
    residual: Float
    core: Float


@dataclass(frozen=True, kw_only=True)
class Stages:
    """A step of some rows from end to end; `before` [T, VH, V, K] is their state as it was."""

    front: Front
    before: Single
    new: Recurred
    out: Bf16


def step(
    operands: Operands, options: CallOptions, rounding: Rounding = Rounding.NEAREST
) -> Expected:
    """One decode step; both pools of `operands` change in place.

    Pad rows give +0, codes 0 and the scale of an all-zero group. Raises
    IllegalIndices where the contract forbids the index vector.
    """
    return step_and_look(operands, options, rounding, lambda stages: None)[0]


def step_and_look(
    operands: Operands, options: CallOptions, rounding: Rounding, look: Callable[[Stages], T]
) -> tuple[Expected, list[T]]:
    """`step`, and what `look` makes of the stages of some live rows at a time, in order."""
    check_indices(operands.ssm_state_indices, operands.slots, options.pad_slot_id)
    out = np.zeros((operands.rows, operands.heads.value, V), np.uint16)
    live = operands.live_rows(options.pad_slot_id)
    chunks = [live[i : i + _ROWS_AT_ONCE] for i in range(0, len(live), _ROWS_AT_ONCE)]
    looked = []

    def work(rows: NDArray[np.intp]) -> tuple[Bf16, T]:
        stages = _live_step(operands, options, rows, rounding)
        return stages.out, look(stages)

    with ThreadPoolExecutor(min(len(chunks), os.cpu_count() or 1) or 1) as pool:
        for rows, (values, found) in zip(chunks, pool.map(work, chunks), strict=True):
            out[rows] = values
            looked.append(found)
    return Expected.of(out, options, rounding), looked


def _live_step(
    operands: Operands, options: CallOptions, rows: NDArray[np.intp], rounding: Rounding
) -> Stages:
    """Step `rows`, none of them a pad; their slots of both pools change in place."""
    slots = operands.ssm_state_indices[rows]
    conv, ssm = operands.pool("conv_state"), operands.pool("ssm_state")
    with np.errstate(all="ignore"):
        side = front(operands, options, rows, conv[slots], rounding)
        before = ssm[slots]
        new = recur(side, before)
        core = round_bf16(new.core, rounding)
        conv[slots] = side.window
        ssm[slots] = new.state
        out = gate(core, side.z, operands.norm_weight, options.norm_eps)
    return Stages(front=side, before=before, new=new, out=numerics.to_bf16(out, rounding))


def front(
    operands: Operands,
    options: CallOptions,
    rows: NDArray[np.intp],
    history: Bf16,
    rounding: Rounding = Rounding.NEAREST,
) -> Front:
    """Split, convolve, normalise. `history` [len(rows), C, W-1] is what the slots hold."""
    heads = operands.heads
    x, z = split_qkvz(operands.projected_qkvz[rows], heads)
    window = np.concatenate([history, x[..., None]], axis=-1)
    y = _silu(_convolve(window, operands.conv_weight, operands.conv_bias))
    y = round_bf16(y, rounding)
    y_q, y_k, y_v = np.split(y, [heads.key * K, 2 * heads.key * K], axis=-1)
    b, a = split_ba(operands.projected_ba[rows], heads)
    decay, decay_error = _decay(a, operands.A_log, operands.dt_bias)
    return Front(
        q=_spread(_l2_normalise(y_q, heads) * options.scale, heads),
        k=_spread(_l2_normalise(y_k, heads), heads),
        v=y_v.reshape(len(rows), heads.value, V),
        z=z,
        decay=decay,
        decay_error=decay_error,
        beta=round_bf16(_sigmoid(b), rounding),
        window=window[..., 1:],
    )


def recur(side: Front, state: Single) -> Recurred:
    """The gated delta rule on states [T, VH, V, K]."""
    decayed = state.astype(np.float64) * side.decay[..., None, None]
    predicted = np.matmul(decayed, side.k[..., None])[..., 0]
    residual = (side.v - predicted) * side.beta[..., None]
    decayed += residual[..., None] * side.k[..., None, :]
    stored = decayed.astype(np.float32)
    core = np.matmul(stored.astype(np.float64), side.q[..., None])[..., 0]
    return Recurred(state=stored, predicted=predicted, residual=residual, core=core)


def gate(core: Float, z: Float, norm_weight: Bf16, norm_eps: float) -> Float:
    """Gated RMSNorm over V of a core that has been rounded; out before its rounding."""
    mean = _overflow(np.square(core).mean(axis=-1, keepdims=True))
    return core / np.sqrt(mean + norm_eps) * gate_factor(z, norm_weight)


def gate_factor(z: Float, norm_weight: Bf16) -> Float:
    """z*sigmoid(z) times the norm's weight, [T, VH, V]."""
    return _silu(z) * bf16_to_float(norm_weight).astype(np.float64)


def split_qkvz(rows: Bf16, heads: Heads) -> tuple[Bf16, Float]:
    """[T, KH*(2K + 2rV)] -> convolution input [T, C] as it is, and z [T, VH, V]."""
    count, r = len(rows), heads.ratio
    groups = rows.reshape(count, heads.key, heads.group_width)
    q, k, v, z = np.split(groups, [K, 2 * K, 2 * K + r * V], axis=-1)
    x = np.concatenate([part.reshape(count, -1) for part in (q, k, v)], axis=-1)
    return x, bf16_to_float(z).astype(np.float64).reshape(count, heads.value, V)


def split_ba(rows: Bf16, heads: Heads) -> tuple[Float, Float]:
    """[T, 2*VH] -> b and a, both [T, VH]: each key head holds [b(r) | a(r)]."""
    count = len(rows)
    groups = bf16_to_float(rows).astype(np.float64).reshape(count, heads.key, 2, heads.ratio)
    return (groups[:, :, 0].reshape(count, -1), groups[:, :, 1].reshape(count, -1))


def _convolve(window: Bf16, weight: Bf16, bias: Bf16) -> Float:
    taps = bf16_to_float(weight).astype(np.float64)
    products = bf16_to_float(window).astype(np.float64) * taps
    return _overflow(products.sum(axis=-1) + bf16_to_float(bias).astype(np.float64))


def _l2_normalise(y: Float, heads: Heads) -> Float:
    y = y.reshape(len(y), heads.key, K)
    return y / np.sqrt(_overflow(np.square(y).sum(axis=-1, keepdims=True)) + L2_EPS)


def _spread(per_key_head: Float, heads: Heads) -> Float:
    return np.repeat(per_key_head, heads.ratio, axis=1)


def _decay(a: Float, a_log: Single, dt_bias: Bf16) -> tuple[Float, Float]:
    """The decay, and the relative error of a right kernel's."""
    u = a + bf16_to_float(dt_bias).astype(np.float64)
    softplus = np.where(u > SOFTPLUS_THRESHOLD, u, np.log1p(np.exp(np.minimum(u, 50.0))))
    softplus = softplus.astype(np.float32).astype(np.float64)  # "exactly 0" is fp32's 0
    log_rate = a_log.astype(np.float64)
    rate = _overflow(np.exp(log_rate))
    exponent = np.where((softplus == 0) & np.isinf(rate), 0.0, rate * softplus)
    return np.exp(-exponent), bounds.decay_error(log_rate, rate, u, softplus)


def _sigmoid(x: Float) -> Float:
    return 1 / (1 + np.exp(-x))


def _silu(x: Float) -> Float:
    """x*sigmoid(x); -inf gives NaN, as the product -inf*0 does."""
    return x * _sigmoid(x)


def _overflow(values: Float) -> Float:
    """What fp32 cannot hold is infinite."""
    return np.where(np.abs(values) > _FP32_MAX, np.copysign(np.inf, values), values)


def fused_gdn_decode_qkvz_supported(
    projected_qkvz: torch.Tensor,
    projected_ba: torch.Tensor,
    conv_state: torch.Tensor,
    ssm_state: torch.Tensor,
    ssm_state_indices: torch.Tensor,
    conv_weight: torch.Tensor,
    conv_bias: torch.Tensor,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    norm_weight: torch.Tensor,
    quant_dtype: torch.dtype | None = None,
) -> tuple[bool, str]:
    """(True, ""), or (False, why) naming the operand. Never raises. Any VH that KH divides."""
    given = (projected_qkvz, projected_ba, conv_state, ssm_state, ssm_state_indices)
    weights = (conv_weight, conv_bias, A_log, dt_bias, norm_weight)
    tensors: dict[str, Any] = dict(zip(OPERANDS, (*given, *weights), strict=True))
    reason = next(_refusals(tensors, quant_dtype), "")
    return not reason, reason


def fused_gdn_decode_qkvz(
    projected_qkvz: torch.Tensor,
    projected_ba: torch.Tensor,
    conv_state: torch.Tensor,
    ssm_state: torch.Tensor,
    ssm_state_indices: torch.Tensor,
    conv_weight: torch.Tensor,
    conv_bias: torch.Tensor,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    norm_weight: torch.Tensor,
    *,
    scale: float,
    norm_eps: float,
    quant_dtype: torch.dtype | None = None,
    pad_slot_id: int = PAD_SLOT,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """One decode step on CPU tensors, in float64 with the contract's rounding points.

    Shapes, dtypes and layouts are the op's. conv_state and ssm_state change in
    place; a row whose index is pad_slot_id reads and writes no state and gives
    +0. Returns (out [T,VH,V] bf16, codes [T,VH*V] float8_e4m3fn or None, scales
    [T,VH] fp32 or None). Raises ValueError with the predicate's reason, and
    IllegalIndices (a ValueError) for an index vector the contract forbids.
    """
    given = (projected_qkvz, projected_ba, conv_state, ssm_state, ssm_state_indices)
    weights = (conv_weight, conv_bias, A_log, dt_bias, norm_weight)
    tensors: dict[str, Any] = dict(zip(OPERANDS, (*given, *weights), strict=True))
    for reason in _refusals(tensors, quant_dtype):
        raise ValueError(reason)
    arrays: dict[str, Any] = {
        name: _as_numpy(tensor, DTYPES[name]) for name, tensor in tensors.items()
    }
    operands = Operands(heads=_heads_of(tensors), **arrays)
    options = CallOptions(
        scale=scale, norm_eps=norm_eps, fp8=quant_dtype is not None, pad_slot_id=pad_slot_id
    )
    expected = step(operands, options)
    return (
        _as_tensor(expected.out, "bfloat16"),
        None if expected.quantized is None else _as_tensor(expected.quantized, "float8_e4m3fn"),
        None if expected.scales is None else _as_tensor(expected.scales, "float32"),
    )


def _refusals(tensors: dict[str, Any], quant_dtype: Any) -> Iterator[str]:
    import torch

    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            yield f"{name} must be a tensor, got {type(tensor).__name__}"
            return
        if tensor.device.type != "cpu":
            yield f"{name} must be on the CPU, got {tensor.device}"
        if str(tensor.dtype) != f"torch.{DTYPES[name]}":
            yield f"{name} must be {DTYPES[name]}, got {tensor.dtype}"
    if tensors["ssm_state"].dim() != 4 or tensors["projected_ba"].dim() != 2:
        yield "ssm_state must have 4 dimensions and projected_ba 2"
        return
    yield from _shape_refusals(tensors)
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            yield f"{name} must be contiguous"
    if quant_dtype not in (None, torch.float8_e4m3fn):
        yield f"quant_dtype must be None or float8_e4m3fn, got {quant_dtype}"


def _shape_refusals(tensors: dict[str, Any]) -> Iterator[str]:
    slots, value, *_ = tensors["ssm_state"].shape
    rows, width = tensors["projected_ba"].shape[0], tensors["projected_qkvz"].shape[-1:]
    if value < 1 or not width:
        yield "ssm_state has no value head, or projected_qkvz no columns"
        return
    key, rest = divmod(width[0] - 2 * value * V, 2 * K)
    if key < 1 or rest or value % key:
        yield f"projected_qkvz has {width[0]} columns, which fit no key head count for VH {value}"
        return
    for name, shape in operand_shapes(Heads(key, value), rows, slots).items():
        if tuple(tensors[name].shape) != shape:
            yield f"{name} must have shape {shape}, got {tuple(tensors[name].shape)}"


def _heads_of(tensors: dict[str, Any]) -> Heads:
    value = tensors["ssm_state"].shape[1]
    return Heads((tensors["projected_qkvz"].shape[1] - 2 * value * V) // (2 * K), value)


def _as_numpy(tensor: torch.Tensor, dtype: str) -> NDArray[Any]:
    import torch

    if dtype == "bfloat16":
        return tensor.view(torch.int16).numpy().view(np.uint16)
    array: NDArray[Any] = tensor.numpy()
    return array


def _as_tensor(array: NDArray[Any], dtype: str) -> torch.Tensor:
    import torch

    carrier = array.view(np.int16) if STORAGE[dtype] == np.uint16 else array
    tensor = torch.from_numpy(np.ascontiguousarray(carrier))
    return tensor.view(getattr(torch, dtype)) if dtype != "float32" else tensor


assert W == 4  # the docstrings above speak of three stored values
