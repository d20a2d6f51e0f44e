"""What orders the memory accesses of different workgroups.

`Order` counts each wave's vector memory operations. `HappensBefore` adds a
vector clock per wave and per atomic location, for a second run that judges the
bytes which several workgroups touched: an access is ordered after another
wave's when a release (BUFFER_WBL2 sc1, waited for) and an atomic follow the
first, and an atomic that saw it and BUFFER_INV sc1 precede the second. Within
a workgroup a barrier orders. Source: LLVM "Memory Model GFX942".
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

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

    def _waves(self, front: Front) -> NDArray[np.intp]:
        return front.waves + front.machine.first_wave

    def issue(self, front: Front) -> None:
        self.issued[self._waves(front)] += 1

    def wait(self, front: Front, outstanding: int) -> None:
        waves = self._waves(front)
        self.done[waves] = np.maximum(self.done[waves], self.issued[waves] - outstanding)

    def next_event(self, waves: NDArray[np.intp]) -> Clock:
        """The number of the operation about to be issued, for waves of the running batch."""
        return self.issued[waves + self.first] + 1

    def finished(self, waves: NDArray[np.intp]) -> Clock:
        return self.done[waves + self.first]

    def barrier(self, waves: NDArray[np.intp], groups: NDArray[np.intp]) -> None:
        """Whole workgroups pass a barrier."""

    def atomic(
        self, front: Front, ins: Instruction, buffer: Buffer, offset: int, row: int
    ) -> None:
        """One lane's atomic at one location."""

    def write_back(self, front: Front, agent: bool) -> None:
        """BUFFER_WBL2, the first half of a release."""

    def invalidate(self, front: Front, agent: bool) -> None:
        """BUFFER_INV, the second half of an acquire."""


@dataclass(frozen=True)
class Touch:
    """One wave's part of one access to contested bytes."""

    wave: int
    group: int
    event: int
    kind: int
    site: Site
    clock: Clock


class HappensBefore(Order):
    """Vector clocks, and a log of the accesses to contested granules."""

    def __init__(self, waves: int, contested: dict[str, NDArray[np.intp]]) -> None:
        super().__init__(waves)
        self.clocks = np.zeros((waves, waves), np.int32)
        self.contested = contested
        self.touches: dict[tuple[str, int], list[Touch]] = defaultdict(list)
        self._release: dict[int, tuple[int, Clock]] = {}
        self._acquire: dict[int, tuple[int, Clock]] = {}
        self._location: dict[tuple[int, int], Clock] = {}

    def barrier(self, waves: NDArray[np.intp], groups: NDArray[np.intp]) -> None:
        for group in np.unique(groups):
            members = waves[groups == group]
            own = self.clocks[members]
            own[np.arange(len(members)), members] = self.issued[members]
            self.clocks[members] = own.max(axis=0)

    def atomic(
        self, front: Front, ins: Instruction, buffer: Buffer, offset: int, row: int
    ) -> None:
        wave = int(self._waves(front)[row])
        key = (buffer.window, offset)
        seen = self._location.get(key)
        if "sc0" in ins.modifiers and seen is not None:
            self._acquire[wave] = (int(self.issued[wave]) + 1, seen.copy())
        event, clock = self._release.get(wave, (0, None))
        if clock is not None and event <= self.done[wave]:
            self._location[key] = clock if seen is None else np.maximum(seen, clock)

    def write_back(self, front: Front, agent: bool) -> None:
        if not agent:
            return
        for wave in self._waves(front):
            clock = self.clocks[wave].copy()
            clock[wave] = self.issued[wave]
            self._release[int(wave)] = (int(self.issued[wave]) + 1, clock)

    def invalidate(self, front: Front, agent: bool) -> None:
        if not agent:
            return
        for wave in self._waves(front):
            event, clock = self._acquire.get(int(wave), (0, None))
            if clock is not None and event <= self.done[wave]:
                self.clocks[wave] = np.maximum(self.clocks[wave], clock)

    def record(
        self, access: Access, buffer: Buffer, offsets: NDArray[np.int64], where: Mask | None
    ) -> None:
        """Keep the part of an access that touches contested granules."""
        contested = self.contested.get(buffer.name)
        if contested is None:
            return
        granules = expand(offsets, access.size, self._granule[buffer.name])
        hit = np.isin(granules, contested)
        if not hit.any():
            return
        shape = access.address.shape
        rows = np.broadcast_to(np.arange(shape[0])[:, None], shape)
        row_of = rows.reshape(-1) if where is None else rows[where]
        pairs = np.stack((np.broadcast_to(row_of[:, None], hit.shape)[hit], granules[hit]), axis=1)
        for row, granule in np.unique(pairs, axis=0):
            self._keep(access, buffer.name, int(row), int(granule))

    _granule: dict[str, int]

    def watch(self, granules: dict[str, int]) -> HappensBefore:
        """Granule sizes in bytes of the contested buffers."""
        self._granule = granules
        return self

    def _keep(self, access: Access, name: str, row: int, granule: int) -> None:
        front = access.front
        wave = int(self._waves(front)[row])
        site = front.machine.site(front, access.instruction, row)
        event = int(self.issued[wave]) + 1
        clock = self.clocks[wave].copy()
        self.touches[name, granule].append(
            Touch(wave, site.workgroup, event, access.kind, site, clock)
        )

    def judge(self) -> None:
        """Raise GlobalRace for the first unordered pair of accesses."""
        seen: set[Any] = set()
        for (name, granule), touches in sorted(self.touches.items()):
            key = tuple((t.wave, t.event, t.kind) for t in touches)
            if key in seen:
                continue
            seen.add(key)
            self._judge_one(name, granule, touches)

    def _judge_one(self, name: str, granule: int, touches: list[Touch]) -> None:
        for i, later in enumerate(touches):
            for earlier in touches[:i]:
                if earlier.group != later.group and _conflict(earlier, later):
                    offset = granule * self._granule[name]
                    what = (
                        f"race between workgroups at offset {offset} of the buffer {name!r}: "
                        f"also {_verb(earlier.kind)} without order at [{earlier.site}]; "
                        f"{_verb(later.kind)} here"
                    )
                    raise GlobalRace(what, later.site)


def _verb(kind: int) -> str:
    return "an atomic" if kind & ATOMIC else "written" if kind & WRITTEN else "read"


def _conflict(a: Touch, b: Touch) -> bool:
    if not (a.kind | b.kind) & (WRITTEN | ATOMIC) or (a.kind & ATOMIC and b.kind & ATOMIC):
        return False
    return a.event > b.clock[a.wave] and b.event > a.clock[b.wave]
