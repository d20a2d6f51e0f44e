"""Each vector instruction against an independent formula, lane by lane."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gdn_judge.emulator.errors import UnsupportedInstruction
from support.emulator import State, execute, lanes, words

M32, M64 = 0xFFFFFFFF, 2**64 - 1
A, B, C = words(1), words(2), words(3)
FA, FB, FC = lanes(1), lanes(2), lanes(3)
_SHIFTS = words(4) & np.uint32(31)


def sx(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def u24(x: int) -> int:
    return x & 0xFFFFFF


def i24(x: int) -> int:
    return sx(x, 24)


def bfe(a: int, offset: int, width: int) -> int:
    return a >> (offset & 31) & ((1 << (width & 31)) - 1)


def perm(a: int, b: int, selector: int) -> int:
    data = (a << 32 | b).to_bytes(8, "little")
    return int.from_bytes(bytes(data[selector >> 8 * i & 7] for i in range(4)), "little")


INTEGER: dict[str, tuple[int, Callable[..., int]]] = {
    "v_mov_b32_e32": (1, lambda a: a),
    "v_not_b32_e32": (1, lambda a: ~a),
    "v_bfrev_b32_e32": (1, lambda a: int(f"{a:032b}"[::-1], 2)),
    "v_ffbh_u32_e32": (1, lambda a: 32 - a.bit_length() if a else -1),
    "v_ffbl_b32_e32": (1, lambda a: (a & -a).bit_length() - 1),
    "v_ffbh_i32_e32": (1, lambda a: 32 - (a ^ (sx(a) >> 31) & M32).bit_length()),
    "v_bcnt_u32_b32": (2, lambda a, b: a.bit_count() + b),
    "v_add_u32_e32": (2, lambda a, b: a + b),
    "v_sub_u32_e32": (2, lambda a, b: a - b),
    "v_subrev_u32_e32": (2, lambda a, b: b - a),
    "v_add_i32": (2, lambda a, b: a + b),
    "v_sub_i32": (2, lambda a, b: a - b),
    "v_mul_lo_u32": (2, lambda a, b: a * b),
    "v_mul_hi_u32": (2, lambda a, b: a * b >> 32),
    "v_mul_hi_i32": (2, lambda a, b: sx(a) * sx(b) >> 32),
    "v_mul_u32_u24_e32": (2, lambda a, b: u24(a) * u24(b)),
    "v_mul_i32_i24_e32": (2, lambda a, b: i24(a) * i24(b)),
    "v_mul_hi_u32_u24_e32": (2, lambda a, b: u24(a) * u24(b) >> 32),
    "v_mul_hi_i32_i24_e32": (2, lambda a, b: i24(a) * i24(b) >> 32),
    "v_min_u32_e32": (2, min),
    "v_max_u32_e32": (2, max),
    "v_min_i32_e32": (2, lambda a, b: min(sx(a), sx(b))),
    "v_max_i32_e32": (2, lambda a, b: max(sx(a), sx(b))),
    "v_and_b32_e32": (2, lambda a, b: a & b),
    "v_or_b32_e32": (2, lambda a, b: a | b),
    "v_xor_b32_e32": (2, lambda a, b: a ^ b),
    "v_xnor_b32_e32": (2, lambda a, b: ~(a ^ b)),
    "v_lshlrev_b32_e32": (2, lambda a, b: b << (a & 31)),
    "v_lshrrev_b32_e32": (2, lambda a, b: b >> (a & 31)),
    "v_ashrrev_i32_e32": (2, lambda a, b: sx(b) >> (a & 31)),
    "v_bfm_b32": (2, lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
    "v_add3_u32": (3, lambda a, b, c: a + b + c),
    "v_mad_u32_u24": (3, lambda a, b, c: u24(a) * u24(b) + c),
    "v_mad_i32_i24": (3, lambda a, b, c: i24(a) * i24(b) + c),
    "v_min3_u32": (3, min),
    "v_max3_u32": (3, max),
    "v_med3_u32": (3, lambda *x: sorted(x)[1]),
    "v_min3_i32": (3, lambda *x: min(map(sx, x))),
    "v_max3_i32": (3, lambda *x: max(map(sx, x))),
    "v_med3_i32": (3, lambda *x: sorted(map(sx, x))[1]),
    "v_lshl_add_u32": (3, lambda a, b, c: (a << (b & 31)) + c),
    "v_add_lshl_u32": (3, lambda a, b, c: (a + b & M32) << (c & 31)),
    "v_lshl_or_b32": (3, lambda a, b, c: a << (b & 31) | c),
    "v_and_or_b32": (3, lambda a, b, c: a & b | c),
    "v_or3_b32": (3, lambda a, b, c: a | b | c),
    "v_xad_u32": (3, lambda a, b, c: (a ^ b) + c),
    "v_bfe_u32": (3, bfe),
    "v_bfe_i32": (3, lambda a, b, c: sx(bfe(a, b, c), c & 31) if c & 31 else 0),
    "v_bfi_b32": (3, lambda a, b, c: a & b | ~a & c),
    "v_perm_b32": (3, lambda a, b, c: perm(a, b, c & 0x07070707)),
    "v_alignbit_b32": (3, lambda a, b, c: (a << 32 | b) >> (c & 31)),
    "v_alignbyte_b32": (3, lambda a, b, c: (a << 32 | b) >> 8 * (c & 3)),
    "v_sad_u8": (
        3,
        lambda a, b, c: sum(abs((a >> s & 255) - (b >> s & 255)) for s in (0, 8, 16, 24)) + c,
    ),
    "v_add_u16_e32": (2, lambda a, b: a + b & 0xFFFF),
    "v_sub_u16_e32": (2, lambda a, b: a - b & 0xFFFF),
    "v_subrev_u16_e32": (2, lambda a, b: b - a & 0xFFFF),
    "v_mul_lo_u16_e32": (2, lambda a, b: a * b & 0xFFFF),
    "v_max_u16_e32": (2, lambda a, b: max(a & 0xFFFF, b & 0xFFFF)),
    "v_min_u16_e32": (2, lambda a, b: min(a & 0xFFFF, b & 0xFFFF)),
    "v_lshlrev_b16_e32": (2, lambda a, b: b << (a & 15) & 0xFFFF),
    "v_lshrrev_b16_e32": (2, lambda a, b: (b & 0xFFFF) >> (a & 15)),
    "v_mad_u16": (3, lambda a, b, c: a * b + c & 0xFFFF),
    "v_pack_b32_f16": (2, lambda a, b: a & 0xFFFF | b << 16),
    "v_cvt_pk_u16_u32": (2, lambda a, b: min(a, 0xFFFF) | min(b, 0xFFFF) << 16),
    "v_cvt_pk_i16_i32": (
        2,
        lambda a, b: sum(
            (max(-32768, min(32767, sx(x))) & 0xFFFF) << s for x, s in ((a, 0), (b, 16))
        ),
    ),
}


@pytest.mark.parametrize("name", INTEGER)
def test_integer(name: str) -> None:
    count, formula = INTEGER[name]
    c = C & np.uint32(0x07070707) if name == "v_perm_b32" else C
    sources = ", ".join(f"v{i}" for i in range(count))
    state = execute(f"{name} v9, {sources}", v={0: A, 1: B, 2: c})
    operands = list(zip(A, B, c, strict=True))
    assert state.v(9).tolist() == [formula(*map(int, x[:count])) & M32 for x in operands]


def f32(x: float) -> float:
    """Nearest float32 (a single rounding of the double)."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


FLOAT: dict[str, tuple[int, Callable[..., float]]] = {
    "v_add_f32_e32": (2, lambda a, b: a + b),
    "v_sub_f32_e32": (2, lambda a, b: a - b),
    "v_subrev_f32_e32": (2, lambda a, b: b - a),
    "v_mul_f32_e32": (2, lambda a, b: a * b),
    "v_mul_legacy_f32_e32": (2, lambda a, b: a * b),
    "v_min_f32_e32": (2, min),
    "v_max_f32_e32": (2, max),
    "v_min3_f32": (3, min),
    "v_max3_f32": (3, max),
    "v_med3_f32": (3, lambda *x: sorted(x)[1]),
    "v_maximum3_f32": (3, max),
    "v_minimum3_f32": (3, min),
    "v_sqrt_f32_e32": (1, lambda a: math.sqrt(abs(a))),
    "v_trunc_f32_e32": (1, math.trunc),
    "v_ceil_f32_e32": (1, math.ceil),
    "v_floor_f32_e32": (1, math.floor),
    "v_rndne_f32_e32": (1, round),
    "v_fract_f32_e32": (1, lambda a: a - math.floor(a)),
    "v_frexp_mant_f32_e32": (1, lambda a: math.frexp(a)[0]),
}


@pytest.mark.parametrize("name", FLOAT)
def test_float(name: str) -> None:
    count, formula = FLOAT[name]
    first = np.abs(FA) if name == "v_sqrt_f32_e32" else FA
    sources = ", ".join(f"v{i}" for i in range(count))
    state = execute(f"{name} v9, {sources}", v={0: first, 1: FB, 2: FC})
    operands = zip(first, FB, FC, strict=True)
    assert state.f(9).tolist() == [f32(formula(*map(float, x[:count]))) for x in operands]


ULP: dict[str, Callable[[float], float]] = {
    "v_exp_f32_e32": lambda a: 2.0**a,
    "v_log_f32_e32": math.log2,
    "v_rcp_f32_e32": lambda a: 1 / a,
    "v_rcp_iflag_f32_e32": lambda a: 1 / a,
    "v_rsq_f32_e32": lambda a: 1 / math.sqrt(a),
    "v_sin_f32_e32": lambda a: math.sin(2 * math.pi * a),
    "v_cos_f32_e32": lambda a: math.cos(2 * math.pi * a),
}


@pytest.mark.parametrize("name", ULP)
def test_transcendental_within_one_ulp(name: str) -> None:
    x = lanes(7, 0.01, 3.0)
    got = execute(f"{name} v1, v0", v={0: x}).f(1)
    expected = np.array([ULP[name](float(v)) for v in x])
    spacing = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    assert np.all(np.abs(got - expected) <= np.maximum(spacing, 1e-12))


CONVERSIONS: dict[str, Callable[[Any], list[Any]]] = {
    "v_cvt_f32_i32_e32": lambda a: [f32(sx(int(x))) for x in a],
    "v_cvt_f32_u32_e32": lambda a: [f32(int(x)) for x in a],
    "v_cvt_f32_ubyte0_e32": lambda a: [int(x) & 255 for x in a],
    "v_cvt_f32_ubyte1_e32": lambda a: [int(x) >> 8 & 255 for x in a],
    "v_cvt_f32_ubyte2_e32": lambda a: [int(x) >> 16 & 255 for x in a],
    "v_cvt_f32_ubyte3_e32": lambda a: [int(x) >> 24 for x in a],
    "v_cvt_f32_f16_e32": lambda a: [
        struct.unpack("<e", struct.pack("<H", int(x) & 0xFFFF))[0] for x in a
    ],
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_to_float(name: str) -> None:
    source = A & np.uint32(0x7BFF7BFF)  # finite as float16
    assert execute(f"{name} v1, v0", v={0: source}).f(1).tolist() == CONVERSIONS[name](source)


def test_float_to_integer_saturates() -> None:
    x = np.resize(np.array([1.9, -1.9, 3e9, -3e9, np.nan, np.inf, 5e9], np.float32), 64)
    state = execute("v_cvt_i32_f32_e32 v1, v0\nv_cvt_u32_f32_e32 v2, v0", v={0: x})
    top, low = 2**31 - 1, -(2**31)
    assert state.v(1).view(np.int32).tolist()[:7] == [1, -1, top, low, 0, top, top]
    assert state.v(2).tolist()[:7] == [1, 0, 3000000000, 0, 0, M32, M32]
    state = execute("v_cvt_flr_i32_f32_e32 v1, v0\nv_cvt_rpi_i32_f32_e32 v2, v0", v={0: x})
    assert (state.v(1).view(np.int32)[:2].tolist(), state.v(2).view(np.int32)[0]) == ([1, -2], 2)


def test_float_to_half_and_back() -> None:
    got = execute("v_cvt_f16_f32_e32 v1, v0", v={0: FA}).v(1)
    assert got.tolist() == [struct.unpack("<H", struct.pack("<e", float(x)))[0] for x in FA]


def test_half_arithmetic() -> None:
    a, b = (x.astype(np.float16) for x in (FA, FB))
    registers = {0: a.view(np.uint16).astype(np.uint32), 1: b.view(np.uint16).astype(np.uint32)}
    for name, value in (
        ("v_add_f16_e32", a + b),
        ("v_sub_f16_e32", a - b),
        ("v_mul_f16_e32", a * b),
        ("v_max_f16_e32", np.maximum(a, b)),
        ("v_min_f16_e32", np.minimum(a, b)),
    ):
        got = execute(f"{name} v2, v0, v1", v=registers).v(2)
        assert got.tolist() == value.view(np.uint16).tolist(), name


def test_round_toward_zero_pack() -> None:
    got = execute("v_cvt_pkrtz_f16_f32 v2, v0, v1", v={0: FA, 1: FB}).v(2)
    for i in range(64):
        for value, bits in ((FA[i], got[i] & 0xFFFF), (FB[i], got[i] >> 16)):
            half = struct.unpack("<e", struct.pack("<H", int(bits)))[0]
            assert abs(half) <= abs(value)
            assert abs(value) - abs(half) < abs(half) * 2.0**-10


def test_fused_multiply_add_forms() -> None:
    exact = [f32(float(a) * float(b) + float(c)) for a, b, c in zip(FA, FB, FC, strict=True)]
    registers = {0: FA, 1: FB, 2: FC}
    assert execute("v_fma_f32 v3, v0, v1, v2", v=registers).f(3).tolist() == exact
    assert execute("v_fmac_f32_e32 v2, v0, v1", v=registers).f(2).tolist() == exact
    scaled = [f32(float(a) * 0.5 + float(c)) for a, c in zip(FA, FC, strict=True)]
    assert execute("v_fmamk_f32 v3, v0, 0x3f000000, v2", v=registers).f(3).tolist() == scaled
    shifted = [f32(float(a) * float(b) + 2.0) for a, b in zip(FA, FB, strict=True)]
    assert execute("v_fmaak_f32 v3, v0, v1, 0x40000000", v=registers).f(3).tolist() == shifted


def test_source_and_output_modifiers() -> None:
    registers = {0: FA, 1: FB}
    got = execute("v_add_f32_e64 v2, -|v0|, -v1", v=registers).f(2)
    assert got.tolist() == [f32(-abs(float(a)) - float(b)) for a, b in zip(FA, FB, strict=True)]
    got = execute("v_add_f32_e64 v2, v0, v1 mul:2", v=registers).f(2)
    assert got.tolist() == [2 * f32(float(a) + float(b)) for a, b in zip(FA, FB, strict=True)]
    got = execute("v_mul_f32_e64 v2, v0, v1 div:2 clamp", v=registers).f(2)
    expected = [min(max(f32(float(a) * float(b)) / 2, 0), 1) for a, b in zip(FA, FB, strict=True)]
    assert got.tolist() == expected


def test_scaling_by_powers_of_two() -> None:
    n = np.arange(64, dtype=np.int32) - 32
    got = execute("v_ldexp_f32 v2, v0, v1", v={0: FA, 1: n}).f(2)
    assert got.tolist() == [f32(math.ldexp(float(a), int(k))) for a, k in zip(FA, n, strict=True)]
    got = execute("v_frexp_exp_i32_f32_e32 v2, v0", v={0: FA}).v(2).view(np.int32)
    assert got.tolist() == [math.frexp(float(a))[1] for a in FA]


def doubles(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).uniform(-50, 50, 64)
    bits = x.view(np.uint64)
    return x, bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)


def test_doubles() -> None:
    (a, a0, a1), (b, b0, b1), (c, c0, c1) = doubles(1), doubles(2), doubles(3)
    registers = {0: a0, 1: a1, 2: b0, 3: b1, 4: c0, 5: c1}
    for name, value in (
        ("v_add_f64", a + b),
        ("v_mul_f64", a * b),
        ("v_max_f64", np.maximum(a, b)),
        ("v_min_f64", np.minimum(a, b)),
    ):
        assert (
            execute(f"{name} v[6:7], v[0:1], v[2:3]", v=registers).d(6).tolist() == value.tolist()
        )
    fused = execute("v_fma_f64 v[6:7], v[0:1], v[2:3], v[4:5]", v=registers).d(6)
    assert np.allclose(fused, a * b + c, rtol=1e-15)
    assert execute("v_fmac_f64_e32 v[4:5], v[0:1], v[2:3]", v=registers).d(4).tolist() == (
        fused.tolist()
    )
    for name, fn in (
        ("trunc", np.trunc),
        ("ceil", np.ceil),
        ("floor", np.floor),
        ("rndne", np.rint),
    ):
        got = execute(f"v_{name}_f64_e32 v[6:7], v[0:1]", v=registers).d(6)
        assert got.tolist() == fn(a).tolist()
    single = execute("v_cvt_f32_f64_e32 v6, v[0:1]", v=registers).f(6)
    assert single.tolist() == [f32(float(x)) for x in a]
    assert execute("v_cvt_f64_f32_e32 v[6:7], v0", v={0: FA}).d(6).tolist() == FA.tolist()
    integers = execute("v_cvt_i32_f64_e32 v6, v[0:1]", v=registers).v(6).view(np.int32)
    assert integers.tolist() == np.trunc(a).astype(int).tolist()
    assert execute("v_cvt_u32_f64_e32 v6, |v[0:1]|", v=registers).v(6).tolist() == (
        np.trunc(np.abs(a)).astype(int).tolist()
    )
    assert execute("v_cvt_f64_u32_e32 v[6:7], v0", v={0: A}).d(6).tolist() == A.tolist()
    assert execute("v_cvt_f64_i32_e32 v[6:7], v0", v={0: A}).d(6).tolist() == (
        A.view(np.int32).tolist()
    )
    got = execute("v_ldexp_f64 v[6:7], v[0:1], v8", v={**registers, 8: np.full(64, 3, np.int32)})
    assert got.d(6).tolist() == (a * 8).tolist()


def wide(state: State, register: int) -> list[int]:
    return [
        int(x) | int(y) << 32 for x, y in zip(state.v(register), state.v(register + 1), strict=True)
    ]


def test_wide_integers() -> None:
    pairs = [int(a) | int(b) << 32 for a, b in zip(A, B, strict=True)]
    registers = {0: A, 1: B, 2: _SHIFTS}
    for name, formula in (
        ("v_lshlrev_b64", lambda x, n: x << n & M64),
        ("v_lshrrev_b64", lambda x, n: x >> n),
        ("v_ashrrev_i64", lambda x, n: sx(x, 64) >> n & M64),
    ):
        state = execute(f"{name} v[4:5], v2, v[0:1]", v=registers)
        assert wide(state, 4) == [formula(x, int(n)) for x, n in zip(pairs, _SHIFTS, strict=True)]
    state = execute("v_lshl_add_u64 v[4:5], v[0:1], 3, v[0:1]", v=registers)
    assert wide(state, 4) == [(x << 3) + x & M64 for x in pairs]
    state = execute("v_mov_b64_e32 v[4:5], v[0:1]", v=registers)
    assert wide(state, 4) == pairs


def test_carries() -> None:
    registers = {0: A, 1: B}
    state = execute(
        "v_add_co_u32_e32 v2, vcc, v0, v1\nv_addc_co_u32_e32 v3, vcc, 0, 0, vcc", v=registers
    )
    totals = [int(a) + int(b) for a, b in zip(A, B, strict=True)]
    assert state.v(2).tolist() == [t & M32 for t in totals]
    # after the second addition nothing carries
    carried = execute(
        "v_add_co_u32_e32 v2, vcc, v0, v1\nv_cndmask_b32_e64 v3, 0, 1, vcc", v=registers
    )
    assert carried.v(3).tolist() == [t >> 32 for t in totals]
    state = execute(
        "v_sub_co_u32_e64 v2, s[4:5], v0, v1\nv_cndmask_b32_e64 v3, 0, 1, s[4:5]", v=registers
    )
    assert state.v(2).tolist() == [(int(a) - int(b)) & M32 for a, b in zip(A, B, strict=True)]
    assert state.v(3).tolist() == [int(b > a) for a, b in zip(A, B, strict=True)]
    state = execute("v_subrev_co_u32_e32 v2, vcc, v0, v1", v=registers)
    assert state.v(2).tolist() == [(int(b) - int(a)) & M32 for a, b in zip(A, B, strict=True)]
    state = execute("v_subb_co_u32_e32 v2, vcc, v0, v1, vcc", v=registers, vcc=M64)
    assert state.v(2).tolist() == [(int(a) - int(b) - 1) & M32 for a, b in zip(A, B, strict=True)]
    state = execute("v_subbrev_co_u32_e32 v2, vcc, v0, v1, vcc", v=registers, vcc=M64)
    assert state.v(2).tolist() == [(int(b) - int(a) - 1) & M32 for a, b in zip(A, B, strict=True)]


@pytest.mark.parametrize("signed", [False, True])
def test_wide_multiply_add(signed: bool) -> None:
    name = "v_mad_i64_i32" if signed else "v_mad_u64_u32"
    state = execute(f"{name} v[4:5], s[4:5], v0, v1, v[2:3]", v={0: A, 1: B, 2: C, 3: A})
    value = sx if signed else int
    assert wide(state, 4) == [
        value(int(a)) * value(int(b)) + (int(c) | int(a) << 32) & M64
        for a, b, c in zip(A, B, C, strict=True)
    ]


def bits(flags: list[bool]) -> int:
    return sum(bool(flag) << i for i, flag in enumerate(flags))


_FLOAT_TRUTH: dict[str, Callable[[float, float], bool]] = {
    "f": lambda a, b: False,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: a < b or a > b,
    "ge": lambda a, b: a >= b,
    "o": lambda a, b: a == a and b == b,
    "u": lambda a, b: a != a or b != b,
    "nge": lambda a, b: not a >= b,
    "nlg": lambda a, b: not (a < b or a > b),
    "ngt": lambda a, b: not a > b,
    "nle": lambda a, b: not a <= b,
    "neq": lambda a, b: a != b,
    "nlt": lambda a, b: not a < b,
    "tru": lambda a, b: True,
}


@pytest.mark.parametrize("relation", _FLOAT_TRUTH)
def test_float_comparisons(relation: str) -> None:
    a = np.resize(np.array([1, 2, np.nan, 3, np.inf], np.float32), 64)
    b = np.resize(np.array([2, 2, 1, np.nan, 0, -1, 3], np.float32), 64)
    state = execute(f"v_cmp_{relation}_f32_e64 s[4:5], v0, v1", v={0: a, 1: b})
    truth = [_FLOAT_TRUTH[relation](float(x), float(y)) for x, y in zip(a, b, strict=True)]
    assert state.s64(4) == bits(truth)


@pytest.mark.parametrize("relation", ["lt", "eq", "le", "gt", "ne", "ge", "f", "t"])
@pytest.mark.parametrize("kind", ["i32", "u32", "u16", "i16", "u64", "i64"])
def test_integer_comparisons(relation: str, kind: str) -> None:
    width = int(kind[1:])
    a, b = np.where(np.arange(64) % 3 == 0, B, A), B
    pair = "v[0:1], v[2:3]" if width == 64 else "v0, v2"
    state = execute(f"v_cmp_{relation}_{kind}_e32 vcc, {pair}", v={0: a, 1: C, 2: b, 3: C})
    full = (
        (lambda x, c: int(x) | int(c) << 32)
        if width == 64
        else (lambda x, c: int(x) & (1 << width) - 1)
    )
    value = (lambda x: sx(x, width)) if kind[0] == "i" else (lambda x: x)
    left = [value(full(x, c)) for x, c in zip(a, C, strict=True)]
    right = [value(full(x, c)) for x, c in zip(b, C, strict=True)]
    truth = {
        "lt": lambda x, y: x < y,
        "eq": lambda x, y: x == y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ne": lambda x, y: x != y,
        "ge": lambda x, y: x >= y,
        "f": lambda x, y: False,
        "t": lambda x, y: True,
    }[relation]
    assert state.vcc == bits([truth(x, y) for x, y in zip(left, right, strict=True)])


def test_comparison_of_idle_lanes_is_zero_and_cmpx_narrows_exec() -> None:
    mask = 0xFF00FF
    a = np.arange(64, dtype=np.uint32)
    state = execute("v_cmp_gt_u32_e32 vcc, 32, v0", v={0: a}, mask=mask)
    assert state.vcc == mask & 2**32 - 1
    state = execute("v_cmpx_gt_u32_e64 s[4:5], 4, v0", v={0: a}, mask=mask)
    assert (state.exec, state.s64(4)) == (15, 15)


def test_comparisons_of_half_and_double() -> None:
    x, low, high = doubles(4)
    zero = np.zeros(64, np.uint32)
    state = execute("v_cmp_lt_f64_e32 vcc, v[0:1], v[2:3]", v={0: low, 1: high, 2: zero, 3: zero})
    assert state.vcc == bits([v < 0 for v in x])
    half = FA.astype(np.float16)
    registers = {0: half.view(np.uint16).astype(np.uint32)}
    assert execute("v_cmp_gt_f16_e32 vcc, 0, v0", v=registers).vcc == bits([h < 0 for h in half])


@pytest.mark.parametrize(
    ("value", "bit"),
    [
        (0x7F800001, 0),
        (0x7FC00000, 1),
        (0xFF800000, 2),
        (0xBF800000, 3),
        (0x80000001, 4),
        (0x80000000, 5),
        (0x00000000, 6),
        (0x00000001, 7),
        (0x3F800000, 8),
        (0x7F800000, 9),
    ],
)
def test_classification(value: int, bit: int) -> None:
    source = np.full(64, value, np.uint32)
    for wanted in range(10):
        state = execute(f"v_cmp_class_f32_e64 s[4:5], v0, {hex(1 << wanted)}", v={0: source})
        assert state.s64(4) == (M64 if wanted == bit else 0)


def test_selection() -> None:
    mask = 0x5555_0000_FFFF_1234
    state = execute("v_cndmask_b32_e32 v2, v0, v1, vcc", v={0: A, 1: B}, vcc=mask)
    assert state.v(2).tolist() == [int(B[i] if mask >> i & 1 else A[i]) for i in range(64)]
    state = execute("v_cndmask_b32_e64 v2, -v0, |v1|, s[4:5]", v={0: FA, 1: FB}, s={4: 1, 5: 0})
    assert state.f(2).tolist() == [abs(float(FB[0]))] + [-float(x) for x in FA[1:]]


def test_idle_lanes_keep_their_value() -> None:
    state = execute("v_add_u32_e32 v2, v0, v1", v={0: A, 1: B, 2: C}, mask=0xF)
    expected = [int(A[i]) + int(B[i]) & M32 if i < 4 else int(C[i]) for i in range(64)]
    assert state.v(2).tolist() == expected


def test_lanes_to_scalars_and_back() -> None:
    assert execute("v_readfirstlane_b32 s4, v0", v={0: A}).s(4) == int(A[0])
    assert execute("v_readfirstlane_b32 s4, v0", v={0: A}, mask=1 << 9).s(4) == int(A[9])
    assert execute("v_readlane_b32 s4, v0, 63", v={0: A}, mask=1).s(4) == int(A[63])
    assert execute("v_readlane_b32 s4, v0, s5", v={0: A}, s={5: 7}).s(4) == int(A[7])
    state = execute("v_writelane_b32 v0, s4, 11", v={0: A}, s={4: 99}, mask=0)
    assert state.v(0).tolist() == [99 if i == 11 else int(A[i]) for i in range(64)]


def test_lane_counts() -> None:
    state = execute("v_mbcnt_lo_u32_b32 v1, -1, 0\nv_mbcnt_hi_u32_b32 v1, -1, v1")
    assert state.v(1).tolist() == list(range(64))
    state = execute("v_mbcnt_lo_u32_b32 v1, s4, 5", s={4: 0b1011})
    assert state.v(1).tolist() == [
        5 + (0b1011 & (1 << min(i, 32)) - 1).bit_count() for i in range(64)
    ]


@pytest.mark.parametrize("size", [16, 32])
def test_row_swaps(size: int) -> None:
    state = execute(f"v_permlane{size}_swap_b32 v0, v1", v={0: A, 1: B})
    first, second = A.copy(), B.copy()
    for base in range(0, 64, 2 * size):
        first[base + size : base + 2 * size] = B[base : base + size]
        second[base : base + size] = A[base + size : base + 2 * size]
    assert state.v(0).tolist() == first.tolist()
    assert state.v(1).tolist() == second.tolist()
    pairs = 1 | 1 << size  # one pair of lanes is active, the others idle
    state = execute(f"v_permlane{size}_swap_b32 v0, v1", v={0: A, 1: B}, mask=pairs)
    assert state.v(0).tolist() == [int(B[0]) if i == size else int(A[i]) for i in range(64)]
    assert state.v(1).tolist() == [int(A[size]) if i == 0 else int(B[i]) for i in range(64)]
    with pytest.raises(UnsupportedInstruction, match="an active lane with an idle one"):
        execute(f"v_permlane{size}_swap_b32 v0, v1", v={0: A, 1: B}, mask=1)


def test_swap() -> None:
    state = execute("v_swap_b32 v0, v1", v={0: A, 1: B}, mask=1)
    assert state.v(0).tolist() == [int(B[0]), *A[1:].tolist()]
    assert state.v(1).tolist() == [int(A[0]), *B[1:].tolist()]


DPP: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[1,0,3,2]": lambda i: i ^ 1,
    "quad_perm:[2,3,0,1]": lambda i: i ^ 2,
    "row_shl:3": lambda i: i + 3 if i % 16 + 3 < 16 else None,
    "row_shr:8": lambda i: i - 8 if i % 16 >= 8 else None,
    "row_ror:4": lambda i: i // 16 * 16 + (i - 4) % 16,
    "wave_shl:1": lambda i: i + 1 if i < 63 else None,
    "wave_shr:1": lambda i: i - 1 if i else None,
    "wave_rol:1": lambda i: (i + 1) % 64,
    "wave_ror:1": lambda i: (i - 1) % 64,
    "row_mirror": lambda i: i // 16 * 16 + 15 - i % 16,
    "row_half_mirror": lambda i: i // 8 * 8 + 7 - i % 8,
    "row_bcast:15": lambda i: i // 16 * 16 - 1 if i >= 16 else None,
    "row_bcast:31": lambda i: 31 if i >= 32 else None,
    "row_newbcast:5": lambda i: i // 16 * 16 + 5,
}


@pytest.mark.parametrize("pattern", DPP)
@pytest.mark.parametrize("zero_fill", [True, False])
@pytest.mark.parametrize("masks", [(0xF, 0xF), (0xA, 0xF), (0xF, 0x5)])
def test_dpp(pattern: str, zero_fill: bool, masks: tuple[int, int]) -> None:
    rows, banks = masks
    fill = " bound_ctrl:1" if zero_fill else ""
    body = f"v_add_u32_dpp v2, v0, v1 {pattern} row_mask:{hex(rows)} bank_mask:{hex(banks)}{fill}"
    state = execute(body, v={0: A, 1: B, 2: C})
    expected = []
    for i in range(64):
        source = DPP[pattern](i)
        enabled = rows >> i // 16 & 1 and banks >> i % 16 // 4 & 1
        if not enabled or (source is None and not zero_fill):
            expected.append(int(C[i]))
        else:
            expected.append(int(B[i]) + (0 if source is None else int(A[source])) & M32)
    assert state.v(2).tolist() == expected


def test_dpp_reads_nothing_from_an_idle_lane() -> None:
    body = "v_mov_b32_dpp v2, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1"
    state = execute(body, v={0: A, 2: C}, mask=0b0111)
    assert state.v(2).tolist()[:4] == [int(A[1]), int(A[0]), 0, int(C[3])]


def test_sdwa() -> None:
    picks = "dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3 src1_sel:WORD_1"
    body = f"v_add_u32_sdwa v2, v0, v1 {picks}"
    state = execute(body, v={0: A, 1: B, 2: C})
    expected = [
        int(c) & 0xFFFF00FF | ((int(a) >> 24) + (int(b) >> 16) & 255) << 8
        for a, b, c in zip(A, B, C, strict=True)
    ]
    assert state.v(2).tolist() == expected
    picks = "dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_0"
    body = f"v_or_b32_sdwa v2, v0, sext(v1) {picks}"
    got = execute(body, v={0: A, 1: B}).v(2).tolist()
    assert got == [(int(a) | sx(int(b), 8)) & M32 for a, b in zip(A, B, strict=True)]


def test_packed_floats() -> None:
    registers = {0: FA, 1: FB, 2: FC, 3: FA, 4: FB, 5: FC}
    state = execute("v_pk_add_f32 v[6:7], v[0:1], v[2:3]", v=registers)
    assert state.f(6).tolist() == (FA + FC).tolist()
    assert state.f(7).tolist() == (FB + FA).tolist()
    state = execute("v_pk_mul_f32 v[6:7], v[0:1], v[2:3] op_sel:[1,0] op_sel_hi:[0,1]", v=registers)
    assert state.f(6).tolist() == (FB * FC).tolist()
    assert state.f(7).tolist() == (FA * FA).tolist()
    state = execute(
        "v_pk_fma_f32 v[6:7], v[0:1], v[2:3], v[4:5] neg_lo:[0,0,1] neg_hi:[1,0,0]", v=registers
    )
    low = [f32(float(a) * float(c) - float(b)) for a, b, c in zip(FA, FB, FC, strict=True)]
    high = [f32(-float(b) * float(a) + float(c)) for a, b, c in zip(FA, FB, FC, strict=True)]
    assert (state.f(6).tolist(), state.f(7).tolist()) == (low, high)
    state = execute("v_pk_add_f32 v[6:7], v[0:1], 1.0 op_sel_hi:[1,0]", v=registers)
    assert state.f(7).tolist() == (FB + np.float32(1)).tolist()
    state = execute(
        "v_pk_mul_f32 v[6:7], v[0:1], s[4:5] op_sel_hi:[1,0]", v=registers, s={4: 0x40000000, 5: 0}
    )
    assert state.f(7).tolist() == (FB * np.float32(2)).tolist()
    with pytest.raises(UnsupportedInstruction, match="upper half of a constant"):
        execute("v_pk_add_f32 v[6:7], v[0:1], 1.0", v=registers)


def test_packed_moves() -> None:
    registers = {0: A, 1: B, 2: C, 3: A}
    state = execute("v_pk_mov_b32 v[6:7], v[0:1], v[2:3] op_sel:[1,0]", v=registers)
    assert (state.v(6).tolist(), state.v(7).tolist()) == (B.tolist(), C.tolist())
    state = execute("v_pk_mov_b32 v[6:7], v[0:1], v[0:1] op_sel:[0,1]", v=registers)
    assert (state.v(6).tolist(), state.v(7).tolist()) == (A.tolist(), B.tolist())


PACKED_16: dict[str, Callable[[int, int], int]] = {
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_max_u16": max,
    "v_pk_min_u16": min,
    "v_pk_max_i16": lambda a, b: max(sx(a, 16), sx(b, 16)),
    "v_pk_min_i16": lambda a, b: min(sx(a, 16), sx(b, 16)),
    "v_pk_lshlrev_b16": lambda a, b: b << (a & 15),
    "v_pk_lshrrev_b16": lambda a, b: b >> (a & 15),
}


@pytest.mark.parametrize("name", PACKED_16)
def test_packed_16(name: str) -> None:
    got = execute(f"{name} v2, v0, v1", v={0: A, 1: B}).v(2)
    for a, b, r in zip(A, B, got, strict=True):
        halves = [(int(a) >> s & 0xFFFF, int(b) >> s & 0xFFFF) for s in (0, 16)]
        low, high = (PACKED_16[name](*half) & 0xFFFF for half in halves)
        assert int(r) == low | high << 16


@pytest.mark.parametrize("table", [0x00, 0x96, 0xC8, 0xCA, 0xE8, 0xFE])
def test_bitop3(table: int) -> None:
    got = execute(f"v_bitop3_b32 v3, v0, v1, v2 bitop3:{hex(table)}", v={0: A, 1: B, 2: C}).v(3)
    for a, b, c, r in zip(A, B, C, got, strict=True):
        expected = 0
        for bit in range(32):
            index = (int(a) >> bit & 1) << 2 | (int(b) >> bit & 1) << 1 | int(c) >> bit & 1
            expected |= (table >> index & 1) << bit
        assert int(r) == expected


def test_bfloat16_pair() -> None:
    got = execute("v_cvt_pk_bf16_f32 v2, v0, v1", v={0: FA, 1: FB}).v(2)
    import torch

    for values, shift in ((FA, 0), (FB, 16)):
        expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
        assert ((got >> np.uint32(shift)) & np.uint32(0xFFFF)).tolist() == (
            expected.view(np.uint16).tolist()
        )
    back = execute("v_cvt_f32_bf16_e32 v1, v0", v={0: A & np.uint32(0x7F7FFFFF)}).v(1)
    assert back.tolist() == [(int(a) << 16) & M32 for a in A & np.uint32(0x7F7FFFFF)]


def test_fp8_pairs() -> None:
    import torch

    registers = {0: FA, 1: FB, 2: C}

    def codes(x: np.ndarray, kind: Any) -> np.ndarray:
        return torch.from_numpy(x).to(kind).view(torch.uint8).numpy().astype(np.uint32)

    for name, kind in (("fp8", torch.float8_e4m3fn), ("bf8", torch.float8_e5m2)):
        pair = codes(FA, kind) | codes(FB, kind) << np.uint32(8)
        low = execute(f"v_cvt_pk_{name}_f32 v2, v0, v1", v=registers).v(2)
        assert low.tolist() == ((C & np.uint32(0xFFFF0000)) | pair).tolist()
        high = execute(f"v_cvt_pk_{name}_f32 v2, v0, v1 op_sel:[0,0,1]", v=registers).v(2)
        assert high.tolist() == ((C & np.uint32(0xFFFF)) | pair << np.uint32(16)).tolist()
        scaled = execute(f"v_cvt_scalef32_pk_{name}_f32 v2, v0, v1, 4.0", v=registers).v(2)
        quarter = codes(FA / 4, kind) | codes(FB / 4, kind) << np.uint32(8)
        assert (scaled & np.uint32(0xFFFF)).tolist() == quarter.tolist()


def test_fp8_saturates_by_the_mode_register() -> None:
    x = np.full(64, 1000, np.float32)
    registers = {0: x, 1: -x, 2: np.zeros(64, np.uint32)}
    assert execute("v_cvt_pk_fp8_f32 v2, v0, v1", v=registers).v(2)[0] == 0xFF7F
    assert execute("v_cvt_pk_fp8_f32 v2, v0, v1", v=registers, mode=1 << 23).v(2)[0] == 0xFE7E


def test_fp8_to_float() -> None:
    import torch

    def values(codes: np.ndarray, kind: Any) -> list[float]:
        return torch.from_numpy(codes.astype(np.uint8)).view(kind).float().numpy().tolist()

    source = A & np.uint32(0x77777777)
    for name, kind in (("fp8", torch.float8_e4m3fn), ("bf8", torch.float8_e5m2)):
        state = execute(f"v_cvt_pk_f32_{name}_e32 v[2:3], v0", v={0: source})
        assert state.f(2).tolist() == values(source & np.uint32(255), kind)
        assert state.f(3).tolist() == values(source >> np.uint32(8) & np.uint32(255), kind)
        state = execute(f"v_cvt_pk_f32_{name}_sdwa v[2:3], v0 src0_sel:WORD_1", v={0: source})
        assert state.f(2).tolist() == values(source >> np.uint32(16) & np.uint32(255), kind)
        state = execute(f"v_cvt_f32_{name}_sdwa v2, v0 src0_sel:BYTE_3", v={0: source})
        assert state.f(2).tolist() == values(source >> np.uint32(24), kind)
        state = execute(f"v_cvt_f32_{name}_e32 v2, v0", v={0: source})
        assert state.f(2).tolist() == values(source & np.uint32(255), kind)
        state = execute(f"v_cvt_scalef32_pk_f32_{name} v[2:3], v0, 0.5", v={0: source})
        half = np.array(values(source & np.uint32(255), kind)) / 2
        assert state.f(2).tolist() == half.tolist()
        state = execute(f"v_cvt_f32_{name}_e64 v2, v0 byte_sel:2", v={0: source})
        assert state.f(2).tolist() == values(source >> np.uint32(16) & np.uint32(255), kind)


def test_accumulation_registers_are_plain_registers() -> None:
    state = execute(
        "v_accvgpr_write_b32 a3, v0\nv_accvgpr_mov_b32 a4, a3\nv_accvgpr_read_b32 v1, a4", v={0: A}
    )
    assert state.v(1).tolist() == A.tolist()


def test_invalid_operations_give_the_default_nan() -> None:
    inf = np.full(64, np.inf, np.float32)
    assert execute("v_sub_f32_e32 v2, v0, v1", v={0: inf, 1: inf}).v(2)[0] == 0x7FC00000
    mine = np.full(64, 0xFFC12345, np.uint32)
    assert execute("v_add_f32_e32 v2, v0, v1", v={0: mine, 1: inf}).v(2)[0] == 0xFFC12345
