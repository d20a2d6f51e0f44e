"""What a GPU would not report: races, missing waits, unwritten values, divergent barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gdn_judge.emulator.assembly import parse
from gdn_judge.emulator.errors import (
    AssemblyError,
    DivergentBarrier,
    GlobalRace,
    LaunchError,
    LdsRace,
    MissingWait,
    NoProgress,
    Uninitialised,
    UnsupportedInstruction,
)
from gdn_judge.emulator.launch import Launch, Schedule, run
from support.emulator import execute, launch, program, words

A = words(1)
START = """
s_mov_b32 s20, s2
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_and_b32_e32 v1, 63, v0
v_lshrrev_b32_e32 v2, 6, v0
v_lshlrev_b32_e32 v3, 2, v0
s_waitcnt lgkmcnt(0)
"""  # v0 work-item, v1 lane, v2 wave, v3 4 * work-item; s20 workgroup; two pointers


def two_waves(body: str, *, lds: int = 1024, grid: int = 1, **more: Any) -> Any:
    kernel = program(START + body, pointers=2, lds=lds)
    arrays = {"a": np.resize(A, 512), "b": np.zeros(512, np.uint32)}
    return launch(kernel, arrays, waves=2, grid=grid, **more)


EXCHANGE = """
ds_write_b32 v3, v0
s_waitcnt lgkmcnt(0)
s_barrier
v_xor_b32_e32 v4, 0x100, v3
ds_read_b32 v5, v4
s_waitcnt lgkmcnt(0)
global_store_dword v3, v5, s[6:7]
"""


def test_an_exchange_between_waves() -> None:
    after, _ = two_waves(EXCHANGE)
    assert after["b"][:128].tolist() == [i ^ 64 for i in range(128)]


def test_an_exchange_without_its_barrier_is_a_race() -> None:
    with pytest.raises(LdsRace, match="was written by wave 1") as caught:
        two_waves(EXCHANGE.replace("s_barrier\n", ""))
    assert caught.value.site.text == "ds_read_b32 v5, v4"


def test_a_barrier_before_the_write_is_waited_for_orders_nothing() -> None:
    with pytest.raises(LdsRace):
        two_waves(EXCHANGE.replace("s_waitcnt lgkmcnt(0)\ns_barrier", "s_barrier", 1))


def test_writing_over_what_another_wave_reads_is_a_race() -> None:
    again = EXCHANGE + "ds_write_b32 v3, v1\n"
    with pytest.raises(LdsRace, match="was read by wave"):
        two_waves(again)
    two_waves(EXCHANGE + "s_barrier\nds_write_b32 v3, v1\n")


def test_waves_may_write_the_same_value_to_one_place() -> None:
    same = "v_lshlrev_b32_e32 v4, 2, v1\nds_write_b32 v4, v1\n"
    two_waves(same)
    with pytest.raises(LdsRace):
        two_waves("v_lshlrev_b32_e32 v4, 2, v1\nds_write_b32 v4, v0\n")


def test_a_divergent_barrier_is_named() -> None:
    body = """
v_readfirstlane_b32 s8, v2
s_cmp_eq_u32 s8, 0
s_cbranch_scc1 .LBB0_1
s_barrier
s_branch .LBB0_2
.LBB0_1:
s_barrier
.LBB0_2:
s_nop 0
"""
    with pytest.raises(DivergentBarrier, match="wait at different barriers"):
        two_waves(body)
    with pytest.raises(DivergentBarrier, match="1 waves of its workgroup never reach"):
        two_waves(body.replace("s_barrier\ns_branch", "s_branch"))


def test_fronts_split_and_meet_again() -> None:
    body = """
v_readfirstlane_b32 s8, v2
s_cmp_eq_u32 s8, 0
s_cbranch_scc1 .LBB0_1
v_add_u32_e32 v4, 7, v0
s_branch .LBB0_2
.LBB0_1:
v_mul_u32_u24_e32 v4, 3, v0
.LBB0_2:
global_store_dword v3, v4, s[6:7]
"""
    after, report = two_waves(body)
    assert after["b"][:128].tolist() == [3 * i if i < 64 else i + 7 for i in range(128)]
    assert report.mnemonics["global_store_dword"] == 2
    assert report.mnemonics["v_mul_u32_u24"] == 1


def test_a_loop_of_another_length_in_each_wave() -> None:
    body = """
v_readfirstlane_b32 s8, v2
s_add_u32 s8, s8, 2
v_mov_b32_e32 v4, 0
.LBB0_1:
v_add_u32_e32 v4, v4, v0
s_sub_u32 s8, s8, 1
s_cmp_lg_u32 s8, 0
s_cbranch_scc1 .LBB0_1
global_store_dword v3, v4, s[6:7]
"""
    after, _ = two_waves(body)
    assert after["b"][:128].tolist() == [i * (2 if i < 64 else 3) for i in range(128)]


def test_a_load_used_before_its_wait() -> None:
    body = "global_load_dword v4, v3, s[4:5]\nglobal_load_dword v5, v3, s[4:5]\n"
    use = "v_add_u32_e32 v6, v4, v4\n"
    two_waves(body + "s_waitcnt vmcnt(1)\n" + use)
    with pytest.raises(MissingWait, match=r"v4 is used while 'global_load_dword v4, v3, s\[4:5\]'"):
        two_waves(body + use)
    with pytest.raises(MissingWait, match="v5"):
        two_waves(body + "s_waitcnt vmcnt(1)\nv_add_u32_e32 v6, v5, v5\n")


def test_a_register_overwritten_while_its_load_is_in_flight() -> None:
    body = "global_load_dword v4, v3, s[4:5]\nv_mov_b32_e32 v4, 0\n"
    with pytest.raises(MissingWait):
        two_waves(body)


def test_stores_count_as_vector_memory() -> None:
    body = "global_load_dword v4, v3, s[4:5]\nglobal_store_dword v3, v0, s[6:7]\n"
    use = "v_add_u32_e32 v6, v4, v4\n"
    two_waves(body + "s_waitcnt vmcnt(1)\n" + use)
    with pytest.raises(MissingWait):
        two_waves(body + "s_waitcnt vmcnt(2)\n" + use)


def test_scalar_loads_return_in_any_order() -> None:
    body = "s_load_dword s8, s[4:5], 0x0\ns_load_dword s9, s[4:5], 0x4\n"
    two_waves(body + "s_waitcnt lgkmcnt(0)\ns_add_u32 s8, s8, s9\n")
    with pytest.raises(MissingWait):
        two_waves(body + "s_waitcnt lgkmcnt(1)\ns_add_u32 s8, s8, 1\n")


def test_lds_loads_return_in_order() -> None:
    body = "ds_write_b32 v3, v0\nds_read_b32 v4, v3\nds_read_b32 v5, v3\n"
    two_waves(body + "s_waitcnt lgkmcnt(1)\nv_mov_b32_e32 v6, v4\n")
    with pytest.raises(MissingWait):
        two_waves(body + "s_waitcnt lgkmcnt(1)\nv_mov_b32_e32 v6, v5\n")


@pytest.mark.parametrize(
    "body",
    [
        "global_store_dword v3, v9, s[6:7]",
        "global_load_dword v4, v9, s[4:5]",
        "v_add_u32_e32 v4, v9, v0\nglobal_store_dword v3, v4, s[6:7]",
        "v_cmp_eq_u32_e32 vcc, v9, v0\ns_cbranch_vccz .LBB0_1\n.LBB0_1:",
        "v_readfirstlane_b32 s8, v9\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 .LBB0_1\n.LBB0_1:",
        "s_and_saveexec_b64 s[8:9], s[30:31]",
        "v_mov_b32_dpp v4, v9 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1\n"
        "global_store_dword v3, v4, s[6:7]",
        "v_pk_add_f32 v[4:5], v[8:9], v[8:9]\nglobal_store_dword v3, v5, s[6:7]",
        "v_cvt_pk_bf16_f32 v4, v0, v9\nglobal_store_dword v3, v4, s[6:7]",
    ],
)
def test_a_value_that_nobody_wrote_may_not_be_used(body: str) -> None:
    with pytest.raises(Uninitialised):
        two_waves(body)


@pytest.mark.parametrize(
    "body",
    [
        # the undefined half is never stored
        "v_cvt_pk_bf16_f32 v4, v0, v9\nglobal_store_short v3, v4, s[6:7]",
        "v_cvt_pk_bf16_f32 v4, v0, v9\nv_and_b32_e32 v4, 0xffff, v4\n"
        "global_store_dword v3, v4, s[6:7]",
        "v_cvt_pk_bf16_f32 v4, v0, v9\nv_lshlrev_b32_e32 v4, 16, v4\n"
        "global_store_dword v3, v4, s[6:7]",
        "v_mov_b32_e32 v4, v9\nv_mov_b32_e32 v4, v0\nglobal_store_dword v3, v4, s[6:7]",
        "v_perm_b32 v4, v9, v0, 0x03020100\nglobal_store_dword v3, v4, s[6:7]".replace(
            "0x03020100", "s8"
        ).join(["s_mov_b32 s8, 0x03020100\n", ""]),
        "v_pk_mul_f32 v[4:5], v[0:1], v[2:3] op_sel_hi:[0,0]\nglobal_store_dword v3, v5, s[6:7]",
        "v_cndmask_b32_e64 v4, v0, v9, s[8:9]\nglobal_store_dword v3, v4, s[6:7]".join(
            ["s_mov_b64 s[8:9], 0\n", ""]
        ),
    ],
)
def test_undefined_bits_that_reach_nothing_are_no_fault(body: str) -> None:
    two_waves(body)


def test_a_bit_field_needs_only_its_own_bits() -> None:
    body = """
s_movk_i32 s26, 0x8001
s_bfe_i64 s[8:9], s[26:27], {field}
v_mov_b32_e32 v4, s9
global_store_dword v3, v4, s[6:7]
"""
    after, _ = two_waves(body.format(field="0x100000"))
    assert after["b"][0] == 0xFFFFFFFF
    with pytest.raises(Uninitialised):
        two_waves(body.format(field="0x180010"))


def test_only_active_lanes_need_a_value() -> None:
    body = """
s_mov_b64 exec, 0xff
v_mov_b32_e32 v9, 1
{restore}global_store_dword v3, v9, s[6:7]
"""
    two_waves(body.format(restore=""))
    with pytest.raises(Uninitialised, match="lane 8"):
        two_waves(body.format(restore="s_mov_b64 exec, -1\n"))


SHARED = "v_lshlrev_b32_e32 v4, 2, v1\nglobal_store_dword v4, v0, s[6:7]\n"


def test_workgroups_that_write_one_byte_race() -> None:
    with pytest.raises(GlobalRace, match="race between workgroups at offset 0 of the buffer 'b'"):
        launch(
            program(START + SHARED, pointers=2),
            {"a": np.resize(A, 512), "b": np.zeros(512, np.uint32)},
            grid=2,
        )


def test_workgroups_may_read_one_byte_and_write_apart() -> None:
    body = """
v_lshl_add_u32 v4, s20, 8, v3
global_load_dword v5, v3, s[4:5]
s_waitcnt vmcnt(0)
global_store_dword v4, v5, s[6:7]
"""
    arrays = {"a": np.resize(A, 64), "b": np.zeros(256, np.uint32)}
    after, report = launch(program(START + body, pointers=2), arrays, grid=4)
    assert after["b"].tolist() == A.tolist() * 4
    assert (report.traffic["a"].read, report.traffic["a"].distinct_read) == (1024, 256)


SHIFT = """
v_xor_b32_e32 v5, 0x100, v3
global_load_dword v4, v5, s[4:5]
s_waitcnt vmcnt(0)
s_barrier
global_store_dword v3, v4, s[4:5]
"""


def test_waves_of_a_workgroup_are_ordered_by_a_barrier() -> None:
    after, _ = two_waves(SHIFT)
    source = np.resize(A, 512)
    assert after["a"][:128].tolist() == [int(source[i ^ 64]) for i in range(128)]
    with pytest.raises(GlobalRace, match="race between waves of a workgroup"):
        two_waves(SHIFT.replace("s_barrier\n", ""))


TICKET = """
s_lshl_b32 s9, s20, 8
v_add_u32_e32 v4, s9, v3
v_add_u32_e32 v5, 1, v1
global_store_dword v4, v5, s[4:5]
v_mov_b32_e32 v6, 0
v_mov_b32_e32 v7, 1
s_mov_b64 s[10:11], exec
s_mov_b64 exec, 1
buffer_wbl2 sc1
s_waitcnt vmcnt(0)
global_atomic_add v8, v6, v7, s[6:7] sc0
s_waitcnt vmcnt(0)
buffer_inv sc1
s_mov_b64 exec, s[10:11]
v_readfirstlane_b32 s12, v8
s_cmp_eq_u32 s12, 3
s_cbranch_scc0 .LBB0_1
global_load_dword v10, v3, s[4:5]
global_load_dword v11, v3, s[4:5] offset:256
global_load_dword v12, v3, s[4:5] offset:512
global_load_dword v13, v3, s[4:5] offset:768
s_waitcnt vmcnt(0)
v_add_u32_e32 v10, v10, v11
v_add_u32_e32 v12, v12, v13
v_add_u32_e32 v10, v10, v12
global_store_dword v3, v10, s[6:7] offset:16
global_store_dword v6, v6, s[6:7]
.LBB0_1:
s_nop 0
"""  # four workgroups of one wave; the last to arrive adds up what all have stored


def ticket(body: str, seed: int | None = None) -> Any:
    arrays = {"a": np.zeros(256, np.uint32), "b": np.zeros(80, np.uint32)}
    kernel = program(START + body, pointers=2)
    return launch(kernel, arrays, grid=4, schedule=Schedule(seed=seed))[0]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_the_last_arriver_may_read_what_the_others_released(seed: int | None) -> None:
    after = ticket(TICKET, seed)
    assert after["b"][4:68].tolist() == [4 * (i + 1) for i in range(64)]
    assert after["b"][0] == 0


@pytest.mark.parametrize(
    "piece",
    [
        "buffer_wbl2 sc1\n",
        "buffer_inv sc1\n",
        "s_waitcnt vmcnt(0)\nglobal_atomic_add v8, v6, v7, s[6:7] sc0\n",
    ],
)
@pytest.mark.parametrize("seed", [None, 1])
def test_each_piece_of_a_ticket_is_needed(piece: str, seed: int | None) -> None:
    mutant = TICKET.replace(piece, "", 1)
    if "atomic" in piece:  # a plain counter instead
        mutant = TICKET.replace(piece, "v_mov_b32_e32 v8, 3\n")
    with pytest.raises(GlobalRace):
        ticket(mutant, seed)


RELEASED_BY_ANOTHER_WAVE = """
s_lshl_b32 s9, s20, 9
v_add_u32_e32 v4, s9, v3
global_store_dword v4, v0, s[4:5]
s_waitcnt vmcnt(0)
s_barrier
v_mov_b32_e32 v6, 0
v_mov_b32_e32 v7, 1
v_mov_b32_e32 v8, 0
v_readfirstlane_b32 s8, v2
s_cmp_lg_u32 s8, 0
s_cbranch_scc1 .LBB0_1
s_mov_b64 exec, 1
buffer_wbl2 sc1
s_waitcnt vmcnt(0)
global_atomic_add v8, v6, v7, s[6:7] sc0
s_waitcnt vmcnt(0)
buffer_inv sc1
v_readfirstlane_b32 s12, v8
s_mov_b64 exec, -1
s_cmp_lg_u32 s12, 1
s_cbranch_scc1 .LBB0_1
global_load_dword v10, v3, s[4:5] offset:256
global_load_dword v11, v3, s[4:5] offset:768
s_waitcnt vmcnt(0)
v_add_u32_e32 v10, v10, v11
global_store_dword v3, v10, s[6:7] offset:16
.LBB0_1:
s_nop 0
"""  # two workgroups of two waves: wave 0 releases for wave 1, and reads what wave 1 stored


def test_a_barrier_passes_on_only_what_was_waited_for() -> None:
    after, _ = two_waves(RELEASED_BY_ANOTHER_WAVE, grid=2)
    assert after["b"][4:68].tolist() == [2 * (64 + i) for i in range(64)]
    with pytest.raises(GlobalRace, match="race between workgroups"):
        two_waves(
            RELEASED_BY_ANOTHER_WAVE.replace("s_waitcnt vmcnt(0)\ns_barrier", "s_barrier"), grid=2
        )


def test_a_release_that_is_not_waited_for_releases_nothing() -> None:
    with pytest.raises(GlobalRace):
        ticket(TICKET.replace("buffer_wbl2 sc1\ns_waitcnt vmcnt(0)\n", "buffer_wbl2 sc1\n"))


def test_fences_of_a_smaller_scope_do_not_order_workgroups() -> None:
    with pytest.raises(GlobalRace):
        ticket(TICKET.replace("buffer_inv sc1", "buffer_inv sc0"))


def test_an_endless_loop_ends() -> None:
    kernel = program(".LBB0_1:\ns_nop 0\ns_branch .LBB0_1")
    with pytest.raises(NoProgress, match="budget"):
        run(Launch(kernel, (1, 1, 1), 1, ()), [], budget=50_000)


def test_a_shuffled_order_gives_the_same_result() -> None:
    body = "v_lshl_add_u32 v4, s20, 8, v3\nglobal_store_dword v4, v0, s[6:7]\n"
    kernel = program(START + body, pointers=2)
    arrays = {"a": np.zeros(4, np.uint32), "b": np.zeros(64 * 40, np.uint32)}
    plain, _ = launch(kernel, arrays, grid=40)
    for seed in (1, 2):
        shuffled, report = launch(kernel, arrays, grid=40, schedule=Schedule(seed=seed))
        assert shuffled["b"].tolist() == plain["b"].tolist()
        assert report.mnemonics["global_store_dword"] == 40


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("v_frobnicate_b32 v0, v1", "the instruction is not modelled"),
        ("v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]", "MFMA is not modelled"),
        ("v_add_i32 v0, v1, v2 clamp", "the modifier 'clamp' is not modelled"),
        ("global_load_dword v0, v1, s[2:3] glc", "the modifier 'glc' is not modelled"),
        ("s_memtime s[2:3]", "the instruction is not modelled"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3", "only nearest-even rounding"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 2, 2), 1", "only nearest-even rounding"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0", "only nearest-even rounding"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 6, 4), 0", "writing hwreg.* is not modelled"),
        ("v_add_f32_dpp v0, v1, v2 row_share:1 row_mask:0xf bank_mask:0xf", "row_share"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(line: str, why: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=why) as caught:
        execute(line)
    assert line in str(caught.value)


def test_source_lines_are_named() -> None:
    body = "\t.loc\t1 42 7\t; kernel.py:42:7\nv_mov_b32_e32 v4, v9\n\t.loc\t1 43 7\n"
    with pytest.raises(Uninitialised, match=r"\(kernel\.py:43\): global_store_dword"):
        two_waves(body + "global_store_dword v3, v4, s[6:7]")


def test_bad_assembly_is_an_error() -> None:
    with pytest.raises(AssemblyError, match="not an AMDGPU kernel"):
        parse("nothing")
    with pytest.raises(AssemblyError, match=r"line 6: .*the operand 'v\[0,1\]' is not understood"):
        program("v_mov_b64_e32 v[0,1], 0")


def test_launches_that_do_not_fit_are_refused() -> None:
    kernel = program("s_nop 0", pointers=1)
    with pytest.raises(LaunchError, match="0 arguments for 1 parameters"):
        run(Launch(kernel, (1, 1, 1), 1, ()), [])
    with pytest.raises(LaunchError, match="17 waves exceed 1024 work-items"):
        run(Launch(kernel, (1, 1, 1), 17, (None,)), [])
    with pytest.raises(LaunchError, match="163841 bytes of LDS"):
        run(Launch(kernel, (1, 1, 1), 1, (None,), 163841), [])
    with pytest.raises(LaunchError, match="argument 0 has 4 bytes, the kernel wants 8"):
        run(Launch(kernel, (1, 1, 1), 1, (b"1234",)), [])
