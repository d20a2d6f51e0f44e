"""Call an op in this process on the judge's operands, for tests of the comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gdn_judge.contract import OPERANDS, POOLS, RESULTS
from gdn_judge.operands import CallOptions, CallResult, Operands, TensorForm


def call(op: Callable[..., Any], operands: Operands, options: CallOptions) -> CallResult:
    """Run `op` on copies of `operands`; the pools it sees are slices, as in a candidate."""
    work = operands.copy()
    arrays = {name: work.pool(name) if name in POOLS else getattr(work, name) for name in OPERANDS}
    results = op(
        **{name: tensor(array) for name, array in arrays.items()},
        scale=options.scale,
        norm_eps=options.norm_eps,
        quant_dtype=torch.float8_e4m3fn if options.fp8 else None,
        pad_slot_id=options.pad_slot_id,
    )
    named = dict(zip(RESULTS, results, strict=True))
    return CallResult(
        forms={name: form(value) for name, value in named.items()},
        results={name: None if value is None else array(value) for name, value in named.items()},
        after=work.arrays(),
    )


def tensor(array: np.ndarray) -> torch.Tensor:  # type: ignore[type-arg]
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array(value: torch.Tensor) -> np.ndarray:  # type: ignore[type-arg]
    value = value.contiguous()
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(np.uint16)
    if value.dtype == torch.float8_e4m3fn:
        return value.view(torch.uint8).numpy()
    return value.numpy()


def form(value: torch.Tensor | None) -> TensorForm:
    if value is None:
        return TensorForm.of_none()
    return TensorForm(dtype=str(value.dtype).removeprefix("torch."), shape=tuple(value.shape))
