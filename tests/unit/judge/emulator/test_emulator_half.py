"""16 bit floats, clamped integers and FP8 pairs against independent formulas, lane by lane."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from gdn_judge.emulator.errors import Uninitialised
from gdn_judge.emulator.numerics import fma16
from support.emulator import execute, words

A, B, C = words(1), words(2), words(3)
FINITE = np.uint32(0xBBFFBBFF)  # clears the top exponent bit of both halves: no inf, no NaN
HA, HB, HC = A & FINITE, B & FINITE, C & FINITE


def halves(word: Any) -> tuple[Any, Any]:
    """The low and the high float16 of [64] words."""
    return tuple((word >> np.uint32(16 * i)).astype(np.uint16).view(np.float16) for i in (0, 1))


def word(low: Any, high: Any) -> list[int]:
    low, high = (x.astype(np.float16).view(np.uint16).astype(np.uint32) for x in (low, high))
    found: list[int] = (low | high << np.uint32(16)).tolist()
    return found


def rounded(value: Fraction) -> float:
    """The nearest float16 of an exact value, ties to even."""
    if not value:
        return 0.0
    exponent = max(-14, (abs(value).numerator.bit_length() - abs(value).denominator.bit_length()))
    while Fraction(2) ** (exponent + 1) <= abs(value):
        exponent += 1
    while exponent > -14 and Fraction(2) ** exponent > abs(value):
        exponent -= 1
    step = Fraction(2) ** (exponent - 10)
    return float(round(value / step) * step)


def test_a_fused_float16_product_is_rounded_once() -> None:
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 1 << 16, (3, 4000), dtype=np.uint16) & np.uint16(0xBFFF)
    a, b, c = codes.view(np.float16)
    c[:1000] = (a[:1000].astype(np.float64) * -b[:1000]).astype(np.float16)  # near cancellation
    got = fma16(a, b, c).astype(np.float64)
    for x, y, z, result in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        assert result == rounded(exact), (x, y, z)


PACKED = {
    "v_pk_add_f16": lambda a, b, c: a + b,
    "v_pk_mul_f16": lambda a, b, c: a * b,
    "v_pk_max_f16": lambda a, b, c: np.maximum(a, b),
    "v_pk_min_f16": lambda a, b, c: np.minimum(a, b),
    "v_pk_fma_f16": fma16,
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_halves(name: str) -> None:
    fn = PACKED[name]
    v = {0: HA, 1: HB, 2: HC}
    (a, A1), (b, B1), (c, C1) = halves(HA), halves(HB), halves(HC)
    third = ", v2" if name == "v_pk_fma_f16" else ""
    state = execute(f"{name} v3, v0, v1{third}", v=v)
    assert state.v(3).tolist() == word(fn(a, b, c), fn(A1, B1, C1))
    ones = ",0" if third else ""
    body = f"{name} v3, v0, v1{third} op_sel:[1,0{ones}] op_sel_hi:[0,1{ones}] neg_hi:[1,0{ones}]"
    state = execute(body, v=v)
    assert state.v(3).tolist() == word(fn(A1, b, c), fn(-a, B1, c))


def test_packed_halves_take_a_constant_for_both() -> None:
    a, a1 = halves(HA)
    state = execute("v_pk_fma_f16 v1, v0, 2.0, v0 op_sel_hi:[1,0,1]", v={0: HA})
    two = np.full(64, 2, np.float16)
    assert state.v(1).tolist() == word(fma16(a, two, a), fma16(a1, two, a1))


def test_half_by_half() -> None:
    a, b, c = (halves(x)[0] for x in (HA, HB, HC))
    low = execute("v_fma_f16 v3, v0, -v1, |v2|", v={0: HA, 1: HB, 2: HC}).v(3)
    assert low.tolist() == word(fma16(a, -b, np.abs(c)), np.zeros(64, np.float16))
    fa, fb = (np.random.default_rng(i).normal(size=64).astype(np.float32) for i in (1, 2))
    assert execute("v_cvt_pk_f16_f32 v2, v0, v1", v={0: fa, 1: fb}).v(2).tolist() == word(fa, fb)


def test_mixed_precision() -> None:
    f = np.random.default_rng(3).normal(size=64).astype(np.float32)
    low, high = (x.astype(np.float64) for x in halves(HA))
    state = execute("v_fma_mix_f32 v3, v0, v1, neg(0) op_sel_hi:[1,0,0]", v={0: HA, 1: f})
    assert state.f(3).tolist() == (low * f.astype(np.float64)).astype(np.float32).tolist()
    body = "v_fma_mix_f32 v3, v0, v0, v1 op_sel:[1,0,0] op_sel_hi:[1,1,0]"
    wide = np.array(
        [
            Fraction(x) * Fraction(y) + Fraction(z)
            for x, y, z in zip(high.tolist(), low.tolist(), f.tolist(), strict=True)
        ]
    )
    got = execute(body, v={0: HA, 1: f}).f(3)
    assert np.allclose(got, wide.astype(np.float64), rtol=2**-24, atol=0)
    for name, shift in (("lo", 0), ("hi", 16)):
        state = execute(f"v_fma_mix{name}_f16 v2, v1, 1.0, 0", v={1: f, 2: C})
        code = f.astype(np.float16).view(np.uint16).astype(np.uint32) << np.uint32(shift)
        keep = np.uint32(0xFFFF0000 if shift == 0 else 0xFFFF)
        assert state.v(2).tolist() == (C & keep | code).tolist()


def test_an_undefined_half_spoils_only_its_own_half() -> None:
    body = "v_mov_b32_e32 v1, 0\nv_cvt_f16_f32_e32 v1, v0\n"
    after = "v_readfirstlane_b32 s4, v4\ns_cmp_eq_u32 s4, 0\ns_cbranch_scc1 end\nend:"
    packed = "v_and_b32_e32 v5, 0xffff0000, v6\nv_pk_add_f16 v4, v0, v5\n"  # v6: nobody wrote it
    execute(f"{body}{packed}v_and_b32_e32 v4, 0xffff, v4\n{after}", v={0: HA})
    with pytest.raises(Uninitialised):
        execute(f"{body}{packed}v_lshrrev_b32_e32 v4, 16, v4\n{after}", v={0: HA})


def test_integers_that_stay_within_their_type() -> None:
    a, b = (x.astype(np.int64) for x in (A, B))
    for name, exact in (("add", a + b), ("sub", a - b), ("subrev", b - a)):
        got = execute(f"v_{name}_u32_e64 v2, v0, v1 clamp", v={0: A, 1: B}).v(2)
        assert got.tolist() == np.clip(exact, 0, 2**32 - 1).tolist()
    edge = np.array([0, 1, 5, 2**32 - 1] * 16, np.uint32)
    got = execute("v_sub_u32_e64 v1, v0, 1 clamp", v={0: edge}).v(1)
    assert got[:4].tolist() == [0, 0, 4, 2**32 - 2]


KINDS = {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2}
FLOATS = {"f16": torch.float16, "bf16": torch.bfloat16}


def sixteen(values: Any, kind: torch.dtype) -> Any:
    """[128] floats as [64] words of two 16 bit floats."""
    pairs = torch.from_numpy(values).to(kind).view(torch.int16).numpy().view(np.uint16)
    return pairs.view(np.uint32), torch.from_numpy(pairs.view(np.int16)).view(kind)


@pytest.mark.parametrize("code", KINDS)
@pytest.mark.parametrize("kind", FLOATS)
def test_halves_to_fp8_and_back(code: str, kind: str) -> None:
    values = np.random.default_rng(4).normal(scale=40, size=128).astype(np.float32)
    source, exact = sixteen(values, FLOATS[kind])
    for scale in (1.0, 4.0):
        codes = (exact.float() / scale).to(KINDS[code]).view(torch.uint8).numpy()
        pair = codes[::2].astype(np.uint32) | codes[1::2].astype(np.uint32) << np.uint32(8)
        name = f"v_cvt_scalef32_pk_{code}_{kind}"
        low = execute(f"{name} v1, v0, {scale}", v={0: source, 1: C}).v(1)
        assert low.tolist() == (C & np.uint32(0xFFFF0000) | pair).tolist()
        high = execute(f"{name} v1, v0, {scale} op_sel:[0,0,1]", v={0: source, 1: C}).v(1)
        assert high.tolist() == (C & np.uint32(0xFFFF) | pair << np.uint32(16)).tolist()
        decoded = torch.from_numpy(codes).view(KINDS[code]).float() * scale
        back = decoded.to(FLOATS[kind]).view(torch.int16).numpy().view(np.uint32)
        name = f"v_cvt_scalef32_pk_{kind}_{code}"
        both = pair | (pair ^ np.uint32(0x0101)) << np.uint32(16)
        got = execute(f"{name} v1, v0, {scale}", v={0: both}).v(1)
        assert got.tolist() == back.tolist()
        flipped = torch.from_numpy(codes ^ 1).view(KINDS[code]).float() * scale
        other = flipped.to(FLOATS[kind]).view(torch.int16).numpy().view(np.uint32)
        got = execute(f"{name} v1, v0, {scale} op_sel:[1,0,0]", v={0: both}).v(1)
        assert got.tolist() == other.tolist()
