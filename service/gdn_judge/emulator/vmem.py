"""Memory instructions: SMEM, global, flat, buffer and scratch.

Named as in the CDNA4 ISA document, chapters "Scalar Memory Operations" and
"Vector Memory Operations". Caches are not modelled; cache flags matter only to
the order between workgroups, which `races` follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gdn_judge.emulator.assembly import M0, Instruction, Operand, Program
from gdn_judge.emulator.atomics import CHANGES
from gdn_judge.emulator.errors import OutOfBounds, Uninitialised
from gdn_judge.emulator.front import Array, Front, InFlight, Mask, spread
from gdn_judge.emulator.lds import extend, put_half
from gdn_judge.emulator.memory import ATOMIC, READ, WRITTEN, Access
from gdn_judge.emulator.operands import (
    Op,
    all_bits,
    check_modifiers,
    combine,
    raw_reader,
    read_registers,
    unsupported,
)

Builder = Callable[[Instruction, Program], Op]
_U, _Q = np.uint32, np.uint64
_CACHE = ("sc0", "sc1", "nt")

_LOADS = {
    "ubyte": (1, False, ""),
    "sbyte": (1, True, ""),
    "ushort": (2, False, ""),
    "sshort": (2, True, ""),
    "ubyte_d16": (1, False, "low"),
    "ubyte_d16_hi": (1, False, "high"),
    "sbyte_d16": (1, True, "low"),
    "sbyte_d16_hi": (1, True, "high"),
    "short_d16": (2, False, "low"),
    "short_d16_hi": (2, False, "high"),
    "dword": (4, False, ""),
    "dwordx2": (8, False, ""),
    "dwordx3": (12, False, ""),
    "dwordx4": (16, False, ""),
}
_STORES = {
    "byte": (1, 0),
    "byte_d16_hi": (1, 16),
    "short": (2, 0),
    "short_d16_hi": (2, 16),
    "dword": (4, 0),
    "dwordx2": (8, 0),
    "dwordx3": (12, 0),
    "dwordx4": (16, 0),
}
Addressing = Callable[[Front, int], tuple[Any, Mask]]


def _signed_offset(ins: Instruction) -> int:
    return int(ins.modifiers.get("offset", "0"), 0)


def _lanes_like(front: Front, address: Any) -> tuple[Any, Mask]:
    """Address and active lanes in one shape: [W, 1] where all lanes agree, else [W, 64]."""
    wave_count = len(front)
    if address.shape[1] == 1 and front.full:
        return spread(address, (wave_count, 1)), np.ones((wave_count, 1), np.bool_)
    return spread(address, (wave_count, 64)), front.mask


def _global_address(ins: Instruction, vector: Operand, scalar: Operand) -> Addressing:
    offset = np.int64(_signed_offset(ins))
    if scalar.kind == "off":
        base = raw_reader(ins, vector, "q")
        return lambda front, size: _lanes_like(
            front, (base(front).view(np.int64) + offset).view(_Q)
        )
    low = raw_reader(ins, vector, "u")
    high = raw_reader(ins, scalar, "q")

    def address(front: Front, size: int) -> tuple[Any, Mask]:
        value = high(front).view(np.int64) + low(front).astype(np.int64) + offset
        return _lanes_like(front, value.view(_Q))

    return address


def _flat_address(ins: Instruction, vector: Operand) -> Addressing:
    base = raw_reader(ins, vector, "q")
    offset = np.int64(_signed_offset(ins))
    return lambda front, size: _lanes_like(front, (base(front).view(np.int64) + offset).view(_Q))


def _buffer_address(
    ins: Instruction, vector: Operand | None, resource: Operand, scalar: Operand
) -> Addressing:
    """Addresses of a raw buffer access; lanes past num_records take no part.

    A lane that straddles the end of the descriptor is a fault.
    """
    if resource.count != 4:
        raise unsupported(ins, "the descriptor is not four registers")
    with_offset = "offen" in ins.modifiers
    index = resource.index
    voffset = raw_reader(ins, vector, "u") if with_offset and vector else None
    soffset = raw_reader(ins, scalar, "u")
    constant = np.int64(_signed_offset(ins))

    def address(front: Front, size: int) -> tuple[Any, Mask]:
        words = [front.regs[index + i] for i in range(4)]
        _check_descriptor(ins, words)
        base = combine(words[0], words[1] & _U(0xFFFF)).view(np.int64)
        offset = soffset(front).astype(np.int64) + constant
        if voffset is not None:
            offset = offset + voffset(front).astype(np.int64)
        records = words[2].astype(np.int64)
        value, lanes = _lanes_like(front, (base + offset).view(_Q))
        inside = offset + (size - 1) < records
        if not inside.all():
            straddles = ~inside & (offset < records)
            inside = np.broadcast_to(inside, (len(front), inside.shape[1]))
            if (np.broadcast_to(straddles, lanes.shape) & lanes).any():
                row = int(np.argwhere(np.broadcast_to(straddles, lanes.shape) & lanes)[0][0])
                site = front.machine.site(front, ins, row)
                raise OutOfBounds("the access straddles the end of its descriptor", site)
            front.machine.clipped(front, ins, np.broadcast_to(offset, lanes.shape), ~inside & lanes)
            lanes = lanes & inside
        return value, lanes

    return address


def _check_descriptor(ins: Instruction, words: list[Array]) -> None:
    """Only raw buffers: no stride, no swizzle, no lane id in the address."""
    if (words[1] >> _U(16)).any():
        raise unsupported(ins, "a buffer descriptor with a stride or swizzle is not modelled")
    if (words[3] & _U(1 << 23)).any():
        raise unsupported(ins, "a buffer descriptor with ADD_TID_ENABLE is not modelled")


def _load_op(
    ins: Instruction, dst: Operand, address: Addressing, reads: Any, size: int, how: Any
) -> Op:
    signed, half = how
    writes = read_registers(dst)
    counters = ("vm", "lgkm") if ins.name.startswith("flat") else ("vm",)

    def run(front: Front) -> None:
        where, lanes = address(front, size)
        weight = 64 // where.shape[1]
        words = front.machine.space.load(Access(front, ins, where, lanes, size, READ, weight))
        if size < 4:
            word = extend(words[0], size, signed)
            words = [put_half(word, front.regs[dst.index], half) if half else word]
        for i, word in enumerate(words):
            front.write(dst.index + i, word)
        _in_flight(front, ins, writes, counters)

    more = writes if half else frozenset()
    return Op(
        ins,
        run,
        frozenset(reads) | more,
        writes,
        strict=all_bits(reads),
        taint=lambda front, bits: {r: np.zeros((1, 1), np.uint32) for r in writes},
        touch=frozenset(reads) | more | writes,
    )


def _in_flight(front: Front, ins: Instruction, registers: Any, counters: tuple[str, ...]) -> None:
    entry = InFlight("vm", frozenset(registers), ins.text)
    if "vm" in counters:
        front.vm.append(entry)
        front.machine.order.issue(front)
    if "lgkm" in counters:
        front.lgkm.append(InFlight("smem", frozenset(registers), ins.text))
    front.trouble |= registers


def _store_op(
    ins: Instruction, data: Operand, address: Addressing, reads: Any, size: int, shift: int
) -> Op:
    flat = ins.name.startswith("flat")

    def run(front: Front) -> None:
        where, lanes = address(front, size)
        words = [front.regs[r] for r in data.registers]
        if shift:
            words = [words[0] >> _U(shift)]
        if where.shape[1] == 1 and any(w.shape[1] != 1 for w in words):
            # all lanes write one address: the last lane stays
            words = [front.lanes(w)[:, 63:] for w in words]
        _want_defined(front, ins, data.registers, lanes, size, shift)
        access = Access(front, ins, where, lanes, size, WRITTEN, 64 // where.shape[1])
        front.machine.space.store(access, words)
        _in_flight(front, ins, frozenset(), ("vm", "lgkm") if flat else ("vm",))

    everything = frozenset(reads) | read_registers(data)
    return Op(ins, run, everything, frozenset(), strict=all_bits(reads), touch=everything)


def _want_defined(
    front: Front, ins: Instruction, registers: range, lanes: Mask, size: int, shift: int
) -> None:
    """Raise Uninitialised when a lane stores a bit that nobody computed."""
    keep = _U(0xFFFFFFFF if size >= 4 else ((1 << 8 * size) - 1) << shift)
    for register in registers:
        unknown = front.undefined.get(register)
        if unknown is None:
            continue
        wrong = np.broadcast_to((unknown & keep) != 0, (len(front), 64))
        wrong = wrong & (lanes if lanes.shape[1] == 64 else front.mask)
        if wrong.any():
            row, lane = (int(n) for n in np.argwhere(wrong)[0])
            what = f"a value that nobody wrote is stored (lane {lane})"
            raise Uninitialised(what, front.machine.site(front, ins, row))


def _global(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "offset", *_CACHE)
    family, direction, form = ins.name.split("_", 2)
    if direction == "load":
        size, signed, half = _LOADS[form]
        dst, *rest = ins.operands
        address, reads = _address_of(ins, family, rest)
        return _load_op(ins, dst, address, reads, size, (signed, half))
    size, shift = _STORES[form]
    vector, data, *rest = ins.operands
    address, reads = _address_of(ins, family, [vector, *rest])
    return _store_op(ins, data, address, reads, size, shift)


def _address_of(ins: Instruction, family: str, rest: list[Operand]) -> tuple[Addressing, Any]:
    if family == "flat":
        return _flat_address(ins, rest[0]), read_registers(rest[0])
    vector, scalar = rest
    return _global_address(ins, vector, scalar), read_registers(vector, scalar)


def _buffer(ins: Instruction, program: Program) -> Op:
    if "lds" in ins.modifiers:
        return _direct_to_lds(ins, program)
    check_modifiers(ins, "offset", "offen", "off", *_CACHE)
    _, direction, form = ins.name.split("_", 2)
    first, *rest = ins.operands
    vector = rest[0] if rest[0].kind == "reg" and rest[0].is_vector else None
    if rest[0].kind == "off" or vector is not None:
        rest = rest[1:]
    resource, scalar = rest
    address = _buffer_address(ins, vector, resource, scalar)
    reads = read_registers(resource, scalar, *([vector] if vector else []))
    if direction == "load":
        size, signed, half = _LOADS[form]
        return _load_op(ins, first, address, reads, size, (signed, half))
    size, shift = _STORES[form]
    return _store_op(ins, first, address, reads, size, shift)


# scalar loads

_SCALAR = {"dword": 1, "dwordx2": 2, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}


def _scalar_load(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "offset", "glc")
    buffered = ins.name.startswith("s_buffer")
    count = _SCALAR[ins.name.rsplit("_", 1)[1]]
    dst, base_op, offset_op = ins.operands
    if dst.count != count:
        raise unsupported(ins, "the destination has the wrong width")
    base = raw_reader(ins, _pair(base_op), "q")
    offset, constant = raw_reader(ins, offset_op, "u"), np.int64(_signed_offset(ins))
    signed = offset_op.kind == "int"

    def run(front: Front) -> None:
        start = base(front)
        step = offset(front).view(np.int32) if signed else offset(front)
        step = step.astype(np.int64) + constant
        if buffered:
            start = start & _Q(0xFFFFFFFFFFFF)
        where = np.broadcast_to((start.view(np.int64) + step).view(_Q) & ~_Q(3), (len(front), 1))
        lanes = np.ones((len(front), 1), np.bool_)
        if buffered:
            records = front.regs[base_op.index + 2].astype(np.int64)
            lanes = np.broadcast_to(step + 4 * count <= records, lanes.shape)
        access = Access(front, ins, where, lanes, 4 * count, READ)
        for i, word in enumerate(front.machine.space.load(access)):
            front.write_scalar(dst.index + i, word)
        front.lgkm.append(InFlight("smem", read_registers(dst), ins.text))
        front.trouble |= read_registers(dst)

    reads = read_registers(base_op, offset_op)
    writes = read_registers(dst)
    return Op(
        ins,
        run,
        reads,
        writes,
        strict=all_bits(reads),
        taint=lambda front, bits: {r: np.zeros((1, 1), np.uint32) for r in writes},
        lanewise=False,
        touch=reads | writes,
    )


def _pair(op: Operand) -> Operand:
    from dataclasses import replace

    return replace(op, count=2)


# scratch: private memory of each lane


def _scratch(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "offset", *_CACHE)
    _, direction, form = ins.name.split("_", 2)
    if direction == "load":
        size, signed, half = _LOADS[form]
        data, vector, scalar = ins.operands
    else:
        size, shift = _STORES[form]
        vector, data, scalar = ins.operands
    constant = np.int64(_signed_offset(ins))
    parts = [raw_reader(ins, o, "u") for o in (vector, scalar) if o.kind == "reg"]
    reads = read_registers(vector, scalar)

    def at(front: Front) -> Any:
        value = np.full((1, 1), constant)
        for part in parts:
            value = value + part(front).astype(np.int64)
        return np.broadcast_to(value, (len(front), 64))

    def load(front: Front) -> None:
        words = front.machine.scratch.load(front, ins, at(front), size)
        if size < 4:
            word = extend(words[0], size, signed)
            words = [put_half(word, front.regs[data.index], half) if half else word]
        for i, word in enumerate(words):
            front.write(data.index + i, word)
        _in_flight(front, ins, read_registers(data), ("vm",))

    def store(front: Front) -> None:
        words = [front.regs[r] for r in data.registers]
        _want_defined(front, ins, data.registers, front.mask, size, shift)
        words = [words[0] >> _U(shift)] if shift else words
        front.machine.scratch.store(front, ins, at(front), size, words)
        _in_flight(front, ins, frozenset(), ("vm",))

    loads = direction == "load"
    writes = read_registers(data) if loads else frozenset()
    sources = reads if loads else reads | read_registers(data)
    return Op(
        ins,
        load if loads else store,
        sources,
        writes,
        strict=all_bits(reads),
        taint=lambda front, bits: {r: np.zeros((1, 1), np.uint32) for r in writes},
        touch=sources | writes,
    )


# atomics


_ATOMICS = {
    **{name: name for name in ("swap", "add", "sub", "smin", "umin", "smax", "umax")},
    **{name: name for name in ("and", "or", "xor", "inc", "dec", "pk_add_bf16", "pk_add_f16")},
    **dict.fromkeys(("add_f32", "add_f64"), "add_float"),
    "min_f64": "min_float",
    "max_f64": "max_float",
}


def _atomic(ins: Instruction, program: Program) -> Op:
    """A read-modify-write of each active lane in turn; `sc0` returns the old value."""
    check_modifiers(ins, "offset", "offen", "off", *_CACHE)
    family, _, form = ins.name.split("_", 2)
    wide = form.endswith(("_x2", "_f64"))
    bits, size = (64, 8) if wide else (32, 4)
    returns = "sc0" in ins.modifiers
    operation = form.removesuffix("_x2")
    address, data, dst, reads = _atomic_operands(ins, family, returns)
    swaps_if = operation == "cmpswap"
    change = None if swaps_if else CHANGES[_ATOMICS[operation]]
    mask = (1 << bits) - 1
    writes = read_registers(dst) if dst else frozenset()

    def run(front: Front) -> None:
        where, lanes = address(front, size)
        if where.shape[1] == 1:
            where, lanes = np.broadcast_to(where, (len(front), 64)), front.mask
        sources = [front.lanes(front.regs[r]) for r in data.registers]
        _want_defined(front, ins, data.registers, lanes, size, 0)
        access = Access(front, ins, where, lanes, size, ATOMIC)
        old_words = [np.zeros((len(front), 64), np.uint32) for _ in range(size // 4)]
        for buffer, offset, place in front.machine.space.atomic(access):
            view = buffer.data[offset : offset + size]
            old = int.from_bytes(view.tobytes(), "little")
            given = [int(s[place]) for s in sources]
            new = _operand(given[: size // 4])
            if change is None:
                expected = _operand(given[size // 4 :])
                new = new if old == expected else old
            else:
                new = change(old, new, bits) & mask
            view[:] = np.frombuffer(new.to_bytes(size, "little"), np.uint8)
            front.machine.order.atomic(front, ins, buffer, offset, place[0])
            for i, word in enumerate(old_words):
                word[place] = old >> 32 * i & 0xFFFFFFFF
        if dst:
            for i, word in enumerate(old_words):
                front.write(dst.index + i, word)
        _in_flight(front, ins, writes, ("vm", "lgkm") if family == "flat" else ("vm",))

    everything = frozenset(reads) | read_registers(data)
    return Op(
        ins,
        run,
        everything,
        writes,
        strict=all_bits(reads),
        taint=lambda front, bits: {r: np.zeros((1, 1), np.uint32) for r in writes},
        touch=everything | writes,
    )


def _operand(words: list[int]) -> int:
    return sum(word << 32 * i for i, word in enumerate(words))


def _atomic_operands(
    ins: Instruction, family: str, returns: bool
) -> tuple[Addressing, Operand, Operand | None, Any]:
    if family == "buffer":
        data, *rest = ins.operands
        vector = rest[0] if rest[0].is_vector else None
        rest = rest[1:] if vector or rest[0].kind == "off" else rest
        resource, scalar = rest
        address = _buffer_address(ins, vector, resource, scalar)
        reads = read_registers(resource, scalar, *([vector] if vector else []))
        return address, data, data if returns else None, reads
    operands = list(ins.operands)
    dst = operands.pop(0) if returns else None
    vector, data, *rest = operands
    address, reads = _address_of(ins, family, [vector, *rest])
    return address, data, dst, reads


# direct to LDS

_DIRECT = {
    "ubyte": 1,
    "sbyte": 1,
    "ushort": 2,
    "sshort": 2,
    "dword": 4,
    "dwordx3": 12,
    "dwordx4": 16,
}


def _direct_to_lds(ins: Instruction, program: Program) -> Op:
    """Memory to LDS: lane i's data lands at M0 + offset + i * size."""
    check_modifiers(ins, "offset", "offen", "off", "lds", *_CACHE)
    family, _, form = ins.name.replace("_lds", "").split("_", 2)
    size = _DIRECT[form]
    rest = list(ins.operands)
    if family == "global":
        address, reads = _address_of(ins, family, rest)
    else:
        vector = rest[0] if rest[0].is_vector else None
        rest = rest[1:] if vector or rest[0].kind == "off" else rest
        address = _buffer_address(ins, vector, *rest)
        reads = read_registers(*rest, *([vector] if vector else []))
    reads = reads | {M0}
    constant = _signed_offset(ins)

    def run(front: Front) -> None:
        where, lanes = address(front, size)
        if where.shape[1] == 1:
            where, lanes = np.broadcast_to(where, (len(front), 64)), front.mask
        words = front.machine.space.load(Access(front, ins, where, lanes, size, READ))
        base = (front.regs[M0] & _U(0xFFFF)).astype(np.int64) + constant
        step = max(size, 4)
        target = np.broadcast_to(base + np.arange(64) * step, (len(front), 64))
        front.machine.lds.store_later(front, ins, target, front.mask, step, words)
        _in_flight(front, ins, frozenset(), ("vm",))

    return Op(
        ins, run, frozenset(reads), frozenset(), strict=all_bits(reads), touch=frozenset(reads)
    )


def _fence(ins: Instruction, program: Program) -> Op:
    """BUFFER_WBL2 and BUFFER_INV: no effect on values; `races` follows their order."""
    check_modifiers(ins, *_CACHE)
    agent = "sc1" in ins.modifiers
    release = ins.name == "buffer_wbl2"

    def run(front: Front) -> None:
        if release:
            front.machine.order.write_back(front, agent)
            _in_flight(front, ins, frozenset(), ("vm",))
        else:
            front.machine.order.invalidate(front, agent)

    return Op(ins, run, frozenset(), frozenset())


def builders() -> dict[str, Builder]:
    """The builder of each memory instruction outside LDS, by name."""
    table: dict[str, Builder] = {}
    for family, build in (
        ("global", _global),
        ("flat", _global),
        ("buffer", _buffer),
        ("scratch", _scratch),
    ):
        for form in _LOADS:
            table[f"{family}_load_{form}"] = build
        for form in _STORES:
            table[f"{family}_store_{form}"] = build
    for form in _SCALAR:
        table[f"s_load_{form}"] = _scalar_load
        table[f"s_buffer_load_{form}"] = _scalar_load
    for family in ("global", "flat", "buffer"):
        for form in (*_ATOMICS, "cmpswap"):
            table[f"{family}_atomic_{form}"] = _atomic
            if "_f" not in form and "bf16" not in form:
                table[f"{family}_atomic_{form}_x2"] = _atomic
    for form in _DIRECT:
        table[f"global_load_lds_{form}"] = _direct_to_lds
    table |= dict.fromkeys(("buffer_wbl2", "buffer_inv"), _fence)
    return table
