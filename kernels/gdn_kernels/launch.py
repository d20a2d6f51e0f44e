"""From checked operands to one launch."""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton

from gdn_kernels import platform, scratch, tuning
from gdn_kernels.contract import HEAD_DIM, HEAD_RATIO
from gdn_kernels.fused_triton import fused_decode_kernel
from gdn_kernels.predicate import Shape


def fused(
    operands: tuple[torch.Tensor, ...],
    shape: Shape,
    outputs: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None],
    scale: float,
    norm_eps: float,
    pad_slot_id: int,
    config: tuning.Config | None = None,
) -> Any:
    """Launch the fused kernel once; returns the compiled kernel.

    `operands` have passed `predicate.examine` with `shape`; `outputs` are
    (out, codes, scales) as the op returns them, with T > 0. `config` overrides
    the tuning table.
    """
    arch = platform.architecture()
    if config is None:
        gluon = not platform.gluon_refusal()
        config = tuning.choose(arch.name, gluon, shape.key_heads, shape.tokens)
    out, codes, scales = outputs
    tickets = out  # never touched where one program serves the group
    if config.programs_per_group > 1:
        tickets = _tickets(shape, out.device, arch.backend)
    core = torch.empty_like(out) if config.splits_rows else out
    grid = (shape.tokens * shape.key_heads * config.programs_per_group,)
    kernel, constants = _kernel(config, arch)
    return kernel[grid](
        *operands,
        out,
        out if codes is None else codes.view(torch.uint8),
        out if scales is None else scales,
        core,
        tickets,
        scale,
        norm_eps,
        pad_slot_id,
        shape.slots,
        KH=shape.key_heads,
        FP8=codes is not None,
        **constants,
    )


@functools.lru_cache(maxsize=256)
def _kernel(config: tuning.Config, arch: platform.Architecture) -> tuple[Any, dict[str, Any]]:
    """The kernel that `config` names, with its constants and the compiler's options."""
    constants: dict[str, Any] = {
        "R": HEAD_RATIO,
        "K": HEAD_DIM,
        "V": HEAD_DIM,
        "HP": config.heads,
        "BV": config.rows,
        "PDL": config.pdl,
        "PREFETCH": config.prefetch,
        "LOAD_POLICY": config.load_policy,
        "STORE_POLICY": config.store_policy,
        "num_warps": config.warps,
    }
    if arch.backend == "cuda":
        constants["launch_pdl"] = config.pdl
        if config.max_registers:
            constants["maxnreg"] = config.max_registers
    if config.kernel == "triton":
        return fused_decode_kernel, {**constants, "KC": HEAD_DIM // (4 * config.lanes)}
    from gdn_kernels.fused_gluon import fused_decode_gluon_kernel

    return fused_decode_gluon_kernel, {
        **constants,
        "LK": config.lanes,
        "TICKET_FIRST": config.ticket_first,
        "STAGED": config.staged,
        "CHUNKS": config.chunks,
        "HIP": arch.backend == "hip",
        "WARP": arch.warp_size,
        "WARPS": config.warps,
    }


def _tickets(shape: Shape, device: torch.device, backend: str) -> torch.Tensor:
    count = shape.tokens * shape.key_heads
    if device.type != "cuda":
        return scratch.tickets.eager(count, device, 0)
    stream = triton.runtime.driver.active.get_current_stream(device.index or 0)
    if torch.cuda.is_current_stream_capturing():
        return scratch.tickets.captured(count, device, stream, backend)
    return scratch.tickets.eager(count, device, stream)
