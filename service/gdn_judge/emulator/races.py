"""What orders the memory accesses of different waves.

`Order` counts each wave's vector memory operations. `HappensBefore` adds a
vector clock per wave and per atomic location, for a second run that judges the
bytes which several waves touched: an access is ordered after another
workgroup's when a release (BUFFER_WBL2 sc1, waited for) and an atomic follow
the first, and an atomic that saw it and BUFFER_INV sc1 precede the second.
Within a workgroup a barrier orders what each wave has waited for: S_BARRIER does
not wait for memory by itself. Scalar loads are not followed. Sources: CDNA4 ISA
document, "Barrier"; LLVM "Memory Model GFX942".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gdn_judge.emulator.assembly import Instruction
from gdn_judge.emulator.errors import GlobalRace, Site
from gdn_judge.emulator.front import Front, Mask
from gdn_judge.emulator.memory import ATOMIC, WRITTEN, Access, Buffer, expand

Clock = NDArray[np.int32]


class Order:
    """Vector memory operations issued and finished, per wave of the launch."""

    def __init__(self, waves: int) -> None:
        self.issued = np.zeros(waves, np.int32)
        self.done = np.zeros(waves, np.int32)
        self.first = 0

    def issue(self, front: Front) -> None:
        self.issued[front.launch_waves] += 1

    def wait(self, front: Front, outstanding: int) -> None:
        waves = front.launch_waves
        self.done[waves] = np.maximum(self.done[waves], self.issued[waves] - outstanding)

    def next_event(self, waves: NDArray[np.intp]) -> Clock:
        """The number of the operation about to be issued, for waves of the running batch."""
        return self.issued[waves + self.first] + 1

    def finished(self, waves: NDArray[np.intp]) -> Clock:
        return self.done[waves + self.first]

    def barrier(self, waves: NDArray[np.intp], groups: NDArray[np.intp]) -> None:
        """Whole workgroups pass a barrier."""

    def atomic(self, front: Front, ins: Instruction, buffer: Buffer, offset: int, row: int) -> None:
        """One lane's atomic at one location."""

    def write_back(self, front: Front, agent: bool) -> None:
        """BUFFER_WBL2, the first half of a release."""

    def invalidate(self, front: Front, agent: bool) -> None:
        """BUFFER_INV, the second half of an acquire."""


@dataclass(frozen=True)
class Contest:
    """Bytes of one buffer that several waves touched: granule size in bytes, and which."""

    granule: int
    granules: NDArray[np.intp]


@dataclass(frozen=True)
class Touch:
    """One wave's part of one instruction that touched contested bytes.

    event numbers the wave's vector memory operations; an atomic has instead its
    place `sequence` among the atomics of its location (clock column `column`).
    """

    wave: int
    group: int
    event: int
    kind: int
    site: Site
    clock: Clock
    column: int = -1
    sequence: int = 0


class HappensBefore(Order):
    """Vector clocks, and a log of the accesses to contested granules."""

    def __init__(self, waves: int, contests: dict[str, Contest]) -> None:
        super().__init__(waves)
        self.waves = waves
        self.clocks = np.zeros((waves, waves + 16), np.int32)
        self.contests = contests
        self.touches: list[Touch] = []
        self._log: dict[str, list[tuple[NDArray[np.intp], NDArray[np.intp]]]] = {}
        self._columns: dict[tuple[str, int], int] = {}
        self._sequence: list[int] = []
        self._release: dict[int, tuple[int, Clock]] = {}
        self._acquire: dict[int, tuple[int, Clock]] = {}
        self._location: dict[int, Clock] = {}

    def barrier(self, waves: NDArray[np.intp], groups: NDArray[np.intp]) -> None:
        order = np.argsort(groups, kind="stable")
        members = waves[order].reshape(len(np.unique(groups)), -1)
        own = self.clocks[members]
        rows, columns = np.indices(members.shape)
        own[rows, columns, members] = self.done[members]
        self.clocks[members] = own.max(axis=1, keepdims=True)

    def _column(self, name: str, offset: int) -> int:
        key = (name, offset)
        if key not in self._columns:
            self._columns[key] = len(self._columns)
            self._sequence.append(0)
            if self.waves + len(self._columns) > self.clocks.shape[1]:
                more = np.zeros((self.waves, self.clocks.shape[1]), np.int32)
                self.clocks = np.concatenate((self.clocks, more), axis=1)
        return self._columns[key]

    def atomic(self, front: Front, ins: Instruction, buffer: Buffer, offset: int, row: int) -> None:
        wave = int(front.launch_waves[row])
        column = self._column(buffer.name, offset)
        self._sequence[column] += 1
        sequence = self._sequence[column]
        seen = self._location.get(column)
        if "sc0" in ins.modifiers and seen is not None:
            self._acquire[wave] = (int(self.issued[wave]) + 1, seen)
        event, clock = self._release.get(wave, (0, None))
        if clock is not None and event <= self.done[wave]:
            self._location[column] = clock if seen is None else _join(seen, clock)
        self._keep_atomic(front, ins, buffer, offset, row, column, sequence)
        self.clocks[wave, self.waves + column] = sequence

    def _keep_atomic(
        self,
        front: Front,
        ins: Instruction,
        buffer: Buffer,
        offset: int,
        row: int,
        column: int,
        sequence: int,
    ) -> None:
        contest = self.contests.get(buffer.name)
        granule = offset // contest.granule if contest else -1
        if contest is None or granule not in contest.granules:
            return
        touch = self._touch(front, ins, row, ATOMIC, column, sequence)
        key = np.array([len(self.touches)])
        self.touches.append(touch)
        self._log.setdefault(buffer.name, []).append((np.array([granule]), key))

    def write_back(self, front: Front, agent: bool) -> None:
        if not agent:
            return
        for wave in front.launch_waves:
            clock = self.clocks[wave].copy()
            clock[wave] = self.issued[wave]
            self._release[int(wave)] = (int(self.issued[wave]) + 1, clock)

    def invalidate(self, front: Front, agent: bool) -> None:
        if not agent:
            return
        for wave in front.launch_waves:
            event, clock = self._acquire.get(int(wave), (0, None))
            if clock is not None and event <= self.done[wave]:
                joined = _join(self.clocks[wave], clock)
                self.clocks[wave, : len(joined)] = joined

    def _touch(
        self,
        front: Front,
        ins: Instruction,
        row: int,
        kind: int,
        column: int = -1,
        sequence: int = 0,
    ) -> Touch:
        wave = int(front.launch_waves[row])
        site = front.machine.site(front, ins, row)
        event = 0 if ins.name.startswith("s_") else int(self.issued[wave]) + 1
        clock = self.clocks[wave].copy()
        return Touch(wave, site.workgroup, event, kind, site, clock, column, sequence)

    def record(
        self, access: Access, buffer: Buffer, offsets: NDArray[np.int64], where: Mask | None
    ) -> None:
        """Keep the part of an access that touches contested granules."""
        contest = self.contests.get(buffer.name)
        if contest is None or access.kind & ATOMIC:
            return
        granules = expand(offsets, access.size, contest.granule)
        hit = np.isin(granules, contest.granules)
        if not hit.any():
            return
        shape = access.address.shape
        rows = np.broadcast_to(np.arange(shape[0])[:, None], shape)
        row_of = rows.reshape(-1) if where is None else rows[where]
        hit_rows = np.broadcast_to(row_of[:, None], hit.shape)[hit]
        keys = np.zeros(len(access.front), np.intp)
        for row in np.unique(hit_rows):
            keys[row] = len(self.touches)
            self.touches.append(
                self._touch(access.front, access.instruction, int(row), access.kind)
            )
        self._log.setdefault(buffer.name, []).append((granules[hit], keys[hit_rows]))

    def judge(self) -> None:
        """Raise GlobalRace for the first unordered pair of accesses."""
        for name, parts in sorted(self._log.items()):
            granules = np.concatenate([p[0] for p in parts])
            keys = np.concatenate([p[1] for p in parts])
            order = np.lexsort((keys, granules))
            granules, keys = granules[order], keys[order]
            starts = np.flatnonzero(np.diff(granules, prepend=-1))
            seen: set[tuple[int, ...]] = set()
            for start, touched in zip(starts, np.split(keys, starts[1:]), strict=True):
                combination = tuple(dict.fromkeys(touched.tolist()))
                if combination not in seen:
                    seen.add(combination)
                    self._judge_one(name, int(granules[start]), combination)

    def _judge_one(self, name: str, granule: int, combination: tuple[int, ...]) -> None:
        touches = [self.touches[key] for key in combination]
        for i, later in enumerate(touches):
            for earlier in touches[:i]:
                if self._conflict(earlier, later):
                    raise GlobalRace(self._text(name, granule, earlier, later), later.site)

    def _text(self, name: str, granule: int, earlier: Touch, later: Touch) -> str:
        offset = granule * self.contests[name].granule
        who = "waves of a workgroup" if earlier.group == later.group else "workgroups"
        return (
            f"race between {who} at offset {offset} of the buffer {name!r}: it is "
            f"{_verb(later.kind)} here and {_verb(earlier.kind)} by [{earlier.site}], "
            "and nothing orders the two"
        )

    def _conflict(self, a: Touch, b: Touch) -> bool:
        writes = (a.kind | b.kind) & (WRITTEN | ATOMIC)
        if a.wave == b.wave or not writes or (a.kind & b.kind & ATOMIC):
            return False
        return not self._before(a, b) and not self._before(b, a)

    def _before(self, a: Touch, b: Touch) -> bool:
        """Whether `a` is ordered before `b`."""
        column = self.waves + a.column
        seen = b.clock[column] if a.column >= 0 and column < len(b.clock) else 0
        return bool(a.sequence and seen >= a.sequence) or a.event <= b.clock[a.wave]


def _join(a: Clock, b: Clock) -> Clock:
    """The later of two clocks, which may know of different numbers of locations."""
    size = max(len(a), len(b))
    wide = np.zeros((2, size), np.int32)
    wide[0, : len(a)], wide[1, : len(b)] = a, b
    joined: Clock = wide.max(axis=0)
    return joined


def _verb(kind: int) -> str:
    return "changed by an atomic" if kind & ATOMIC else "written" if kind & WRITTEN else "read"
