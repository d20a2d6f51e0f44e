"""The scalar unit: SALU arithmetic, branches, MODE, and scalar helpers.

Each entry of the tables is named as in the CDNA4 ISA document, chapter
"Scalar ALU Operations". Values are [W or 1, 1] arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from gdn_judge.emulator import numerics
from gdn_judge.emulator.assembly import EXEC, SCC, VCC, Instruction, Operand, Program
from gdn_judge.emulator.front import Array, Front, Registers
from gdn_judge.emulator.operands import (
    EXEC_PAIR,
    WIDE,
    Op,
    all_bits,
    check_modifiers,
    combine,
    raw_reader,
    read_registers,
    split,
    unsupported,
)

Builder = Callable[[Instruction, Program], Op]
_U = np.uint32
_Q = np.uint64
_I = np.int32
_L = np.int64


def _flag(condition: Any) -> Array:
    flag: Array = condition.astype(np.uint32)
    return flag


def _signed_overflow_add(a: Any, b: Any) -> Any:
    r = a + b
    return ((a ^ r) & (b ^ r)) < 0


def _signed_overflow_sub(a: Any, b: Any) -> Any:
    r = a - b
    return ((a ^ b) & (a ^ r)) < 0


def _bfe(bits: int) -> Callable[[Any, Any], Any]:
    def unsigned(a: Any, b: Any) -> Any:
        offset = (b & _U(bits - 1)).astype(a.dtype)
        width = np.minimum((b >> _U(16)) & _U(0x7F), _U(bits)).astype(np.int64)
        ones = np.array([(1 << int(w)) - 1 for w in width.ravel()], np.uint64)
        return (a >> offset) & ones.reshape(width.shape).astype(a.dtype)

    return unsigned


def _bfe_signed(bits: int, unsigned: Any, signed: Any) -> Callable[[Any, Any], Any]:
    extract = _bfe(bits)

    def run(a: Any, b: Any) -> Any:
        field = extract(a.view(unsigned), b)
        width = np.minimum((b >> _U(16)) & _U(0x7F), _U(bits)).astype(np.int64)
        shift = np.where(width == 0, 0, bits - width).astype(unsigned)
        return (field << shift).view(signed) >> shift.view(signed)

    return run


def _addc(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    wide = a.astype(_Q) + b.astype(_Q) + c.astype(_Q)
    return wide.astype(_U), wide >> _Q(32) != 0


def _subb(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    need = b.astype(_Q) + c.astype(_Q)
    return (a.astype(_Q) - need).astype(_U), need > a.astype(_Q)


def _shl_add(n: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    def run(a: Any, b: Any) -> tuple[Any, Any]:
        wide = (a.astype(_Q) << _Q(n)) + b.astype(_Q)
        return wide.astype(_U), wide >> _Q(32) != 0

    return run


def _nonzero(fn: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """SCC says whether the result is not zero."""

    def run(*sources: Any) -> tuple[Any, Any]:
        r = fn(*sources)
        return r, r != 0

    return run


def _plain(fn: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """SCC stays."""
    return lambda *sources: (fn(*sources), None)


def _b64(a: Any) -> Any:
    return (a & _U(63)).astype(_Q)


def _bitmask(dtype: Any, bits: int) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        one = dtype(1)
        limit = _U(bits - 1)
        return ((one << (a & limit).astype(dtype)) - one) << (b & limit).astype(dtype)

    return run


def _flbit_signed(a: Any) -> Any:
    """Position of the first bit unlike the sign bit, from the top; -1 if all agree."""
    return numerics.leading_zeros32(a ^ (a.view(_I) >> _I(31)).view(_U))


def _wide_scan(scan: Callable[[Any], Any], first_high: bool) -> Callable[[Any], Any]:
    """A 32 bit search (-1 for none) over both halves of a 64 bit value."""

    def run(a: Any) -> Any:
        low, high = split(a)
        first, second = (scan(high), scan(low)) if first_high else (scan(low), scan(high))
        later = np.where(second == _U(0xFFFFFFFF), second, second + _U(32))
        return np.where(first == _U(0xFFFFFFFF), later, first)

    return run


def _mul_hi(dtype: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: ((a.astype(dtype) * b.astype(dtype)) >> dtype(32)).astype(_U)


def _sext(bits: int) -> Callable[[Any], Any]:
    shift = _I(32 - bits)
    return lambda a: (a << shift) >> shift


def _absdiff(a: Any, b: Any) -> Any:
    return np.abs(a.astype(_L) - b.astype(_L)).astype(_U)


# name -> (destination type, source types, function giving (value, scc or None))
_ARITHMETIC: dict[str, tuple[str, str, Callable[..., tuple[Any, Any]]]] = {
    "s_add_u32": ("u", "uu", lambda a, b: (a + b, (a + b) < a)),
    "s_sub_u32": ("u", "uu", lambda a, b: (a - b, b > a)),
    "s_add_i32": ("i", "ii", lambda a, b: (a + b, _signed_overflow_add(a, b))),
    "s_sub_i32": ("i", "ii", lambda a, b: (a - b, _signed_overflow_sub(a, b))),
    "s_addk_i32": ("i", "ii", lambda a, b: (a + b, _signed_overflow_add(a, b))),
    "s_min_i32": ("i", "ii", lambda a, b: (np.minimum(a, b), a < b)),
    "s_min_u32": ("u", "uu", lambda a, b: (np.minimum(a, b), a < b)),
    "s_max_i32": ("i", "ii", lambda a, b: (np.maximum(a, b), a > b)),
    "s_max_u32": ("u", "uu", lambda a, b: (np.maximum(a, b), a > b)),
    "s_and_b32": ("u", "uu", _nonzero(lambda a, b: a & b)),
    "s_and_b64": ("q", "qq", _nonzero(lambda a, b: a & b)),
    "s_or_b32": ("u", "uu", _nonzero(lambda a, b: a | b)),
    "s_or_b64": ("q", "qq", _nonzero(lambda a, b: a | b)),
    "s_xor_b32": ("u", "uu", _nonzero(lambda a, b: a ^ b)),
    "s_xor_b64": ("q", "qq", _nonzero(lambda a, b: a ^ b)),
    "s_andn2_b32": ("u", "uu", _nonzero(lambda a, b: a & ~b)),
    "s_andn2_b64": ("q", "qq", _nonzero(lambda a, b: a & ~b)),
    "s_orn2_b32": ("u", "uu", _nonzero(lambda a, b: a | ~b)),
    "s_orn2_b64": ("q", "qq", _nonzero(lambda a, b: a | ~b)),
    "s_nand_b32": ("u", "uu", _nonzero(lambda a, b: ~(a & b))),
    "s_nand_b64": ("q", "qq", _nonzero(lambda a, b: ~(a & b))),
    "s_nor_b32": ("u", "uu", _nonzero(lambda a, b: ~(a | b))),
    "s_nor_b64": ("q", "qq", _nonzero(lambda a, b: ~(a | b))),
    "s_xnor_b32": ("u", "uu", _nonzero(lambda a, b: ~(a ^ b))),
    "s_xnor_b64": ("q", "qq", _nonzero(lambda a, b: ~(a ^ b))),
    "s_lshl_b32": ("u", "uu", _nonzero(lambda a, b: a << (b & _U(31)))),
    "s_lshl_b64": ("q", "qu", _nonzero(lambda a, b: a << _b64(b))),
    "s_lshr_b32": ("u", "uu", _nonzero(lambda a, b: a >> (b & _U(31)))),
    "s_lshr_b64": ("q", "qu", _nonzero(lambda a, b: a >> _b64(b))),
    "s_ashr_i32": ("i", "iu", _nonzero(lambda a, b: a >> (b & _U(31)).view(_I))),
    "s_ashr_i64": ("l", "lu", _nonzero(lambda a, b: a >> _b64(b).view(_L))),
    "s_bfm_b32": ("u", "uu", _plain(_bitmask(_U, 32))),
    "s_bfm_b64": ("q", "uu", _plain(_bitmask(_Q, 64))),
    "s_mul_i32": ("u", "uu", _plain(lambda a, b: a * b)),
    "s_mulk_i32": ("u", "uu", _plain(lambda a, b: a * b)),
    "s_mul_hi_u32": ("u", "uu", _plain(_mul_hi(_Q))),
    "s_mul_hi_i32": ("u", "ii", _plain(_mul_hi(_L))),
    "s_bfe_u32": ("u", "uu", _nonzero(_bfe(32))),
    "s_bfe_i32": ("i", "iu", _nonzero(_bfe_signed(32, _U, _I))),
    "s_bfe_u64": ("q", "qu", _nonzero(_bfe(64))),
    "s_bfe_i64": ("l", "lu", _nonzero(_bfe_signed(64, _Q, _L))),
    "s_absdiff_i32": ("u", "ii", _nonzero(_absdiff)),
    "s_lshl1_add_u32": ("u", "uu", _shl_add(1)),
    "s_lshl2_add_u32": ("u", "uu", _shl_add(2)),
    "s_lshl3_add_u32": ("u", "uu", _shl_add(3)),
    "s_lshl4_add_u32": ("u", "uu", _shl_add(4)),
    "s_pack_ll_b32_b16": ("u", "uu", _plain(lambda a, b: (a & _U(0xFFFF)) | (b << _U(16)))),
    "s_pack_lh_b32_b16": ("u", "uu", _plain(lambda a, b: (a & _U(0xFFFF)) | (b & _U(0xFFFF0000)))),
    "s_pack_hh_b32_b16": ("u", "uu", _plain(lambda a, b: (a >> _U(16)) | (b & _U(0xFFFF0000)))),
    "s_mov_b32": ("u", "u", _plain(lambda a: a)),
    "s_mov_b64": ("q", "q", _plain(lambda a: a)),
    "s_movk_i32": ("i", "i", _plain(lambda a: a)),
    "s_not_b32": ("u", "u", _nonzero(lambda a: ~a)),
    "s_not_b64": ("q", "q", _nonzero(lambda a: ~a)),
    "s_brev_b32": ("u", "u", _plain(numerics.bit_reverse32)),
    "s_abs_i32": ("i", "i", _nonzero(np.abs)),
    "s_sext_i32_i8": ("i", "i", _plain(_sext(8))),
    "s_sext_i32_i16": ("i", "i", _plain(_sext(16))),
    "s_bcnt1_i32_b32": ("u", "u", _nonzero(numerics.popcount32)),
    "s_bcnt1_i32_b64": ("u", "q", _nonzero(lambda a: np.bitwise_count(a).astype(_U))),
    "s_bcnt0_i32_b32": ("u", "u", _nonzero(lambda a: numerics.popcount32(~a))),
    "s_bcnt0_i32_b64": ("u", "q", _nonzero(lambda a: np.bitwise_count(~a).astype(_U))),
    "s_ff1_i32_b32": ("u", "u", _plain(numerics.trailing_zeros32)),
    "s_ff1_i32_b64": ("u", "q", _plain(_wide_scan(numerics.trailing_zeros32, False))),
    "s_ff0_i32_b32": ("u", "u", _plain(lambda a: numerics.trailing_zeros32(~a))),
    "s_flbit_i32_b32": ("u", "u", _plain(numerics.leading_zeros32)),
    "s_flbit_i32_b64": ("u", "q", _plain(_wide_scan(numerics.leading_zeros32, True))),
    "s_flbit_i32": ("u", "u", _plain(_flbit_signed)),
}

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def _store(dst: Operand, kind: str) -> Callable[[Front, Any], None]:
    index = dst.index
    if kind in WIDE:

        def wide(front: Front, value: Any) -> None:
            low, high = split(value)
            front.regs[index] = low
            front.write_scalar(index + 1, high)

        return wide
    return lambda front, value: front.write_scalar(index, value.view(np.uint32))


def _op(
    ins: Instruction,
    run: Callable[[Front], Any],
    reads: Registers,
    writes: Registers,
    strict: Registers = frozenset(),
    taint: Any = None,
) -> Op:
    strict = strict | (reads if writes & EXEC_PAIR else frozenset())
    touch = reads | writes
    return Op(ins, run, reads, writes, all_bits(strict), taint, lanewise=False, touch=touch)


def _short(build: Builder) -> Builder:
    """`build` for the format SOPK, whose 16-bit constant the hardware extends.

    With its sign, or with zeros where unsigned values are compared (CDNA4 ISA, SOPK
    instructions); the assembler prints only the 16 bits.
    """

    def built(ins: Instruction, program: Program) -> Op:
        *before, constant = ins.operands
        if constant.kind != "int":
            raise unsupported(ins, f"the operand {constant.text!r} is not a constant")
        value = int(constant.value)
        if not -(1 << 15) <= value < 1 << 16 and not 0xFFFF8000 <= value < 1 << 32:
            raise unsupported(ins, f"the constant {constant.text!r} has more than 16 bits")
        low = value & 0xFFFF
        if low >> 15 and not ins.name.endswith("_u32"):
            low -= 1 << 16
        extended = dataclasses.replace(constant, value=low)
        return build(dataclasses.replace(ins, operands=(*before, extended)), program)

    return built


def _arithmetic(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst_kind, kinds, fn = _ARITHMETIC[ins.name]
    dst, *sources = ins.operands
    if ins.name in ("s_addk_i32", "s_mulk_i32"):
        sources = [dst, *sources]
    if dst.count != (2 if dst_kind in WIDE else 1):
        raise unsupported(ins, "the destination has the wrong width")
    readers = [raw_reader(ins, s, k) for s, k in zip(sources, kinds, strict=True)]
    store = _store(dst, dst_kind)
    sets_scc = fn(*(np.ones((1, 1), _KIND[k]) for k in kinds))[1] is not None

    def run(front: Front) -> None:
        value, scc = fn(*(r(front) for r in readers))
        store(front, value)
        if scc is not None:
            front.regs[SCC] = _flag(scc)

    writes = read_registers(dst) | ({SCC} if sets_scc else frozenset())
    exact = ins.name in _TAINT
    taint = _exact_taint(ins, dst, dst_kind, sources, kinds) if exact else None
    return _op(ins, run, read_registers(*sources), writes, taint=taint)


_KIND = {"u": _U, "i": _I, "q": _Q, "l": _L}


def _worst(taint: Any) -> Any:
    """All bits undefined where any bit is."""
    return np.where(taint != 0, ~taint.dtype.type(0), taint.dtype.type(0))


def _field_taint(bits: int) -> Callable[[list[Any], list[Any]], Any]:
    """A bit field is defined where its own bits are."""
    extract = _bfe(bits)

    def taint(t: list[Any], v: list[Any]) -> Any:
        return _worst(extract(t[0], v[1])) | _worst(t[1]).astype(t[0].dtype)

    return taint


def _and_taint(t: list[Any], v: list[Any]) -> Any:
    return (t[0] | t[1]) & (v[0] | t[0]) & (v[1] | t[1])


def _or_taint(t: list[Any], v: list[Any]) -> Any:
    return (t[0] | t[1]) & (~v[0] | t[0]) & (~v[1] | t[1])


# operations whose undefined source bits reach only some result bits:
# name -> f(undefined bits of the sources, values of the sources)
_TAINT: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "s_mov_b32": lambda t, v: t[0],
    "s_mov_b64": lambda t, v: t[0],
    "s_not_b32": lambda t, v: t[0],
    "s_not_b64": lambda t, v: t[0],
    "s_and_b32": _and_taint,
    "s_and_b64": _and_taint,
    "s_or_b32": _or_taint,
    "s_or_b64": _or_taint,
    "s_lshl_b32": lambda t, v: _worst(t[1]) | (t[0] << (v[1] & _U(31))),
    "s_lshr_b32": lambda t, v: _worst(t[1]) | (t[0] >> (v[1] & _U(31))),
    "s_lshl_b64": lambda t, v: _worst(t[1]).astype(_Q) | (t[0] << _b64(v[1])),
    "s_lshr_b64": lambda t, v: _worst(t[1]).astype(_Q) | (t[0] >> _b64(v[1])),
    "s_bfe_u32": _field_taint(32),
    "s_bfe_i32": _field_taint(32),
    "s_bfe_u64": _field_taint(64),
    "s_bfe_i64": _field_taint(64),
    "s_sext_i32_i8": lambda t, v: _worst(t[0] & _U(0xFF)),
    "s_sext_i32_i16": lambda t, v: _worst(t[0] & _U(0xFFFF)),
    "s_pack_ll_b32_b16": lambda t, v: (t[0] & _U(0xFFFF)) | (t[1] << _U(16)),
}


def _exact_taint(
    ins: Instruction, dst: Operand, dst_kind: str, sources: list[Operand], kinds: str
) -> Any:
    fn = _TAINT[ins.name]
    unsigned = ["q" if k in WIDE else "u" for k in kinds]
    readers = [raw_reader(ins, s, k) for s, k in zip(sources, unsigned, strict=True)]

    def one(front: Front, op: Operand, kind: str, bits: Callable[[int], Array]) -> Any:
        if op.kind != "reg":
            return np.zeros((1, 1), _KIND[kind])
        parts = [bits(r)[:, :1] for r in op.registers]
        return combine(*parts) if kind == "q" else parts[0]

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        unknown = [one(front, s, k, bits) for s, k in zip(sources, unsigned, strict=True)]
        result = fn(unknown, [r(front) for r in readers])
        pair = split(result) if dst_kind in WIDE else (result.astype(_U),)
        flags = {SCC: _worst(result).astype(_U)}
        return dict(zip(dst.registers, pair, strict=True)) | flags

    return taint


def _with_carry(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    fn = {"s_addc_u32": _addc, "s_subb_u32": _subb}[ins.name]
    dst, a, b = ins.operands
    ra, rb = raw_reader(ins, a, "u"), raw_reader(ins, b, "u")
    store = _store(dst, "u")

    def run(front: Front) -> None:
        value, carry = fn(ra(front), rb(front), front.regs[SCC])
        store(front, value)
        front.regs[SCC] = _flag(carry)

    return _op(ins, run, read_registers(a, b) | {SCC}, read_registers(dst) | {SCC})


def _compare(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    _, _, relation, kind = ins.name.replace("cmpk", "cmp").split("_")
    letter = {"i32": "i", "u32": "u", "u64": "q"}[kind]
    fn = _COMPARE[relation]
    a, b = ins.operands
    ra, rb = raw_reader(ins, a, letter), raw_reader(ins, b, letter)

    def run(front: Front) -> None:
        front.regs[SCC] = _flag(fn(ra(front), rb(front)))

    return _op(ins, run, read_registers(a, b), frozenset((SCC,)))


def _bitcmp(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    want, wide = int(ins.name[8]), ins.name.endswith("b64")
    a, b = ins.operands
    ra, rb = raw_reader(ins, a, "q" if wide else "u"), raw_reader(ins, b, "u")
    kind, limit = (_Q, 63) if wide else (_U, 31)

    def run(front: Front) -> None:
        bit = (ra(front) >> (rb(front) & _U(limit)).astype(kind)) & kind(1)
        front.regs[SCC] = _flag(bit == kind(want))

    return _op(ins, run, read_registers(a, b), frozenset((SCC,)))


def _bitset(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    want, wide = ins.name[8] == "1", ins.name.endswith("b64")
    dst, src = ins.operands
    kind, limit = (_Q, 63) if wide else (_U, 31)
    old, pos = raw_reader(ins, dst, "q" if wide else "u"), raw_reader(ins, src, "u")
    store = _store(dst, "q" if wide else "u")

    def run(front: Front) -> None:
        bit = kind(1) << (pos(front) & _U(limit)).astype(kind)
        store(front, old(front) | bit if want else old(front) & ~bit)

    return _op(ins, run, read_registers(dst, src), read_registers(dst))


def _select(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    kind = "q" if ins.name.endswith("b64") else "u"
    dst, a, b = ins.operands
    ra, rb = raw_reader(ins, a, kind), raw_reader(ins, b, kind)
    store = _store(dst, kind)

    def run(front: Front) -> None:
        store(front, np.where(front.regs[SCC] != 0, ra(front), rb(front)))

    return _op(ins, run, read_registers(a, b) | {SCC}, read_registers(dst))


def _cmov(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    kind = "q" if ins.name.endswith("b64") else "u"
    dst, src = ins.operands
    new, old = raw_reader(ins, src, kind), raw_reader(ins, dst, kind)
    store = _store(dst, kind)

    def run(front: Front) -> None:
        store(front, np.where(front.regs[SCC] != 0, new(front), old(front)))

    return _op(ins, run, read_registers(dst, src) | {SCC}, read_registers(dst))


_SAVEEXEC: dict[str, Callable[[Any, Any], Any]] = {
    "s_and_saveexec_b64": lambda s, e: s & e,
    "s_or_saveexec_b64": lambda s, e: s | e,
    "s_xor_saveexec_b64": lambda s, e: s ^ e,
    "s_andn2_saveexec_b64": lambda s, e: s & ~e,
    "s_orn2_saveexec_b64": lambda s, e: s | ~e,
    "s_nand_saveexec_b64": lambda s, e: ~(s & e),
    "s_nor_saveexec_b64": lambda s, e: ~(s | e),
    "s_xnor_saveexec_b64": lambda s, e: ~(s ^ e),
    "s_andn1_saveexec_b64": lambda s, e: ~s & e,
    "s_orn1_saveexec_b64": lambda s, e: ~s | e,
}


def _saveexec(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    fn = _SAVEEXEC[ins.name]
    dst, src = ins.operands
    source = raw_reader(ins, src, "q")
    execute = Operand("reg", EXEC, 2, text="exec")
    old = raw_reader(ins, execute, "q")
    save, enter = _store(dst, "q"), _store(execute, "q")

    def run(front: Front) -> None:
        before, given = old(front), source(front)
        save(front, before)
        after = fn(given, before)
        front.regs[SCC] = _flag(after != 0)
        enter(front, after)

    reads = read_registers(src) | EXEC_PAIR
    return _op(ins, run, reads, read_registers(dst) | EXEC_PAIR | {SCC}, read_registers(src))


def _target(ins: Instruction, program: Program) -> int:
    label = ins.operands[0].text
    if label not in program.labels:
        raise unsupported(ins, f"the label {label!r} is not in this kernel")
    return program.labels[label]


def _branch(ins: Instruction, program: Program) -> Op:
    target = _target(ins, program)
    return _op(ins, lambda front: target, frozenset(), frozenset())


_CONDITIONS: dict[str, tuple[Callable[[Front], Any], Registers]] = {
    "scc0": (lambda f: ~f.scc(), frozenset((SCC,))),
    "scc1": (lambda f: f.scc(), frozenset((SCC,))),
    "vccz": (lambda f: ~f.condition(VCC), frozenset((VCC, VCC + 1))),
    "vccnz": (lambda f: f.condition(VCC), frozenset((VCC, VCC + 1))),
    "execz": (lambda f: ~f.condition(EXEC), EXEC_PAIR),
    "execnz": (lambda f: f.condition(EXEC), EXEC_PAIR),
}


def _cbranch(ins: Instruction, program: Program) -> Op:
    target = _target(ins, program)
    condition, reads = _CONDITIONS[ins.name.rsplit("_", 1)[1]]

    def run(front: Front) -> Any:
        taken = condition(front)
        if taken.all():
            return target
        return (taken, target) if taken.any() else None

    return _op(ins, run, reads, frozenset(), strict=reads)


_FLAGS = (8, 9, 23)  # MODE bits that Triton writes: DX10_CLAMP, IEEE, FP16_OVFL
_FLOAT_MODE = 0xF0  # MODE bits 0 to 7 as modelled: nearest even, denormals kept


def _setreg(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    where, value = ins.operands
    name, low, width = where.hwreg
    rounding, flag = low + width <= 8, low in _FLAGS and width == 1
    if name not in ("HW_REG_MODE", "1") or not (rounding or flag) or value.kind != "int":
        raise unsupported(ins, f"writing {where.text} is not modelled")
    bits = int(value.value) & ((1 << width) - 1)
    if rounding and bits != _FLOAT_MODE >> low & ((1 << width) - 1):
        raise unsupported(ins, "only nearest-even rounding with denormals is modelled")
    clear = ~(((1 << width) - 1) << low)

    def run(front: Front) -> None:
        front.mode = (front.mode & clear) | bits << low

    return _op(ins, run, frozenset(), frozenset())


def _getreg(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    dst, where = ins.operands
    name, low, width = where.hwreg
    if name not in ("HW_REG_MODE", "1"):
        raise unsupported(ins, f"reading {where.text} is not modelled")

    def run(front: Front) -> None:
        bits = front.mode >> low & ((1 << width) - 1)
        front.write_scalar(dst.index, np.full((1, 1), bits, np.uint32))

    return _op(ins, run, frozenset(), read_registers(dst))


def _nothing(ins: Instruction, program: Program) -> Op:
    return _op(ins, lambda front: None, frozenset(), frozenset())


def builders() -> dict[str, Builder]:
    """The builder of each scalar instruction, by name."""
    table: dict[str, Builder] = dict.fromkeys(_ARITHMETIC, _arithmetic)
    table |= dict.fromkeys(("s_addc_u32", "s_subb_u32"), _with_carry)
    for relation in _COMPARE:
        for kind in ("i32", "u32"):
            table[f"s_cmp_{relation}_{kind}"] = _compare
            table[f"s_cmpk_{relation}_{kind}"] = _compare
    table |= dict.fromkeys(("s_cmp_eq_u64", "s_cmp_lg_u64"), _compare)
    for bit in "01":
        for kind in ("b32", "b64"):
            table[f"s_bitcmp{bit}_{kind}"] = _bitcmp
            table[f"s_bitset{bit}_{kind}"] = _bitset
    table |= dict.fromkeys(("s_cselect_b32", "s_cselect_b64"), _select)
    table |= dict.fromkeys(("s_cmov_b32", "s_cmov_b64", "s_cmovk_i32"), _cmov)
    table |= dict.fromkeys(_SAVEEXEC, _saveexec)
    table["s_branch"] = _branch
    table |= dict.fromkeys((f"s_cbranch_{c}" for c in _CONDITIONS), _cbranch)
    table |= dict.fromkeys(("s_setreg_imm32_b32",), _setreg)
    table["s_getreg_b32"] = _getreg
    quiet = ("s_nop", "s_setprio", "s_sleep", "s_icache_inv", "s_dcache_wb", "s_dcache_inv")
    table |= dict.fromkeys((*quiet, "s_ttracedata", "s_sethalt"), _nothing)
    short = [name for name in table if name.startswith("s_cmpk_")]
    short += ["s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_mulk_i32"]
    return table | {name: _short(table[name]) for name in short}
