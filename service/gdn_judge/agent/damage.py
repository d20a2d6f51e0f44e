"""Spoil a good set of operands in one way each. See `execution.Damage`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def apply(values: dict[str, Any], damages: list[Mapping[str, str]]) -> dict[str, Any]:
    """`values` (the ten operands and quant_dtype) with every damage done."""
    spoiled = dict(values)
    for damage in damages:
        name = damage["operand"]
        spoiled[name] = _WAYS[damage["how"]](spoiled[name], damage["value"])
    return spoiled


def _dtype(tensor: torch.Tensor, name: str) -> torch.Tensor:
    return tensor.to(getattr(torch, name))


def _shape(tensor: torch.Tensor, text: str) -> torch.Tensor:
    shape = [int(part) for part in text.split(",") if part]
    return torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)


def _strided(tensor: torch.Tensor, _: str) -> torch.Tensor:
    """Every second element of a last dimension twice as long; the rest is poisoned."""
    wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype, device=tensor.device)
    wide[..., 0] = tensor
    return wide[..., 0]


def _quant(_: Any, name: str) -> Any:
    return getattr(torch, name, name)


_WAYS: dict[str, Callable[[Any, str], Any]] = {
    "none": lambda tensor, _: None,
    "dtype": _dtype,
    "shape": _shape,
    "strided": _strided,
    "device": lambda tensor, name: tensor.to(name),
    "type": lambda tensor, _: tensor.tolist() if tensor.numel() < 4096 else [0.0],
    "quant": _quant,
}
