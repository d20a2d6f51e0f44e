"""Lane patterns of DPP, sub-dword selection of SDWA, and permutations of lanes.

A wave has four rows of 16 lanes, each of four banks of 4. Source: CDNA4 ISA
document, "DPP" and "SDWA", and LLVM's "DPP Modifiers" and "SDWA Modifiers".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gdn_judge.emulator.assembly import Instruction
from gdn_judge.emulator.front import Array, Front, Mask
from gdn_judge.emulator.operands import unsupported

LANE = np.arange(64)
_ROW, _IN_ROW = LANE // 16, LANE % 16


@dataclass(frozen=True)
class Lanes:
    """source[i] is the lane that lane i reads; valid[i] whether there is one.

    zero_fill: a lane without a valid source reads 0 (BOUND_CTRL), otherwise it
    is not written. enabled: the row and bank masks.
    """

    source: NDArray[np.intp]
    valid: Mask
    enabled: Mask
    zero_fill: bool

    @property
    def partial(self) -> bool:
        return not bool(self.enabled.all()) or not self.zero_fill

    def _ok(self, front: Front) -> Mask:
        if front.full:
            return self.valid[None, :]
        return self.valid[None, :] & front.mask[:, self.source]

    def apply(self, front: Front, value: Array) -> Array:
        if value.shape[1] == 1:
            value = np.broadcast_to(value, (value.shape[0], 64))
        moved = value[:, self.source]
        if front.full and self.valid.all():
            return moved
        return np.where(self._ok(front), moved, np.uint32(0))

    def write_lanes(self, front: Front) -> Mask:
        enabled = self.enabled[None, :]
        return enabled if self.zero_fill else enabled & self._ok(front)


def lane_pattern(ins: Instruction) -> Lanes | None:
    """The DPP pattern of an instruction, or None where it has none."""
    if ins.encoding not in ("dpp", "e64_dpp"):
        return None
    source, valid = _pattern(ins)
    row_mask = int(ins.modifiers.get("row_mask", "0xf"), 0)
    bank_mask = int(ins.modifiers.get("bank_mask", "0xf"), 0)
    enabled = (row_mask >> _ROW & 1).astype(bool) & (bank_mask >> (_IN_ROW // 4) & 1).astype(bool)
    return Lanes(source, valid, enabled, "bound_ctrl" in ins.modifiers)


def _pattern(ins: Instruction) -> tuple[NDArray[np.intp], Mask]:
    everywhere = np.ones(64, np.bool_)
    m = ins.modifiers
    if "quad_perm" in m:
        pick = np.array([int(n) for n in re.findall(r"\d+", m["quad_perm"])])
        return LANE // 4 * 4 + pick[LANE % 4], everywhere
    if "row_mirror" in m:
        return _ROW * 16 + 15 - _IN_ROW, everywhere
    if "row_half_mirror" in m:
        return LANE // 8 * 8 + 7 - LANE % 8, everywhere
    for name, sign in (("row_shl", 1), ("row_shr", -1)):
        if name in m:
            at = _IN_ROW + sign * int(m[name])
            return _ROW * 16 + np.clip(at, 0, 15), (at >= 0) & (at < 16)
    if "row_ror" in m:
        return _ROW * 16 + (_IN_ROW - int(m["row_ror"])) % 16, everywhere
    for name, sign in (("wave_shl", 1), ("wave_shr", -1)):
        if name in m:
            at = LANE + sign
            return np.clip(at, 0, 63), (at >= 0) & (at < 64)
    if "wave_rol" in m:
        return (LANE + 1) % 64, everywhere
    if "wave_ror" in m:
        return (LANE - 1) % 64, everywhere
    if "row_newbcast" in m:
        return _ROW * 16 + int(m["row_newbcast"]), everywhere
    if m.get("row_bcast") == "15":
        return np.maximum(_ROW * 16 - 1, 0), LANE >= 16
    if m.get("row_bcast") == "31":
        return np.full(64, 31), LANE >= 32
    raise unsupported(ins, "the DPP pattern is not modelled")


_SELECT = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
    "DWORD": (0, 32),
}


@dataclass(frozen=True)
class Subword:
    """The SDWA selections of an instruction (DWORD everywhere when it has none)."""

    shift: int = 0
    width: int = 32
    unused: str = "UNUSED_PAD"
    sources: tuple[Subword, ...] = ()

    @property
    def writes_part(self) -> bool:
        return self.width < 32

    def source(self, i: int) -> Subword | None:
        return self.sources[i] if i < len(self.sources) and self.sources[i].width < 32 else None

    def extract(self, value: Array, signed: bool) -> Array:
        top = np.uint32(32 - self.shift - self.width)
        lifted, down = value << top, np.uint32(32 - self.width)
        if signed:
            return (lifted.view(np.int32) >> down.view(np.int32)).view(np.uint32)
        return lifted >> down

    def insert(self, value: Array, old: Array) -> Array:
        mask = np.uint32(((1 << self.width) - 1) << self.shift)
        part = (value << np.uint32(self.shift)) & mask
        if self.unused == "UNUSED_PRESERVE":
            return part | (old & ~mask)
        return part


def subword(ins: Instruction) -> Subword:
    """The SDWA selections of an instruction."""
    if ins.encoding != "sdwa":
        return Subword()
    m = ins.modifiers
    unused = m.get("dst_unused", "UNUSED_PAD")
    if unused not in ("UNUSED_PAD", "UNUSED_PRESERVE"):
        raise unsupported(ins, f"dst_unused:{unused} is not modelled")
    picks = [_SELECT[m.get(key, "DWORD")] for key in ("src0_sel", "src1_sel")]
    shift, width = _SELECT[m.get("dst_sel", "DWORD")]
    return Subword(shift, width, unused, tuple(Subword(*p) for p in picks))
