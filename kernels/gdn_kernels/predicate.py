"""Which operands the op takes: one rule a line, each naming what it refuses.

The op raises ValueError with the predicate's own words, so the two cannot
disagree. Nothing here launches, and nothing here raises.
"""

from __future__ import annotations

import dataclasses
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from gdn_kernels.contract import CONV_WIDTH, HEAD_DIM, HEAD_RATIO, KEY_HEADS, OPERANDS
from gdn_kernels.platform import launch_device

_DTYPES = {
    "projected_qkvz": torch.bfloat16,
    "projected_ba": torch.bfloat16,
    "conv_state": torch.bfloat16,
    "ssm_state": torch.float32,
    "ssm_state_indices": torch.int32,
    "conv_weight": torch.bfloat16,
    "conv_bias": torch.bfloat16,
    "A_log": torch.float32,
    "dt_bias": torch.bfloat16,
    "norm_weight": torch.bfloat16,
}
_RANKS = {
    "projected_qkvz": 2,
    "projected_ba": 2,
    "conv_state": 3,
    "ssm_state": 4,
    "ssm_state_indices": 1,
    "conv_weight": 2,
    "conv_bias": 1,
    "A_log": 1,
    "dt_bias": 1,
    "norm_weight": 1,
}
# Loaded 8 or 16 bytes at a time by every kernel.
_ALIGNED = ("projected_qkvz", "ssm_state", "conv_weight")
ALIGNMENT = 16


@dataclass(frozen=True)
class Refusal:
    """Why the op does not take these operands."""

    reason: str


@dataclass(frozen=True)
class Shape:
    """The sizes that the operands agree on, and whether all start at 16-byte multiples."""

    tokens: int  # T
    key_heads: int  # KH
    value_heads: int  # VH
    slots: int  # N
    aligned: bool = True


@dataclass(frozen=True)
class _Layer:
    """What stays from step to step, pools and weights, once it passed on a GPU."""

    addresses: tuple[int, ...]
    forms: tuple[tuple[torch.Size, torch.dtype], ...]
    device: torch.device
    shapes: dict[int, Shape]  # by T, so that none is made at every step
    watched: tuple[weakref.ref[torch.Tensor], ...]  # any that dies takes the entry along


_HELD = (2, 3, 5, 6, 7, 8, 9)  # pools and weights; the other three are new at every step
_RECOGNISED = ("cuda",)  # device types on which the host's time counts
_layers: dict[tuple[int, ...], _Layer] = {}


def examine(operands: tuple[Any, ...], quant_dtype: object) -> Shape | Refusal:
    """Check the ten operands, in the order of `contract.OPERANDS`.

    Returns the sizes they agree on, or the first reason against them. Pools
    and weights that passed are recognised again, the same objects at the same
    addresses, so that a decode step checks the other three only.
    """
    shape = _recognise(operands, quant_dtype)
    if shape is not None:
        return shape
    verdict = _examine(operands, quant_dtype)
    if isinstance(verdict, Shape) and verdict.aligned:
        _remember(operands)
    return verdict


def require(operands: tuple[Any, ...], quant_dtype: object) -> Shape:
    """The sizes that `examine` finds; raises ValueError with its reason against the operands."""
    verdict = examine(operands, quant_dtype)
    if isinstance(verdict, Refusal):
        raise ValueError(verdict.reason)
    return verdict


def _recognise(operands: tuple[Any, ...], quant_dtype: object) -> Shape | None:
    """The sizes, if the layer is known and the step's operands fit it; None says nothing."""
    qkvz, ba, conv, ssm, index, weight, bias, a_log, dt_bias, norm = operands
    layer = _layers.get((id(conv), id(ssm), id(weight), id(bias), id(a_log), id(dt_bias), id(norm)))
    if layer is None or (quant_dtype is not None and quant_dtype is not torch.float8_e4m3fn):
        return None
    addresses = (
        conv.data_ptr(),
        ssm.data_ptr(),
        weight.data_ptr(),
        bias.data_ptr(),
        a_log.data_ptr(),
        dt_bias.data_ptr(),
        norm.data_ptr(),
    )
    if addresses != layer.addresses:
        return None
    at = layer.device
    held = (conv, ssm, weight, bias, a_log, dt_bias, norm)
    if not (
        # resized, transposed or retyped in place, a tensor keeps its address
        all(tensor.is_contiguous() for tensor in held)
        and tuple((tensor.shape, tensor.dtype) for tensor in held) == layer.forms
        and _plain(qkvz, torch.bfloat16, at)
        and _plain(ba, torch.bfloat16, at)
        and _plain(index, torch.int32, at)
    ):
        return None
    if qkvz.dim() != _RANKS["projected_qkvz"]:
        return None
    tokens = qkvz.shape[0]
    shape = layer.shapes.get(tokens)
    if shape is None:
        slots, value_heads = ssm.shape[:2]
        shape = Shape(tokens, value_heads // HEAD_RATIO, value_heads, slots)
        layer.shapes[tokens] = shape
    width = shape.key_heads * (2 + 2 * HEAD_RATIO) * HEAD_DIM
    fits = (
        qkvz.shape == (tokens, width)
        and ba.shape == (tokens, 2 * shape.value_heads)
        and index.shape == (tokens,)
    )
    return shape if fits else None


def _plain(tensor: Any, dtype: torch.dtype, device: torch.device) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.dtype is dtype
        and tensor.device == device
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.data_ptr() % ALIGNMENT
    )


def _remember(operands: tuple[torch.Tensor, ...]) -> None:
    held = [operands[i] for i in _HELD]
    if held[0].device.type not in _RECOGNISED or any(type(t) is not torch.Tensor for t in held):
        return
    key = tuple(id(tensor) for tensor in held)

    def forget(_: object) -> None:
        _layers.pop(key, None)

    _layers[key] = _Layer(
        tuple(tensor.data_ptr() for tensor in held),
        tuple((tensor.shape, tensor.dtype) for tensor in held),
        held[0].device,
        {},
        tuple(weakref.ref(tensor, forget) for tensor in held),
    )


def _examine(operands: tuple[Any, ...], quant_dtype: object) -> Shape | Refusal:
    named = dict(zip(OPERANDS, operands, strict=True))
    try:
        return _examine_named(named, quant_dtype)
    except Exception as error:  # noqa: BLE001 - what a subclass or a wrapper raises when asked
        return Refusal(f"the operands cannot be examined: {type(error).__name__}: {error}")


def _examine_named(named: dict[str, Any], quant_dtype: object) -> Shape | Refusal:
    reason = _kind(named, quant_dtype) or _device(named)
    if reason:
        return Refusal(reason)
    heads = _heads(named)
    if isinstance(heads, Refusal):
        return heads
    reason = _shapes(named, heads) or _memory(named)
    if reason:
        return Refusal(reason)
    aligned = not any(tensor.data_ptr() % ALIGNMENT for tensor in named.values())
    return dataclasses.replace(heads, aligned=aligned)


def _kind(named: dict[str, Any], quant_dtype: object) -> str:
    """Type, rank and dtype of every operand, each by itself."""
    if quant_dtype is not None and quant_dtype is not torch.float8_e4m3fn:
        return f"quant_dtype must be None or torch.float8_e4m3fn, got {quant_dtype!r}"
    for name, tensor in named.items():
        if tensor is None and name == "conv_bias":
            return "conv_bias is None: the op adds a bias always; pass zeros of shape [C]"
        if not isinstance(tensor, torch.Tensor):
            return f"{name} must be a torch.Tensor, got {type(tensor).__name__}"
        if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return f"{name} must hold its own memory, which a {type(tensor).__name__} does not"
        if tensor.layout is not torch.strided or tensor.is_nested:
            return f"{name} must be a strided tensor, got {_layout(tensor)}"
        if tensor.is_neg():
            return f"{name} must hold its values in memory; its negation is still to be done"
        if tensor.dim() != _RANKS[name]:
            return f"{name} must have {_RANKS[name]} dimensions, got shape {list(tensor.shape)}"
        if tensor.dtype is not _DTYPES[name]:
            return f"{name} must be {_DTYPES[name]}, got {tensor.dtype}"
    return ""


def _layout(tensor: torch.Tensor) -> str:
    return "a nested one" if tensor.is_nested else str(tensor.layout)


def _device(named: dict[str, Any]) -> str:
    """All on one device, and on one that kernels can be launched on."""
    device = named["ssm_state"].device
    for name, tensor in named.items():
        if tensor.device != device:
            return f"{name} is on {tensor.device}, ssm_state is on {device}"
    launch = launch_device()
    if launch.reason:
        return f"ssm_state is on {device}: {launch.reason}"
    if device.type != launch.type:
        return f"ssm_state is on {device}, kernels here launch on {launch.type}"
    return ""


def _heads(named: dict[str, Any]) -> Shape | Refusal:
    """KH, VH and N, from the state pool and the width of a projected row."""
    slots, value_heads, rows, columns = named["ssm_state"].shape
    if (rows, columns) != (HEAD_DIM, HEAD_DIM):
        return Refusal(
            f"ssm_state must have shape [N, VH, {HEAD_DIM}, {HEAD_DIM}], "
            f"got {list(named['ssm_state'].shape)}"
        )
    if value_heads == 0:
        return Refusal("ssm_state has no value heads")
    tokens, width = named["projected_qkvz"].shape
    key_heads, rest = divmod(width - 2 * value_heads * HEAD_DIM, 2 * HEAD_DIM)
    if rest or key_heads < 1:
        return Refusal(
            f"projected_qkvz has rows of {width}, not KH*(2*K + 2*r*V) for the "
            f"{value_heads} value heads of ssm_state"
        )
    if value_heads != HEAD_RATIO * key_heads:
        return Refusal(
            f"the head ratio VH/KH must be {HEAD_RATIO}: ssm_state has {value_heads} value heads, "
            f"projected_qkvz has {key_heads} key heads"
        )
    if key_heads not in KEY_HEADS:
        return Refusal(f"projected_qkvz has {key_heads} key heads, the op takes {KEY_HEADS}")
    return Shape(tokens, key_heads, value_heads, slots)


def _shapes(named: dict[str, Any], shape: Shape) -> str:
    channels = (2 * shape.key_heads + shape.value_heads) * HEAD_DIM
    expected = {
        "projected_ba": (shape.tokens, 2 * shape.value_heads),
        "conv_state": (shape.slots, channels, CONV_WIDTH - 1),
        "ssm_state_indices": (shape.tokens,),
        "conv_weight": (channels, CONV_WIDTH),
        "conv_bias": (channels,),
        "A_log": (shape.value_heads,),
        "dt_bias": (shape.value_heads,),
        "norm_weight": (HEAD_DIM,),
    }
    for name, sizes in expected.items():
        if tuple(named[name].shape) != sizes:
            return f"{name} must have shape {list(sizes)}, got {list(named[name].shape)}"
    return ""


def _memory(named: dict[str, Any]) -> str:
    for name, tensor in named.items():
        if not tensor.is_contiguous():
            return f"{name} must be contiguous, got strides {list(tensor.stride())}"
        if tensor.numel() and not tensor.data_ptr():
            return f"{name} has no memory"
    for name in _ALIGNED:
        if named[name].data_ptr() % ALIGNMENT:
            return f"{name} must start at a multiple of {ALIGNMENT} bytes"
    return ""
