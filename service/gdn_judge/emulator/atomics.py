"""What one atomic operation makes of a value, for global memory and LDS alike.

Values are unsigned integers of `bits` bits. Named as in the CDNA4 ISA document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gdn_judge.emulator.numerics import to_bf16

Change = Callable[[int, int, int], int]  # (old, operand, bits) -> new, to be cut to `bits`


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _float(fn: Callable[[Any, Any], Any]) -> Change:
    def run(old: int, new: int, bits: int) -> int:
        unsigned, kind = (np.uint64, np.float64) if bits == 64 else (np.uint32, np.float32)
        a, b = (np.array([x], unsigned).view(kind) for x in (old, new))
        return int(fn(a, b).astype(kind).view(unsigned)[0])

    return run


def _pairs(fn: Callable[[int, int], int]) -> Change:
    """`fn` on both 16 bit halves."""
    return lambda old, new, bits: sum(
        fn(old >> shift & 0xFFFF, new >> shift & 0xFFFF) << shift for shift in (0, 16)
    )


def _add_bf16(old: int, new: int) -> int:
    a, b = (np.array([x << 16], np.uint32).view(np.float32) for x in (old, new))
    return int(to_bf16(a + b)[0])


def _add_f16(old: int, new: int) -> int:
    a, b = (np.array([x], np.uint16).view(np.float16) for x in (old, new))
    return int((a + b).view(np.uint16)[0])


CHANGES: dict[str, Change] = {
    "swap": lambda old, new, bits: new,
    "add": lambda old, new, bits: old + new,
    "sub": lambda old, new, bits: old - new,
    "rsub": lambda old, new, bits: new - old,
    "smin": lambda old, new, bits: min(_signed(old, bits), _signed(new, bits)),
    "umin": lambda old, new, bits: min(old, new),
    "smax": lambda old, new, bits: max(_signed(old, bits), _signed(new, bits)),
    "umax": lambda old, new, bits: max(old, new),
    "and": lambda old, new, bits: old & new,
    "or": lambda old, new, bits: old | new,
    "xor": lambda old, new, bits: old ^ new,
    "inc": lambda old, new, bits: 0 if old >= new else old + 1,
    "dec": lambda old, new, bits: new if old == 0 or old > new else old - 1,
    "add_float": _float(lambda a, b: a + b),
    "min_float": _float(np.fmin),
    "max_float": _float(np.fmax),
    "pk_add_bf16": _pairs(_add_bf16),
    "pk_add_f16": _pairs(_add_f16),
}
