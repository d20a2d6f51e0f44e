"""Known errata: instruction forms that a chip, or its assembler, gets wrong, with their sources.

The table is data; `docs/errata.md` shows it. A row is here because a public source
describes it and because it can be recognised in compiled code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gdn_judge.codeobject import forms
from gdn_judge.codeobject.forms import Form, Line, each


@dataclass(frozen=True)
class Erratum:
    """`corrupts`: code with the form gives wrong values, and fails; else it is told."""

    name: str
    archs: tuple[str, ...]
    form: str
    happens: str
    corrupts: bool
    sources: tuple[str, ...]
    find: Form


TABLE = (
    Erratum(
        "packed FMA, low lane from the high half",
        ("gfx950",),
        "`v_pk_fma_f32` with `op_sel:[0,1,0]` (also written `[0,1]`), whatever its `op_sel_hi`, "
        "`neg_lo` and `neg_hi`",
        "the accumulation of the low lane is now and then not performed; the high lane is right, "
        "and no error is reported",
        True,
        ("https://github.com/ROCm/rocMLIR/pull/2459",),
        each(forms.low_lane_from_high_half),
    ),
    Erratum(
        "packed FMA, other sources from the high half",
        ("gfx950",),
        "`v_pk_fma_f32` with any other `op_sel` that is not `[0,0,0]`",
        "not named by the report on `op_sel:[0,1,0]`, nor excepted; its authors avoid all packed "
        "fp32 on this chip",
        False,
        ("https://github.com/ROCm/rocMLIR/pull/2459",),
        each(forms.other_low_lane_from_high_half),
    ),
    Erratum(
        "wide store overwritten",
        ("gfx942", "gfx950"),
        "a store of 12 or 16 bytes a lane, and fewer than 2 wait states later (1 for a buffer "
        "store with its offset in a scalar register) a VALU instruction that writes its data",
        "the new value is stored; LLVM puts `s_nop` between since #197267, and again after "
        "branches since #203770, inline assembly is the author's",
        True,
        (
            "https://github.com/llvm/llvm-project/pull/197267",
            "https://github.com/llvm/llvm-project/issues/202333",
        ),
        forms.wide_store_overwritten,
    ),
    Erratum(
        "transcendental result read at once",
        ("gfx942", "gfx950"),
        "`v_exp`, `v_log`, `v_rcp`, `v_rsq`, `v_sqrt`, `v_sin` or `v_cos`, and directly after it "
        "another VALU instruction that is none of these and reads the result",
        "the result may not be there yet; the compiler puts `s_nop` between, inline assembly is "
        "the author's",
        True,
        (
            "https://reviews.llvm.org/D122339",
            "https://github.com/iree-org/wave/pull/1112",
        ),
        forms.transcendental_read_at_once,
    ),
    Erratum(
        "part of a register read at once",
        ("gfx942", "gfx950"),
        "a result in the upper half or a byte of a register (`op_sel` of the result, SDWA "
        "`dst_sel`; FP8 and FP4 conversions among them), and directly after it a VALU "
        "instruction that reads the register",
        "the result is forwarded without its shift; the compiler puts `s_nop` between, inline "
        "assembly is the author's",
        True,
        (
            "https://github.com/llvm/llvm-project/pull/100276",
            "https://github.com/llvm/llvm-project/pull/117844",
        ),
        forms.part_read_at_once,
    ),
    Erratum(
        "lanes swapped at once",
        ("gfx950",),
        "`v_permlane16_swap` or `v_permlane32_swap` of a register that a VALU instruction wrote "
        "fewer than 2 wait states before",
        "the result may not be there yet; the compiler puts `s_nop` between, inline assembly is "
        "the author's",
        True,
        ("https://github.com/llvm/llvm-project/pull/117287",),
        forms.swap_of_lanes_at_once,
    ),
    Erratum(
        "other lanes read at once",
        ("gfx942", "gfx950"),
        "a DPP instruction that reads a register which a VALU instruction wrote fewer than 2 wait "
        "states before",
        "the other lane's result may not be there yet; the compiler puts `s_nop` between, inline "
        "assembly is the author's",
        True,
        ("https://reviews.llvm.org/D34849",),
        forms.read_by_dpp_at_once,
    ),
    Erratum(
        "matrix product of registers",
        ("sm90",),
        "PTX `wgmma.mma_async` whose first factor is in registers",
        "`ptxas` before CUDA 13.3 may use these registers again while the product still reads "
        "them; whether it did is not to be seen in PTX",
        False,
        ("https://github.com/triton-lang/triton/pull/11781",),
        each(forms.wgmma_of_registers),
    ),
)


@dataclass(frozen=True)
class Finding:
    """An erratum and the first line that has its form, of `count` in all."""

    erratum: Erratum
    line: Line
    count: int

    def __str__(self) -> str:
        place = f"assembly line {self.line.number}"
        place = f"{self.line.source}, {place}" if self.line.source else place
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        return (
            f"{self.line.text} ({place}){more}: {self.erratum.name}: {self.erratum.happens}; "
            f"{self.erratum.sources[0]}"
        )


def find(arch: str, assembly: str) -> list[Finding]:
    """The errata of `arch` whose forms the assembly (PTX for sm90) has, each once."""
    listing = forms.read(assembly)
    return list(_found(arch, listing))


def _found(arch: str, listing: forms.Listing) -> Iterator[Finding]:
    for erratum in TABLE:
        if arch not in erratum.archs:
            continue
        # two ways may lead to one line
        lines = sorted({line.number: line for line in erratum.find(listing)}.items())
        if lines:
            yield Finding(erratum, lines[0][1], len(lines))


def table() -> str:
    """The table in Markdown, as `docs/errata.md` has it."""
    rows = [
        "| erratum | architectures | form | what happens | a candidate's | source |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in TABLE:
        sources = ", ".join(f"[{_short(source)}]({source})" for source in row.sources)
        outcome = "fails" if row.corrupts else "is told"
        cells = (row.name, ", ".join(row.archs), row.form, row.happens, outcome, sources)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _short(source: str) -> str:
    """ "ROCm/rocMLIR#2459"; of another address its last part."""
    parts = source.split("/")
    return f"{parts[3]}/{parts[4]}#{parts[6]}" if "github.com" in source else parts[-1]


if __name__ == "__main__":
    print(table())
