"""From checked operands to one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton

from gdn_kernels import platform, scratch, tuning
from gdn_kernels.contract import HEAD_DIM, HEAD_RATIO
from gdn_kernels.fused_triton import fused_decode_kernel
from gdn_kernels.predicate import Shape

VGPRS_PER_LANE = 512  # of a CDNA3 or CDNA4 SIMD, shared by its resident waves

Outputs = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]


@dataclass(frozen=True)
class Variant:
    """One compiled form of the kernel: configuration, head count, epilogue, device."""

    config: tuning.Config
    key_heads: int
    fp8: bool
    arch: platform.Architecture
    device: int


@dataclass(frozen=True)
class _Ready:
    """A variant as Triton compiled it for aligned pointers, bound to one batch size's grid.

    Launching it again skips Triton's specialisation of the arguments, and, since it
    is given addresses, the driver's look at each pointer: the predicate has looked.
    """

    variant: Variant
    run: Callable[..., None]
    constants: tuple[Any, ...]  # in the order of the kernel's parameters


_Key = tuple[int, int, bool, int]  # key heads, tokens, FP8, device index
_ready: dict[_Key, _Ready] = {}
_READY_AT_MOST = 8192


def fused(
    operands: tuple[torch.Tensor, ...],
    shape: Shape,
    outputs: Outputs,
    scale: float,
    norm_eps: float,
    pad_slot_id: int,
    config: tuning.Config | None = None,
) -> Variant:
    """Launch the fused kernel once; returns the variant that ran.

    `operands` have passed `predicate.examine` with `shape`; `outputs` are
    (out, codes, scales) as the op returns them, with T > 0. `config` overrides
    the tuning table.
    """
    out, codes, scales = outputs
    key = (shape.key_heads, shape.tokens, codes is not None, out.device.index or 0)
    ready = _ready.get(key) if config is None else None
    variant = ready.variant if ready else _variant(shape, codes is not None, out.device, config)
    stream = _stream(out.device)
    tickets = core = out  # never touched where nothing passes through memory
    elements = variant.config.scratch_elements
    if elements:
        groups = shape.tokens * shape.key_heads
        shared = groups if variant.config.programs_per_group > 1 else 0
        tickets, core = scratch.tickets.take(
            shared, groups * elements, out, stream, variant.arch.backend
        )
    scalars = (float(scale), float(norm_eps), pad_slot_id, shape.slots)
    if ready and shape.aligned:
        ready.run(
            *[tensor.data_ptr() for tensor in operands],
            out.data_ptr(),
            (out if codes is None else codes).data_ptr(),
            (out if scales is None else scales).data_ptr(),
            core.data_ptr(),
            tickets.data_ptr(),
            *scalars,
            *ready.constants,
            stream=stream,
        )
        return variant
    pointers = (
        *operands,
        out,
        # as bytes: not every architecture that runs the kernel has the e4m3 type
        out if codes is None else codes.view(torch.uint8),
        out if scales is None else scales,
        core,
        tickets,
    )
    grid = (shape.tokens * shape.key_heads * variant.config.programs_per_group, 1, 1)
    function = kernel_function(variant.config)
    fixed = constants(variant)
    kernel = function[grid](*pointers, *scalars, **fixed, **options(variant))
    if shape.aligned and config is None and out.device.type == "cuda":
        if len(_ready) >= _READY_AT_MOST:
            _ready.clear()
        order = function.arg_names[len(pointers) + len(scalars) :]
        _ready[key] = _Ready(variant, kernel[grid], tuple(fixed[name] for name in order))
    return variant


def _variant(
    shape: Shape, fp8: bool, device: torch.device, config: tuning.Config | None
) -> Variant:
    arch = platform.architecture()
    if config is None:
        gluon = not platform.gluon_refusal()
        config = tuning.choose(arch.name, gluon, shape.key_heads, shape.tokens)
    return Variant(config, shape.key_heads, fp8, arch, device.index or 0)


def kernel_function(config: tuning.Config) -> Any:
    if config.kernel == "triton":
        return fused_decode_kernel
    from gdn_kernels.fused_gluon import fused_decode_gluon_kernel

    return fused_decode_gluon_kernel


def constants(variant: Variant) -> dict[str, Any]:
    """The compile-time constants of the variant's kernel."""
    config, arch = variant.config, variant.arch
    shared: dict[str, Any] = {
        "KH": variant.key_heads,
        "R": HEAD_RATIO,
        "K": HEAD_DIM,
        "V": HEAD_DIM,
        "HP": config.heads,
        "BV": config.rows,
        "CHUNKS": config.chunks,
        "DEPTH": config.chunks_in_flight,
        "FP8": variant.fp8,
        "WAIT": platform.store_wait(arch),
    }
    if config.kernel == "triton":
        return shared
    return {
        **shared,
        "LK": config.lanes,
        "PDL": config.pdl,
        "EARLY_MIB": config.early_mib,
        "TICKET_FIRST": config.ticket_first,
        "HIP": arch.backend == "hip",
        "WARP": arch.warp_size,
        "WARPS": config.warps,
    }


def options(variant: Variant) -> dict[str, Any]:
    """The compiler's options; a register bound is an occupancy bound on AMD."""
    config = variant.config
    chosen: dict[str, Any] = {"num_warps": config.warps, **platform.errata_options(variant.arch)}
    if variant.arch.backend == "cuda":
        chosen["launch_pdl"] = config.pdl
        if config.max_registers:
            chosen["maxnreg"] = config.max_registers
    if variant.arch.backend == "hip" and config.max_registers:
        chosen["waves_per_eu"] = VGPRS_PER_LANE // config.max_registers
    return chosen


def _stream(device: torch.device) -> int:
    """The raw handle of the current stream; 0 where the device has none."""
    if device.type != "cuda":
        return 0
    return int(triton.runtime.driver.active.get_current_stream(device.index or 0))
