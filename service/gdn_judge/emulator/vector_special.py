"""Vector instructions that read or write masks, cross lanes, or pack two values.

Named as in the CDNA4 ISA document, chapter "Vector ALU Operations".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gdn_judge.emulator import numerics as nm
from gdn_judge.emulator.assembly import EXEC, VCC, Instruction, Operand, Program
from gdn_judge.emulator.crosslane import lane_pattern, subword
from gdn_judge.emulator.front import MODE_FP16_OVERFLOW, Array, Front, to_lanes
from gdn_judge.emulator.operands import (
    EXEC_PAIR,
    Op,
    Reader,
    all_bits,
    check_modifiers,
    combine,
    raw_reader,
    read_registers,
    reader,
    split,
    unsupported,
)
from gdn_judge.emulator.vector import LANE_OPS, canonical, finish_float, lane_op, vcc_or

Builder = Callable[[Instruction, Program], Op]
_U, _I, _Q, _L, _F = np.uint32, np.int32, np.uint64, np.int64, np.float32
_LANE64 = np.arange(64)


def _op(ins: Instruction, run: Any, reads: Any, writes: Any, **more: Any) -> Op:
    return Op(ins, run, reads, writes, touch=frozenset(reads) | frozenset(writes), **more)


def _mask_reader(ins: Instruction, op: Operand) -> Callable[[Front], Any]:
    if op.kind == "reg":
        index = op.index
        return lambda front: front.read_mask(index)
    value = combine(*split(raw_reader(ins, op, "q")(None)))  # type: ignore[arg-type]
    low, high = split(value)
    lanes = to_lanes(low, high)
    return lambda front: lanes


# selection


def _cndmask(ins: Instruction, program: Program) -> Op:
    pattern, words = lane_pattern(ins), subword(ins)
    if ins.encoding in ("dpp", "sdwa"):
        return _cndmask_moved(ins, pattern, words)
    check_modifiers(ins)
    dst, a, b = ins.operands[:3]
    mask_op = vcc_or(ins, 3)
    lanes = _mask_reader(ins, mask_op)
    floating = any(o.neg or o.absolute for o in (a, b))
    kind = "f" if floating else "u"
    ra, rb = reader(ins, a, kind), reader(ins, b, kind)
    index = dst.index

    def run(front: Front) -> None:
        value: Any = np.where(lanes(front), rb(front), ra(front))
        front.write(index, value.view(_U))

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        none = np.zeros((1, 1), _U)
        ta, tb = (bits(o.index) if o.kind == "reg" else none for o in (a, b))
        tm = none
        if mask_op.kind == "reg":
            unknown = to_lanes(bits(mask_op.index), bits(mask_op.index + 1))
            tm = np.where(unknown, _U(0xFFFFFFFF), _U(0))
        return {index: np.where(lanes(front), tb, ta) | tm}

    reads = read_registers(a, b, mask_op)
    return _op(ins, run, reads, read_registers(dst), taint=taint)


def _cndmask_moved(ins: Instruction, pattern: Any, words: Any) -> Op:
    dst, a, b = ins.operands[:3]
    ra, rb = raw_reader(ins, a, "u"), raw_reader(ins, b, "u")
    if a.neg or b.neg or a.absolute or b.absolute:
        raise unsupported(ins, "source modifiers are not modelled here")

    def run(front: Front) -> None:
        first, second = ra(front), rb(front)
        if pattern is not None:
            first = pattern.apply(front, first)
        first = words.source(0).extract(first, a.sext) if words.source(0) else first
        second = words.source(1).extract(second, b.sext) if words.source(1) else second
        value: Any = np.where(front.read_mask(VCC), second, first)
        if words.writes_part:
            value = words.insert(value, front.regs[dst.index])
        if pattern is not None and pattern.partial:
            front.write_where(dst.index, value, pattern.write_lanes(front))
        else:
            front.write(dst.index, value)

    reads = read_registers(a, b, dst) | {VCC, VCC + 1}
    return _op(ins, run, reads, read_registers(dst))


# carries


def _carry(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    base = ins.name.removeprefix("v_")
    takes = base.startswith(("addc", "subb"))
    dst, carry_out, a, b = ins.operands[:4]
    ra, rb = raw_reader(ins, a, "u"), raw_reader(ins, b, "u")
    if "rev" in base:
        ra, rb = rb, ra
    carry_in = vcc_or(ins, 4) if takes else None
    subtract = base.startswith("sub")

    def run(front: Front) -> None:
        x, y = ra(front).astype(_Q), rb(front).astype(_Q)
        if carry_in is not None:
            y = y + front.read_mask(carry_in.index)
        value = x - y if subtract else x + y
        out = y > x if subtract else value >> _Q(32) != 0
        front.write(dst.index, value.astype(_U))
        front.write_mask(carry_out.index, out)

    reads = read_registers(a, b, *([carry_in] if carry_in else []))
    return _op(ins, run, reads, read_registers(dst, carry_out))


def _mad_64(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst, carry_out, a, b, c = ins.operands
    signed = ins.name == "v_mad_i64_i32"
    wide, narrow = (_L, "i") if signed else (_Q, "u")
    ra, rb = raw_reader(ins, a, narrow), raw_reader(ins, b, narrow)
    rc = raw_reader(ins, c, "l" if signed else "q")

    def run(front: Front) -> None:
        product, addend = ra(front).astype(wide) * rb(front).astype(wide), rc(front)
        value = product + addend
        low, high = split(value)
        out = (product ^ value) & (addend ^ value) < 0 if signed else value < product
        front.write(dst.index, low)
        front.write(dst.index + 1, high)
        front.write_mask(carry_out.index, out)

    return _op(ins, run, read_registers(a, b, c), read_registers(dst, carry_out))


# comparisons

_FLOAT_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "f": lambda a, b: (a != a) & False,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: (a < b) | (a > b),
    "ge": lambda a, b: a >= b,
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: a != b,
    "nlt": lambda a, b: ~(a < b),
    "tru": lambda a, b: (a == a) | True,
}
_INTEGER_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "f": lambda a, b: (a != a) | (b != b),
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "t": lambda a, b: (a == a) & (b == b),
}
_COMPARED = {
    "f16": "h",
    "f32": "f",
    "f64": "d",
    "i32": "i",
    "u32": "u",
    "i64": "l",
    "u64": "q",
    "u16": "w",
    "i16": "w",
}


def _compare(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "dst_sel", "src0_sel", "src1_sel")
    head, relation, suffix = ins.name.split("_")[1:]
    kind = _COMPARED[suffix]
    relations = _FLOAT_RELATIONS if kind in "hfd" else _INTEGER_RELATIONS
    fn = relations[relation]
    dst, a, b = ins.operands
    ra, rb = _compare_reader(ins, 0, a, kind), _compare_reader(ins, 1, b, kind)
    if suffix == "i16":
        ra, rb = _signed16(ra), _signed16(rb)
    into_exec = head == "cmpx"
    target = dst.index

    def run(front: Front) -> None:
        lanes = fn(ra(front), rb(front))
        front.write_mask(target, lanes)
        if into_exec:
            front.write_mask(EXEC, lanes)

    writes = read_registers(dst) | (EXEC_PAIR if into_exec else frozenset())
    taint = None if into_exec else _mask_taint(target, (a, b))
    return _op(ins, run, read_registers(a, b), writes, taint=taint)


def _mask_taint(target: int, sources: tuple[Operand, ...]) -> Any:
    """A lane whose sources have an undefined bit has an undefined mask bit."""

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        unknown = np.zeros((1, 1), np.bool_)
        for register in read_registers(*sources):
            unknown = unknown | (bits(register) != 0)
        lanes = np.broadcast_to(unknown, (len(front), 64)) & front.mask
        packed = np.packbits(lanes, axis=1, bitorder="little").view("<u4")
        return {target: packed[:, :1], target + 1: packed[:, 1:]}

    return taint


def _compare_reader(ins: Instruction, i: int, op: Operand, kind: str) -> Reader:
    if ins.encoding != "sdwa":
        return reader(ins, op, kind)
    part = subword(ins).source(i)
    base = raw_reader(ins, op, "u")
    if part is None:
        return reader(ins, op, kind)
    if kind not in "uw":
        raise unsupported(ins, "SDWA selections are modelled for unsigned comparisons only")
    return lambda front: part.extract(base(front), op.sext)


def _signed16(base: Reader) -> Reader:
    return lambda front: base(front).view(np.int16)


def _class(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst, a, b = ins.operands
    ra, rb = reader(ins, a, "f"), raw_reader(ins, b, "u")

    def run(front: Front) -> None:
        front.write_mask(dst.index, _classify(ra(front), rb(front)))

    return _op(ins, run, read_registers(a, b), read_registers(dst))


def _classify(x: Any, wanted: Any) -> Any:
    bits = np.asarray(x).view(_U)
    negative, nan = bits >> _U(31) != 0, np.isnan(x)
    signalling = nan & ((bits & _U(0x00400000)) == 0)
    subnormal = ((bits & _U(0x7F800000)) == 0) & (x != 0)
    normal = np.isfinite(x) & ~subnormal & (x != 0)
    kinds = [
        signalling,
        nan & ~signalling,
        np.isinf(x) & negative,
        normal & negative,
        subnormal & negative,
        (x == 0) & negative,
        (x == 0) & ~negative,
        subnormal & ~negative,
        normal & ~negative,
        np.isinf(x) & ~negative,
    ]
    hit = np.zeros((1, 1), np.bool_)
    for i, kind in enumerate(kinds):
        hit = hit | (kind & ((wanted >> _U(i)) & _U(1) != 0))
    return hit


# lanes


def _readfirstlane(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst, src = ins.operands
    read = raw_reader(ins, src, "u")

    def pick(front: Front, value: Array) -> Array:
        if value.shape[1] == 1 or front.full:
            return value[:, :1]
        lane = np.argmax(front.mask, axis=1)  # lane 0 where no lane is active
        picked: Array = front.lanes(value)[np.arange(len(front)), lane][:, None]
        return picked

    def run(front: Front) -> None:
        front.write_scalar(dst.index, pick(front, read(front)))

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        return {dst.index: pick(front, bits(src.index))}

    return _op(ins, run, read_registers(src), read_registers(dst), taint=taint, lanewise=False)


def _readlane(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst, src, lane = ins.operands
    read, which = raw_reader(ins, src, "u"), raw_reader(ins, lane, "u")

    def pick(front: Front, value: Array) -> Array:
        at = np.broadcast_to(which(front) & _U(63), (len(front), 1))[:, 0]
        picked: Array = front.lanes(value)[np.arange(len(front)), at][:, None]
        return picked

    def run(front: Front) -> None:
        front.write_scalar(dst.index, pick(front, read(front)))

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        return {dst.index: pick(front, bits(src.index))}

    reads = read_registers(src, lane)
    strict = all_bits(read_registers(lane))
    return _op(ins, run, reads, read_registers(dst), strict=strict, taint=taint, lanewise=False)


def _writelane(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst, src, lane = ins.operands
    read, which = raw_reader(ins, src, "u"), raw_reader(ins, lane, "u")

    def put(front: Front, old: Array, value: Array) -> Array:
        chosen = _LANE64[None, :] == (which(front) & _U(63))
        return np.where(chosen, value, old)

    def run(front: Front) -> None:
        front.regs[dst.index] = put(front, front.regs[dst.index], read(front))

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        value = bits(src.index) if src.kind == "reg" else np.zeros((1, 1), _U)
        return {dst.index: put(front, bits(dst.index), value)}

    reads = read_registers(src, lane)
    strict = all_bits(read_registers(lane))
    return _op(ins, run, reads, read_registers(dst), strict=strict, taint=taint, lanewise=False)


def _swap_rows(ins: Instruction, program: Program) -> Op:
    """V_PERMLANE16_SWAP and V_PERMLANE32_SWAP.

    The odd rows (of 16 lanes), or the upper half, of the first register change
    places with the even rows, or the lower half, of the second. Two lanes that are both
    idle keep their values; what an active lane gets from an idle one is not documented.
    """
    check_modifiers(ins)
    size = 16 if "16" in ins.name else 32
    a, b = ins.operands
    odd = (_LANE64 // size) % 2 == 1
    upper, lower = _LANE64[odd], _LANE64[~odd]

    def exchange(x: Array, y: Array) -> tuple[Array, Array]:
        first, second = x.copy(), y.copy()
        first[:, upper], second[:, lower] = y[:, lower], x[:, upper]
        return first, second

    def run(front: Front) -> None:
        if not front.full and (front.mask[:, upper] != front.mask[:, lower]).any():
            raise unsupported(ins, "a swap of an active lane with an idle one is not modelled")
        x, y = front.lanes(front.regs[a.index]), front.lanes(front.regs[b.index])
        first, second = exchange(x, y)
        front.write(a.index, first)
        front.write(b.index, second)

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        x, y = exchange(front.lanes(bits(a.index)), front.lanes(bits(b.index)))
        return {a.index: x, b.index: y}

    both = read_registers(a, b)
    return _op(ins, run, both, both, taint=taint)


def _swap(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    a, b = ins.operands

    def run(front: Front) -> None:
        x, y = front.regs[a.index], front.regs[b.index]
        front.write(a.index, y)
        front.write(b.index, x)

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        return {a.index: bits(b.index), b.index: bits(a.index)}

    both = read_registers(a, b)
    return _op(ins, run, both, both, taint=taint)


def _mbcnt(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst, a, b = ins.operands
    ra, rb = raw_reader(ins, a, "u"), raw_reader(ins, b, "u")
    below = (
        (1 << np.minimum(_LANE64, 32)) - 1
        if "lo" in ins.name
        else ((1 << np.maximum(_LANE64 - 32, 0)) - 1)
    )
    mask = below.astype(_U)[None, :]

    def run(front: Front) -> None:
        front.write(dst.index, nm.popcount32(ra(front) & mask) + rb(front))

    return _op(ins, run, read_registers(a, b), read_registers(dst))


# packed float32


def _select_bits(ins: Instruction, key: str, count: int, default: int) -> list[int]:
    text = ins.modifiers.get(key)
    if text is None:
        return [default] * count
    bits = [int(n) for n in re.findall(r"\d", text)]
    if len(bits) < count:
        raise unsupported(ins, f"{key} is too short")
    return bits


_PACKED: dict[str, tuple[int, Callable[..., Any]]] = {
    "v_pk_add_f32": (2, lambda a, b: a + b),
    "v_pk_mul_f32": (2, lambda a, b: a * b),
    "v_pk_fma_f32": (3, nm.fma32),
}


def _half(op: Operand, upper: int, ins: Instruction) -> Operand:
    """One of the two float32 operands that a packed operand holds."""
    if op.kind == "reg":
        if op.count != 2:
            raise unsupported(ins, f"the operand {op.text!r} is not a register pair")
        return replace(op, index=op.index + upper, count=1)
    if upper:
        raise unsupported(ins, "the upper half of a constant is not modelled")
    return op


def _packed(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "op_sel", "op_sel_hi", "neg_lo", "neg_hi", "clamp")
    count, fn = _PACKED[ins.name]
    dst, *sources = ins.operands
    halves = []
    for key, sign_key, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
        picks = _select_bits(ins, key, count, default)
        signs = _select_bits(ins, sign_key, count, 0)
        halves.append(
            [
                replace(_half(s, p, ins), neg=bool(n))
                for s, p, n in zip(sources, picks, signs, strict=True)
            ]
        )
    low, high = ([reader(ins, o, "f") for o in half] for half in halves)
    finish = finish_float(ins)

    def one(front: Front, readers: list[Reader]) -> Array:
        values = [r(front) for r in readers]
        value = fn(*values)
        if front.machine.invalid:
            front.machine.invalid = False
            value = canonical(value, values)
        result: Array = (finish(value) if finish else value).view(_U)
        return result

    def run(front: Front) -> None:
        first, second = one(front, low), one(front, high)
        front.write(dst.index, first)
        front.write(dst.index + 1, second)

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        return {dst.index + i: _any(half, bits) for i, half in enumerate(halves)}

    reads = read_registers(*halves[0], *halves[1])
    return _op(ins, run, reads, read_registers(dst), taint=taint)


def _any(sources: list[Operand], bits: Callable[[int], Array]) -> Array:
    hit = np.zeros((1, 1), np.bool_)
    for register in read_registers(*sources):
        hit = hit | (bits(register) != 0)
    return np.where(hit, _U(0xFFFFFFFF), _U(0))


def _pk_mov(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "op_sel", "op_sel_hi")
    dst, a, b = ins.operands
    pick = _select_bits(ins, "op_sel", 2, 0)
    first, second = _half(a, pick[0], ins), _half(b, pick[1], ins)
    ra, rb = raw_reader(ins, first, "u"), raw_reader(ins, second, "u")

    def run(front: Front) -> None:
        x, y = ra(front), rb(front)
        front.write(dst.index, x)
        front.write(dst.index + 1, y)

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        none = np.zeros((1, 1), _U)
        x, y = (bits(o.index) if o.kind == "reg" else none for o in (first, second))
        return {dst.index: x, dst.index + 1: y}

    return _op(ins, run, read_registers(first, second), read_registers(dst), taint=taint)


_PACKED_16: dict[str, Callable[[Any, Any], Any]] = {
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_max_u16": np.maximum,
    "v_pk_min_u16": np.minimum,
    "v_pk_max_i16": lambda a, b: np.maximum(a.view(np.int16), b.view(np.int16)).view(np.uint16),
    "v_pk_min_i16": lambda a, b: np.minimum(a.view(np.int16), b.view(np.int16)).view(np.uint16),
    "v_pk_lshlrev_b16": lambda a, b: b << (a & np.uint16(15)),
    "v_pk_lshrrev_b16": lambda a, b: b >> (a & np.uint16(15)),
}


def _packed_16(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "op_sel", "op_sel_hi")
    fn = _PACKED_16[ins.name]
    dst, a, b = ins.operands
    ra, rb = raw_reader(ins, a, "u"), raw_reader(ins, b, "u")
    low, high = (_select_bits(ins, k, 2, d) for k, d in (("op_sel", 0), ("op_sel_hi", 1)))

    def half(value: Array, upper: int) -> Any:
        return (value >> _U(16) if upper else value).astype(np.uint16)

    def run(front: Front) -> None:
        x, y = ra(front), rb(front)
        first = fn(half(x, low[0]), half(y, low[1])).astype(_U)
        second = fn(half(x, high[0]), half(y, high[1])).astype(_U)
        front.write(dst.index, first | (second << _U(16)))

    return _op(ins, run, read_registers(a, b), read_registers(dst))


# division


def _div_scale(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst, flag, *sources = ins.operands
    readers = [reader(ins, s, "f") for s in sources]

    def run(front: Front) -> None:
        s0, den, num = (r(front) for r in readers)
        value, scaled = _scale(s0, den, num)
        front.write(dst.index, value.view(_U))
        front.write_mask(flag.index, scaled)

    return _op(ins, run, read_registers(*sources), read_registers(dst, flag))


def _scale(s0: Any, den: Any, num: Any) -> Any:
    """`numerics.div_scale32`, skipping its case analysis where nothing is extreme."""
    e_den, e_num = (nm.exponent32(np.asarray(t).view(_U)) for t in (den, num))
    gap = e_num - e_den
    if (
        e_den.min() >= 1
        and e_den.max() <= 252
        and e_num.min() >= 24
        and e_num.max() <= 254
        and gap.min() > -125
        and gap.max() < 96
    ):
        return np.asarray(s0), np.zeros((1, 1), np.bool_)
    return nm.div_scale32(s0, den, num)


def _div_fmas(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst, *sources = ins.operands
    readers = [reader(ins, s, "f") for s in sources]

    def run(front: Front) -> None:
        a, b, c = (r(front) for r in readers)
        value = nm.div_fmas32(a, b, c, front.read_mask(VCC))
        front.write(dst.index, value.view(_U))

    reads = read_registers(*sources) | {VCC, VCC + 1}
    return _op(ins, run, reads, read_registers(dst))


# FP8


def _cvt_pk_fp8(ins: Instruction, program: Program) -> Op:
    """Two float32 to two FP8 codes in one half of the destination; the other half stays."""
    check_modifiers(ins, "op_sel")
    scaled = "scalef32" in ins.name
    dst, a, b, *rest = ins.operands
    ra, rb = reader(ins, a, "f"), reader(ins, b, "f")
    scale = reader(ins, rest[0], "f") if scaled else None
    picks = re.findall(r"\d", ins.modifiers.get("op_sel", ""))
    upper = bool(picks) and picks[-1] == "1"
    convert = nm.to_e4m3fn if "_fp8_" in ins.name else nm.to_e5m2

    def code(front: Front, value: Any) -> Array:
        if scale is not None:
            exponent = nm.exponent32(scale(front).view(_U)) - 127
            value = nm.ldexp32(value, -exponent)
        return convert(value, bool(front.mode & MODE_FP16_OVERFLOW))

    def run(front: Front) -> None:
        pair = code(front, ra(front)) | (code(front, rb(front)) << _U(8))
        front.write(dst.index, _merge_half(front.regs[dst.index], pair, upper))

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        none = np.zeros((1, 1), _U)
        lanes = [bits(o.index) if o.kind == "reg" else none for o in (a, b, *rest)]
        shared = lanes[2] != 0 if rest else np.zeros((1, 1), np.bool_)
        low = np.where((lanes[0] != 0) | shared, _U(0xFF), _U(0))
        high = np.where((lanes[1] != 0) | shared, _U(0xFF00), _U(0))
        both: Any = low | high
        return {dst.index: _merge_half(bits(dst.index), both, upper)}

    return _op(ins, run, read_registers(a, b, dst, *rest), read_registers(dst), taint=taint)


def _merge_half(old: Array, pair: Array, upper: bool) -> Array:
    if upper:
        return (old & _U(0xFFFF)) | (pair << _U(16))
    return (old & _U(0xFFFF0000)) | pair


def _cvt_pk_f32_fp8(ins: Instruction, program: Program) -> Op:
    """Two FP8 codes of one half of a register to two float32."""
    check_modifiers(ins, "op_sel", "src0_sel")
    dst, src, *rest = ins.operands
    read = raw_reader(ins, src, "u")
    scale = reader(ins, rest[0], "f") if rest else None
    picks = re.findall(r"\d", ins.modifiers.get("op_sel", ""))
    upper = bool(picks and picks[0] == "1") or ins.modifiers.get("src0_sel") == "WORD_1"
    decode = nm.from_e4m3fn if ins.name.endswith("_fp8") else nm.from_e5m2
    shift = _U(16 if upper else 0)

    def run(front: Front) -> None:
        codes = read(front) >> shift
        for i in range(2):
            value = decode(codes >> _U(8 * i))
            if scale is not None:
                exponent = nm.exponent32(scale(front).view(_U)) - 127
                value = nm.ldexp32(value, exponent)
            front.write(dst.index + i, value.view(_U))

    return _op(ins, run, read_registers(src, *rest), read_registers(dst))


def _cvt_f32_fp8(ins: Instruction, program: Program) -> Op:
    """V_CVT_F32_FP8/BF8: the source byte may be chosen by SDWA or byte_sel."""
    if "byte_sel" not in ins.modifiers:
        return lane_op(ins, program)
    check_modifiers(ins, "byte_sel")
    dst, src = ins.operands
    read = raw_reader(ins, src, "u")
    shift = _U(8 * int(ins.modifiers["byte_sel"]))
    decode = nm.from_e4m3fn if ins.name.endswith("_fp8") else nm.from_e5m2

    def run(front: Front) -> None:
        front.write(dst.index, decode(read(front) >> shift).view(_U))

    return _op(ins, run, read_registers(src), read_registers(dst))


def _bitop3(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "bitop3")
    table = int(ins.modifiers.get("bitop3", "0"), 0)
    dst, *sources = ins.operands
    readers = [raw_reader(ins, s, "u") for s in sources]
    keep = _U(0xFFFF if ins.name == "v_bitop3_b16" else 0xFFFFFFFF)

    def run(front: Front) -> None:
        a, b, c = (r(front) for r in readers)
        front.write(dst.index, nm.bitop3(a, b, c, table) & keep)

    return _op(ins, run, read_registers(*sources), read_registers(dst))


def builders() -> dict[str, Builder]:
    """The builder of each vector arithmetic instruction, by name."""
    table: dict[str, Builder] = dict.fromkeys(LANE_OPS, lane_op)
    table["v_cndmask_b32"] = _cndmask
    for name in ("add_co_u32", "sub_co_u32", "subrev_co_u32"):
        table[f"v_{name}"] = _carry
    for name in ("addc_co_u32", "subb_co_u32", "subbrev_co_u32"):
        table[f"v_{name}"] = _carry
    table |= dict.fromkeys(("v_mad_u64_u32", "v_mad_i64_i32"), _mad_64)
    for head in ("cmp", "cmpx"):
        for suffix, kind in _COMPARED.items():
            for relation in _FLOAT_RELATIONS if kind in "hfd" else _INTEGER_RELATIONS:
                table[f"v_{head}_{relation}_{suffix}"] = _compare
    table["v_cmp_class_f32"] = _class
    table["v_readfirstlane_b32"] = _readfirstlane
    table["v_readlane_b32"] = _readlane
    table["v_writelane_b32"] = _writelane
    table |= dict.fromkeys(("v_permlane16_swap_b32", "v_permlane32_swap_b32"), _swap_rows)
    table["v_swap_b32"] = _swap
    table |= dict.fromkeys(("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32"), _mbcnt)
    table |= dict.fromkeys(_PACKED, _packed)
    table |= dict.fromkeys(_PACKED_16, _packed_16)
    table["v_pk_mov_b32"] = _pk_mov
    table["v_div_scale_f32"] = _div_scale
    table["v_div_fmas_f32"] = _div_fmas
    for fmt in ("fp8", "bf8"):
        table[f"v_cvt_pk_{fmt}_f32"] = _cvt_pk_fp8
        table[f"v_cvt_scalef32_pk_{fmt}_f32"] = _cvt_pk_fp8
        table[f"v_cvt_pk_f32_{fmt}"] = _cvt_pk_f32_fp8
        table[f"v_cvt_scalef32_pk_f32_{fmt}"] = _cvt_pk_f32_fp8
        table[f"v_cvt_f32_{fmt}"] = _cvt_f32_fp8
    table |= dict.fromkeys(("v_bitop3_b32", "v_bitop3_b16"), _bitop3)
    table["v_nop"] = lambda ins, program: _op(ins, lambda front: None, frozenset(), frozenset())
    return table
