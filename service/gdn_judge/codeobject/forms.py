"""Assembly text as lines to search, and the instruction forms that errata name.

Read without understanding the instructions, so that it also works on a kernel that the
emulator cannot parse. What LLVM prints, or passes on from inline assembly, is read; raw
`.long` words, macros and `.set` symbols are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

_COMMENT = re.compile(r"/\*.*?\*/|//.*|;.*")
_LABEL = re.compile(r"[\w.$]+:$")
_ENCODING = re.compile(r"_(e64_dpp|e32|e64|dpp|sdwa)$")
_MODIFIER = re.compile(r"([a-z][a-z_0-9]*)\s*:\s*(\[[^\]]*\]|[^\s,]+)")
_REGISTER = re.compile(r"(?<![\w.])([va])(?:(\d+)|\[ ?(\d+) ?(?:: ?(\d+) ?)?\])(?!\w)")
_OF_SDWA = {"dst_sel", "src0_sel", "src1_sel"}
_OF_DPP = re.compile(r" (quad_perm|row_\w+|wave_\w+)\b")
_BETWEEN = re.compile(r"[,\s]+(?![^\[(]*[\])])")  # operands, outside brackets
Register = tuple[str, int]


@dataclass(frozen=True)
class Line:
    """One instruction: its place in the text and in the source, and its words."""

    number: int
    text: str
    source: str  # "fused.py:293", or "" where the text does not say

    @cached_property
    def words(self) -> tuple[str, str]:
        """The mnemonic and the rest; the assembler takes either in capitals, too."""
        mnemonic, _, rest = self.text.lower().partition(" ")
        return mnemonic, rest

    @cached_property
    def name(self) -> str:
        """The mnemonic without the suffix of its encoding."""
        return _ENCODING.sub("", self.words[0])

    @cached_property
    def sdwa(self) -> bool:
        """Whether written so, or meant: the assembler takes a bare name with these modifiers."""
        return self.words[0].endswith("_sdwa") or bool(_OF_SDWA & self.modifiers.keys())

    @cached_property
    def dpp(self) -> bool:
        return self.words[0].endswith("_dpp") or _OF_DPP.search(self.words[1]) is not None

    @cached_property
    def modifiers(self) -> dict[str, str]:
        return dict(_MODIFIER.findall(self.words[1]))

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The operands as written, without the modifiers after them; commas may be missing."""
        plain = re.split(r"\s[a-z][a-z_0-9]*\s*:\s*[\[\w-]", self.words[1], maxsplit=1)[0]
        return tuple(word for word in _BETWEEN.split(plain) if word)

    def bits(self, name: str, count: int) -> tuple[int, ...]:
        """At least `count` bits of a list modifier such as op_sel; what it leaves out is 0."""
        given = [_bit(word) for word in self.modifiers.get(name, "").strip("[] ").split(",")]
        return (*given, *[0] * (count - len(given)))

    def registers(self, *positions: int) -> set[Register]:
        """The vector registers of these operands."""
        return set().union(*(_registers(self.operands[i]) for i in positions if self._has(i)))

    def _has(self, position: int) -> bool:
        return position < len(self.operands)

    @property
    def valu(self) -> bool:
        return self.name.startswith("v_")

    @property
    def written(self) -> set[Register]:
        """The vector registers that a VALU instruction writes."""
        return self.registers(*((0, 1) if _swaps(self) else (0,)))

    @property
    def read(self) -> set[Register]:
        """The vector registers that a VALU instruction reads, those it adds to among them."""
        first = 0 if _swaps(self) or self.name.startswith(_ACCUMULATING) else 1
        return self.registers(*range(first, len(self.operands)))


_ACCUMULATING = ("v_fmac_", "v_mac_", "v_pk_fmac_", "v_dot2c_", "v_dot4c_", "v_dot8c_")


def _swaps(line: Line) -> bool:
    return line.name.startswith("v_swap") or "_swap_" in line.name


def _bit(word: str) -> int:
    """An expression is not computed: it counts as set."""
    if not word.strip():
        return 0
    try:
        return int(word, 0) & 1
    except ValueError:
        return 1


def _registers(operand: str) -> set[Register]:
    found = set()
    for file, single, low, high in _REGISTER.findall(operand):
        first = int(single or low)
        found |= {(file, number) for number in range(first, int(high or first) + 1)}
    return found


@dataclass(frozen=True)
class Listing:
    """The instructions of one assembly file in order, and where its labels point."""

    lines: tuple[Line, ...]
    labels: dict[str, int]

    def after(self, place: int, states: int) -> Iterator[Line]:
        """What may execute fewer than `states` wait states after the instruction at `place`.

        Each instruction between counts as one and `s_nop N` as N + 1, as LLVM counts.
        """
        todo = [(place + 1, 0)]
        while todo:
            at, passed = todo.pop()
            if at >= len(self.lines) or passed >= states:
                continue
            line = self.lines[at]
            yield line
            passed += _wait_states(line)
            if line.name.startswith(("s_branch", "s_cbranch")) and line.operands:
                target = self.labels.get(line.operands[0])
                todo += [(target, passed)] if target is not None else []
            if not line.name.startswith(("s_branch", "s_endpgm", "s_setpc", "s_swappc")):
                todo.append((at + 1, passed))


def _wait_states(line: Line) -> int:
    if line.name != "s_nop" or not line.operands:
        return 1
    count = re.match(r"0x[0-9a-f]+|\d+", line.operands[0])
    return int(count[0], 0) + 1 if count else 1


def read(assembly: str) -> Listing:
    """The instructions of AMDGPU assembly, or of PTX, which has the same directives."""
    lines: list[Line] = []
    labels: dict[str, int] = {}
    files: dict[str, str] = {}
    source = ""
    for number, raw in enumerate(assembly.splitlines(), 1):
        text = " ".join(_uncommented(raw).split())
        if not text:
            continue
        if _LABEL.match(text):
            labels[text[:-1]] = len(lines)
        elif match := re.match(r'\.file (\d+) .*"([^"]*)"', text):
            files[match[1]] = match[2].rsplit("/", 1)[-1]
        elif match := re.match(r"\.loc (\d+) (\d+)", text):
            source = f"{files.get(match[1], '?')}:{match[2]}" if match[2] != "0" else ""
        elif not text.startswith("."):
            lines.append(Line(number, text, source))
    return Listing(tuple(lines), labels)


def _uncommented(raw: str) -> str:
    """A PTX instruction ends in a semicolon, where a comment of AMDGPU assembly begins."""
    return raw if '"' in raw else _COMMENT.sub(" ", raw)


# the forms: each gives the places where it stands

Form = Callable[[Listing], Iterator[Line]]


def each(is_it: Callable[[Line], bool]) -> Form:
    """A form of single instructions."""
    return lambda listing: (line for line in listing.lines if is_it(line))


def low_lane_from_high_half(line: Line) -> bool:
    """v_pk_fma_f32 with op_sel:[0,1,0], whatever its op_sel_hi, neg_lo and neg_hi."""
    return line.name == "v_pk_fma_f32" and line.bits("op_sel", 3)[:3] == (0, 1, 0)


def other_low_lane_from_high_half(line: Line) -> bool:
    """v_pk_fma_f32 whose low lane takes the high half of another source, or of several."""
    bits = line.bits("op_sel", 3)[:3]
    return line.name == "v_pk_fma_f32" and bits not in ((0, 0, 0), (0, 1, 0))


_WIDE_STORE = re.compile(r"(t?buffer|global|flat|scratch)_store_(dwordx[34]|format_xyzw?)$")


def wide_store_overwritten(listing: Listing) -> Iterator[Line]:
    """A store of more than 8 bytes a lane whose data the VALU overwrites too soon."""
    for place, line in enumerate(listing.lines):
        if not (match := _WIDE_STORE.match(line.name)):
            continue
        of_buffer = match[1].endswith("buffer")
        data = line.registers(0 if of_buffer else 1)
        by_register = of_buffer and re.match(r"[sm]\d|ttmp", (*line.operands, "")[3:4][0])
        for later in listing.after(place, 1 if by_register else 2):
            if later.valu and later.written & data:
                yield later


_TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")


def transcendental_read_at_once(listing: Listing) -> Iterator[Line]:
    """A transcendental result that the next VALU instruction of another kind reads."""
    for place, line in enumerate(listing.lines):
        if line.name.startswith(_TRANSCENDENTAL):
            for later in listing.after(place, 1):
                other = later.valu and not later.name.startswith(_TRANSCENDENTAL)
                if other and later.read & line.written:
                    yield later


def part_read_at_once(listing: Listing) -> Iterator[Line]:
    """A register that was written in part, shifted, and is read by the next VALU instruction."""
    for place, line in enumerate(listing.lines):
        if line.valu and _writes_shifted(line):
            for later in listing.after(place, 1):
                if later.valu and later.read & line.written:
                    yield later


def _writes_shifted(line: Line) -> bool:
    if line.sdwa:
        return line.modifiers.get("dst_sel", "dword") != "dword"
    if line.name.startswith(("v_pk_", "v_dot", "v_mfma", "v_smfmac", "v_fma_mix", "v_mad_mix")):
        return False  # their op_sel is of sources alone
    sources = len(line.operands) - 1
    if line.name.startswith(("v_cvt_sr_", "v_cvt_scalef32_")):
        sources = min(sources, 2)  # op_sel[3:2] is a byte or a half of the result
    return any(line.bits("op_sel", 0)[sources:])


def swap_of_lanes_at_once(listing: Listing) -> Iterator[Line]:
    """v_permlane16_swap or v_permlane32_swap of a register just written by the VALU."""
    for place, line in enumerate(listing.lines):
        if line.valu and line.written:
            for later in listing.after(place, 2):
                if re.match(r"v_permlane(16|32)_swap", later.name) and later.read & line.written:
                    yield later


def read_by_dpp_at_once(listing: Listing) -> Iterator[Line]:
    """A register just written by the VALU that a DPP instruction reads from other lanes."""
    for place, line in enumerate(listing.lines):
        if line.valu and line.written:
            for later in listing.after(place, 2):
                if later.valu and later.dpp and later.read & line.written:
                    yield later


_WGMMA_OF_REGISTERS = re.compile(r"wgmma\.mma_async(\.sp)?\.\S+ \{[^}]*\}, ?\{")


def wgmma_of_registers(line: Line) -> bool:
    """PTX: a warpgroup's matrix product whose first factor is in registers."""
    return _WGMMA_OF_REGISTERS.search(line.text) is not None
