"""The state of a group of waves that stand at the same instruction.

A register holds one uint32 array that broadcasts to [waves, 64]: (W, 64) in
general, (W, 1) for a value uniform in each wave, (1, 1) for one uniform in all.
Register values are never changed in place, so that a move is a rebinding and
a branch or a copy can share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.emulator.assembly import EXEC, REGISTERS, SCC

if TYPE_CHECKING:
    from gdn_judge.emulator.machine import Machine

Array = NDArray[np.uint32]
Mask = NDArray[np.bool_]
Registers = frozenset[int]

POISON = np.full((1, 1), 0x7FC0DEAD, np.uint32)
ALL_BITS = np.full((1, 1), 0xFFFFFFFF, np.uint32)
MODE_FP16_OVERFLOW = 1 << 23


@dataclass(frozen=True)
class InFlight:
    """A memory operation that a wait counter still counts, and the registers it fills."""

    kind: str  # "vm" | "lds" | "smem"
    registers: Registers
    text: str


class Front:
    """W waves at one pc.

    waves: [W] indices of the waves in the launch's batch; `undefined` maps a
    register to the bits (uint32 array) that nobody has written; `trouble` is the
    set of registers that need more than the fast path: undefined or in flight.
    """

    def __init__(self, machine: Machine, waves: NDArray[np.intp], pc: int) -> None:
        self.machine = machine
        self.waves = waves
        self.pc = pc
        self.regs: list[Array] = [POISON] * REGISTERS
        self.undefined: dict[int, Array] = dict.fromkeys(machine.registers, ALL_BITS)
        self.vm: list[InFlight] = []
        self.lgkm: list[InFlight] = []
        self.mode = 0
        self.full = True
        self.mask: Mask = np.ones((len(waves), 64), np.bool_)
        self.trouble: set[int] = set(self.undefined)

    def __len__(self) -> int:
        return len(self.waves)

    @property
    def groups(self) -> NDArray[np.intp]:
        """[W] row of each wave's workgroup in the batch."""
        return self.waves // self.machine.waves_per_group

    @property
    def launch_waves(self) -> NDArray[np.intp]:
        """[W] indices of the waves in the launch, in the order of the schedule."""
        return self.waves + self.machine.first_wave

    def write(self, register: int, value: Array) -> None:
        """Write a vector register in the active lanes."""
        self.regs[register] = (
            value if self.full else np.where(self.mask, value, self.regs[register])
        )

    def write_where(self, register: int, value: Array, lanes: Mask) -> None:
        """Write a vector register in the active lanes that `lanes` allows."""
        if not self.full:
            lanes = lanes & self.mask
        self.regs[register] = np.where(lanes, value, self.regs[register])

    def write_scalar(self, register: int, value: Array) -> None:
        self.regs[register] = value
        if register == EXEC or register == EXEC + 1:
            self.refresh_exec()

    def write_mask(self, register: int, lanes: Mask) -> None:
        """Write one bit per lane into the register pair, zero for inactive lanes."""
        if not self.full:
            lanes = lanes & self.mask
        if lanes.shape[1] == 1:
            lanes = np.broadcast_to(lanes, (lanes.shape[0], 64))
        packed = np.packbits(lanes, axis=1, bitorder="little").view("<u4")
        self.regs[register] = packed[:, :1]
        self.regs[register + 1] = packed[:, 1:]
        if register == EXEC:
            self.refresh_exec()

    def read_mask(self, register: int) -> Mask:
        """The register pair as one bool per lane, [W or 1, 64]."""
        return to_lanes(self.regs[register], self.regs[register + 1])

    def refresh_exec(self) -> None:
        lanes = self.read_mask(EXEC)
        self.full = bool(lanes.all())
        self.mask = spread(lanes, (len(self.waves), 64))

    def condition(self, register: int) -> Mask:
        """[W] whether the register pair is not zero."""
        both = self.regs[register] | self.regs[register + 1]
        return np.asarray(self.per_wave(both != 0))

    def scc(self) -> Mask:
        """[W] the scalar condition code."""
        return np.asarray(self.per_wave(self.regs[SCC] != 0))

    def lanes(self, value: Array) -> Array:
        """`value` as a contiguous [W, 64] array."""
        return np.ascontiguousarray(spread(value, (len(self.waves), 64)))

    def per_wave(self, value: Any) -> Any:
        """A scalar value as a [W] array."""
        return spread(value, (len(self.waves), 1))[:, 0]

    def refresh_trouble(self) -> None:
        self.trouble = set(self.undefined)
        for entry in self.vm:
            self.trouble |= entry.registers
        for entry in self.lgkm:
            self.trouble |= entry.registers

    def take(self, keep: Mask) -> Front:
        """A front of the waves for which `keep` [W] holds."""
        part = Front.__new__(Front)
        part.machine, part.pc, part.mode = self.machine, self.pc, self.mode
        part.waves = self.waves[keep]
        size = len(self.waves)

        def pick(value: Array) -> Array:
            return value[keep] if value.shape[0] == size and size > 1 else value

        seen: dict[int, Array] = {}
        part.regs = list(self.regs)
        for register in self.machine.registers:
            part.regs[register] = _memo(seen, self.regs[register], pick)
        part.undefined = {r: _memo(seen, v, pick) for r, v in self.undefined.items()}
        part.vm, part.lgkm = list(self.vm), list(self.lgkm)
        part.trouble = set(self.trouble)
        part.refresh_exec()
        return part


def spread(value: Any, shape: tuple[int, int]) -> Any:
    """np.broadcast_to, free where there is nothing to do."""
    return value if value.shape == shape else np.broadcast_to(value, shape)


def _memo(seen: dict[int, Array], value: Array, pick: object) -> Array:
    key = id(value)
    if key not in seen:
        seen[key] = pick(value)  # type: ignore[operator]
    return seen[key]


def to_lanes(low: Array, high: Array) -> Mask:
    """Two uint32 columns to one bool per lane, [W or 1, 64]."""
    if low.shape != high.shape:
        low, high = np.broadcast_arrays(low, high)
    bits = np.concatenate((low, high), axis=1).astype("<u4").view(np.uint8)
    return np.unpackbits(bits, axis=1, bitorder="little").view(np.bool_)


def mergeable(a: Front, b: Front) -> bool:
    """Whether the waits still due are the same for both, counted from the newest."""
    return (
        a.mode == b.mode
        and _same_tail(a.vm, b.vm)
        and [(e.kind, e.registers) for e in a.lgkm] == [(e.kind, e.registers) for e in b.lgkm]
    )


def _same_tail(a: list[InFlight], b: list[InFlight]) -> bool:
    shorter = min(len(a), len(b))
    extra = a[: len(a) - shorter] + b[: len(b) - shorter]
    pairs = zip(a[len(a) - shorter :], b[len(b) - shorter :], strict=True)
    return all(not e.registers for e in extra) and all(x.registers == y.registers for x, y in pairs)


def merge(fronts: Iterable[Front]) -> Front:
    """One front of all waves of `fronts`, which stand at one pc and are mergeable."""
    parts = sorted(fronts, key=lambda f: int(f.waves[0]))
    first = parts[0]
    waves = np.concatenate([p.waves for p in parts])
    order = np.argsort(waves, kind="stable")
    whole = Front.__new__(Front)
    whole.machine, whole.pc, whole.mode = first.machine, first.pc, first.mode
    whole.waves = waves[order]
    sizes = [len(p.waves) for p in parts]
    whole.regs = list(first.regs)
    for r in first.machine.registers:
        whole.regs[r] = _join([p.regs[r] for p in parts], sizes, order)
    keys = set().union(*(p.undefined for p in parts))
    clean = np.zeros((1, 1), np.uint32)
    whole.undefined = {
        r: _join([p.undefined.get(r, clean) for p in parts], sizes, order) for r in keys
    }
    whole.vm = max((p.vm for p in parts), key=len)
    whole.lgkm = max((p.lgkm for p in parts), key=len)
    whole.refresh_trouble()
    whole.refresh_exec()
    return whole


def _join(values: list[Array], sizes: list[int], order: NDArray[np.intp]) -> Array:
    first = values[0]
    if first.shape == (1, 1) and all(
        v is first or (v.shape == (1, 1) and v[0, 0] == first[0, 0]) for v in values
    ):
        return first
    width = max(v.shape[1] for v in values)
    rows = [spread(v, (n, width)) for v, n in zip(values, sizes, strict=True)]
    return np.concatenate(rows)[order]
