"""Number formats in numpy: bfloat16 as uint16, float8 e4m3fn as uint8.

Written from the formats' definitions (bfloat16: the upper half of an IEEE
binary32; e4m3fn: OCP OFP8, exponent bias 7, no infinities, NaN 0x7F and 0xFF).
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.contract import FP8_MAX, FP8_MIN_ABSMAX, FP8_NAN

Float = NDArray[np.float64]
Single = NDArray[np.float32]
Bf16 = NDArray[np.uint16]
Fp8 = NDArray[np.uint8]


class Rounding(enum.StrEnum):
    """How fp32 becomes bfloat16 and e4m3."""

    NEAREST = "nearest"  # to nearest, ties to even: the contract
    INTERPRETER = "interpreter"  # Triton's CPU interpreter: see bf16_truncate, e4m3_interpreter


def bf16_to_float(codes: Bf16) -> Single:
    """Exact."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


def bf16_nearest(values: NDArray[Any]) -> Bf16:
    """Round to nearest even straight from the given precision (no double rounding).

    float64 goes to fp32 by round-to-odd first, which keeps the ties right.
    """
    single = _round_to_odd(values) if values.dtype == np.float64 else values.astype(np.float32)
    bits = single.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FC0), rounded).astype(np.uint16)


def bf16_truncate(values: NDArray[Any]) -> Bf16:
    """Cut fp32 after sixteen bits, as Triton's interpreter does."""
    with np.errstate(over="ignore"):
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def to_bf16(values: NDArray[Any], rounding: Rounding) -> Bf16:
    return bf16_nearest(values) if rounding is Rounding.NEAREST else bf16_truncate(values)


def round_bf16(values: Float, rounding: Rounding) -> Float:
    """The bfloat16 neighbour of each value, as float64."""
    return bf16_to_float(to_bf16(values, rounding)).astype(np.float64)


def _round_to_odd(values: Float) -> Single:
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype(np.float32)
        back = single.astype(np.float64)
    bits = single.view(np.uint32).copy()
    inexact = (back != values) & np.isfinite(values)
    away = inexact & (np.abs(back) > np.abs(values))
    bits[away] -= 1  # towards zero: the magnitude's bits count down for either sign
    bits[inexact] |= 1
    return bits.view(np.float32)


def _e4m3_values() -> Single:
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    magnitude = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), normal)
    magnitude = np.where(codes & 0x7F == FP8_NAN, np.nan, magnitude)
    return np.where(codes & 0x80, -magnitude, magnitude).astype(np.float32)


E4M3_VALUES = _e4m3_values()


def e4m3_to_float(codes: Fp8) -> Single:
    return E4M3_VALUES[codes]


def e4m3_nearest(values: NDArray[Any]) -> Fp8:
    """Round to nearest even, saturate at 448, NaN to 0x7F."""
    magnitude = np.minimum(np.abs(values.astype(np.float64)), FP8_MAX)
    table = E4M3_VALUES[:FP8_NAN].astype(np.float64)
    above = np.clip(np.searchsorted(table, np.nan_to_num(magnitude)), 1, len(table) - 1)
    low, high = table[above - 1], table[above]
    middle = (low + high) / 2
    up = (magnitude > middle) | ((magnitude == middle) & (above % 2 == 0))
    code = np.where(up, above, above - 1).astype(np.uint8)
    code = code | np.where(np.signbit(values), 0x80, 0).astype(np.uint8)
    return np.where(np.isnan(values), np.uint8(FP8_NAN), code).astype(np.uint8)


def e4m3_interpreter(values: NDArray[Any]) -> Fp8:
    """What Triton's interpreter makes of an fp32 in e4m3's range.

    It rounds half up and joins the carry to the exponent by OR, so that a carry
    out of the mantissa is lost for odd exponents; subnormals are cut.
    """
    bits = values.astype(np.float32).view(np.uint32)
    exponent = ((bits >> 23) & 0xFF).astype(np.int32) - 120
    mantissa = ((bits >> 20) & 7).astype(np.int32) + ((bits >> 19) & 1).astype(np.int32)
    shift = np.clip(1 - exponent, 0, 31)
    subnormal = (mantissa >> shift) | np.where(shift <= 3, 1 << np.clip(3 - shift, 0, 3), 0)
    normal = (np.clip(exponent, 0, 15) << 3) | mantissa
    code = np.where(exponent <= 0, subnormal, normal)
    code = np.where(bits << np.uint32(1) == 0, 0, code)
    return (code | ((bits >> 31) << 7).astype(np.int32)).astype(np.uint8)


def quantise(out: Bf16, rounding: Rounding = Rounding.NEAREST) -> tuple[Fp8, Single]:
    """FP8 codes and scales of `out` [..., V]: one scale per row and head, all in fp32.

    The scale comes from the finite elements; an infinity saturates to its own
    sign's 448, a NaN has the NaN code.
    """
    values = bf16_to_float(out)
    finite = np.where(np.isfinite(values), np.abs(values), np.float32(0))
    absmax = np.maximum(finite.max(axis=-1, initial=0), np.float32(FP8_MIN_ABSMAX))
    scales = (absmax / np.float32(FP8_MAX)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.clip(values / scales[..., None], -FP8_MAX, FP8_MAX).astype(np.float32)
    code = e4m3_nearest(scaled) if rounding is Rounding.NEAREST else e4m3_interpreter(scaled)
    return np.where(np.isnan(values), np.uint8(FP8_NAN), code).astype(np.uint8), scales
