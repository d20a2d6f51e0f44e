"""Arithmetic of the vector unit, exact where IEEE 754 says what is right.

Every function takes and returns numpy arrays that broadcast together. Sources:
"AMD Instinct CDNA4 Instruction Set Architecture" (pseudocode of each opcode),
OCP 8-bit Floating Point Specification 1.0 (e4m3fn, e5m2). Transcendentals are
computed in float64 and rounded once, which lies within the 1 ulp that the ISA
document allows the hardware.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]

_TINY32 = 2.0**-126
_TIE_MASK = np.uint64(0x1FFFFFFF)
_TIE = np.uint64(0x10000000)
DEFAULT_NAN = np.uint32(0x7FC00000)


def round_to_odd_sum(a: F64, b: F64) -> F64:
    """a + b in float64, rounded to odd, so that a second rounding to float32 is right."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    bits = s.view(np.uint64).copy()
    inexact = (error != 0) & np.isfinite(s) & ((bits & np.uint64(1)) == 0)
    # toward the error: away from zero when the error has the sum's sign
    away = (error > 0) == (s > 0)
    step = np.where(away, np.int64(1), np.int64(-1))
    bits[inexact] = (bits.view(np.int64) + step).view(np.uint64)[inexact]
    return bits.view(np.float64)


def fma32(a: F32, b: F32, c: F32) -> F32:
    """a * b + c with one rounding.

    The product of two float32 is exact in float64. Rounding the float64 sum
    again is wrong only when that sum is a tie for float32, or when the result
    is subnormal; only then the sum is formed again, rounded to odd.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = np.asarray(product + c)
    result: F32 = total.astype(np.float32)
    doubtful = (total.view(np.uint64) & _TIE_MASK) == _TIE
    doubtful |= np.abs(total) < _TINY32
    if doubtful.any():
        wide = np.broadcast_to(np.asarray(c, np.float64), total.shape)[doubtful]
        odd = round_to_odd_sum(np.broadcast_to(product, total.shape)[doubtful], wide)
        result[doubtful] = odd.astype(np.float32)
    return result


def fma64(a: F64, b: F64, c: F64) -> F64:
    """a * b + c in float64 with one rounding, element by element in exact arithmetic."""
    from fractions import Fraction

    a, b, c = np.broadcast_arrays(a, b, c)
    out = a * b + c
    flat = out.reshape(-1)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for i in np.flatnonzero(finite.reshape(-1)):
        x, y, z = (float(t.reshape(-1)[i]) for t in (a, b, c))
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact:
            try:
                flat[i] = exact.numerator / exact.denominator
            except OverflowError:
                flat[i] = np.copysign(np.inf, float(exact > 0) - 0.5)
    return out


def fma16(a: Any, b: Any, c: Any) -> Any:
    """float16 a * b + c, rounded once.

    float64 holds the product. Where it rounds the sum, one addend lies too far below the
    other to make or break a tie of float16.
    """
    wide = np.float64
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(np.float16)


def max32(a: F32, b: F32) -> F32:
    """IEEE maxNum with +0 over -0, as V_MAX_F32 in IEEE mode."""
    r: F32 = np.fmax(a, b)
    zero = (a == 0) & (b == 0)
    if np.any(zero):
        both = np.asarray(a).view(np.uint32) & np.asarray(b).view(np.uint32)
        r = np.where(zero, both.view(np.float32), r)
    return r


def min32(a: F32, b: F32) -> F32:
    """IEEE minNum with -0 under +0, as V_MIN_F32 in IEEE mode."""
    r: F32 = np.fmin(a, b)
    zero = (a == 0) & (b == 0)
    if np.any(zero):
        both = np.asarray(a).view(np.uint32) | np.asarray(b).view(np.uint32)
        r = np.where(zero, both.view(np.float32), r)
    return r


def med3_32(a: F32, b: F32, c: F32) -> F32:
    """V_MED3_F32: the median; with a NaN among the operands, the least of them."""
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    median = max32(min32(a, b), min32(max32(a, b), c))
    if np.any(nan):
        return np.where(nan, min32(min32(a, b), c), median)
    return median


def maximum32(a: F32, b: F32) -> F32:
    """IEEE 754-2019 maximum: a NaN stays a NaN."""
    return np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), max32(a, b))


def minimum32(a: F32, b: F32) -> F32:
    """IEEE 754-2019 minimum: a NaN stays a NaN."""
    return np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), min32(a, b))


def exp2_32(x: F32) -> F32:
    r: F32 = np.exp2(x.astype(np.float64)).astype(np.float32)
    return r


def log2_32(x: F32) -> F32:
    r: F32 = np.log2(x.astype(np.float64)).astype(np.float32)
    return r


def rcp32(x: F32) -> F32:
    r: F32 = (1.0 / x.astype(np.float64)).astype(np.float32)
    return r


def rsq32(x: F32) -> F32:
    r: F32 = (1.0 / np.sqrt(x.astype(np.float64))).astype(np.float32)
    return r


def sqrt32(x: F32) -> F32:
    r: F32 = np.sqrt(x)
    return r


def sin32(x: F32) -> F32:
    """V_SIN_F32: the operand counts turns."""
    r: F32 = np.sin(x.astype(np.float64) * (2 * np.pi)).astype(np.float32)
    return r


def cos32(x: F32) -> F32:
    """V_COS_F32: the operand counts turns."""
    r: F32 = np.cos(x.astype(np.float64) * (2 * np.pi)).astype(np.float32)
    return r


def fract32(x: F32) -> F32:
    """V_FRACT_F32: x - floor(x), below one."""
    return np.minimum(x - np.floor(x), np.float32(1.0 - 2.0**-24))


def ldexp32(x: F32, n: NDArray[np.int32] | np.int32) -> F32:
    """x * 2**n, rounded once; the exponent is clamped where the result is settled anyway."""
    wide = np.ldexp(x.astype(np.float64), np.clip(n, -400, 400))
    r: F32 = wide.astype(np.float32)
    return r


def exponent32(x: U32) -> NDArray[np.int32]:
    """The biased exponent field of float32 bits."""
    return ((x >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int32)


def div_scale32(s0: F32, den: F32, num: F32) -> tuple[F32, Bool]:
    """V_DIV_SCALE_F32: s0 (the numerator or the denominator) scaled, and the VCC bit."""
    s0, den, num = np.broadcast_arrays(s0, den, num)
    e_den = exponent32(den.view(np.uint32))
    e_num = exponent32(num.view(np.uint32))
    up, down = ldexp32(s0, np.int32(64)), ldexp32(s0, np.int32(-64))
    d64, n64 = den.astype(np.float64), num.astype(np.float64)
    rcp_denorm = _denormal32(1.0 / d64)
    quotient_denorm = _denormal32(n64 / d64)
    is_den, is_num = s0 == den, s0 == num
    zero = (den == 0) | (num == 0)
    cases = [
        zero,
        e_num - e_den >= 96,
        (e_den == 0) & (den != 0),
        rcp_denorm & quotient_denorm,
        rcp_denorm,
        quotient_denorm,
        e_num <= 23,
    ]
    keep_den = np.where(is_den, up, s0)
    keep_num = np.where(is_num, up, s0)
    results = [np.full_like(s0, np.nan), keep_den, up, keep_den, down, keep_num, up]
    flags = [False, True, False, True, False, True, False]
    value = np.select(cases, results, s0).astype(np.float32)
    flag = np.select(cases, [np.full(s0.shape, f) for f in flags], False)
    return value, flag.astype(np.bool_)


def _denormal32(x: F64) -> Bool:
    small: Bool = (np.abs(x) < _TINY32) & (x != 0)
    return small


def div_fmas32(a: F32, b: F32, c: F32, scaled: Bool) -> F32:
    """V_DIV_FMAS_F32: the fused step, rescaled by 2**64 or 2**-64 where VCC is set."""
    r = fma32(a, b, c)
    if not scaled.any():
        return r
    c = np.broadcast_to(c, r.shape)
    power = np.where(exponent32(np.ascontiguousarray(c).view(np.uint32)) > 127, 64, -64)
    return np.where(scaled, ldexp32(r, power.astype(np.int32)), r)


def div_fixup32(q: F32, den: F32, num: F32) -> F32:
    """V_DIV_FIXUP_F32: special cases of num / den, else the quotient with the right sign."""
    q, den, num = np.broadcast_arrays(q, den, num)
    dbits, nbits = (np.ascontiguousarray(t).view(np.uint32) for t in (den, num))
    sign = (dbits ^ nbits) & np.uint32(0x80000000)

    def signed(bits: int) -> U32:
        return sign | np.uint32(bits)

    quiet = np.uint32(0x00400000)
    magnitude = np.ascontiguousarray(q).view(np.uint32) & np.uint32(0x7FFFFFFF)
    e = exponent32(nbits) - exponent32(dbits)
    invalid = ((den == 0) & (num == 0)) | (np.isinf(den) & np.isinf(num))
    cases = [
        np.isnan(num),
        np.isnan(den),
        invalid,
        (den == 0) | np.isinf(num),
        np.isinf(den) | (num == 0),
        e < -150,
        np.isnan(q),  # of finite operands: an intermediate step overflowed
    ]
    values = [
        nbits | quiet,
        dbits | quiet,
        np.full(sign.shape, 0xFFC00000, np.uint32),
        signed(0x7F800000),
        sign,
        signed(0),
        signed(0x7F800000),
    ]
    return np.select(cases, values, sign | magnitude).astype(np.uint32).view(np.float32)


def to_bf16(x: F32) -> U32:
    """float32 to bfloat16 bits, nearest even; a NaN stays a (quiet) NaN."""
    bits = np.asarray(x).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = np.isnan(x)
    if np.any(nan):
        rounded = np.where(nan, (bits >> np.uint32(16)) | np.uint32(0x40), rounded)
    return rounded


def _to_fp8(x: F32, mantissa: int, bias: int, top: float) -> tuple[U32, U32]:
    """Magnitude code (nearest even, unbounded above) and sign, for |x| not NaN."""
    bits = np.asarray(x).view(np.uint32)
    sign = (bits >> np.uint32(24)) & np.uint32(0x80)
    magnitude = np.abs(np.asarray(x, np.float64))
    magnitude = np.minimum(np.where(np.isnan(magnitude), 0.0, magnitude), 4 * top)
    _, exponent = np.frexp(magnitude)
    exponent = np.maximum(exponent - 1, 1 - bias)
    steps = np.rint(np.ldexp(magnitude, mantissa - exponent)).astype(np.int64)
    code = steps + ((exponent + bias - 1).astype(np.int64) << mantissa)
    return np.where(magnitude == 0, 0, code).astype(np.uint32), sign


def to_e4m3fn(x: F32, saturate: bool | Bool) -> U32:
    """float32 to OCP e4m3fn codes, nearest even.

    Above 448 after rounding: 0x7E (448) when `saturate` (MODE.FP16_OVFL = 1),
    else NaN 0x7F, each with the sign. A NaN gives 0x7F with its sign.
    """
    code, sign = _to_fp8(x, 3, 7, 448.0)
    over = code > 0x7E
    code = np.where(over, np.where(saturate, np.uint32(0x7E), np.uint32(0x7F)), code)
    code = np.where(np.isnan(x), np.uint32(0x7F), code)
    return (code | sign).astype(np.uint32)


def to_e5m2(x: F32, saturate: bool | Bool) -> U32:
    """float32 to OCP e5m2 codes, nearest even; overflow is 57344 or infinity as `saturate`."""
    code, sign = _to_fp8(x, 2, 15, 57344.0)
    over = code > 0x7B
    code = np.where(over, np.where(saturate, np.uint32(0x7B), np.uint32(0x7C)), code)
    code = np.where(np.isnan(x), np.uint32(0x7F), code)
    return (code | sign).astype(np.uint32)


def _decode_table(mantissa: int, bias: int) -> F32:
    codes = np.arange(256)
    exponent, fraction = (codes & 0x7F) >> mantissa, codes & ((1 << mantissa) - 1)
    normal = np.ldexp(1.0 + fraction / (1 << mantissa), exponent - bias)
    value = np.where(exponent == 0, np.ldexp(fraction / (1 << mantissa), 1 - bias), normal)
    table: F32 = np.where(codes & 0x80, -value, value).astype(np.float32)
    return table


_E4M3FN = _decode_table(3, 7)
_E4M3FN[[0x7F, 0xFF]] = np.nan
_E5M2 = _decode_table(2, 15)
_E5M2[[0x7C, 0xFC]] = [np.inf, -np.inf]
for _code in (0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF):
    _E5M2[_code] = np.nan


def from_e4m3fn(code: U32) -> F32:
    """OCP e4m3fn codes (low 8 bits) to float32."""
    value: F32 = _E4M3FN[code & np.uint32(0xFF)]
    return value


def from_e5m2(code: U32) -> F32:
    """OCP e5m2 codes (low 8 bits) to float32."""
    value: F32 = _E5M2[code & np.uint32(0xFF)]
    return value


def bit_reverse32(x: U32) -> U32:
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        s, m = np.uint32(shift), np.uint32(mask)
        x = ((x >> s) & m) | ((x & m) << s)
    return (x >> np.uint32(16)) | (x << np.uint32(16))


def popcount32(x: U32) -> U32:
    r: U32 = np.bitwise_count(x).astype(np.uint32)
    return r


def leading_zeros32(x: U32) -> U32:
    """Zeros above the highest set bit; 0xFFFFFFFF (-1) for zero, as V_FFBH_U32."""
    _, exponent = np.frexp(x.astype(np.float64))
    return np.where(x == 0, np.uint32(0xFFFFFFFF), (32 - exponent).astype(np.uint32))


def trailing_zeros32(x: U32) -> U32:
    """Position of the lowest set bit; 0xFFFFFFFF (-1) for zero, as V_FFBL_B32."""
    low = x & (~x + np.uint32(1))
    _, exponent = np.frexp(low.astype(np.float64))
    return np.where(x == 0, np.uint32(0xFFFFFFFF), (exponent - 1).astype(np.uint32))


def perm_bytes(s0: U32, s1: U32, selector: U32) -> U32:
    """V_PERM_B32: each byte of the selector picks a byte of {s0, s1}, s1 the low four."""
    s0, s1, selector = np.broadcast_arrays(s0, s1, selector)
    data = (s0.astype(np.uint64) << np.uint64(32)) | s1.astype(np.uint64)
    result = np.zeros(s0.shape, np.uint32)
    for i in range(4):
        pick = (selector >> np.uint32(8 * i)) & np.uint32(0xFF)
        byte = (data >> (np.uint64(8) * (pick & np.uint32(7)).astype(np.uint64))) & np.uint64(0xFF)
        byte = byte.astype(np.uint32)
        if np.any(pick > 7):
            byte = _perm_special(data, pick, byte)
        result |= byte << np.uint32(8 * i)
    return result


def _perm_special(data: U64, pick: U32, byte: U32) -> U32:
    """Selectors 8 to 11 repeat the sign of a half word, 12 is 0x00, above is 0xFF."""
    half = np.uint64(16) * (pick & np.uint32(3)).astype(np.uint64) + np.uint64(15)
    sign = ((data >> half) & np.uint64(1)).astype(np.uint32) * np.uint32(0xFF)
    byte = np.where((pick >= 8) & (pick <= 11), sign, byte)
    byte = np.where(pick == 12, np.uint32(0), byte)
    return np.where(pick > 12, np.uint32(0xFF), byte)


def bitop3(a: U32, b: U32, c: U32, table: int) -> U32:
    """V_BITOP3: bit i of `table` is the result for (a, b, c) = the bits of i, a highest."""
    a, b, c = np.broadcast_arrays(a, b, c)
    result = np.zeros(a.shape, np.uint32)
    for i in range(8):
        if table >> i & 1:
            term = (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
            result |= term
    return result
