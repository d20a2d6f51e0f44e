"""What a gfx950 kernel uses, read from its assembly and metadata.

Sources of the constants: AMD CDNA4 ISA document (512 vector registers a lane
and SIMD shared by VGPRs and AGPRs in granules of 8, 8 waves a SIMD, 160 KiB of
LDS a compute unit in granules of 1280 bytes), LLVM "User Guide for AMDGPU
Backend" (SGPR granule).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gdn_judge.document import Scalar
from gdn_judge.emulator.assembly import Instruction, Program

VECTOR_REGISTERS = 512
VECTOR_GRANULE = 8
MAX_WAVES = 8
SIMDS = 4
LDS_BYTES = 160 * 1024
LDS_GRANULE = 1280
MAX_GROUPS = 32

_WIDTHS = {"byte": 1, "short": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
_TRANSCENDENTAL = ("v_exp", "v_log", "v_rcp", "v_rsq", "v_sqrt", "v_sin", "v_cos")


def resources(program: Program, waves: int, shared_bytes: int) -> dict[str, Scalar]:
    """One flat row for the kernel: sizes in bytes, counts per kernel, occupancy."""
    meta = program.metadata
    lds = meta.group_segment_size + shared_bytes
    instructions = program.instructions[program.entry :]
    return {
        "vgpr": meta.vgpr_count - meta.agpr_count if meta.agpr_count else meta.vgpr_count,
        "agpr": meta.agpr_count,
        "sgpr": meta.sgpr_count,
        "lds": lds,
        "scratch": meta.private_segment_size,
        "vgpr_spills": meta.vgpr_spills,
        "sgpr_spills": meta.sgpr_spills,
        **occupancy(meta.vgpr_count, lds, waves),
        "code_bytes": meta.code_bytes,
        "instructions": len(instructions),
        "loads": widths(instructions, "load"),
        "stores": widths(instructions, "store"),
        "loads_before_wait": loads_before_wait(instructions),
        "mix": mix((ins, 1) for ins in instructions),
    }


def occupancy(vector_registers: int, lds_bytes: int, waves: int) -> dict[str, Scalar]:
    """Waves a SIMD and workgroups a compute unit, and what limits them."""
    allocated = -(-max(vector_registers, 1) // VECTOR_GRANULE) * VECTOR_GRANULE
    by_registers = min(MAX_WAVES, VECTOR_REGISTERS // allocated)
    limits = {
        "waves": MAX_WAVES * SIMDS // waves,
        "registers": by_registers * SIMDS // waves,
        "lds": MAX_GROUPS,
        "workgroups": MAX_GROUPS,
    }
    if lds_bytes:
        limits["lds"] = LDS_BYTES // (-(-lds_bytes // LDS_GRANULE) * LDS_GRANULE)
    groups = min(limits.values())
    # where several are equally tight, the one that the kernel's author can change
    order = ("registers", "lds", "waves", "workgroups")
    limiter = next(name for name in order if limits[name] == groups)
    return {
        "groups_per_cu": groups,
        "waves_per_simd": groups * waves / SIMDS,
        "limited_by": limiter,
    }


def is_load(ins: Instruction) -> bool:
    return ins.name.startswith(("global_load", "buffer_load", "flat_load"))


def widths(instructions: Iterable[Instruction], direction: str) -> str:
    """Bytes a lane and how many instructions, widest first: "16Bx8 2Bx20"."""
    found: Counter[int] = Counter()
    for ins in instructions:
        family, _, form = ins.name.partition(f"_{direction}_")
        if family in ("global", "buffer", "flat") and form:
            found[_width(form)] += 1
    return " ".join(f"{size}Bx{count}" for size, count in sorted(found.items(), reverse=True))


def _width(form: str) -> int:
    form = form.removeprefix("lds_").removesuffix("_hi").removesuffix("_d16")
    return _WIDTHS[form.removeprefix("u").removeprefix("s") if "byte" in form else _short(form)]


def _short(form: str) -> str:
    return "short" if form.endswith("short") else form


def loads_before_wait(instructions: Sequence[Instruction]) -> int:
    """Vector loads issued before the first wait on one, from the top of the listing."""
    count = 0
    for ins in instructions:
        count += is_load(ins)
        if count and ins.name == "s_waitcnt" and "vmcnt" in ins.modifiers:
            return count
    return count


def waits_before(instructions: Sequence[Instruction], counts: Sequence[int], pc: int) -> int:
    """Executed waits on memory ahead of instruction `pc`."""
    return sum(
        ins.name == "s_waitcnt" and counts[ins.pc] > 0 and ins.pc < pc for ins in instructions
    )


def category(name: str) -> str:
    """The group that an instruction counts in."""
    if name.startswith(("global_", "buffer_", "flat_", "scratch_")):
        return "atomic" if "atomic" in name else "vmem"
    if name.startswith("ds_"):
        return "lds"
    if name.startswith(("s_load", "s_buffer_load")):
        return "smem"
    if name == "s_barrier":
        return "barrier"
    if name in ("s_waitcnt", "s_nop", "s_sleep"):
        return "wait"
    if name.startswith("v_"):
        return "trans" if name.startswith(_TRANSCENDENTAL) else "valu"
    return "salu"


def mix(executed: Iterable[tuple[Instruction, int]]) -> str:
    """Shares of the instruction groups in percent, largest first: "valu 71 salu 12"."""
    found: Counter[str] = Counter()
    for ins, count in executed:
        found[category(ins.name)] += count
    total = sum(found.values()) or 1
    shares = [(name, round(100 * count / total)) for name, count in found.most_common()]
    return " ".join(f"{name} {share}" for name, share in shares if share)
