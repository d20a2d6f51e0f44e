"""DS instructions that read, change and write back, and loads that transpose.

Named as in the CDNA4 ISA document, chapter "LDS".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gdn_judge.emulator.assembly import Instruction, Program
from gdn_judge.emulator.atomics import CHANGES
from gdn_judge.emulator.errors import Uninitialised
from gdn_judge.emulator.front import Array, Front
from gdn_judge.emulator.lds import finish, known_lanes, lds_op
from gdn_judge.emulator.operands import (
    Op,
    check_modifiers,
    raw_reader,
    read_registers,
    unsupported,
)

Builder = Callable[[Instruction, Program], Op]

# name without ds_ and rtn_ -> (formula of `atomics`, bytes)
ATOMICS: dict[str, tuple[str, int]] = {
    **{f"{name}_u32": (name, 4) for name in ("add", "sub", "rsub", "inc", "dec")},
    **{f"{name}_u64": (name, 8) for name in ("add", "sub", "rsub", "inc", "dec")},
    **{f"{name}_b32": (name, 4) for name in ("and", "or", "xor")},
    **{f"{name}_b64": (name, 8) for name in ("and", "or", "xor")},
    **{
        f"{end}_{sign}{8 * size}": (letter + end, size)
        for end in ("min", "max")
        for sign, letter in (("i", "s"), ("u", "u"))
        for size in (4, 8)
    },
    **{
        f"{name}_f{8 * size}": (f"{name}_float", size)
        for name in ("add", "min", "max")
        for size in (4, 8)
    },
    "wrxchg_b32": ("swap", 4),
    "wrxchg_b64": ("swap", 8),
    "cmpst_b32": ("", 4),
    "cmpst_b64": ("", 8),
    "pk_add_f16": ("pk_add_f16", 4),
    "pk_add_bf16": ("pk_add_bf16", 4),
}


def _plain(name: str) -> str:
    return name.removeprefix("ds_").replace("_rtn", "")


def _atomic(ins: Instruction, program: Program) -> Op:
    """Each active lane in turn; the `rtn` form gives the value before.

    CMPST has two operands: the value to compare with, then the new one.
    """
    check_modifiers(ins, "offset")
    formula, size = ATOMICS[_plain(ins.name)]
    operands = list(ins.operands)
    dst = operands.pop(0) if "_rtn" in ins.name else None
    address, *data = operands
    if len(data) != (2 if not formula else 1):
        raise unsupported(ins, "the operands do not fit the instruction")
    base, offset = raw_reader(ins, address, "u"), int(ins.modifiers.get("offset", "0"), 0)
    sources = [register for operand in data for register in operand.registers]
    words, bits = size // 4, 8 * size
    writes = read_registers(dst) if dst else frozenset()

    def change(old: int, given: list[int]) -> int:
        values = [
            sum(word << 32 * i for i, word in enumerate(given[at : at + words]))
            for at in range(0, len(given), words)
        ]
        if not formula:
            return values[1] if old == values[0] else old
        return CHANGES[formula](old, values[0], bits) & ((1 << bits) - 1)

    def run(front: Front) -> None:
        known = known_lanes(front, sources, 4, 0)
        if known is not None and not known[front.mask].all():
            what = "a value that nobody wrote goes into an atomic operation"
            raise Uninitialised(what, front.machine.site(front, ins, 0))
        at = base(front).astype(np.int64) + offset
        given = [front.lanes(front.regs[register]) for register in sources]
        old = front.machine.lds.atomic(front, ins, at, front.mask, size, given, change)
        if dst:
            for i, word in enumerate(old):
                front.write(dst.index + i, word)
        finish(front, ins, writes)

    return lds_op(ins, run, read_registers(address, *data), writes, address)


_TRANSPOSED = {"ds_read_b64_tr_b16": 2, "ds_read_b64_tr_b8": 1}


def _load_transposed(ins: Instruction, program: Program) -> Op:
    """Rows of 16 lanes read a matrix together and each lane gets a column.

    With 16 bit elements a row of lanes reads 4 matrix rows of 16 elements, four
    lanes to a matrix row; lane i gets the four elements of column i. With 8 bit
    elements it is 8 matrix rows of 16 elements, two lanes to a matrix row.
    """
    check_modifiers(ins, "offset")
    size = _TRANSPOSED[ins.name]
    dst, address = ins.operands
    base, offset = raw_reader(ins, address, "u"), int(ins.modifiers.get("offset", "0"), 0)
    writes = read_registers(dst)
    count = 8 // size  # elements of a lane, and rows of the matrix

    def run(front: Front) -> None:
        if not front.full:
            raise unsupported(ins, "a transposing load with inactive lanes is not modelled")
        at = base(front).astype(np.int64) + offset
        words = front.machine.lds.load(front, ins, at, front.mask, 8)
        kind = np.dtype(f"<u{size}")
        loaded: Any = np.stack(words, axis=-1).astype("<u4").view(kind)  # [W, 64, count]
        matrix = loaded.reshape(len(front), 4, count, 16)
        columns = np.ascontiguousarray(matrix.swapaxes(2, 3))  # [W, 4, 16, count]
        given: Array = columns.reshape(len(front), 64, count).view("<u4")
        for i in range(2):
            front.write(dst.index + i, np.ascontiguousarray(given[:, :, i]))
        finish(front, ins, writes)

    return lds_op(ins, run, read_registers(address), writes, address)


def builders() -> dict[str, Builder]:
    """The builder of each of these instructions, by name."""
    table: dict[str, Builder] = dict.fromkeys(_TRANSPOSED, _load_transposed)
    for name in ATOMICS:
        head, kind = name.rsplit("_", 1)
        table[f"ds_{head}_rtn_{kind}"] = _atomic
        if head != "wrxchg":
            table[f"ds_{name}"] = _atomic
    return table
