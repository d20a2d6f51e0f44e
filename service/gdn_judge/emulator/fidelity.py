"""What this emulator models and what it does not: shown in every verdict it gives."""

from __future__ import annotations

from gdn_judge.document import Scalar

FACTS: dict[str, Scalar] = {
    "device": "gfx950, emulated on the CPU",
    "arch": "gfx950",
    "emulated": True,
}

NOTES: tuple[str, ...] = (
    "Emulated gfx950, no hardware: the compiled code object was executed on the CPU from its "
    "assembly. It shows values, memory errors, races and traffic, and nothing about time.",
    "Modelled: registers, EXEC, LDS, buffer descriptors and their bounds, FP8 saturation by the "
    "MODE register, exactly rounded fp32 arithmetic, wait counters, barriers, bytes moved, and "
    "release and acquire between workgroups (BUFFER_WBL2 and BUFFER_INV with sc1).",
    "Not modelled: clocks, caches and their stale lines, hazards that need s_nop, denormal "
    "flushing and the last bit of v_exp, v_log, v_rcp, v_rsq and v_sqrt (within 1 ulp of the "
    "ISA's bound), NaN payloads, and MFMA. S_BARRIER orders only memory operations that were "
    "waited for (s_waitcnt vmcnt), as the ISA has it; a compute unit may order more.",
    "Races in global memory are looked for in the first run of each kernel, grid and pattern of "
    "pads, once with the workgroups in order and once shuffled; LDS races in every run.",
)
