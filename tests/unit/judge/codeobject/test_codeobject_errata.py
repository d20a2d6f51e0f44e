"""The table of known errata: forms in every spelling, near misses, wait states, and its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from triton._C.libtriton import amd, llvm

from gdn_judge.codeobject import errata, forms
from support.emulator import program

PAGE = Path(__file__).parents[4] / "docs" / "errata.md"
PACKED, OTHER_PACKED = (row.name for row in errata.TABLE[:2])
FMA = "v_pk_fma_f32 v[2:3], v[4:5], v[6:7], v[8:9]"


def found(arch: str, *body: str) -> dict[str, list[str]]:
    """Erratum -> the texts of its lines."""
    listing = forms.read("\n".join(body))
    return {
        row.name: [line.text for line in row.find(listing)]
        for row in errata.TABLE
        if arch in row.archs and any(True for _ in row.find(listing))
    }


def machine_code(text: str) -> bytes:
    """What the assembler makes of one instruction for gfx950."""
    framed = f'.amdgcn_target "amdgcn-amd-amdhsa--gfx950"\n.text\nf:\n{text}\ns_nop 7\n'
    llvm.init_targets()
    code = bytes(amd.assemble_amdgcn(framed, "gfx950", ""))
    end = code.index((0xBF800007).to_bytes(4, "little"))
    return code[end - 8 : end]


SPELLINGS = [
    f"{FMA} op_sel:[0,1,0]",
    f"{FMA} op_sel:[0,1]",
    f"{FMA} op_sel:[0, 1, 0]",
    f"{FMA} op_sel : [ 0,1,0 ]",
    f"{FMA} op_sel:[0x0,0b1,0]",
    f"{FMA} op_sel:[0,1,0,0]",
    f"{FMA} op_sel:[0,1,0] op_sel_hi:[1,1,1]",
    f"{FMA}  op_sel:[0,1,0] ; a comment",
    f"{FMA} /* op_sel:[1,0,0] */ op_sel:[0,1,0] // another",
    f"{FMA.upper().replace('V[', 'v[')} op_sel:[0,1,0]",
    f"{FMA.replace(',', '')} op_sel:[0,1,0]",
    f"{FMA.replace('_f32', '_f32_e64')}, op_sel:[0,1,0]",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_each_spelling_of_one_instruction_is_found(text: str) -> None:
    assert machine_code(text) == machine_code(SPELLINGS[0])
    assert list(found("gfx950", text)) == [PACKED]


@pytest.mark.parametrize(
    ("modifiers", "row"),
    [
        ("op_sel:[0,1,0] op_sel_hi:[1,0,1]", PACKED),
        ("op_sel:[0,1,0] op_sel_hi:[0,1,0] neg_lo:[0,1,0] neg_hi:[1,0,0]", PACKED),
        ("op_sel:[0,1,0] neg_lo:[0,0,1]", PACKED),
        ("op_sel:[0,1,0] clamp", PACKED),
        ("op_sel:[1,0,0]", OTHER_PACKED),
        ("op_sel:[1]", OTHER_PACKED),
        ("op_sel:[0,0,1]", OTHER_PACKED),
        ("op_sel:[1,1,0] op_sel_hi:[1,0,1]", OTHER_PACKED),
        ("op_sel:[0,1,1]", OTHER_PACKED),
        ("op_sel:[2-1,1,0]", OTHER_PACKED),
        ("", None),
        ("op_sel:[0,0,0]", None),
        ("op_sel_hi:[0,1,0]", None),
        ("op_sel_hi:[1,0,1] neg_lo:[0,1,0] neg_hi:[0,1,0]", None),
    ],
)
def test_which_forms_of_the_packed_fma_are_meant(modifiers: str, row: str | None) -> None:
    assert len(machine_code(f"{FMA} {modifiers}")) == 8
    assert list(found("gfx950", f"{FMA} {modifiers}")) == ([row] if row else [])
    assert found("gfx942", f"{FMA} {modifiers}") == {}


@pytest.mark.parametrize("name", ["v_pk_mul_f32", "v_pk_add_f32"])
def test_other_packed_instructions_are_not_named(name: str) -> None:
    assert found("gfx950", f"{name} v[2:3], v[4:5], v[6:7] op_sel:[0,1]") == {}


STORED, TRANS, PART, SWAPPED, OTHER_LANES = (row.name for row in errata.TABLE[2:7])
WAITS = [  # erratum, first instruction, second, wait states that it needs between
    (STORED, "buffer_store_dwordx4 v[4:7], v0, s[8:11], 0 offen", "v_mov_b32_e32 v5, 0", 2),
    (STORED, "buffer_store_dwordx3 v[4:6], v0, s[8:11], s2 offen", "v_mov_b32_e32 v5, 0", 1),
    (STORED, "buffer_store_dwordx4 v[4:7], off, s[8:11], m0", "v_pk_mul_f32 v[6:7], v[0:1], 0", 1),
    (STORED, "global_store_dwordx4 v0, v[4:7], s[2:3]", "v_pk_mul_f32 v[6:7], v[0:1], v[0:1]", 2),
    (STORED, "global_store_dwordx4 v[0:1], a[4:7], off", "v_accvgpr_write_b32 a5, v1", 2),
    (STORED, "flat_store_dwordx4 v[0:1], v[4:7]", "v_exp_f32_e32 v4, v9", 2),
    (STORED, "scratch_store_dwordx4 off, v[4:7], s0", "v_exp_f32_e32 v4, v9", 2),
    (TRANS, "v_exp_f32_e32 v4, v9", "v_add_f32_e32 v1, v2, v4", 1),
    (TRANS, "v_rsq_f32_e64 v4, -v9", "v_fmac_f32_e32 v4, v2, v3", 1),
    (TRANS, "v_rcp_f64_e32 v[4:5], v[8:9]", "v_mov_b32_e32 v1, v5", 1),
    (PART, "v_cvt_pk_fp8_f32 v4, v1, v2 op_sel:[0,0,1]", "v_mov_b32_e32 v1, v4", 1),
    (PART, "v_cvt_sr_fp8_f32 v4, v1, v2 op_sel:[0,0,1,0]", "v_or_b32_e32 v1, v4, v2", 1),
    (PART, "v_add_f16_sdwa v4, v1, v2 dst_sel:WORD_1", "v_or_b32_e32 v1, v4, v2", 1),
    (SWAPPED, "v_mov_b32_e32 v4, v1", "v_permlane32_swap_b32_e32 v3, v4", 2),
    (SWAPPED, "v_add_f32_e32 v4, v1, v1", "v_permlane16_swap_b32_e64 v4, v3", 2),
    (OTHER_LANES, "v_add_f32_e32 v4, v1, v1", "v_mov_b32_dpp v3, v4 row_shr:1 row_mask:0xf", 2),
    (OTHER_LANES, "v_add_f32_e32 v4, v1, v1", "v_mov_b32 v3, v4 quad_perm:[1,0,3,2]", 2),
]


@pytest.mark.parametrize(("row", "first", "second", "states"), WAITS)
def test_too_few_wait_states_are_found(row: str, first: str, second: str, states: int) -> None:
    """s_nop N counts N + 1, every other instruction 1."""
    for between, waited in (
        ((), 0),
        (("s_mov_b32 s0, 0",), 1),
        (("s_nop 0",), 1),
        (("s_nop 0x1",), 2),
        (("s_nop 0", "s_waitcnt lgkmcnt(0)"), 2),
    ):
        expected = {row: [second]} if waited < states else {}
        assert found("gfx950", first, *between, second) == expected, between


NOT_MEANT = [
    ("buffer_store_dwordx2 v[4:5], v0, s[8:11], 0 offen", "v_mov_b32_e32 v5, 0"),
    ("buffer_store_dwordx4 v[4:7], v0, s[8:11], 0 offen", "v_mov_b32_e32 v0, 0"),
    ("global_store_dwordx4 v[4:5], v[8:11], off", "v_mov_b32_e32 v4, 0"),
    ("global_store_dwordx4 v0, v[4:7], s[2:3]", "v_cmp_eq_u32_e32 vcc, v4, v5"),
    ("global_store_dwordx4 v0, v[4:7], s[2:3]", "v_readlane_b32 s4, v5, 0"),
    ("v_exp_f32_e32 v4, v9", "v_log_f32_e32 v1, v4"),
    ("v_exp_f32_e32 v4, v9", "v_add_f32_e32 v4, v1, v2"),
    ("v_exp_f32_e32 v4, v9", "global_store_dword v0, v4, s[2:3]"),
    ("v_cvt_pk_fp8_f32 v4, v1, v2", "v_mov_b32_e32 v1, v4"),
    ("v_cvt_pk_fp8_f32 v4, v1, v2 op_sel:[0,0,1]", "v_mov_b32_e32 v4, v1"),
    ("v_cvt_sr_fp8_f32 v4, v1, v2", "v_mov_b32_e32 v1, v4"),
    ("v_pk_add_f16 v4, v1, v2 op_sel:[1,1]", "v_mov_b32_e32 v1, v4"),
    ("v_fma_mix_f32 v4, v1, v2, v3 op_sel:[0,0,1] op_sel_hi:[1,1,1]", "v_mov_b32_e32 v1, v4"),
    ("v_add_f16_sdwa v4, v1, v2 dst_sel:DWORD src0_sel:WORD_1", "v_mov_b32_e32 v1, v4"),
    ("v_mov_b32_e32 v4, v1", "v_permlane32_swap_b32_e32 v3, v5"),
    ("global_load_dword v4, v0, s[2:3]", "v_permlane32_swap_b32_e32 v3, v4"),
    ("v_add_f32_e32 v4, v1, v1", "v_mov_b32_dpp v4, v3 row_shr:1 row_mask:0xf bank_mask:0xf"),
    ("v_add_f32_e32 v4, v1, v1", "v_mov_b32_e32 v3, v4"),
]


@pytest.mark.parametrize(("first", "second"), NOT_MEANT)
def test_what_needs_no_wait_is_not_found(first: str, second: str) -> None:
    assert found("gfx950", first, second) == {}


def test_both_ways_of_a_branch_are_followed() -> None:
    """LLVM #202333: the wait was missing behind a branch around the store."""
    store, changed = "global_store_dwordx4 v26, v[34:37], s[20:21]", "v_mov_b32_e32 v34, 0"
    for branch, expected in (
        ("s_branch on", {STORED: [changed]}),
        ("s_cbranch_execz on", {STORED: [changed]}),
        ("s_branch elsewhere", {}),
        ("s_endpgm", {}),
    ):
        # three wait states along the fall through, one along the branch
        body = [store, branch, "s_nop 1", "elsewhere:", "s_nop 0", "on:", changed]
        assert found("gfx950", *body) == expected, branch
    assert found("gfx950", store, "s_cbranch_execz on", changed, "on:") == {STORED: [changed]}
    # as reported: one instruction between, and one that LLVM had put there before
    assert STORED in found("gfx950", store, "s_or_b64 exec, exec, s[34:35]", changed)
    assert not found("gfx950", store, "s_or_b64 exec, exec, s[34:35]", "s_nop 0", changed)


def test_waits_hold_on_gfx942_where_the_sources_say_so() -> None:
    rows = {row: found("gfx942", first, second) for row, first, second, _ in WAITS}
    assert {row for row, where in rows.items() if where} == {STORED, TRANS, PART, OTHER_LANES}


WGMMA = "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16"
PTX = """
.version 8.7
.target sm_90a
.file 1 "/src" "dot.py"
.visible .entry kernel(.param .u64 p)
{{
  .loc 1 31 5
  // begin inline asm
  {line}
  // end inline asm
  ret;
}}
"""


def test_ptx_is_searched_too() -> None:
    of_registers = f"{WGMMA} {{%f1,%f2}}, {{%r1, %r2}}, %rd1, p, 1, 1, 0;"
    (finding,) = errata.find("sm90", PTX.format(line=of_registers))
    assert (finding.erratum.name, finding.erratum.corrupts) == (errata.TABLE[-1].name, False)
    assert (finding.line.source, finding.line.number) == ("dot.py:31", 9)
    of_memory = f"{WGMMA} {{%f1,%f2}}, %rd2, %rd1, p, 1, 1, 0, 0;"
    assert errata.find("sm90", PTX.format(line=of_memory)) == []
    assert errata.find("gfx950", PTX.format(line=of_registers)) == []


def test_a_finding_names_instruction_places_and_source() -> None:
    body = f"\t.loc\t1 42 7 ; kernel.py:42:7\n\t{FMA} op_sel:[0,1,0]\n\n\t{FMA} op_sel:[0,1,0]\n"
    text = program(body).text
    (finding,) = errata.find("gfx950", text)
    assert text.splitlines()[finding.line.number - 1].strip() == f"{FMA} op_sel:[0,1,0]"
    assert str(finding) == (
        f"{FMA} op_sel:[0,1,0] (kernel.py:42, assembly line {finding.line.number}) and 1 more: "
        "packed FMA, low lane from the high half: the accumulation of the low lane is now and "
        "then not performed; the high lane is right, and no error is reported; "
        "https://github.com/ROCm/rocMLIR/pull/2459"
    )


def test_text_that_the_emulator_cannot_parse_is_searched() -> None:
    body = f"v_mov_b32 v1, [v2]\nv_unknown_b99 v[1:9], sym@rel32@lo+4 what:[x]\n{FMA} op_sel:[0,1]"
    (finding,) = errata.find("gfx950", body)
    assert finding.line.text == f"{FMA} op_sel:[0,1]"


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()
    rows = re.findall(r"^\| .*\|$", page, re.MULTILINE)
    assert rows == errata.table().splitlines()


def test_every_row_has_a_public_source_and_is_exercised() -> None:
    for row in errata.TABLE:
        assert row.archs, row.name
        assert row.sources, row.name
        assert all(source.startswith("https://") for source in row.sources), row.name
    assert len({row.name for row in errata.TABLE}) == len(errata.TABLE)
    waits = {row for row, *_ in WAITS}
    assert {row.name for row in errata.TABLE} == {
        PACKED,
        OTHER_PACKED,
        *waits,
        "matrix product of registers",
    }
