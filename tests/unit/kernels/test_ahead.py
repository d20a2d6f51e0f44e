"""Every rule of the tuning table compiles without a GPU; gfx950's figures are golden.

After a change on purpose: python -m pytest tests/unit/kernels/test_ahead.py --update-golden
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gdn_kernels import ahead, tuning
from gdn_kernels.tuning import Config

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels" / "gfx950.json"
STATE_BYTES_A_LOAD = 16
LDS_BYTES_A_CU = 160 * 1024
SIMDS_A_CU = 4


def distinct(arch: str, key_heads: int) -> list[Config]:
    rules = [r.config for r in tuning.table()[arch] if r.key_heads == key_heads]
    return list(dict.fromkeys(rules))


def name(config: Config, key_heads: int, fp8: bool) -> str:
    chunks = f"c{config.chunks} d{config.chunks_in_flight} " if config.chunks > 1 else ""
    shape = f"KH{key_heads} {config.heads}x{config.rows} w{config.warps}"
    return f"{shape} {chunks}{'fp8' if fp8 else 'bf16'}"


def every(arch: str) -> list[Config]:
    """The distinct configurations of all head counts."""
    return list(dict.fromkeys(rule.config for rule in tuning.table()[arch]))


GFX950 = [
    (config, key_heads, fp8)
    for key_heads in (1, 4, 16)
    for config in distinct("gfx950", key_heads)
    for fp8 in (True, False)
]


def figures(config: Config, key_heads: int, fp8: bool) -> tuple[dict[str, int], str]:
    kernel = ahead.compile_ahead(ahead.variant_for("gfx950", config, key_heads, fp8))
    assembly = kernel.asm["amdgcn"]
    resources = ahead.amd_resources(assembly)
    resources["lds"] = kernel.metadata.shared
    waves = resources["occupancy"] * SIMDS_A_CU // config.warps
    resources["workgroups_a_cu"] = min(waves, LDS_BYTES_A_CU // resources["lds"])
    return resources, assembly


@pytest.mark.parametrize(
    ("config", "key_heads", "fp8"), GFX950, ids=[name(*case) for case in GFX950]
)
def test_gfx950_resources(
    config: Config, key_heads: int, fp8: bool, request: pytest.FixtureRequest
) -> None:
    resources, assembly = figures(config, key_heads, fp8)
    assert resources["vgpr_spills"] == resources["sgpr_spills"] == resources["scratch"] == 0
    assert resources["workgroups_a_cu"] >= 2
    assert_state_accesses(assembly, config)
    golden: dict[str, Any] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    key = name(config, key_heads, fp8)
    if request.config.getoption("--update-golden"):
        golden[key] = resources
        GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    assert golden[key] == resources


def assert_state_accesses(assembly: str, config: Config) -> None:
    """All loads of the tile are 16 bytes wide and issued before the first barrier."""
    expected = config.heads * config.rows * 128 * 4 // (config.warps * 64 * STATE_BYTES_A_LOAD)
    before = assembly[: assembly.index("s_barrier")]
    assert len(re.findall(r"buffer_load_dwordx4", before)) == expected
    assert len(re.findall(r"buffer_store_dwordx4", assembly)) == expected
    assert "scratch_" not in assembly


@pytest.mark.parametrize("arch", ["sm80", "sm90", "sm100"])
def test_the_portable_kernel_compiles_elsewhere(arch: str) -> None:
    for config in every("portable"):
        kernel = ahead.compile_ahead(ahead.variant_for(arch, config, 4, fp8=True))
        assert kernel.metadata.name == "fused_decode_kernel"


@pytest.mark.parametrize(
    ("arch", "wait"),
    [
        ("gfx942", "s_waitcnt vmcnt(0)"),
        ("gfx1100", "s_waitcnt_vscnt null, 0x0"),
        ("gfx1201", "s_wait_storecnt 0x0"),
    ],
)
def test_on_amd_each_wave_waits_for_its_stores_before_others_read_them(
    arch: str, wait: str
) -> None:
    """What passes through memory is complete at the barrier, which orders shared memory only."""
    for config in every("portable"):
        kernel = ahead.compile_ahead(ahead.variant_for(arch, config, 4, fp8=True))
        ours = kernel.asm["amdgcn"].split(";#ASMSTART")[1:]
        assert [part.split("\n")[1].strip() for part in ours] == [wait, wait]
        for part in ours:
            # nothing of memory between the wait and the barrier that it is for
            to_barrier = part[: part.index("s_barrier")]
            assert not re.search(r"(buffer|global|flat)_(store|load|atomic)", to_barrier)


@pytest.mark.parametrize(
    ("key_heads", "fp8"), [(1, True), (2, True), (4, True), (4, False), (8, True), (16, True)]
)
def test_the_hopper_rules_compile(key_heads: int, fp8: bool) -> None:
    for config in distinct("sm90", key_heads):
        kernel = ahead.compile_ahead(ahead.variant_for("sm90", config, key_heads, fp8))
        assert kernel.metadata.launch_pdl is config.pdl
        assert "griddepcontrol.wait" in kernel.asm["ptx"]
        order = machine_order(kernel.asm["sass"])
        assert "LDL" not in order, "registers spilled"
        loads = [i for i, name in enumerate(order) if name == "LDG.E.128"]
        # the next launch may begin once all of the tile has been asked for, not before
        assert max(loads) < order.index("PREEXIT")
        # so many loads are under way before any warp waits for another
        first_wait = order.index("BAR.SYNC")
        a_chunk = config.heads * config.rows // config.chunks * 128 * 4 // (config.warps * 512)
        assert sum(i < first_wait for i in loads) >= config.chunks_in_flight * a_chunk
        assert len(loads) >= config.chunks * a_chunk
        # in the loop over the tile none waits: one barrier before it, one before the epilogue
        stores = [i for i, name in enumerate(order) if name == "STG.E.128"]
        between = order[stores[0] : stores[-1]]
        assert "BAR.SYNC" not in between
        assert order.count("UBLKPF") == (config.early_mib > 0)


def machine_order(sass: str) -> list[str]:
    """The instructions of interest in machine code of Hopper, in order."""
    return re.findall(r"\b(LDG\.E\.128|STG\.E\.128|LDL|UBLKPF|PREEXIT|BAR\.SYNC)\b", sass)
