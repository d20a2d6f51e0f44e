"""The buffers of a launch: bounds, traffic, and who touched what.

Each buffer has its own 64 GiB of addresses, so that an access past one buffer
never lands in another. A `Buffer` keeps, per granule of 1 to 16 bytes, which
workgroup touched it and how; that gives the exact traffic and the candidates
for a race between workgroups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.emulator.assembly import Instruction
from gdn_judge.emulator.errors import LaunchError, OutOfBounds, Uninitialised
from gdn_judge.emulator.front import Array, Front, Mask, spread

_WINDOW = 36  # address bits of one buffer
_GUARD = 1 << 24
READ, WRITTEN, SHARED, ATOMIC, MATES = 1, 2, 4, 8, 16


@dataclass
class Traffic:
    """Bytes of one buffer in one launch.

    read and written add up what each active lane asked for; distinct_read and
    distinct_written count each byte of the buffer once.
    """

    read: int = 0
    written: int = 0
    atomics: int = 0
    distinct_read: int = 0
    distinct_written: int = 0


@dataclass
class Buffer:
    """A piece of device memory.

    data holds `size` bytes and padding to a multiple of 16. `window` is its
    place in the address space; `alignment` the address modulo 256. `defined` says
    of each byte whether it holds a value; None: all do.
    """

    name: str
    size: int
    data: NDArray[np.uint8]
    writable: bool = True
    audited: bool = True
    window: int = 0
    alignment: int = 0
    defined: NDArray[np.bool_] | None = None
    granule: int = 16
    owner: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    flags: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def base(self) -> int:
        return (self.window << _WINDOW) + _GUARD + self.alignment

    def reset(self) -> None:
        """Forget what earlier launches touched."""
        self.granule = 16
        count = len(self.data) // self.granule
        self.owner, self.flags = np.zeros(count, np.int32), np.zeros(count, np.uint8)
        self.traffic = Traffic()

    def refine(self, granule: int) -> None:
        """Track pieces of `granule` bytes from now on."""
        factor = self.granule // granule
        if factor > 1:
            self.owner = np.repeat(self.owner, factor)
            self.flags = np.repeat(self.flags, factor)
            self.granule = granule

    def settle(self) -> Traffic:
        """The traffic with its distinct bytes counted."""
        for bit, key in ((READ, "distinct_read"), (WRITTEN | ATOMIC, "distinct_written")):
            touched = np.flatnonzero(self.flags & bit) * self.granule
            sizes = np.minimum(self.size - touched, self.granule)
            setattr(self.traffic, key, int(sizes.sum()))
        return self.traffic

    def define(self, start: int, end: int) -> None:
        """These bytes hold values now."""
        if self.defined is not None:
            self.defined[start:end] = True

    def conflicts(self) -> NDArray[np.intp]:
        """Granules that several waves touched and at least one wrote."""
        several = self.flags & (SHARED | MATES) != 0
        mixed = (self.flags & (ATOMIC | READ)) == (ATOMIC | READ)
        return np.flatnonzero(several & ((self.flags & WRITTEN != 0) | mixed))

    def contents(self) -> NDArray[np.uint8]:
        return self.data[: self.size].copy()


def make_buffer(
    name: str,
    contents: NDArray[Any],
    *,
    writable: bool = True,
    audited: bool = True,
    alignment: int = 0,
    keep_defined: bool = True,
) -> Buffer:
    """A buffer with a copy of `contents` (any contiguous array).

    Without `keep_defined` the contents are poison: reading them is a fault.
    """
    raw = np.ascontiguousarray(contents).reshape(-1).view(np.uint8)
    data = np.zeros(-(-max(len(raw), 1) // 16) * 16, np.uint8)
    data[: len(raw)] = raw
    defined = None if keep_defined else np.zeros(len(data), np.bool_)
    return Buffer(name, len(raw), data, writable, audited, alignment=alignment, defined=defined)


@dataclass(frozen=True)
class Access:
    """One memory instruction of one front: addresses and lanes that take part.

    address is uint64 [W, 64] or [W, 1] (one address for all lanes of a wave);
    lanes the same shape. weight: how many lanes each address stands for.
    """

    front: Front
    instruction: Instruction
    address: NDArray[np.uint64]
    lanes: Mask
    size: int
    kind: int
    weight: int = 1


class AddressSpace:
    """All buffers of a launch."""

    def __init__(self, buffers: list[Buffer]) -> None:
        if len(buffers) >= 1 << 12:
            raise LaunchError(f"{len(buffers)} buffers; at most {(1 << 12) - 1} fit")
        self.buffers = buffers
        for i, buffer in enumerate(buffers):
            buffer.window = i + 1
            buffer.reset()
        self.log: Any = None

    def find(self, address: int) -> Buffer | None:
        """The buffer whose window an address lies in."""
        index = (address >> _WINDOW) - 1
        return self.buffers[index] if 0 <= index < len(self.buffers) else None

    def load(self, access: Access) -> list[Array]:
        """Read; one uint32 array per dword (or one zero-extended sub-dword), 0 in idle lanes."""
        words = max(1, access.size // 4)
        out = [np.zeros(access.address.shape, np.uint32) for _ in range(words)]
        for buffer, offsets, where in self._locate(access):
            values = _gather(buffer, offsets, access.size)
            for target, value in zip(out, values, strict=True):
                if where is None:
                    target.reshape(-1)[:] = value
                else:
                    target[where] = value
        return out

    def store(self, access: Access, words: list[Array]) -> None:
        """Write; `words` as `load` gives them, broadcast to the shape of the lanes."""
        shape = access.address.shape
        for buffer, offsets, where in self._locate(access):
            flat = [spread(w, shape) for w in words]
            values = [w.reshape(-1) if where is None else w[where] for w in flat]
            _scatter(buffer, offsets, access.size, values)

    def atomic(self, access: Access) -> Iterator[tuple[Buffer, int, tuple[int, int]]]:
        """Each active lane in order, with its buffer, byte offset and position."""
        for buffer, offsets, where in self._locate(access):
            places = np.argwhere(access.lanes if where is None else where)
            for offset, place in zip(offsets, places, strict=True):
                yield buffer, int(offset), (int(place[0]), int(place[1]))

    def _locate(self, access: Access) -> Iterator[tuple[Buffer, NDArray[np.int64], Mask | None]]:
        lanes = access.lanes
        everyone = bool(lanes.all())
        flat = access.address.reshape(-1) if everyone else access.address[lanes]
        if not len(flat):
            return
        windows = flat >> np.uint64(_WINDOW)
        first = windows[0]
        if (windows == first).all():
            found = [(int(first), None if everyone else lanes, flat)]
        else:
            grid = access.address >> np.uint64(_WINDOW)
            found = []
            for window in np.unique(windows):
                where = lanes & (grid == window)
                found.append((int(window), where, access.address[where]))
        for window, where, addresses in found:
            yield self._resolve(access, window, where, addresses)

    def _resolve(
        self, access: Access, window: int, where: Mask | None, addresses: NDArray[np.uint64]
    ) -> tuple[Buffer, NDArray[np.int64], Mask | None]:
        buffer = self.buffers[window - 1] if 1 <= window <= len(self.buffers) else None
        if buffer is None:
            self._outside(access, where, 0, f"address {int(addresses[0]):#x} is in no buffer")
            raise AssertionError
        offsets = addresses.astype(np.int64) - buffer.base
        wrong = (offsets < 0) | (offsets > buffer.size - access.size)
        if wrong.any():
            at = int(np.argmax(wrong))
            self._outside(access, where, at, _describe(buffer, int(offsets[at]), access.size))
        if access.kind & (WRITTEN | ATOMIC) and not buffer.writable:
            self._outside(access, where, 0, f"write to the read-only buffer {buffer.name!r}")
        if buffer.defined is not None:
            self._check_defined(access, buffer, offsets, where)
        if buffer.audited:
            self._audit(access, buffer, offsets, where)
        return buffer, offsets, where

    def _check_defined(
        self, access: Access, buffer: Buffer, offsets: NDArray[np.int64], where: Mask | None
    ) -> None:
        assert buffer.defined is not None
        touched = offsets[:, None] + np.arange(access.size)
        if access.kind != WRITTEN:
            blank = ~buffer.defined[touched].all(axis=1)
            if blank.any():
                at = int(np.argmax(blank))
                every = np.ones(access.address.shape, bool) if where is None else where
                row = int(np.argwhere(every)[at][0])
                what = f"offset {int(offsets[at])} of the buffer {buffer.name!r} was never written"
                site = access.front.machine.site(access.front, access.instruction, row)
                raise Uninitialised(what, site)
        if access.kind & (WRITTEN | ATOMIC):
            buffer.defined[touched] = True

    def _outside(self, access: Access, where: Mask | None, at: int, what: str) -> None:
        place = np.argwhere(np.ones(access.address.shape, bool) if where is None else where)[at]
        site = access.front.machine.site(access.front, access.instruction, int(place[0]))
        raise OutOfBounds(f"{what} (lane {int(place[1])})", site)

    def _audit(
        self, access: Access, buffer: Buffer, offsets: NDArray[np.int64], where: Mask | None
    ) -> None:
        access.front.machine.first_pc.setdefault(buffer.name, access.instruction.pc)
        count = len(offsets) * access.size * access.weight
        traffic = buffer.traffic
        if access.kind & ATOMIC:
            traffic.atomics += count
        elif access.kind & WRITTEN:
            traffic.written += count
        else:
            traffic.read += count
        shape = access.address.shape
        each = spread(access.front.launch_waves[:, None], shape)
        waves = each.reshape(-1) if where is None else each[where]
        size = access.front.machine.waves_per_group
        _mark(buffer, offsets, access.size, waves, access.kind, size)
        if self.log is not None:
            self.log.record(access, buffer, offsets, where)


def _describe(buffer: Buffer, offset: int, size: int) -> str:
    if offset < 0:
        return f"{size} bytes at {-offset} bytes before the buffer {buffer.name!r}"
    return f"{size} bytes at offset {offset} of the buffer {buffer.name!r} of {buffer.size} bytes"


def granule_of(offsets: NDArray[np.int64], size: int) -> int:
    """The largest power of two that divides every offset and the size, at most 16."""
    low = int(np.bitwise_or.reduce(offsets)) | size | 16
    return low & -low


def expand(offsets: NDArray[np.int64], size: int, granule: int) -> NDArray[np.int64]:
    """[n] byte offsets to the [n, size / granule] granules they cover."""
    first = offsets // granule
    steps = math.ceil(size / granule)
    return first[:, None] + np.arange(steps)


def _mark(
    buffer: Buffer,
    offsets: NDArray[np.int64],
    size: int,
    waves: NDArray[np.intp],
    kind: int,
    waves_per_group: int,
) -> None:
    granule = granule_of(offsets, size)
    if granule < buffer.granule:
        buffer.refine(granule)
    index = expand(offsets, size, buffer.granule)
    mine = (waves + 1).astype(np.int32)[:, None]
    owner = buffer.owner[index]
    free = owner == 0
    if free.any():
        buffer.owner[index[free]] = spread(mine, index.shape)[free]
        owner = buffer.owner[index]
    buffer.flags[index] |= np.uint8(kind)
    other = owner != mine
    if other.any():
        foreign = (owner - 1) // waves_per_group != (mine - 1) // waves_per_group
        buffer.flags[index[other & ~foreign]] |= np.uint8(MATES)
        buffer.flags[index[foreign]] |= np.uint8(SHARED)


def _gather(buffer: Buffer, offsets: NDArray[np.int64], size: int) -> list[Any]:
    if size == 1:
        return [buffer.data[offsets].astype(np.uint32)]
    unit = 2 if size == 2 else 4
    if int(np.bitwise_or.reduce(offsets)) % unit:
        return _gather_bytes(buffer, offsets, size)
    if size == 2:
        return [buffer.data.view(np.uint16)[offsets >> 1].astype(np.uint32)]
    view, index = buffer.data.view(np.uint32), offsets >> 2
    return [view[index + i] for i in range(size // 4)]


def _gather_bytes(buffer: Buffer, offsets: NDArray[np.int64], size: int) -> list[Any]:
    words = []
    for start in range(0, size, 4):
        value = np.zeros(len(offsets), np.uint32)
        for i in range(min(4, size - start)):
            value |= buffer.data[offsets + start + i].astype(np.uint32) << np.uint32(8 * i)
        words.append(value)
    return words


def _scatter(buffer: Buffer, offsets: NDArray[np.int64], size: int, words: list[Any]) -> None:
    if size == 1:
        buffer.data[offsets] = words[0].astype(np.uint8)
        return
    unit = 2 if size == 2 else 4
    if int(np.bitwise_or.reduce(offsets)) % unit:
        for i in range(size):
            part = words[i // 4] >> np.uint32(8 * (i % 4))
            buffer.data[offsets + i] = part.astype(np.uint8)
    elif size == 2:
        buffer.data.view(np.uint16)[offsets >> 1] = words[0].astype(np.uint16)
    else:
        view, index = buffer.data.view(np.uint32), offsets >> 2
        for i in range(size // 4):
            view[index + i] = words[i]
