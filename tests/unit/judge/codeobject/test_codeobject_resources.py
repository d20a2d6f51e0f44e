"""What a kernel uses, by hand-checked listings and published limits."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from gdn_judge.codeobject import gfx950, sm90
from gdn_judge.codeobject.bugs import KINDS, Finding, Mutant, _watched, covering, mutants, summary
from gdn_judge.emulator.assembly import SGPR
from gdn_judge.emulator.launch import Launch, Pointer, run
from gdn_judge.emulator.memory import make_buffer
from gdn_judge.errors import NotModelled
from support.emulator import program

BODY = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
global_load_dwordx4 v[4:7], v0, s[4:5]
global_load_ushort v8, v0, s[4:5]
buffer_load_ubyte_d16 v9, v0, s[8:11], 0 offen
s_waitcnt vmcnt(1)
global_load_dword v10, v0, s[4:5]
v_exp_f32_e32 v11, v4
v_add_f32_e32 v11, v11, v5
ds_write_b32 v0, v11
s_barrier
s_waitcnt vmcnt(0)
global_store_short_d16_hi v0, v11, s[6:7]
global_store_dwordx2 v0, v[4:5], s[6:7]
global_atomic_add v0, v11, s[6:7]
"""


def test_listing_of_a_kernel() -> None:
    row = gfx950.resources(program(BODY, lds=512), 4, 1024)
    assert (row["vgpr"], row["agpr"], row["sgpr"]) == (128, 0, 100)
    assert (row["lds"], row["scratch"]) == (1536, 0)
    assert row["loads"] == "16Bx1 4Bx1 2Bx1 1Bx1"
    assert row["stores"] == "8Bx1 2Bx1"
    assert row["loads_before_wait"] == 3
    assert row["instructions"] == 16
    assert row["mix"] == "vmem 38 wait 19 smem 6 trans 6 valu 6 lds 6 barrier 6 atomic 6 salu 6"


@pytest.mark.parametrize(
    ("registers", "lds", "waves", "groups", "per_simd", "limiter"),
    [
        (64, 0, 4, 8, 8.0, "registers"),  # 8 waves a SIMD
        (65, 0, 4, 7, 7.0, "registers"),  # 72 allocated, 512 / 72
        (128, 0, 4, 4, 4.0, "registers"),
        (257, 0, 4, 1, 1.0, "registers"),
        (32, 0, 1, 32, 8.0, "registers"),
        (32, 81920, 4, 2, 2.0, "lds"),
        (32, 81921, 4, 1, 1.0, "lds"),
        (128, 16384, 8, 2, 4.0, "registers"),
    ],
)
def test_occupancy(
    registers: int, lds: int, waves: int, groups: int, per_simd: float, limiter: str
) -> None:
    assert gfx950.occupancy(registers, lds, waves) == {
        "groups_per_cu": groups,
        "waves_per_simd": per_simd,
        "limited_by": limiter,
    }


def test_waits_on_the_executed_path() -> None:
    kernel = program("s_waitcnt vmcnt(0)\ns_waitcnt vmcnt(0)\ns_nop 0\ns_waitcnt vmcnt(0)")
    assert gfx950.waits_before(kernel.instructions, [1, 0, 1, 1, 1], 3) == 1


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "blocks", "limiter"),
    [
        (32, 0, 4, 16, "registers"),
        (128, 0, 4, 4, "registers"),
        (64, 100_000, 4, 2, "shared"),
        (16, 0, 32, 2, "warps"),
        (16, 0, 1, 32, "blocks"),
    ],
)
def test_occupancy_of_sm90(
    registers: int, shared: int, warps: int, blocks: int, limiter: str
) -> None:
    found = sm90.occupancy(registers, shared, warps)
    assert (found["blocks_per_sm"], found["warps_per_sm"]) == (blocks, blocks * warps)
    assert found["limited_by"] == limiter


PTX = """
.version 8.0
.target sm_90a
.address_size 64
// a comment
.visible .entry kernel(.param .u64 p)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  .shared .align 4 .b8 buffer[256];
  .loc 1 7 3
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  st.global.u32 [%rd1], %r1;
  ret;
}
"""


def test_ptxas_says_what_a_kernel_uses() -> None:
    row = sm90.resources(PTX.replace(".loc 1 7 3\n", ""), 4, 1000)
    assert 0 < int(str(row["registers"])) < 16
    assert (row["spill_stores"], row["spill_loads"], row["stack"]) == (0, 0, 0)
    assert row["shared"] in (1000, 1256)  # ptxas drops an unused array
    with pytest.raises(NotModelled, match="ptxas rejects the kernel"):
        sm90.resources("nonsense", 4, 0)


def test_the_digest_of_ptx_is_that_of_what_runs() -> None:
    moved = PTX.replace(".loc 1 7 3", ".loc 1 99 3").replace("// a comment", "// another")
    assert sm90.digest(moved) == sm90.digest(PTX)
    assert sm90.digest(PTX.replace("%tid.x", "%tid.y")) != sm90.digest(PTX)


def test_the_digest_of_assembly_is_that_of_what_runs() -> None:
    line = "\t.loc\t1 42 7\nv_mov_b32_e32 v4, 1"
    assert program(line).digest == program(line.replace("42", "43")).digest
    assert program(line).digest != program(line.replace(", 1", ", 2")).digest


SPOILT = {
    "barrier removed": ("s_barrier", ""),
    "wait dropped": ("s_waitcnt vmcnt(0)", ""),
    "release removed": ("buffer_wbl2 sc1", ""),
    "acquire removed": ("buffer_inv sc1", ""),
    "descriptor shrunk": ("s_mov_b32 s10, 0x7ffffffe", "s_mov_b32 s10, 0x40"),
    "store one element on": (
        "global_store_dword v1, v2, s[2:3] offset:8",
        "global_store_dword v1, v2, s[2:3] offset:24",
    ),
    "LDS read one word on": ("ds_read_b32 v1, v2", "ds_read_b32 v1, v2 offset:4"),
    "LDS write one word on": ("ds_write_b64 v1, v[2:3]", "ds_write_b64 v1, v[2:3] offset:4"),
    "wrong lane in a reduction": (
        "v_add_f32_dpp v0, v1, v1 row_ror:8 row_mask:0xf bank_mask:0xf",
        "v_add_f32_dpp v0, v1, v1 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf",
    ),
    "layout swapped": (
        "v_pk_mul_f32 v[0:1], v[2:3], v[4:5]",
        "v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1]",
    ),
}


def test_every_kind_of_mutant_is_covered() -> None:
    assert set(SPOILT) == set(KINDS)


@pytest.mark.parametrize("kind", SPOILT)
def test_a_mutant_spoils_one_line(kind: str) -> None:
    good, bad = SPOILT[kind]
    text = program(f"s_nop 0\n{good}\ns_nop 1").text
    (mutant,) = [m for m in mutants(text) if m.kind == kind]
    assert mutant.text == good
    assert text.splitlines()[mutant.line - 1] == good
    changed = [
        (a, b.strip())
        for a, b in zip(text.splitlines(), mutant.assembly.splitlines(), strict=True)
        if a != b
    ]
    assert changed == [(good, bad)]


def test_a_layout_is_swapped_where_two_numbers_become_one_register() -> None:
    text = program("v_cvt_pk_bf16_f32 v4, v6, v5\nv_cvt_pk_bf16_f32 v4, v6, v6").text
    (mutant,) = [m for m in mutants(text) if m.kind == "layout swapped"]
    assert mutant.text == "v_cvt_pk_bf16_f32 v4, v6, v5"
    assert mutant.assembly.splitlines()[mutant.line - 1] == "\tv_cvt_pk_bf16_f32 v4, v5, v6"


def test_mutants_may_be_sampled() -> None:
    text = program("s_barrier\n" * 10).text
    lines = [m.line for m in mutants(text, per_kind=3) if m.kind == "barrier removed"]
    assert len(lines) == 3
    assert lines[-1] - lines[0] == 9
    later = [m.line for m in mutants(text, first=lines[0] + 4) if m.kind == "barrier removed"]
    assert later == list(range(lines[0] + 4, lines[-1] + 1))


FACTORS = """
v_mov_b32_e32 v1, 1.0
v_mov_b32_e32 v2, 1.0
{change}
{swapped}
"""


@pytest.mark.parametrize(
    ("change", "differs"),
    [("s_nop 0", False), ("v_cvt_f32_u32_e32 v2, v0", True), ("v_mov_b32_e32 v2, v1", False)],
)
@pytest.mark.parametrize(
    "swapped", ["v_pk_mul_f32 v[4:5], v[1:2], v[1:2]", "v_cvt_pk_bf16_f32 v4, v2, v1"]
)
def test_whether_what_is_swapped_ever_differs(change: str, differs: bool, swapped: str) -> None:
    made = program(FACTORS.format(change=change, swapped=swapped))
    (pc,) = [i.pc for i in made.instructions if "_pk_" in i.name]
    seen = _watched(made, pc)
    for _ in range(2):
        run(Launch(made, (2, 1, 1), 1, ()), [])
    assert bool(seen) is differs


def test_waits_that_find_something_in_flight_are_told() -> None:
    body = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_waitcnt vmcnt(0)
s_waitcnt lgkmcnt(0)
s_waitcnt lgkmcnt(0)
"""
    made = program(body, pointers=1)
    report = run(Launch(made, (1, 1, 1), 1, (Pointer("a"),)), [make_buffer("a", np.zeros(4))])
    waits = [i.pc for i in made.instructions if i.name == "s_waitcnt"]
    assert report.waited == {waits[1]: {SGPR + 4, SGPR + 5}}


@pytest.mark.parametrize(
    ("between", "later", "covered"),
    [
        ("v_add_f32_e32 v9, v9, v9", "s_waitcnt vmcnt(1)", True),
        ("v_add_f32_e32 v9, v9, v9", "s_waitcnt vmcnt(0)", True),
        ("v_add_f32_e32 v9, v9, v9", "s_waitcnt vmcnt(2)", False),
        ("v_add_f32_e32 v9, v9, v9", "s_waitcnt lgkmcnt(0)", False),
        ("v_add_f32_e32 v9, v4, v9", "s_waitcnt vmcnt(0)", False),
        ("s_barrier", "s_waitcnt vmcnt(0)", False),
        ("s_cbranch_scc0 end", "s_waitcnt vmcnt(0)\nend:", False),
        ("buffer_wbl2 sc1", "s_waitcnt vmcnt(0)", False),
    ],
)
def test_whether_a_later_wait_is_in_time(between: str, later: str, covered: bool) -> None:
    made = program(f"s_waitcnt vmcnt(1)\n{between}\n{later}\ns_nop 0")
    line = covering(made, 0, {4})
    wait = next(i for i in made.instructions[1:] if i.name == "s_waitcnt")
    assert line == (wait.line if covered else None)


def test_the_summary_counts_each_kind() -> None:
    mutant = Mutant("barrier removed", 1, "s_barrier", "")
    outcomes = ("caught", "caught", "equivalent", "no effect")
    text = summary([Finding(mutant, outcome, "") for outcome in outcomes])
    assert text.splitlines()[1].split() == ["barrier", "removed", "4", "2", "1", "1", "0"]


def test_ptxas_is_tritons_own() -> None:
    assert shutil.which(str(sm90.ptxas()))
