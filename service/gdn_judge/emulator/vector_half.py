"""Vector instructions on 16 bit floats: packed, mixed with float32, and to and from FP8.

Named as in the CDNA4 ISA document, chapter "Vector ALU Operations".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gdn_judge.emulator import numerics as nm
from gdn_judge.emulator.assembly import Instruction, Operand, Program
from gdn_judge.emulator.front import MODE_FP16_OVERFLOW, Array, Front
from gdn_judge.emulator.operands import (
    Op,
    check_modifiers,
    literal,
    raw_reader,
    read_registers,
    reader,
    unsupported,
)

Builder = Callable[[Instruction, Program], Op]
_U, _F, _H = np.uint32, np.float32, np.float16
_CLEAN = np.zeros((1, 1), np.uint32)


def _bits(ins: Instruction, key: str, count: int, default: int) -> list[int]:
    text = ins.modifiers.get(key)
    found = [default] * count if text is None else [int(n) for n in re.findall(r"\d", text)]
    if len(found) < count:
        raise unsupported(ins, f"{key} is too short")
    return found


def _half_of(op: Operand, upper: int, ins: Instruction) -> Callable[[Front], Any]:
    """One float16 half of an operand; a constant has only a low one."""
    if op.kind in ("int", "float"):
        if upper:
            raise unsupported(ins, "the upper half of a constant is not modelled")
        constant = literal(op, "h")
        return lambda front: constant
    word = raw_reader(ins, op, "u")
    shift = _U(16 * upper)
    return lambda front: (word(front) >> shift).astype(np.uint16).view(_H)


def _word(low: Any, high: Any) -> Array:
    def code(value: Any) -> Any:
        return np.ascontiguousarray(value).view(np.uint16).astype(_U)

    word: Array = code(low) | code(high) << _U(16)
    return word


def _tainted(sources: list[tuple[Operand, int]], bits: Callable[[int], Array]) -> Any:
    """Lanes in which a half that takes part has an undefined bit."""
    hit = np.zeros((1, 1), np.bool_)
    for op, upper in sources:
        if op.kind == "reg":
            hit = hit | (bits(op.index) >> _U(16 * upper) & _U(0xFFFF) != 0)
    return hit


_PACKED: dict[str, tuple[int, Callable[..., Any]]] = {
    "v_pk_add_f16": (2, lambda a, b: a + b),
    "v_pk_mul_f16": (2, lambda a, b: a * b),
    "v_pk_max_f16": (2, np.fmax),
    "v_pk_min_f16": (2, np.fmin),
    "v_pk_fma_f16": (3, nm.fma16),
}


def _packed(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins, "op_sel", "op_sel_hi", "neg_lo", "neg_hi")
    count, fn = _PACKED[ins.name]
    dst, *sources = ins.operands
    halves = []
    for key, sign_key, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
        picks = _bits(ins, key, count, default)
        signs = [-1.0 if n else 1.0 for n in _bits(ins, sign_key, count, 0)]
        readers = [_half_of(op, pick, ins) for op, pick in zip(sources, picks, strict=True)]
        halves.append((list(zip(sources, picks, strict=True)), readers, signs))

    def one(front: Front, readers: Any, signs: list[float]) -> Any:
        values = (read(front) for read in readers)
        return fn(*(v if sign > 0 else -v for v, sign in zip(values, signs, strict=True)))

    def run(front: Front) -> None:
        low, high = (one(front, readers, signs) for _, readers, signs in halves)
        front.write(dst.index, _word(low, high))

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        low, high = (_tainted(used, bits) for used, _, _ in halves)
        both: Any = np.where(low, _U(0xFFFF), _U(0)) | np.where(high, _U(0xFFFF0000), _U(0))
        return {dst.index: both}

    reads, writes = read_registers(*sources), read_registers(dst)
    return Op(ins, run, reads, writes, taint=taint, touch=reads | writes)


def _mix(ins: Instruction, program: Program) -> Op:
    """V_FMA_MIX: each source is float32, or a float16 half where OP_SEL_HI says so.

    MIXLO and MIXHI convert the float32 result to one half and keep the other.
    """
    check_modifiers(ins, "op_sel", "op_sel_hi", "clamp")
    dst, *sources = ins.operands
    uppers, halves = _bits(ins, "op_sel", 3, 0), _bits(ins, "op_sel_hi", 3, 0)
    readers = [
        _mixed(op, upper, half, ins)
        for op, upper, half in zip(sources, uppers, halves, strict=True)
    ]
    clamp = "clamp" in ins.modifiers
    part = {"v_fma_mixlo_f16": 0, "v_fma_mixhi_f16": 1}.get(ins.name)
    shift = _U(16 * (part or 0))
    keep = _U(0xFFFFFFFF) if part is None else _U(0xFFFF) << shift

    def merge(old: Array, value: Array) -> Array:
        return value if part is None else old & ~keep | value << shift

    def run(front: Front) -> None:
        value = nm.fma32(*(read(front) for read in readers))
        if clamp:
            value = np.where(np.isnan(value), _F(0), np.clip(value, _F(0), _F(1)))
        if part is not None:
            value = value.astype(_H).view(np.uint16).astype(_U)
        front.write(dst.index, merge(front.regs[dst.index], value.view(_U)))

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        hit = _tainted(
            [
                (op, upper if half else piece)
                for op, upper, half in zip(sources, uppers, halves, strict=True)
                for piece in (0, 1)
            ],
            bits,
        )
        old = _CLEAN if part is None else bits(dst.index)
        return {dst.index: old & ~keep | np.where(hit, keep, _U(0))}

    writes = read_registers(dst)
    reads = read_registers(*sources) | (frozenset() if part is None else writes)
    return Op(ins, run, reads, writes, taint=taint, touch=reads | writes)


def _mixed(op: Operand, upper: int, half: int, ins: Instruction) -> Callable[[Front], Any]:
    if not half:
        return reader(ins, op, "f")
    base = _half_of(op, upper, ins)

    def read(front: Front) -> Any:
        value = base(front).astype(_F)
        value = np.abs(value) if op.absolute else value
        return -value if op.neg else value

    return read


# FP8: the scale is the exponent of a float32


def _exponent(scale: Any) -> Any:
    return nm.exponent32(scale.view(_U)) - 127


def _to_float(word: Array, upper: int, kind: str) -> Any:
    part = word >> _U(16 * upper) & _U(0xFFFF)
    if kind == "bf16":
        return (part << _U(16)).view(_F)
    return part.astype(np.uint16).view(_H).astype(_F)


def _to_fp8(ins: Instruction, program: Program) -> Op:
    """V_CVT_SCALEF32_PK_{FP8,BF8}_{F16,BF16}: two 16 bit floats, divided by the scale, to FP8.

    The last OP_SEL bit says which half of the destination they go to; the other stays.
    """
    check_modifiers(ins, "op_sel")
    to, kind = ins.name.split("_")[-2:]
    dst, source, factor = ins.operands
    word, scale = raw_reader(ins, source, "u"), reader(ins, factor, "f")
    picks = re.findall(r"\d", ins.modifiers.get("op_sel", ""))
    shift = _U(16 if picks and picks[-1] == "1" else 0)
    keep = _U(0xFFFF) << shift
    convert = nm.to_e4m3fn if to == "fp8" else nm.to_e5m2

    def run(front: Front) -> None:
        saturate = bool(front.mode & MODE_FP16_OVERFLOW)
        exponent = -_exponent(scale(front))
        low, high = (
            convert(nm.ldexp32(_to_float(word(front), upper, kind), exponent), saturate)
            for upper in (0, 1)
        )
        pair = low | high << _U(8)
        front.write(dst.index, front.regs[dst.index] & ~keep | pair << shift)

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        shared = _tainted([(factor, 0), (factor, 1)], bits)
        low, high = (_tainted([(source, upper)], bits) | shared for upper in (0, 1))
        pair = np.where(low, _U(0xFF), _U(0)) | np.where(high, _U(0xFF00), _U(0))
        return {dst.index: bits(dst.index) & ~keep | pair << shift}

    writes = read_registers(dst)
    reads = read_registers(source, factor) | writes
    return Op(ins, run, reads, writes, taint=taint, touch=reads | writes)


def _from_fp8(ins: Instruction, program: Program) -> Op:
    """V_CVT_SCALEF32_PK_{F16,BF16}_{FP8,BF8}: two FP8 codes, times the scale, to 16 bit floats."""
    check_modifiers(ins, "op_sel")
    kind, source_kind = ins.name.split("_")[-2:]
    dst, source, factor = ins.operands
    word, scale = raw_reader(ins, source, "u"), reader(ins, factor, "f")
    picks = re.findall(r"\d", ins.modifiers.get("op_sel", ""))
    shift = _U(16 if picks and picks[0] == "1" else 0)
    decode = nm.from_e4m3fn if source_kind == "fp8" else nm.from_e5m2

    def run(front: Front) -> None:
        codes, exponent = word(front) >> shift, _exponent(scale(front))
        low, high = (nm.ldexp32(decode(codes >> _U(8 * i)), exponent) for i in (0, 1))
        if kind == "bf16":
            front.write(dst.index, nm.to_bf16(low) | nm.to_bf16(high) << _U(16))
        else:
            front.write(dst.index, _word(low.astype(_H), high.astype(_H)))

    reads, writes = read_registers(source, factor), read_registers(dst)
    return Op(ins, run, reads, writes, touch=reads | writes)


def builders() -> dict[str, Builder]:
    """The builder of each of these instructions, by name."""
    table: dict[str, Builder] = dict.fromkeys(_PACKED, _packed)
    table |= dict.fromkeys(("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"), _mix)
    for code in ("fp8", "bf8"):
        for kind in ("f16", "bf16"):
            table[f"v_cvt_scalef32_pk_{code}_{kind}"] = _to_fp8
            table[f"v_cvt_scalef32_pk_{kind}_{code}"] = _from_fp8
    return table
