"""Compile the kernels for a target without a GPU.

Used to hold every rule of the tuning table to its resource figures, and by
anyone who wants the assembly: `compile_ahead(variant).asm["amdgcn"]`.
"""

from __future__ import annotations

import re
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gdn_kernels import launch, tuning
from gdn_kernels.launch import Variant
from gdn_kernels.platform import Architecture

TARGETS = {
    "gfx950": GPUTarget("hip", "gfx950", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx1100": GPUTarget("hip", "gfx1100", 32),
    "gfx1201": GPUTarget("hip", "gfx1201", 32),
    "sm90": GPUTarget("cuda", 90, 32),
    "sm80": GPUTarget("cuda", 80, 32),
    "sm100": GPUTarget("cuda", 100, 32),
}
_TYPES = {
    "qkvz_ptr": "*bf16",
    "ba_ptr": "*bf16",
    "conv_ptr": "*bf16",
    "ssm_ptr": "*fp32",
    "index_ptr": "*i32",
    "weight_ptr": "*bf16",
    "bias_ptr": "*bf16",
    "a_log_ptr": "*fp32",
    "dt_bias_ptr": "*bf16",
    "norm_ptr": "*bf16",
    "out_ptr": "*bf16",
    "code_ptr": "*u8",
    "scale_ptr": "*fp32",
    "core_ptr": "*bf16",
    "ticket_ptr": "*i32",
    "scale": "fp32",
    "norm_eps": "fp32",
    "pad_slot_id": "i32",
    "num_slots": "i32",
}


def variant_for(arch: str, config: tuning.Config, key_heads: int, fp8: bool) -> Variant:
    """The variant that a launch with `config` on `arch` would use."""
    target = TARGETS[arch]
    architecture = Architecture(target.backend, arch, target.warp_size)
    return Variant(config, key_heads, fp8, architecture, 0)


def compile_ahead(variant: Variant) -> Any:
    """Triton's CompiledKernel of `variant`, all pointers 16-byte aligned; never loaded."""
    function = launch.kernel_function(variant.config)
    constants = launch.constants(variant)
    signature = {name: _TYPES.get(name, "constexpr") for name in function.arg_names}
    if not variant.fp8:
        signature["code_ptr"] = "*bf16"
        signature["scale_ptr"] = "*bf16"
    attributes = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(function.arg_names)
        if signature[name].startswith("*")
    }
    source_type = ASTSource
    if variant.config.kernel == "gluon":
        from triton.experimental.gluon._runtime import GluonASTSource

        source_type = GluonASTSource
    source = source_type(function, signature, constants, attributes)
    return triton.compile(
        source, target=TARGETS[variant.arch.name], options=launch.options(variant)
    )


def amd_resources(assembly: str) -> dict[str, int]:
    """Resource figures of one kernel, from the metadata and comments of AMD assembly.

    vgpr, agpr, sgpr in registers a lane or wave; lds and scratch in bytes a
    workgroup and lane; occupancy in waves a SIMD; code in bytes; the spills as
    LLVM counts them.
    """
    patterns = {
        "vgpr": r"\.vgpr_count:\s+(\d+)",
        "agpr": r"\.agpr_count:\s+(\d+)",
        "sgpr": r"\.sgpr_count:\s+(\d+)",
        "vgpr_spills": r"\.vgpr_spill_count:\s+(\d+)",
        "sgpr_spills": r"\.sgpr_spill_count:\s+(\d+)",
        "scratch": r"\.private_segment_fixed_size:\s+(\d+)",
        "occupancy": r"; Occupancy: (\d+)",
        "code": r"; codeLenInByte = (\d+)",
    }
    found = {}
    for name, pattern in patterns.items():
        match = re.search(pattern, assembly)
        if match is None:
            raise ValueError(f"the assembly does not say its {name}")
        found[name] = int(match[1])
    return found
