"""Turns the operands of an instruction into functions that read a front.

Type letters: u, i, f are 32 bits (unsigned, signed, float); q, l, d are 64
bits in a register pair; h is a float16 and w a uint16 in the low half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gdn_judge.emulator.assembly import EXEC, Instruction, Operand, float_bits
from gdn_judge.emulator.errors import UnsupportedInstruction
from gdn_judge.emulator.front import Array, Front, Registers

Values = Any  # an ndarray whose dtype the type letter says
Reader = Callable[[Front], Values]
Outcome = Any  # None: next; int: jump; otherwise see machine.Machine.step

DTYPE = {
    "u": np.uint32,
    "i": np.int32,
    "f": np.float32,
    "q": np.uint64,
    "l": np.int64,
    "d": np.float64,
}
FLOATS = frozenset("fdh")
WIDE = frozenset("qld")


@dataclass(frozen=True)
class Op:
    """An instruction ready to run.

    run(front) does it. reads and writes are the registers involved; `taint`, if
    given, maps undefined bits of the sources to undefined bits of each written
    register, otherwise any undefined source bit makes the results undefined.
    `strict` names sources that must be defined (addresses, conditions) and their bits.
    """

    instruction: Instruction
    run: Callable[[Front], Outcome]
    reads: Registers
    writes: Registers
    strict: Mapping[int, int] = field(default_factory=dict)
    taint: Callable[[Front, Callable[[int], Array]], dict[int, Array]] | None = None
    lanewise: bool = True
    touch: Registers = field(default=frozenset())


def unsupported(ins: Instruction, why: str) -> UnsupportedInstruction:
    at = f" ({ins.source})" if ins.source else ""
    return UnsupportedInstruction(f"{why}: line {ins.line}{at}: {ins.text}")


def check_modifiers(ins: Instruction, *known: str) -> None:
    """Raise UnsupportedInstruction for a modifier that the builder does not look at."""
    for name in ins.modifiers:
        if name not in known:
            raise unsupported(ins, f"the modifier {name!r} is not modelled here")


def literal(op: Operand, kind: str) -> Values:
    """A constant operand as a (1, 1) array of the type `kind`."""
    if kind in WIDE:
        return _wide_literal(op, kind)
    if op.kind == "float":
        value = float(op.value)
        bits = int(np.float16(value).view(np.uint16)) if kind in "hw" else float_bits(value)
    else:
        bits = int(op.value) & 0xFFFFFFFF
    array = np.full((1, 1), bits, np.uint32)
    if kind in "hw":
        half = array.astype(np.uint16)
        return half.view(np.float16) if kind == "h" else half
    return array.view(DTYPE[kind])


def _wide_literal(op: Operand, kind: str) -> Values:
    if op.kind == "float":
        return np.full((1, 1), float(op.value), np.float64).view(DTYPE[kind])
    value = int(op.value)
    inline = -16 <= value <= 64
    if kind == "d" and not inline:
        value <<= 32  # a 32 bit literal is the high half of a double
    return np.full((1, 1), value & (2**64 - 1), np.uint64).view(DTYPE[kind])


def combine(low: Array, high: Array) -> Values:
    """Two uint32 arrays as one uint64 array."""
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def split(value: Values) -> tuple[Array, Array]:
    """A 64 bit array as its low and high uint32 arrays."""
    bits = np.ascontiguousarray(value).view(np.uint64)
    return bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)


def raw_reader(ins: Instruction, op: Operand, kind: str) -> Reader:
    """Read an operand as the type `kind`, without source modifiers."""
    if op.kind in ("int", "float"):
        constant = literal(op, kind)
        return lambda front: constant
    if op.kind != "reg":
        raise unsupported(ins, f"the operand {op.text!r} is not modelled here")
    index = op.index
    if kind in WIDE:
        if op.count != 2:
            raise unsupported(ins, f"the operand {op.text!r} is not a register pair")
        dtype = DTYPE[kind]
        return lambda front: combine(front.regs[index], front.regs[index + 1]).view(dtype)
    if op.count != 1:
        raise unsupported(ins, f"the operand {op.text!r} is not a single register")
    if kind == "u":
        return lambda front: front.regs[index]
    if kind in "hw":
        half = np.float16 if kind == "h" else np.uint16
        return lambda front: front.regs[index].astype(np.uint16).view(half)
    dtype = DTYPE[kind]
    return lambda front: front.regs[index].view(dtype)


def reader(ins: Instruction, op: Operand, kind: str) -> Reader:
    """Read an operand as the type `kind`, with its neg and abs modifiers."""
    base = raw_reader(ins, op, kind)
    if (op.neg or op.absolute) and kind not in FLOATS:
        raise unsupported(ins, f"neg or abs on the integer operand {op.text!r}")
    if op.absolute and op.neg:
        return lambda front: -np.abs(base(front))
    if op.absolute:
        return lambda front: np.abs(base(front))
    if op.neg:
        return lambda front: -base(front)
    return base


def read_registers(*operands: Operand) -> Registers:
    return frozenset(r for op in operands for r in op.registers)


def all_bits(registers: Iterable[int]) -> dict[int, int]:
    """A `strict` mapping that wants every bit of the registers."""
    return dict.fromkeys(registers, 0xFFFFFFFF)


EXEC_PAIR: Registers = frozenset((EXEC, EXEC + 1))
