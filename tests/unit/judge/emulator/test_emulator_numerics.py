"""The vector unit's arithmetic against exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from gdn_judge.emulator import numerics


def round32(x: Fraction) -> float:
    """Nearest-even float32 of a rational, by integers alone."""
    if x == 0:
        return 0.0
    sign, x = (-1, -x) if x < 0 else (1, x)
    exponent = max(math.floor(math.log2(x.numerator) - math.log2(x.denominator)) - 1, -126)
    while Fraction(2) ** (exponent + 1) <= x:
        exponent += 1
    unit = Fraction(2) ** (exponent - 23)
    steps, rest = divmod(x, unit)
    if rest > unit / 2 or (rest == unit / 2 and steps % 2):
        steps += 1
    value = steps * unit
    return sign * (math.inf if value >= Fraction(2) ** 128 else float(value))


def values(seed: int, count: int) -> np.ndarray:
    """Floats of all magnitudes, many with few bits so that ties happen."""
    rng = np.random.default_rng(seed)
    mantissa = rng.integers(-(2**24), 2**24, count) >> rng.integers(0, 20, count)
    return np.ldexp(mantissa.astype(np.float64), rng.integers(-70, 40, count)).astype(np.float32)


def test_fma_rounds_once() -> None:
    a, b, c = values(1, 6000), values(2, 6000), values(3, 6000)
    # near cancellation and ties: c close to -a*b, or a half unit away from a float32
    c[::3] = (-(a[::3].astype(np.float64) * b[::3])).astype(np.float32)
    c[1::3] = np.ldexp((a[1::3].astype(np.float64) * b[1::3]), -24).astype(np.float32)
    got = numerics.fma32(a, b, c)
    for x, y, z, r in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert float(r) == round32(exact), (x, y, z)


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        # the float64 sum is a tie for float32 that the lost bits decide
        (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60, 1 + 2.0**-11 + 2.0**-23),
        (2.0**-75, 2.0**-75, 2.0**-149, 2.0**-149),  # subnormal
        (2.0**-75, 2.0**-75, 0.0, 2.0**-149),  # 2**-150 is a tie with zero: see below
    ],
)
def test_fma_double_rounding(a: float, b: float, c: float, expected: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    got = numerics.fma32(*(np.array([x], np.float32) for x in (a, b, c)))[0]
    assert float(got) == round32(exact)
    if exact != Fraction(2) ** -150:
        assert float(got) == pytest.approx(expected, rel=2**-22)


def test_fma_of_doubles_rounds_once() -> None:
    a, b, c = (np.array([x]) for x in (1 + 2.0**-30, 1 - 2.0**-30, -1.0))
    assert numerics.fma64(a, b, c)[0] == -(2.0**-60)


def test_bfloat16_rounds_to_nearest_even() -> None:
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -3.0, np.inf], np.float32)
    expected = [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xC040, 0x7F80]
    assert numerics.to_bf16(x).tolist() == expected
    assert numerics.to_bf16(np.array([np.nan], np.float32))[0] & 0x7FFF > 0x7F80


def nearest_code(x: float, table: np.ndarray, top: int) -> int:
    """Nearest of the non-negative codes below `top`, ties to the even code."""
    distance = [abs(Fraction(float(table[c])) - Fraction(abs(x))) for c in range(top + 1)]
    best = min(range(top + 1), key=lambda c: (distance[c], c % 2))
    return best | (0x80 if math.copysign(1, x) < 0 else 0)


def test_e4m3fn_codes_are_the_nearest() -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(-448, 448, 400), rng.uniform(-0.05, 0.05, 400)])
    x = np.concatenate([x, [0.0, -0.0, 2.0**-10, 2.0**-9, 3 * 2.0**-10, 464, -447.9]])
    x = x.astype(np.float32)
    table = numerics.from_e4m3fn(np.arange(256, dtype=np.uint32))
    codes = numerics.to_e4m3fn(x, True)
    assert codes.tolist() == [nearest_code(float(v), table, 0x7E) for v in x]


def test_e4m3fn_table_by_its_definition() -> None:
    table = numerics.from_e4m3fn(np.arange(128, dtype=np.uint32))
    assert (table[0x01], table[0x08], table[0x38], table[0x7E]) == (2.0**-9, 2.0**-6, 1.0, 448.0)
    assert np.isnan(table[0x7F])
    assert np.all(np.diff(table[:0x7F]) > 0)


def test_e4m3fn_saturates_only_when_asked() -> None:
    x = np.array([465.0, -1e9, np.inf, np.nan], np.float32)
    assert numerics.to_e4m3fn(x, True).tolist() == [0x7E, 0xFE, 0x7E, 0x7F]
    assert numerics.to_e4m3fn(x, False).tolist() == [0x7F, 0xFF, 0x7F, 0x7F]


def test_e5m2_table_and_codes() -> None:
    table = numerics.from_e5m2(np.arange(256, dtype=np.uint32))
    assert (table[0x3C], table[0x7B], table[0x7C]) == (1.0, 57344.0, np.inf)
    x = np.random.default_rng(6).uniform(-50000, 50000, 300).astype(np.float32)
    assert numerics.to_e5m2(x, True).tolist() == [nearest_code(float(v), table, 0x7B) for v in x]


@pytest.mark.parametrize("seed", range(3))
def test_division_sequence_is_correctly_rounded(seed: int) -> None:
    """The instructions that the compiler emits for a / b give the nearest float32."""
    from support.emulator import execute

    rng = np.random.default_rng(seed)
    scale = [(-30, 30), (-126, 126), (60, 127)][seed]
    a = np.ldexp(rng.uniform(1, 2, 64), rng.integers(*scale, 64)).astype(np.float32)
    b = np.ldexp(rng.uniform(1, 2, 64), rng.integers(*scale, 64)).astype(np.float32)
    a[:4] = [0.0, 1.0, 2.0**-140, 3.0e38]
    b[:4] = [5.0, 2.0**-140, 3.0, 2.0**-100]
    body = """
v_div_scale_f32 v2, s[2:3], v1, v1, v0
v_rcp_f32_e32 v3, v2
v_fma_f32 v4, -v2, v3, 1.0
v_fmac_f32_e32 v3, v4, v3
v_div_scale_f32 v4, vcc, v0, v1, v0
v_mul_f32_e32 v5, v4, v3
v_fma_f32 v6, -v2, v5, v4
v_fmac_f32_e32 v5, v6, v3
v_fma_f32 v2, -v2, v5, v4
v_div_fmas_f32 v2, v2, v3, v5
v_div_fixup_f32 v2, v2, v1, v0
"""
    got = execute(body, v={0: a, 1: b}).f(2)
    expected = [round32(Fraction(float(x)) / Fraction(float(y))) for x, y in zip(a, b, strict=True)]
    assert got.tolist() == expected


def test_division_fixup_of_special_operands() -> None:
    cases = [
        (1.0, 0.0, 5.0, math.inf),
        (1.0, -0.0, 5.0, -math.inf),
        (1.0, 5.0, math.inf, math.inf),
        (1.0, math.inf, 5.0, 0.0),
        (1.0, 3.0, -0.0, -0.0),
        (1.0, 0.0, 0.0, math.nan),
        (1.0, math.nan, 2.0, math.nan),
    ]
    q, den, num, expected = (np.array(c, np.float32) for c in zip(*cases, strict=True))
    got = numerics.div_fixup32(q, den, num)
    assert np.array_equal(got.view(np.uint32)[:5], expected.view(np.uint32)[:5])
    assert np.isnan(got[5:]).all()


def test_maximum_and_minimum_of_zeros_and_nans() -> None:
    a = np.array([-0.0, 0.0, np.nan, 1.0], np.float32)
    b = np.array([0.0, -0.0, 2.0, np.nan], np.float32)
    assert numerics.max32(a, b).view(np.uint32).tolist()[:2] == [0, 0]
    assert numerics.min32(a, b).view(np.uint32).tolist()[:2] == [0x80000000, 0x80000000]
    assert numerics.max32(a, b).tolist()[2:] == [2.0, 1.0]
    assert np.isnan(numerics.maximum32(a, b)[2:]).all()
    assert np.isnan(numerics.minimum32(a, b)[2:]).all()


def test_permute_bytes_special_selectors() -> None:
    s0, s1 = np.array([0x81223344], np.uint32), np.array([0x55667788], np.uint32)

    def perm(selector: int) -> int:
        return int(numerics.perm_bytes(s0, s1, np.array([selector], np.uint32))[0])

    assert perm(0x07060504) == 0x81223344
    assert perm(0x00040103) == 0x88447755
    assert perm(0x0C0D0B08) == 0x00FFFF00
