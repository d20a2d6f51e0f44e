"""Local data share: memory of a workgroup, its races, and the DS instructions.

Every byte (or aligned dword, where a kernel never touches less) remembers the
wave that wrote it last and which of that wave's LDS operations that was, and
per wave the last operation that read it. An access is ordered after another
wave's when that wave waited for the operation (s_waitcnt lgkmcnt) and then
passed a barrier. Named as in the CDNA4 ISA document, chapter "LDS".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.emulator.assembly import Instruction, Program
from gdn_judge.emulator.errors import LdsRace, MissingWait, OutOfBounds, Uninitialised
from gdn_judge.emulator.front import Array, Front, InFlight, Mask, spread
from gdn_judge.emulator.operands import (
    Op,
    all_bits,
    check_modifiers,
    raw_reader,
    read_registers,
    unsupported,
)

Builder = Callable[[Instruction, Program], Op]
_U = np.uint32
_LANE = np.arange(64)
_DIRECT = 1 << 28  # events of loads straight to LDS count vector memory operations from here


class Lds:
    """The LDS of all workgroups of a batch: `size` bytes each."""

    def __init__(self, groups: int, size: int, waves_per_group: int, granule: int) -> None:
        self.size = size
        self.stride = -(-max(size, 4) // 16) * 16
        self.granule = granule
        self.data = np.zeros(groups * self.stride, np.uint8)
        cells = groups * self.stride // granule
        self.written = np.zeros(cells, np.bool_)
        self.writer = np.full(cells, -1, np.int32)
        self.write_event = np.zeros(cells, np.int32)
        self.read_event = np.zeros((cells, waves_per_group), np.int32)
        waves = groups * waves_per_group
        self.waves_per_group = waves_per_group
        self.issued = np.zeros(waves, np.int32)
        self.done = np.zeros(waves, np.int32)
        self.released = np.zeros(waves, np.int32)
        self.released_direct = np.zeros(waves, np.int32)
        self.atomic_event: NDArray[np.int32] | None = None  # like read_event, once there are any
        self.direct = False  # whether a load straight to LDS was ever issued

    def store_later(
        self,
        front: Front,
        ins: Instruction,
        address: Any,
        lanes: Mask,
        size: int,
        words: list[Array],
    ) -> None:
        """A load from memory straight to LDS: the data is there once vmcnt covers it."""
        self.direct = True
        rows, flat = self._flat(front, ins, address, lanes, size)
        known = np.ones(len(flat), np.bool_)
        values = [spread(w, lanes.shape)[lanes] for w in words]
        self._write(front, ins, rows, flat, size, values, known)
        cells, me = self._cells(flat, size), front.waves[rows]
        self.write_event[cells] = (_DIRECT + front.machine.order.next_event(me))[:, None]

    def wait(self, waves: NDArray[np.intp], outstanding: int) -> None:
        """These waves have waited until at most `outstanding` operations are left."""
        self.done[waves] = np.maximum(self.done[waves], self.issued[waves] - outstanding)

    def barrier(self, waves: NDArray[np.intp], direct_done: NDArray[np.int32]) -> None:
        """These waves pass a barrier, their vector memory done up to `direct_done`."""
        self.released[waves] = self.done[waves]
        self.released_direct[waves] = direct_done

    def issue(self, waves: NDArray[np.intp]) -> NDArray[np.int32]:
        self.issued[waves] += 1
        return self.issued[waves]

    def load(
        self, front: Front, ins: Instruction, address: Array, lanes: Mask, size: int
    ) -> list[Array]:
        """Read `size` bytes at each active lane's address; dwords, or one zero-extended part."""
        rows, flat = self._flat(front, ins, address, lanes, size)
        self._check_read(front, ins, rows, flat, size)
        words = []
        for value in self._gather(flat, size):
            word = np.zeros(lanes.shape, np.uint32)
            word[lanes] = value
            words.append(word)
        return words

    def store(
        self,
        front: Front,
        ins: Instruction,
        address: Array,
        lanes: Mask,
        size: int,
        words: list[Array],
        defined: Mask | None = None,
    ) -> None:
        """Write; `defined` says which lanes carry a value that somebody computed."""
        rows, flat = self._flat(front, ins, address, lanes, size)
        known = np.ones(len(flat), np.bool_) if defined is None else defined[lanes]
        values = [spread(w, lanes.shape)[lanes] for w in words]
        self._write(front, ins, rows, flat, size, values, known)

    def _flat(
        self, front: Front, ins: Instruction, address: Array, lanes: Mask, size: int
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        where = spread(address, lanes.shape)[lanes].astype(np.int64)
        rows = spread(np.arange(len(front))[:, None], lanes.shape)[lanes]
        wrong = where > self.size - size
        if wrong.any():
            at = int(np.argmax(wrong))
            what = f"{size} bytes at LDS offset {where[at]} of {self.size} bytes"
            raise OutOfBounds(what, front.machine.site(front, ins, int(rows[at])))
        if len(where) and int(np.bitwise_or.reduce(where)) % min(size & -size, 4):
            raise unsupported(ins, "a misaligned LDS access is not modelled")
        return rows, where + front.groups[rows] * self.stride

    def _cells(self, flat: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        steps = max(1, size // self.granule)
        return (flat // self.granule)[:, None] + np.arange(steps)

    def _unordered_write(self, cells: NDArray[np.int64], me: NDArray[np.intp]) -> Mask:
        """Where the last write is another wave's and not ordered before this access."""
        writer = self.writer[cells]
        group_first = (me // self.waves_per_group * self.waves_per_group)[:, None]
        other: Mask = (writer >= 0) & (writer + group_first != me[:, None])
        if not other.any():
            return other
        wave = np.where(other, writer + group_first, 0)
        event = self.write_event[cells]
        direct = _DIRECT + self.released_direct[wave]
        late: Mask = event > np.where(event >= _DIRECT, direct, self.released[wave])
        return other & late

    def _check_read(
        self,
        front: Front,
        ins: Instruction,
        rows: NDArray[np.intp],
        flat: NDArray[np.int64],
        size: int,
    ) -> None:
        cells, me = self._cells(flat, size), front.waves[rows]
        self._check_written(front, ins, rows, flat, cells)
        self._raise_race(front, ins, rows, flat, self._unordered_write(cells, me), cells, "written")
        self._check_atomics(front, ins, rows, flat, cells, me)
        if self.direct:
            self._check_direct(front, ins, rows, cells, me)
        event = self.issued[me] + 1
        self.read_event[cells, (me % self.waves_per_group)[:, None]] = event[:, None]

    def _check_written(
        self,
        front: Front,
        ins: Instruction,
        rows: NDArray[np.intp],
        flat: NDArray[np.int64],
        cells: NDArray[np.int64],
    ) -> None:
        missing = ~self.written[cells]
        if missing.any():
            at = int(np.argwhere(missing)[0][0])
            what = f"LDS offset {flat[at] % self.stride} is read but was never written"
            raise Uninitialised(what, front.machine.site(front, ins, int(rows[at])))

    def _check_direct(
        self,
        front: Front,
        ins: Instruction,
        rows: NDArray[np.intp],
        cells: NDArray[np.int64],
        me: NDArray[np.intp],
    ) -> None:
        """A wave's own load to LDS must have arrived."""
        event = self.write_event[cells] - _DIRECT
        own = self.writer[cells] == (me % self.waves_per_group)[:, None]
        late = own & (event > front.machine.order.finished(me)[:, None])
        if late.any():
            row = int(rows[int(np.argwhere(late)[0][0])])
            what = "LDS is read before s_waitcnt vmcnt covers the load that fills it"
            raise MissingWait(what, front.machine.site(front, ins, row))

    def _write(
        self,
        front: Front,
        ins: Instruction,
        rows: NDArray[np.intp],
        flat: NDArray[np.int64],
        size: int,
        values: list[Array],
        known: Mask,
    ) -> None:
        """Waves that write the same value to the same place do not race: layouts replicate."""
        cells, me = self._cells(flat, size), front.waves[rows]
        racing = self._unordered_write(cells, me)
        if racing.any():
            racing = racing & self._differs(flat, size, values)[:, None]
            self._raise_race(front, ins, rows, flat, racing, cells, "written")
        self._check_others(front, ins, rows, flat, cells, me, self.read_event, "read")
        self._check_atomics(front, ins, rows, flat, cells, me)
        mine = (me % self.waves_per_group)[:, None]
        self.writer[cells] = mine
        self.write_event[cells] = (self.issued[me] + 1)[:, None]
        self.written[cells] = known[:, None]
        self._scatter(flat, size, values)
        lost = self.writer[cells] != mine
        if lost.any():
            lost = lost & self._differs(flat, size, values)[:, None]
            self._raise_race(front, ins, rows, flat, lost, cells, "written")

    def _differs(self, flat: NDArray[np.int64], size: int, values: list[Array]) -> Mask:
        """[n] whether memory holds something else than `values`."""
        keep = np.uint32((1 << 8 * min(size, 4)) - 1)
        unlike = np.zeros(len(flat), np.bool_)
        for have, want in zip(self._gather(flat, size), values, strict=True):
            unlike |= have != (want & keep)
        return unlike

    def atomic(
        self,
        front: Front,
        ins: Instruction,
        address: Array,
        lanes: Mask,
        size: int,
        given: list[Array],
        change: Callable[[int, list[int]], int],
    ) -> list[Array]:
        """Change each active lane's place in turn; the words before.

        Atomic operations of different waves need no order between them.
        """
        rows, flat = self._flat(front, ins, address, lanes, size)
        cells, me = self._cells(flat, size), front.waves[rows]
        self._check_written(front, ins, rows, flat, cells)
        self._raise_race(front, ins, rows, flat, self._unordered_write(cells, me), cells, "written")
        self._check_others(front, ins, rows, flat, cells, me, self.read_event, "read")
        if self.atomic_event is None:
            self.atomic_event = np.zeros_like(self.read_event)
        self.atomic_event[cells, (me % self.waves_per_group)[:, None]] = (self.issued[me] + 1)[
            :, None
        ]
        before = np.zeros((size // 4, *lanes.shape), np.uint32)
        words = self.data.view(np.uint32)
        places = np.argwhere(lanes)
        for (row, lane), at in zip(places.tolist(), (flat >> 2).tolist(), strict=True):
            old = [int(word) for word in words[at : at + size // 4]]
            before[:, row, lane] = old
            value = sum(word << 32 * i for i, word in enumerate(old))
            new = change(value, [int(word[row, lane]) for word in given])
            words[at : at + size // 4] = [new >> 32 * i & 0xFFFFFFFF for i in range(size // 4)]
        return list(before)

    def _check_atomics(
        self,
        front: Front,
        ins: Instruction,
        rows: NDArray[np.intp],
        flat: NDArray[np.int64],
        cells: NDArray[np.int64],
        me: NDArray[np.intp],
    ) -> None:
        if self.atomic_event is not None:
            how = "changed by an atomic"
            self._check_others(front, ins, rows, flat, cells, me, self.atomic_event, how)

    def _check_others(
        self,
        front: Front,
        ins: Instruction,
        rows: NDArray[np.intp],
        flat: NDArray[np.int64],
        cells: NDArray[np.int64],
        me: NDArray[np.intp],
        events: NDArray[np.int32],
        how: str,
    ) -> None:
        """Raise LdsRace where another wave's last such access is not ordered before this one."""
        first = me // self.waves_per_group * self.waves_per_group
        for wave in range(self.waves_per_group):
            reader = first + wave
            late = events[cells, wave] > self.released[reader][:, None]
            late &= (reader != me)[:, None]
            self._raise_race(front, ins, rows, flat, late, cells, how, wave)

    def _raise_race(
        self,
        front: Front,
        ins: Instruction,
        rows: NDArray[np.intp],
        flat: NDArray[np.int64],
        racing: Mask,
        cells: NDArray[np.int64],
        how: str,
        wave: int | None = None,
    ) -> None:
        if not racing.any():
            return
        at, step = (int(n) for n in np.argwhere(racing)[0])
        other = int(self.writer[cells[at, step]]) if wave is None else wave
        offset = int(flat[at]) % self.stride
        what = (
            f"LDS race: offset {offset} was {how} by wave {other} of the workgroup, "
            "and no barrier after a wait for that access orders it before this one"
        )
        raise LdsRace(what, front.machine.site(front, ins, int(rows[at])))

    def _gather(self, flat: NDArray[np.int64], size: int) -> list[Any]:
        if size == 1:
            return [self.data[flat].astype(np.uint32)]
        if size == 2:
            return [self.data.view(np.uint16)[flat >> 1].astype(np.uint32)]
        return [self.data.view(np.uint32)[(flat >> 2) + i] for i in range(size // 4)]

    def _scatter(self, flat: NDArray[np.int64], size: int, words: list[Any]) -> None:
        if size == 1:
            self.data[flat] = words[0].astype(np.uint8)
        elif size == 2:
            self.data.view(np.uint16)[flat >> 1] = words[0].astype(np.uint16)
        else:
            for i in range(size // 4):
                self.data.view(np.uint32)[(flat >> 2) + i] = words[i]


_LOADS = {
    "ds_read_b32": (4, False, ""),
    "ds_read_b64": (8, False, ""),
    "ds_read_b96": (12, False, ""),
    "ds_read_b128": (16, False, ""),
    "ds_read_u8": (1, False, ""),
    "ds_read_i8": (1, True, ""),
    "ds_read_u16": (2, False, ""),
    "ds_read_i16": (2, True, ""),
    "ds_read_u8_d16": (1, False, "low"),
    "ds_read_u8_d16_hi": (1, False, "high"),
    "ds_read_i8_d16": (1, True, "low"),
    "ds_read_i8_d16_hi": (1, True, "high"),
    "ds_read_u16_d16": (2, False, "low"),
    "ds_read_u16_d16_hi": (2, False, "high"),
}
_STORES = {
    "ds_write_b8": (1, 0),
    "ds_write_b16": (2, 0),
    "ds_write_b8_d16_hi": (1, 16),
    "ds_write_b16_d16_hi": (2, 16),
    "ds_write_b32": (4, 0),
    "ds_write_b64": (8, 0),
    "ds_write_b96": (12, 0),
    "ds_write_b128": (16, 0),
}
_PAIRS = {"b32": 4, "b64": 8}


def smallest_access(program: Program) -> int:
    """Bytes of the smallest LDS access in a program, at most 4."""
    sizes = [4]
    for ins in program.instructions:
        if ins.name in _LOADS:
            sizes.append(_LOADS[ins.name][0])
        elif ins.name in _STORES:
            sizes.append(_STORES[ins.name][0])
    return min(sizes)


def extend(value: Array, size: int, signed: bool) -> Array:
    """Sign-extend a value of `size` bytes to 32 bits, if asked."""
    if not signed or size == 4:
        return value
    shift = _U(32 - 8 * size)
    return ((value << shift).view(np.int32) >> shift.view(np.int32)).view(np.uint32)


def put_half(value: Array, old: Array, half: str) -> Array:
    """A 16 bit value in one half of a register, the other half kept."""
    if half == "low":
        return (old & _U(0xFFFF0000)) | (value & _U(0xFFFF))
    return (old & _U(0xFFFF)) | (value << _U(16))


def _offset(ins: Instruction, key: str = "offset") -> int:
    return int(ins.modifiers.get(key, "0"), 0)


def finish(front: Front, ins: Instruction, registers: frozenset[int]) -> None:
    """Count an LDS operation that fills `registers`."""
    front.machine.lds.issue(front.waves)
    front.lgkm.append(InFlight("lds", registers, ins.text))
    front.trouble |= registers


def lds_op(ins: Instruction, run: Any, reads: Any, writes: Any, address: Any) -> Op:
    return Op(
        ins,
        run,
        frozenset(reads),
        frozenset(writes),
        strict=all_bits(read_registers(address)),
        taint=lambda front, bits: {r: np.zeros((1, 1), np.uint32) for r in writes},
        touch=frozenset(reads) | frozenset(writes),
    )


def _load(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "offset")
    size, signed, half = _LOADS[ins.name]
    dst, address = ins.operands
    base, offset = raw_reader(ins, address, "u"), _offset(ins)
    writes = read_registers(dst)

    def run(front: Front) -> None:
        at = base(front).astype(np.int64) + offset
        words = front.machine.lds.load(front, ins, at, front.mask, size)
        if size < 4:
            word = extend(words[0], size, signed)
            words = [put_half(word, front.regs[dst.index], half) if half else word]
        for i, word in enumerate(words):
            front.write(dst.index + i, word)
        finish(front, ins, writes)

    reads = read_registers(address) | (writes if half else frozenset())
    return lds_op(ins, run, reads, writes, address)


def _load_pair(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "offset0", "offset1")
    size = _PAIRS[ins.name.rsplit("_", 1)[1]]
    scale = size * (64 if "st64" in ins.name else 1)
    dst, address = ins.operands
    base = raw_reader(ins, address, "u")
    offsets = [_offset(ins, k) * scale for k in ("offset0", "offset1")]
    writes = read_registers(dst)

    def run(front: Front) -> None:
        at = base(front).astype(np.int64)
        words = []
        for offset in offsets:
            words += front.machine.lds.load(front, ins, at + offset, front.mask, size)
        for i, word in enumerate(words):
            front.write(dst.index + i, word)
        finish(front, ins, writes)

    return lds_op(ins, run, read_registers(address), writes, address)


def _store(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "offset")
    size, shift = _STORES[ins.name]
    address, data = ins.operands
    base, offset = raw_reader(ins, address, "u"), _offset(ins)

    def run(front: Front) -> None:
        at = base(front).astype(np.int64) + offset
        words = [front.regs[r] for r in data.registers]
        if shift:
            words = [words[0] >> _U(shift)]
        known = known_lanes(front, data.registers, size, shift)
        front.machine.lds.store(front, ins, at, front.mask, size, words, known)
        finish(front, ins, frozenset())

    return lds_op(ins, run, read_registers(address, data), (), address)


def known_lanes(front: Front, registers: Iterable[int], size: int, shift: int) -> Mask | None:
    """Lanes whose stored bits are all defined; None when all are."""
    if front.undefined.keys().isdisjoint(registers := list(registers)):
        return None
    keep = _U(0xFFFFFFFF if size >= 4 else ((1 << 8 * size) - 1) << shift)
    known = np.ones((len(front), 64), np.bool_)
    for register in registers:
        if register in front.undefined:
            known &= (front.undefined[register] & keep) == 0
    return known


def _store_pair(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "offset0", "offset1")
    size = _PAIRS[ins.name.rsplit("_", 1)[1]]
    scale = size * (64 if "st64" in ins.name else 1)
    address, *data = ins.operands
    base = raw_reader(ins, address, "u")
    offsets = [_offset(ins, k) * scale for k in ("offset0", "offset1")]

    def run(front: Front) -> None:
        at = base(front).astype(np.int64)
        for offset, source in zip(offsets, data, strict=True):
            words = [front.regs[r] for r in source.registers]
            known = known_lanes(front, source.registers, size, 0)
            front.machine.lds.store(front, ins, at + offset, front.mask, size, words, known)
        finish(front, ins, frozenset())

    return lds_op(ins, run, read_registers(address, *data), (), address)


def _bpermute(ins: Instruction, program: Program) -> Op:
    """Each lane reads `data` of the lane that its address / 4 names; an idle lane gives 0."""
    check_modifiers(ins, "offset")
    dst, address, data = ins.operands
    base, offset = raw_reader(ins, address, "u"), _offset(ins)
    value = raw_reader(ins, data, "u")
    writes = read_registers(dst)

    def pick(front: Front, source: Array) -> Array:
        lane = ((front.lanes(base(front)) + _U(offset)) >> _U(2)) & _U(63)
        return np.take_along_axis(front.lanes(source), lane.astype(np.intp), axis=1)

    def run(front: Front) -> None:
        source = np.where(front.mask, value(front), _U(0))
        front.write(dst.index, pick(front, source))
        finish(front, ins, writes)

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        return {dst.index: pick(front, np.where(front.mask, bits(data.index), _U(0)))}

    reads = read_registers(address, data)
    strict = all_bits(read_registers(address))
    return Op(ins, run, reads, writes, strict, taint, touch=reads | writes)


def _permute(ins: Instruction, program: Program) -> Op:
    """Each active lane sends `data` to the lane that its address / 4 names; the last one wins."""
    check_modifiers(ins, "offset")
    dst, address, data = ins.operands
    base, offset = raw_reader(ins, address, "u"), _offset(ins)
    value = raw_reader(ins, data, "u")
    writes = read_registers(dst)

    def run(front: Front) -> None:
        lane = (((front.lanes(base(front)) + _U(offset)) >> _U(2)) & _U(63)).astype(np.intp)
        source = front.lanes(value(front))
        out = np.zeros((len(front), 64), np.uint32)
        rows = np.arange(len(front))
        for i in range(64):
            live = front.mask[:, i]
            out[rows[live], lane[live, i]] = source[live, i]
        front.write(dst.index, out)
        finish(front, ins, writes)

    reads = read_registers(address, data)
    return Op(ins, run, reads, writes, all_bits(read_registers(address)), touch=reads | writes)


def _swizzle(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "offset")
    dst, src = ins.operands
    source_lane = swizzle_pattern(ins)
    value = raw_reader(ins, src, "u")
    writes = read_registers(dst)

    def run(front: Front) -> None:
        source = np.where(front.mask, value(front), _U(0))
        front.write(dst.index, front.lanes(source)[:, source_lane])
        finish(front, ins, writes)

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        return {dst.index: front.lanes(bits(src.index))[:, source_lane]}

    reads = read_registers(src)
    return Op(ins, run, reads, writes, taint=taint, touch=reads | writes)


def swizzle_pattern(ins: Instruction) -> NDArray[np.intp]:
    """[64] the lane that each lane of a ds_swizzle_b32 reads."""
    text = ins.modifiers.get("offset", "0")
    if match := re.match(r"swizzle\((.*)\)$", text):
        return _swizzle_macro(ins, [p.strip().strip('"') for p in match[1].split(",")])
    code = int(text, 0)
    if code & 0x8000:
        return _quads([code >> 2 * i & 3 for i in range(4)])
    return _bitmask_lanes(code & 31, code >> 5 & 31, code >> 10 & 31)


def _quads(picks: list[int]) -> NDArray[np.intp]:
    lanes: NDArray[np.intp] = _LANE // 4 * 4 + np.array(picks)[_LANE % 4]
    return lanes


def _bitmask_lanes(and_mask: int, or_mask: int, xor_mask: int) -> NDArray[np.intp]:
    within: NDArray[np.intp] = ((_LANE % 32 & and_mask) | or_mask) ^ xor_mask
    return _LANE // 32 * 32 + within


def _swizzle_macro(ins: Instruction, parts: list[str]) -> NDArray[np.intp]:
    mode, *rest = parts
    if mode == "QUAD_PERM":
        return _quads([int(n) for n in rest])
    if mode == "BITMASK_PERM":
        masks = [0, 0, 0]
        for bit, char in zip(range(4, -1, -1), rest[0], strict=True):
            for i, chars in enumerate(("pi", "1", "i")):
                masks[i] |= (char in chars) << bit
        return _bitmask_lanes(*masks)
    size = int(rest[0])
    if mode == "SWAP":
        return _LANE ^ size
    if mode == "REVERSE":
        return _LANE ^ (size - 1)
    if mode == "BROADCAST":
        return _LANE // size * size + int(rest[1])
    raise unsupported(ins, f"the swizzle mode {mode!r} is not modelled")


def builders() -> dict[str, Builder]:
    """The builder of each DS instruction, by name."""
    table: dict[str, Builder] = dict.fromkeys(_LOADS, _load)
    table |= dict.fromkeys(_STORES, _store)
    for width in _PAIRS:
        for middle in ("2", "2st64"):
            table[f"ds_read{middle}_{width}"] = _load_pair
            table[f"ds_write{middle}_{width}"] = _store_pair
    table["ds_bpermute_b32"] = _bpermute
    table["ds_permute_b32"] = _permute
    table["ds_swizzle_b32"] = _swizzle
    return table
