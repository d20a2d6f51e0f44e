"""Each scalar instruction against Python integers."""

from __future__ import annotations

import pytest

from support.emulator import execute

A, B = 0xDEADBEEF, 0x00000013
M32, M64 = 0xFFFFFFFF, 2**64 - 1
WIDE_A, WIDE_B = 0x8000_0001_F00F_0003, 0x7FFF_FFFF_0FF0_0005


def signed(x: int, bits: int = 32) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


# name: (result, scc or None) for s2 = A, s3 = B
TWO = {
    "s_add_u32": ((A + B) & M32, 0),
    "s_sub_u32": ((A - B) & M32, 0),
    "s_add_i32": ((A + B) & M32, 0),
    "s_sub_i32": ((A - B) & M32, 0),
    "s_min_i32": (A, 1),
    "s_min_u32": (B, 0),
    "s_max_i32": (B, 0),
    "s_max_u32": (A, 1),
    "s_and_b32": (A & B, 1),
    "s_or_b32": (A | B, 1),
    "s_xor_b32": (A ^ B, 1),
    "s_andn2_b32": (A & ~B & M32, 1),
    "s_orn2_b32": ((A | ~B) & M32, 1),
    "s_nand_b32": (~(A & B) & M32, 1),
    "s_nor_b32": (~(A | B) & M32, 1),
    "s_xnor_b32": (~(A ^ B) & M32, 1),
    "s_lshl_b32": (A << 19 & M32, 1),
    "s_lshr_b32": (A >> 19, 1),
    "s_ashr_i32": (signed(A) >> 19 & M32, 1),
    "s_bfm_b32": (((1 << (A & 31)) - 1) << 19 & M32, None),
    "s_mul_i32": (A * B & M32, None),
    "s_mul_hi_u32": (A * B >> 32, None),
    "s_mul_hi_i32": (signed(A) * B >> 32 & M32, None),
    "s_absdiff_i32": (abs(signed(A) - B) & M32, 1),
    "s_lshl1_add_u32": ((A * 2 + B) & M32, 1),
    "s_lshl2_add_u32": ((A * 4 + B) & M32, 1),
    "s_lshl3_add_u32": ((A * 8 + B) & M32, 1),
    "s_lshl4_add_u32": ((A * 16 + B) & M32, 1),
    "s_pack_ll_b32_b16": (0x0013BEEF, None),
    "s_pack_lh_b32_b16": (0x0000BEEF, None),
    "s_pack_hh_b32_b16": (0x0000DEAD, None),
}
ONE = {
    "s_mov_b32": (A, None),
    "s_not_b32": (~A & M32, 1),
    "s_brev_b32": (int(f"{A:032b}"[::-1], 2), None),
    "s_abs_i32": (-signed(A), 1),
    "s_sext_i32_i8": (signed(0xEF, 8) & M32, None),
    "s_sext_i32_i16": (signed(0xBEEF, 16) & M32, None),
    "s_bcnt1_i32_b32": (A.bit_count(), 1),
    "s_bcnt0_i32_b32": (32 - A.bit_count(), 1),
    "s_ff1_i32_b32": (0, None),
    "s_ff0_i32_b32": (4, None),
    "s_flbit_i32_b32": (0, None),
    "s_flbit_i32": (2, None),
}
WIDE = {
    "s_and_b64": WIDE_A & WIDE_B,
    "s_or_b64": WIDE_A | WIDE_B,
    "s_xor_b64": WIDE_A ^ WIDE_B,
    "s_andn2_b64": WIDE_A & ~WIDE_B,
    "s_orn2_b64": (WIDE_A | ~WIDE_B) & M64,
    "s_nand_b64": ~(WIDE_A & WIDE_B) & M64,
    "s_nor_b64": ~(WIDE_A | WIDE_B) & M64,
    "s_xnor_b64": ~(WIDE_A ^ WIDE_B) & M64,
}


@pytest.mark.parametrize("name", TWO)
def test_two_operands(name: str) -> None:
    value, scc = TWO[name]
    state = execute(f"{name} s4, s2, s3", s={2: A, 3: B}, scc=1)
    assert state.s(4) == value
    assert state.scc == (1 if scc is None else scc)


@pytest.mark.parametrize("name", ONE)
def test_one_operand(name: str) -> None:
    value, scc = ONE[name]
    state = execute(f"{name} s4, s2", s={2: A}, scc=1)
    assert state.s(4) == value
    assert state.scc == (1 if scc is None else scc)


@pytest.mark.parametrize("name", WIDE)
def test_pairs(name: str) -> None:
    registers = {2: WIDE_A, 3: WIDE_A >> 32, 4: WIDE_B, 5: WIDE_B >> 32}
    state = execute(f"{name} s[6:7], s[2:3], s[4:5]", s=registers)
    assert state.s64(6) == WIDE[name]
    assert state.scc == int(WIDE[name] != 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s_lshl_b64", WIDE_A << 7 & M64),
        ("s_lshr_b64", WIDE_A >> 7),
        ("s_ashr_i64", signed(WIDE_A, 64) >> 7 & M64),
    ],
)
def test_wide_shifts(name: str, value: int) -> None:
    state = execute(f"{name} s[6:7], s[2:3], 7", s={2: WIDE_A, 3: WIDE_A >> 32})
    assert state.s64(6) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s_not_b64", ~WIDE_A & M64),
        ("s_mov_b64", WIDE_A),
    ],
)
def test_wide_moves(name: str, value: int) -> None:
    assert execute(f"{name} s[6:7], s[2:3]", s={2: WIDE_A, 3: WIDE_A >> 32}).s64(6) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s_bcnt1_i32_b64", WIDE_A.bit_count()),
        ("s_bcnt0_i32_b64", 64 - WIDE_A.bit_count()),
        ("s_ff1_i32_b64", 0),
        ("s_flbit_i32_b64", 0),
    ],
)
def test_wide_counts(name: str, value: int) -> None:
    assert execute(f"{name} s6, s[2:3]", s={2: WIDE_A, 3: WIDE_A >> 32}).s(6) == value


def test_searches_cross_the_halves() -> None:
    state = execute(
        "s_ff1_i32_b64 s6, s[2:3]\ns_flbit_i32_b64 s7, s[4:5]", s={2: 0, 3: 8, 4: 1, 5: 0}
    )
    assert (state.s(6), state.s(7)) == (35, 63)
    assert execute("s_ff1_i32_b32 s6, s2", s={2: 0}).s(6) == M32


@pytest.mark.parametrize(
    ("a", "b", "sum_", "carry"), [(M32, 1, 0, 1), (5, 6, 11, 0), (0x80000000, 0x80000000, 0, 1)]
)
def test_carry_chains(a: int, b: int, sum_: int, carry: int) -> None:
    state = execute("s_add_u32 s4, s2, s3\ns_addc_u32 s5, 0, 0", s={2: a, 3: b})
    assert (state.s(4), state.s(5)) == (sum_, carry)


def test_borrow_chain() -> None:
    state = execute("s_sub_u32 s4, s2, s3\ns_subb_u32 s5, s6, 0", s={2: 1, 3: 2, 6: 7})
    assert (state.s(4), state.s(5), state.scc) == (M32, 6, 0)


@pytest.mark.parametrize(
    ("name", "a", "b", "overflows"),
    [
        ("s_add_i32", 0x7FFFFFFF, 1, 1),
        ("s_add_i32", 0xFFFFFFFF, 1, 0),
        ("s_sub_i32", 0x80000000, 1, 1),
        ("s_sub_i32", 3, 5, 0),
    ],
)
def test_signed_overflow(name: str, a: int, b: int, overflows: int) -> None:
    assert execute(f"{name} s4, s2, s3", s={2: a, 3: b}).scc == overflows


@pytest.mark.parametrize(
    ("name", "selector", "value"),
    [
        ("s_bfe_u32", 12 | 8 << 16, A >> 12 & 0xFF),
        ("s_bfe_i32", 12 | 8 << 16, signed(A >> 12 & 0xFF, 8) & M32),
        ("s_bfe_u32", 4 | 0 << 16, 0),
        ("s_bfe_i32", 0 | 32 << 16, A),
    ],
)
def test_bit_fields(name: str, selector: int, value: int) -> None:
    assert execute(f"{name} s4, s2, s3", s={2: A, 3: selector}).s(4) == value


def test_wide_bit_fields() -> None:
    registers = {2: WIDE_A, 3: WIDE_A >> 32, 4: 28 | 36 << 16}
    assert execute("s_bfe_u64 s[6:7], s[2:3], s4", s=registers).s64(6) == WIDE_A >> 28
    value = signed(WIDE_A, 64) >> 28 & M64
    assert execute("s_bfe_i64 s[6:7], s[2:3], s4", s=registers).s64(6) == value
    assert execute("s_bfm_b64 s[6:7], 5, 40").s64(6) == 31 << 40


@pytest.mark.parametrize("relation", ["eq", "lg", "gt", "ge", "lt", "le"])
@pytest.mark.parametrize("kind", ["i32", "u32"])
@pytest.mark.parametrize("pair", [(A, B), (B, A), (A, A)])
def test_comparisons(relation: str, kind: str, pair: tuple[int, int]) -> None:
    a, b = (signed(x) if kind == "i32" else x for x in pair)
    truth = {"eq": a == b, "lg": a != b, "gt": a > b, "ge": a >= b, "lt": a < b, "le": a <= b}
    state = execute(f"s_cmp_{relation}_{kind} s2, s3", s={2: pair[0], 3: pair[1]})
    assert state.scc == int(truth[relation])


def test_other_comparisons() -> None:
    pairs = {2: 5, 3: 1, 4: 5, 5: 2}
    assert execute("s_cmp_eq_u64 s[2:3], s[4:5]", s=pairs).scc == 0
    assert execute("s_cmp_lg_u64 s[2:3], s[4:5]", s=pairs).scc == 1
    assert execute("s_cmpk_gt_u32 s2, 4", s=pairs).scc == 1
    assert execute("s_cmpk_lt_i32 s2, 0xfffffffe", s=pairs).scc == 0
    assert execute("s_bitcmp1_b32 s2, 2", s=pairs).scc == 1
    assert execute("s_bitcmp0_b32 s2, 2", s=pairs).scc == 0
    assert execute("s_bitcmp1_b64 s[2:3], 32", s=pairs).scc == 1


def test_selection_follows_scc() -> None:
    registers = {2: 1, 3: 2, 4: 3, 5: 4}
    for scc, picked in ((1, 1), (0, 3)):
        assert execute("s_cselect_b32 s6, s2, s4", s=registers, scc=scc).s(6) == picked
    wide = execute("s_cselect_b64 s[6:7], s[2:3], s[4:5]", s=registers, scc=0)
    assert wide.s64(6) == 3 | 4 << 32
    assert execute("s_cmov_b32 s2, s4", s=registers, scc=0).s(2) == 1
    assert execute("s_cmov_b32 s2, s4", s=registers, scc=1).s(2) == 3
    assert execute("s_cmovk_i32 s2, 77", s=registers, scc=1).s(2) == 77
    kept = execute("s_cmov_b64 s[2:3], s[4:5]", s=registers, scc=0)
    assert kept.s64(2) == 1 | 2 << 32


def test_constants() -> None:
    assert execute("s_movk_i32 s2, 0xffff8000").s(2) == 0xFFFF8000
    assert execute("s_mov_b32 s2, 1.0").s(2) == 0x3F800000
    assert execute("s_mov_b64 s[2:3], -1").s64(2) == M64
    assert execute("s_movk_i32 s2, 0x8000").s(2) == 0xFFFF8000
    assert execute("s_addk_i32 s2, 0xfff0", s={2: 1}).s(2) == 0xFFFFFFF1
    assert execute("s_addk_i32 s2, 0x7ff0", s={2: 1}).s(2) == 0x7FF1
    assert execute("s_mulk_i32 s2, 0xfffe", s={2: 5}).s(2) == 0xFFFFFFF6
    assert execute("s_cmovk_i32 s2, 0xfffe", s={2: 5}, scc=1).s(2) == 0xFFFFFFFE
    assert execute("s_cmpk_eq_i32 s2, 0xfffe", s={2: 0xFFFFFFFE}).scc == 1
    assert execute("s_cmpk_eq_u32 s2, 0xfffe", s={2: 0xFFFE}).scc == 1
    assert execute("s_cmpk_eq_u32 s2, 0xfffe", s={2: 0xFFFFFFFE}).scc == 0
    assert execute("s_mulk_i32 s2, 3", s={2: 5}).s(2) == 15
    assert execute("s_bitset1_b32 s2, 4", s={2: 1}).s(2) == 17
    assert execute("s_bitset0_b32 s2, 0", s={2: 1}).s(2) == 0
    assert execute("s_bitset1_b64 s[2:3], 40", s={2: 1, 3: 0}).s64(2) == 1 | 1 << 40
    assert execute("s_bitset0_b64 s[2:3], 0", s={2: 1, 3: 0}).s64(2) == 0


EXEC0, SOURCE = 0xF0F0, 0x3C3C
SAVED = {
    "s_and_saveexec_b64": SOURCE & EXEC0,
    "s_or_saveexec_b64": SOURCE | EXEC0,
    "s_xor_saveexec_b64": SOURCE ^ EXEC0,
    "s_andn2_saveexec_b64": SOURCE & ~EXEC0,
    "s_orn2_saveexec_b64": (SOURCE | ~EXEC0) & M64,
    "s_nand_saveexec_b64": ~(SOURCE & EXEC0) & M64,
    "s_nor_saveexec_b64": ~(SOURCE | EXEC0) & M64,
    "s_xnor_saveexec_b64": ~(SOURCE ^ EXEC0) & M64,
    "s_andn1_saveexec_b64": ~SOURCE & EXEC0,
    "s_orn1_saveexec_b64": (~SOURCE | EXEC0) & M64,
}


@pytest.mark.parametrize("name", SAVED)
def test_saveexec(name: str) -> None:
    state = execute(f"{name} s[4:5], s[2:3]", s={2: SOURCE, 3: 0}, mask=EXEC0)
    assert (state.s64(4), state.exec, state.scc) == (EXEC0, SAVED[name], 1)


BRANCHES = {
    "s_cbranch_scc0": {"scc": 0},
    "s_cbranch_scc1": {"scc": 1},
    "s_cbranch_vccz": {"vcc": 0},
    "s_cbranch_vccnz": {"vcc": 1 << 40},
    "s_cbranch_execz": {"mask": 0},
    "s_cbranch_execnz": {"mask": 1 << 40},
}
OTHER = {"scc": (1, 0), "vcc": (1, 0), "mask": (1, 0)}


@pytest.mark.parametrize("name", BRANCHES)
def test_conditional_branches(name: str) -> None:
    body = f"{name} .LBB0_1\ns_mov_b32 s4, 1\n.LBB0_1:\ns_nop 0"
    (key, taken_at), *_ = BRANCHES[name].items()
    assert execute(body, s={4: 0}, **{key: taken_at}).s(4) == 0
    opposite = OTHER[key][1] if taken_at else OTHER[key][0]
    assert execute(body, s={4: 0}, **{key: opposite}).s(4) == 1


def test_branch_and_loop() -> None:
    body = """
s_mov_b32 s2, 0
.LBB0_1:
s_add_u32 s2, s2, 3
s_cmp_lt_u32 s2, 30
s_cbranch_scc1 .LBB0_1
s_branch .LBB0_2
s_mov_b32 s2, 0
.LBB0_2:
s_nop 0
"""
    assert execute(body).s(2) == 30


def test_mode_register() -> None:
    field = "hwreg(HW_REG_MODE, 23, 1)"
    body = f"s_setreg_imm32_b32 {field}, 1\ns_getreg_b32 s2, {field}"
    assert execute(body).s(2) == 1
