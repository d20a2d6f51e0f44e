"""The parts of an AMDGPU assembly file that describe a kernel to its loader.

Sources: LLVM "User Guide for AMDGPU Backend", sections "Code Object V5
Metadata" and ".amdhsa_kernel".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gdn_judge.emulator.errors import AssemblyError


@dataclass(frozen=True)
class Argument:
    """One kernel argument: byte offset and size in the kernarg segment.

    kind is the metadata's value_kind: "global_buffer" or "by_value" are
    arguments of the launch, others ("hidden_...") are filled in by a runtime.
    """

    offset: int
    size: int
    kind: str


@dataclass(frozen=True)
class KernelMetadata:
    """What the loader knows about a kernel. Sizes in bytes, registers as counted by LLVM."""

    name: str
    target: str
    arguments: tuple[Argument, ...]
    kernarg_size: int
    kernarg_preload_length: int
    user_sgprs: int
    workgroup_ids: tuple[bool, bool, bool]
    workitem_id_dimensions: int
    private_segment_size: int
    uses_private_segment: bool
    group_segment_size: int
    wavefront_size: int
    max_workgroup_size: int
    vgpr_count: int
    agpr_count: int
    sgpr_count: int
    vgpr_spills: int
    sgpr_spills: int
    accum_offset: int
    round_mode_32: int
    denorm_mode_32: int
    ieee_mode: bool
    dx10_clamp: bool
    fp16_overflow: bool
    code_bytes: int | None
    user_sgpr_features: tuple[str, ...]


_USER_SGPRS = (
    ("private_segment_buffer", 4),
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_segment_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)
USER_SGPR_WIDTH = dict(_USER_SGPRS)


def read_metadata(text: str, name: str | None = None) -> KernelMetadata:
    """Read directives and YAML of the kernel `name`, or of the only kernel of the file."""
    directives = _directives(text)
    if not directives:
        raise AssemblyError("no .amdhsa_kernel directive: this is not an AMDGPU kernel")
    if name is None:
        if len(directives) > 1:
            raise AssemblyError(f"several kernels, name one of {sorted(directives)}")
        name = next(iter(directives))
    if name not in directives:
        raise AssemblyError(f"no kernel {name!r}; the file has {sorted(directives)}")
    return _metadata(name, text, directives[name], _kernel_block(text, name))


def _directives(text: str) -> dict[str, dict[str, int]]:
    found = {}
    blocks = re.finditer(r"\.amdhsa_kernel\s+(\S+)\n(.*?)\.end_amdhsa_kernel", text, re.S)
    for block in blocks:
        pairs = re.findall(r"\.amdhsa_(\w+)\s+(\S+)", block[2])
        found[block[1]] = {k: int(v, 0) for k, v in pairs if re.fullmatch(r"-?\w+", v)}
    return found


def _kernel_block(text: str, name: str) -> str:
    yaml = re.search(r"\.amdgpu_metadata\n(.*?)\.end_amdgpu_metadata", text, re.S)
    if yaml is None:
        raise AssemblyError("no .amdgpu_metadata block")
    for block in re.split(r"(?m)^  - ", yaml[1])[1:]:
        if re.search(rf"(?m)^\s*\.name:\s+'?{re.escape(name)}'?\s*$", block):
            return block
    raise AssemblyError(f"the metadata does not describe the kernel {name!r}")


def _arguments(block: str) -> tuple[Argument, ...]:
    match = re.search(r"\.args:\n(.*?)(?m:^    \.\w+:|\Z)", block, re.S)
    if match is None:
        return ()
    arguments = []
    for item in re.split(r"(?m)^      - ", match[1])[1:]:
        offset, size = (int(_value(item, k)) for k in ("offset", "size"))
        arguments.append(Argument(offset, size, _value(item, "value_kind")))
    return tuple(sorted(arguments, key=lambda a: a.offset))


def _value(block: str, key: str, default: str | None = None) -> str:
    match = re.search(rf"(?m)\.{key}:\s+(\S+)", block)
    if match is None:
        if default is None:
            raise AssemblyError(f"the kernel metadata has no .{key}")
        return default
    return match[1]


def _metadata(name: str, text: str, d: dict[str, int], block: str) -> KernelMetadata:
    target = re.search(r'\.amdgcn_target\s+"([^"]+)"', text)
    code = re.search(r"; codeLenInByte = (\d+)", text)
    return KernelMetadata(
        name=name,
        target=target[1] if target else "",
        arguments=_arguments(block),
        kernarg_size=int(_value(block, "kernarg_segment_size")),
        kernarg_preload_length=d.get("user_sgpr_kernarg_preload_length", 0),
        user_sgprs=d.get("user_sgpr_count", 0),
        workgroup_ids=(
            bool(d.get("system_sgpr_workgroup_id_x", 1)),
            bool(d.get("system_sgpr_workgroup_id_y", 0)),
            bool(d.get("system_sgpr_workgroup_id_z", 0)),
        ),
        workitem_id_dimensions=d.get("system_vgpr_workitem_id", 0) + 1,
        private_segment_size=int(_value(block, "private_segment_fixed_size")),
        uses_private_segment=bool(d.get("enable_private_segment", 0)),
        group_segment_size=int(_value(block, "group_segment_fixed_size")),
        wavefront_size=int(_value(block, "wavefront_size")),
        max_workgroup_size=int(_value(block, "max_flat_workgroup_size")),
        vgpr_count=int(_value(block, "vgpr_count")),
        agpr_count=int(_value(block, "agpr_count", "0")),
        sgpr_count=int(_value(block, "sgpr_count")),
        vgpr_spills=int(_value(block, "vgpr_spill_count", "0")),
        sgpr_spills=int(_value(block, "sgpr_spill_count", "0")),
        accum_offset=d.get("accum_offset", 0),
        round_mode_32=d.get("float_round_mode_32", 0),
        denorm_mode_32=d.get("float_denorm_mode_32", 0),
        ieee_mode=bool(d.get("ieee_mode", 1)),
        dx10_clamp=bool(d.get("dx10_clamp", 1)),
        fp16_overflow=bool(d.get("fp16_overflow", 0)),
        code_bytes=int(code[1]) if code else None,
        user_sgpr_features=tuple(
            feature for feature, _ in _USER_SGPRS if d.get(f"user_sgpr_{feature}", 0)
        ),
    )
