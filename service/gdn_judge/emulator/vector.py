"""The vector unit: lane-wise arithmetic, comparisons, and the DPP and SDWA forms.

`LANE_OPS` names each operation as in the CDNA4 ISA document, chapter "Vector
ALU Operations", with the types of destination and sources (see `operands`) and
the formula. What does not fit that form (carries, masks, packed and lane
crossing operations) has a builder in `vector_special`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gdn_judge.emulator import numerics as nm
from gdn_judge.emulator.assembly import VCC, Instruction, Operand, Program
from gdn_judge.emulator.crosslane import Lanes, Subword, lane_pattern, subword
from gdn_judge.emulator.front import ALL_BITS, Array, Front
from gdn_judge.emulator.operands import (
    FLOATS,
    WIDE,
    Op,
    combine,
    raw_reader,
    read_registers,
    split,
    unsupported,
)

_U, _I, _Q, _L, _F = np.uint32, np.int32, np.uint64, np.int64, np.float32
CLEAN = np.zeros((1, 1), np.uint32)


def _shift(b: Any) -> Any:
    return b & b.dtype.type(31)


def _i24(a: Any) -> Any:
    return (a.view(_I) << _I(8)) >> _I(8)


def _u24(a: Any) -> Any:
    return a & _U(0xFFFFFF)


def _bfe_u(a: Any, offset: Any, width: Any) -> Any:
    width = width & _U(31)
    return (a >> (offset & _U(31))) & ((_U(1) << width) - _U(1))


def _bfe_i(a: Any, offset: Any, width: Any) -> Any:
    width = width & _U(31)
    lifted = (_bfe_u(a, offset, width) << ((_U(32) - width) & _U(31))).view(_I)
    return np.where(width == 0, _I(0), lifted >> ((_U(32) - width) & _U(31)).view(_I))


def _to_int(dtype: Any) -> Callable[[Any], Any]:
    """Toward zero, saturating; a NaN gives 0."""
    info = np.iinfo(dtype)

    def run(x: Any) -> Any:
        wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=2.0**40, neginf=-(2.0**40))
        return np.clip(np.trunc(wide), info.min, info.max).astype(_L).astype(dtype)

    return run


def _ubyte(n: int) -> Callable[[Any], Any]:
    return lambda a: ((a >> _U(8 * n)) & _U(0xFF)).astype(_F)


def _median(low: Callable[..., Any], high: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b, c: high(low(a, b), low(high(a, b), c))


def _mulhi(dtype: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: ((a.astype(dtype) * b.astype(dtype)) >> dtype(32)).astype(_U)


def _frexp_exponent(x: Any) -> Any:
    _, exponent = np.frexp(x.astype(np.float64))
    return np.where(np.isfinite(x) & (x != 0), exponent, 0).astype(_I)


def _frexp_mantissa(x: Any) -> Any:
    mantissa, _ = np.frexp(x.astype(np.float64))
    return np.where(np.isfinite(x), mantissa, x).astype(_F)


def _mul_legacy(a: Any, b: Any) -> Any:
    return np.where((a == 0) | (b == 0), _F(0), a * b)


def _pkrtz(a: Any, b: Any) -> Any:
    def toward_zero(x: Any) -> Any:
        half = x.astype(np.float16)
        bits = half.view(np.uint16)
        over = np.abs(half.astype(np.float64)) > np.abs(x.astype(np.float64))
        return np.where(over & np.isfinite(x), bits - np.uint16(1), bits).astype(_U)

    return toward_zero(a) | (toward_zero(b) << _U(16))


def _pk_f16(a: Any, b: Any) -> Any:
    low, high = (x.astype(np.float16).view(np.uint16).astype(_U) for x in (a, b))
    return low | (high << _U(16))


def _sad_u8(a: Any, b: Any, c: Any) -> Any:
    total = c
    for shift in (0, 8, 16, 24):
        x, y = ((t >> _U(shift)) & _U(0xFF) for t in (a, b))
        total = total + (np.maximum(x, y) - np.minimum(x, y))
    return total


def _lo(a: Any) -> Any:
    return a & _U(0xFFFF)


def _max3(a: Any, b: Any, c: Any) -> Any:
    return nm.max32(nm.max32(a, b), c)


def _min3(a: Any, b: Any, c: Any) -> Any:
    return nm.min32(nm.min32(a, b), c)


def _sat16(a: Any) -> Any:
    return np.clip(a, -32768, 32767).astype(_I).view(_U) & _U(0xFFFF)


# name -> (destination type, source types, formula); "+" marks a destination that is also a source
LANE_OPS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "v_mov_b32": ("u", "u", lambda a: a),
    "v_mov_b64": ("q", "q", lambda a: a),
    "v_accvgpr_read_b32": ("u", "u", lambda a: a),
    "v_accvgpr_write_b32": ("u", "u", lambda a: a),
    "v_accvgpr_mov_b32": ("u", "u", lambda a: a),
    "v_not_b32": ("u", "u", lambda a: ~a),
    "v_bfrev_b32": ("u", "u", nm.bit_reverse32),
    "v_ffbh_u32": ("u", "u", nm.leading_zeros32),
    "v_ffbl_b32": ("u", "u", nm.trailing_zeros32),
    "v_ffbh_i32": ("u", "i", lambda a: nm.leading_zeros32((a ^ (a >> _I(31))).view(_U))),
    "v_bcnt_u32_b32": ("u", "uu", lambda a, b: nm.popcount32(a) + b),
    # integers
    "v_add_u32": ("u", "uu", lambda a, b: a + b),
    "v_sub_u32": ("u", "uu", lambda a, b: a - b),
    "v_subrev_u32": ("u", "uu", lambda a, b: b - a),
    "v_add_i32": ("u", "uu", lambda a, b: a + b),
    "v_sub_i32": ("u", "uu", lambda a, b: a - b),
    "v_add3_u32": ("u", "uuu", lambda a, b, c: a + b + c),
    "v_mul_lo_u32": ("u", "uu", lambda a, b: a * b),
    "v_mul_hi_u32": ("u", "uu", _mulhi(_Q)),
    "v_mul_hi_i32": ("u", "ii", _mulhi(_L)),
    "v_mul_u32_u24": ("u", "uu", lambda a, b: _u24(a) * _u24(b)),
    "v_mul_i32_i24": ("i", "uu", lambda a, b: _i24(a) * _i24(b)),
    "v_mul_hi_u32_u24": ("u", "uu", lambda a, b: _mulhi(_Q)(_u24(a), _u24(b))),
    "v_mul_hi_i32_i24": ("u", "uu", lambda a, b: _mulhi(_L)(_i24(a), _i24(b))),
    "v_mad_u32_u24": ("u", "uuu", lambda a, b, c: _u24(a) * _u24(b) + c),
    "v_mad_i32_i24": ("i", "uui", lambda a, b, c: _i24(a) * _i24(b) + c),
    "v_min_u32": ("u", "uu", np.minimum),
    "v_max_u32": ("u", "uu", np.maximum),
    "v_min_i32": ("i", "ii", np.minimum),
    "v_max_i32": ("i", "ii", np.maximum),
    "v_min3_u32": ("u", "uuu", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_u32": ("u", "uuu", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_min3_i32": ("i", "iii", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_i32": ("i", "iii", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_med3_i32": ("i", "iii", _median(np.minimum, np.maximum)),
    "v_med3_u32": ("u", "uuu", _median(np.minimum, np.maximum)),
    "v_sad_u8": ("u", "uuu", _sad_u8),
    "v_lshl_add_u64": ("q", "quq", lambda a, b, c: (a << (b & _U(7)).astype(_Q)) + c),
    # bits
    "v_and_b32": ("u", "uu", lambda a, b: a & b),
    "v_or_b32": ("u", "uu", lambda a, b: a | b),
    "v_xor_b32": ("u", "uu", lambda a, b: a ^ b),
    "v_xnor_b32": ("u", "uu", lambda a, b: ~(a ^ b)),
    "v_lshlrev_b32": ("u", "uu", lambda a, b: b << _shift(a)),
    "v_lshrrev_b32": ("u", "uu", lambda a, b: b >> _shift(a)),
    "v_ashrrev_i32": ("i", "ui", lambda a, b: b >> _shift(a).view(_I)),
    "v_lshlrev_b64": ("q", "uq", lambda a, b: b << (a & _U(63)).astype(_Q)),
    "v_lshrrev_b64": ("q", "uq", lambda a, b: b >> (a & _U(63)).astype(_Q)),
    "v_ashrrev_i64": ("l", "ul", lambda a, b: b >> (a & _U(63)).astype(_L)),
    "v_lshl_add_u32": ("u", "uuu", lambda a, b, c: (a << _shift(b)) + c),
    "v_add_lshl_u32": ("u", "uuu", lambda a, b, c: (a + b) << _shift(c)),
    "v_lshl_or_b32": ("u", "uuu", lambda a, b, c: (a << _shift(b)) | c),
    "v_and_or_b32": ("u", "uuu", lambda a, b, c: (a & b) | c),
    "v_or3_b32": ("u", "uuu", lambda a, b, c: a | b | c),
    "v_xad_u32": ("u", "uuu", lambda a, b, c: (a ^ b) + c),
    "v_bfe_u32": ("u", "uuu", _bfe_u),
    "v_bfe_i32": ("i", "uuu", _bfe_i),
    "v_bfi_b32": ("u", "uuu", lambda a, b, c: (a & b) | (~a & c)),
    "v_bfm_b32": ("u", "uu", lambda a, b: ((_U(1) << _shift(a)) - _U(1)) << _shift(b)),
    "v_perm_b32": ("u", "uuu", nm.perm_bytes),
    "v_alignbit_b32": (
        "u",
        "uuu",
        lambda a, b, c: (combine(b, a) >> (c & _U(31)).astype(_Q)).astype(_U),
    ),
    "v_alignbyte_b32": (
        "u",
        "uuu",
        lambda a, b, c: (combine(b, a) >> ((c & _U(3)) * _U(8)).astype(_Q)).astype(_U),
    ),
    # 16 bit integers, high half of the result zero
    "v_add_u16": ("u", "uu", lambda a, b: _lo(a + b)),
    "v_sub_u16": ("u", "uu", lambda a, b: _lo(a - b)),
    "v_subrev_u16": ("u", "uu", lambda a, b: _lo(b - a)),
    "v_mul_lo_u16": ("u", "uu", lambda a, b: _lo(_lo(a) * _lo(b))),
    "v_max_u16": ("u", "uu", lambda a, b: np.maximum(_lo(a), _lo(b))),
    "v_min_u16": ("u", "uu", lambda a, b: np.minimum(_lo(a), _lo(b))),
    "v_lshlrev_b16": ("u", "uu", lambda a, b: _lo(_lo(b) << (a & _U(15)))),
    "v_lshrrev_b16": ("u", "uu", lambda a, b: _lo(b) >> (a & _U(15))),
    "v_mad_u16": ("u", "uuu", lambda a, b, c: _lo(_lo(a) * _lo(b) + c)),
    "v_pack_b32_f16": ("u", "uu", lambda a, b: _lo(a) | (b << _U(16))),
    # float32
    "v_add_f32": ("f", "ff", lambda a, b: a + b),
    "v_sub_f32": ("f", "ff", lambda a, b: a - b),
    "v_subrev_f32": ("f", "ff", lambda a, b: b - a),
    "v_mul_f32": ("f", "ff", lambda a, b: a * b),
    "v_mul_legacy_f32": ("f", "ff", _mul_legacy),
    "v_min_f32": ("f", "ff", nm.min32),
    "v_max_f32": ("f", "ff", nm.max32),
    "v_min3_f32": ("f", "fff", _min3),
    "v_max3_f32": ("f", "fff", _max3),
    "v_med3_f32": ("f", "fff", nm.med3_32),
    "v_maximum3_f32": ("f", "fff", lambda a, b, c: nm.maximum32(nm.maximum32(a, b), c)),
    "v_minimum3_f32": ("f", "fff", lambda a, b, c: nm.minimum32(nm.minimum32(a, b), c)),
    "v_fma_f32": ("f", "fff", nm.fma32),
    "v_fmac_f32": ("f", "ff+", nm.fma32),
    "v_fmaak_f32": ("f", "fff", nm.fma32),
    "v_fmamk_f32": ("f", "fff", nm.fma32),
    "v_exp_f32": ("f", "f", nm.exp2_32),
    "v_log_f32": ("f", "f", nm.log2_32),
    "v_rcp_f32": ("f", "f", nm.rcp32),
    "v_rcp_iflag_f32": ("f", "f", nm.rcp32),
    "v_rsq_f32": ("f", "f", nm.rsq32),
    "v_sqrt_f32": ("f", "f", nm.sqrt32),
    "v_sin_f32": ("f", "f", nm.sin32),
    "v_cos_f32": ("f", "f", nm.cos32),
    "v_fract_f32": ("f", "f", nm.fract32),
    "v_trunc_f32": ("f", "f", np.trunc),
    "v_ceil_f32": ("f", "f", np.ceil),
    "v_rndne_f32": ("f", "f", np.rint),
    "v_floor_f32": ("f", "f", np.floor),
    "v_frexp_exp_i32_f32": ("i", "f", _frexp_exponent),
    "v_frexp_mant_f32": ("f", "f", _frexp_mantissa),
    "v_ldexp_f32": ("f", "fi", nm.ldexp32),
    "v_div_fixup_f32": ("f", "fff", nm.div_fixup32),
    # float64
    "v_add_f64": ("d", "dd", lambda a, b: a + b),
    "v_mul_f64": ("d", "dd", lambda a, b: a * b),
    "v_min_f64": ("d", "dd", np.fmin),
    "v_max_f64": ("d", "dd", np.fmax),
    "v_fma_f64": ("d", "ddd", nm.fma64),
    "v_fmac_f64": ("d", "dd+", nm.fma64),
    "v_trunc_f64": ("d", "d", np.trunc),
    "v_ceil_f64": ("d", "d", np.ceil),
    "v_rndne_f64": ("d", "d", np.rint),
    "v_floor_f64": ("d", "d", np.floor),
    "v_ldexp_f64": ("d", "di", lambda a, n: np.ldexp(a, np.clip(n, -4000, 4000))),
    # float16
    "v_add_f16": ("h", "hh", lambda a, b: a + b),
    "v_sub_f16": ("h", "hh", lambda a, b: a - b),
    "v_mul_f16": ("h", "hh", lambda a, b: a * b),
    "v_fma_f16": ("h", "hhh", nm.fma16),
    "v_max_f16": ("h", "hh", np.fmax),
    "v_min_f16": ("h", "hh", np.fmin),
    # conversions
    "v_cvt_f32_i32": ("f", "i", lambda a: a.astype(_F)),
    "v_cvt_f32_u32": ("f", "u", lambda a: a.astype(_F)),
    "v_cvt_i32_f32": ("i", "f", _to_int(_I)),
    "v_cvt_u32_f32": ("u", "f", _to_int(_U)),
    "v_cvt_rpi_i32_f32": ("i", "f", lambda a: _to_int(_I)(np.floor(a + _F(0.5)))),
    "v_cvt_flr_i32_f32": ("i", "f", lambda a: _to_int(_I)(np.floor(a))),
    "v_cvt_f16_f32": ("h", "f", lambda a: a.astype(np.float16)),
    "v_cvt_f32_f16": ("f", "h", lambda a: a.astype(_F)),
    "v_cvt_f64_f32": ("d", "f", lambda a: a.astype(np.float64)),
    "v_cvt_f32_f64": ("f", "d", lambda a: a.astype(_F)),
    "v_cvt_f64_i32": ("d", "i", lambda a: a.astype(np.float64)),
    "v_cvt_f64_u32": ("d", "u", lambda a: a.astype(np.float64)),
    "v_cvt_i32_f64": ("i", "d", _to_int(_I)),
    "v_cvt_u32_f64": ("u", "d", _to_int(_U)),
    "v_cvt_f32_ubyte0": ("f", "u", _ubyte(0)),
    "v_cvt_f32_ubyte1": ("f", "u", _ubyte(1)),
    "v_cvt_f32_ubyte2": ("f", "u", _ubyte(2)),
    "v_cvt_f32_ubyte3": ("f", "u", _ubyte(3)),
    "v_cvt_f32_bf16": ("f", "u", lambda a: (a << _U(16)).view(_F)),
    "v_cvt_pk_bf16_f32": ("u", "ff", lambda a, b: nm.to_bf16(a) | (nm.to_bf16(b) << _U(16))),
    "v_cvt_pkrtz_f16_f32": ("u", "ff", _pkrtz),
    "v_cvt_pk_f16_f32": ("u", "ff", _pk_f16),
    "v_cvt_pk_u16_u32": (
        "u",
        "uu",
        lambda a, b: np.minimum(a, _U(0xFFFF)) | (np.minimum(b, _U(0xFFFF)) << _U(16)),
    ),
    "v_cvt_pk_i16_i32": ("u", "ii", lambda a, b: _sat16(a) | (_sat16(b) << _U(16))),
    "v_cvt_f32_fp8": ("f", "u", nm.from_e4m3fn),
    "v_cvt_f32_bf8": ("f", "u", nm.from_e5m2),
}

# with the clamp modifier the result stays within the type
_CLAMPED: dict[str, Callable[[Any, Any], Any]] = {
    "v_add_u32": lambda a, b: np.where(a > ~b, _U(0xFFFFFFFF), a + b),
    "v_sub_u32": lambda a, b: np.where(b > a, _U(0), a - b),
    "v_subrev_u32": lambda a, b: np.where(a > b, _U(0), b - a),
}

# operations whose undefined source bits reach only some result bits:
# name -> f(undefined bits of the sources, values of the sources)
_TAINT: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "v_mov_b32": lambda t, v: t[0],
    "v_mov_b64": lambda t, v: t[0],
    "v_accvgpr_read_b32": lambda t, v: t[0],
    "v_accvgpr_write_b32": lambda t, v: t[0],
    "v_not_b32": lambda t, v: t[0],
    "v_and_b32": lambda t, v: (t[0] | t[1]) & (v[0] | t[0]) & (v[1] | t[1]),
    "v_or_b32": lambda t, v: (t[0] | t[1]) & (~v[0] | t[0]) & (~v[1] | t[1]),
    "v_xor_b32": lambda t, v: t[0] | t[1],
    "v_lshlrev_b32": lambda t, v: _worst(t[0]) | (t[1] << _shift(v[0])),
    "v_lshrrev_b32": lambda t, v: _worst(t[0]) | (t[1] >> _shift(v[0])),
    "v_lshlrev_b16": lambda t, v: _worst(t[0]) | _lo(_lo(t[1]) << (v[0] & _U(15))),
    "v_lshl_or_b32": lambda t, v: _worst(t[1]) | (t[0] << _shift(v[1])) | t[2],
    "v_and_or_b32": lambda t, v: ((t[0] | t[1]) & (v[0] | t[0]) & (v[1] | t[1])) | t[2],
    "v_or3_b32": lambda t, v: t[0] | t[1] | t[2],
    "v_bfe_u32": lambda t, v: _worst(t[1] | t[2]) | _bfe_u(t[0], v[1], v[2]),
    "v_bfi_b32": lambda t, v: _worst(t[0]) | (v[0] & t[1]) | (~v[0] & t[2]),
    "v_perm_b32": lambda t, v: _worst(t[2]) | nm.perm_bytes(t[0], t[1], v[2]),
    "v_pack_b32_f16": lambda t, v: _lo(t[0]) | (t[1] << _U(16)),
    "v_cvt_pk_bf16_f32": lambda t, v: _lo(_worst(t[0])) | (_worst(t[1]) << _U(16)),
    "v_cvt_f32_bf16": lambda t, v: _worst(_lo(t[0])),
    "v_cvt_f32_ubyte0": lambda t, v: _worst(t[0] & _U(0xFF)),
    "v_cvt_f32_fp8": lambda t, v: _worst(t[0] & _U(0xFF)),
    "v_add_u16": lambda t, v: _lo(_worst(_lo(t[0] | t[1]))),
}


def _worst(taint: Any) -> Any:
    """All bits undefined where any bit is."""
    return np.where(taint != 0, taint.dtype.type(0) - taint.dtype.type(1), taint.dtype.type(0))


def canonical(value: Any, sources: list[Any]) -> Any:
    """A NaN that no source brought gets the hardware's default bits."""
    carried = np.zeros((1, 1), np.bool_)
    for source in sources:
        if source.dtype == np.float32:
            carried = carried | np.isnan(source)
    return np.where(np.isnan(value) & ~carried, nm.DEFAULT_NAN, value.view(_U)).view(_F)


def finish_float(ins: Instruction) -> Callable[[Any], Any] | None:
    """The output modifiers of a float32 result: omod, then clamp to [0, 1]."""
    factor = _F(float(ins.modifiers.get("mul", 1))) / _F(float(ins.modifiers.get("div", 1)))
    clamp = "clamp" in ins.modifiers
    if factor == 1 and not clamp:
        return None

    def finish(value: Any) -> Any:
        value = value * factor
        return np.where(np.isnan(value), _F(0), np.clip(value, _F(0), _F(1))) if clamp else value

    return finish


_KNOWN = frozenset(["mul", "div", "clamp"])
_DPP = frozenset(
    [
        "quad_perm",
        "row_shl",
        "row_shr",
        "row_ror",
        "wave_shl",
        "wave_shr",
        "wave_rol",
        "wave_ror",
        "row_mirror",
        "row_half_mirror",
        "row_bcast",
        "row_newbcast",
        "row_mask",
        "bank_mask",
        "bound_ctrl",
    ]
)
_SDWA = frozenset(["dst_sel", "dst_unused", "src0_sel", "src1_sel"])


def _check(ins: Instruction, kind: str) -> None:
    allowed = set(_KNOWN) if kind in "f" else {"clamp"} if ins.name in _CLAMPED else set()
    allowed |= _DPP if ins.encoding in ("dpp", "e64_dpp") else set()
    allowed |= _SDWA if ins.encoding == "sdwa" else set()
    for name in ins.modifiers:
        if name not in allowed:
            raise unsupported(ins, f"the modifier {name!r} is not modelled here")


def lane_op(ins: Instruction, program: Program) -> Op:
    """The builder of every entry of `LANE_OPS`."""
    dst_kind, kinds, fn = LANE_OPS[ins.name]
    _check(ins, dst_kind)
    if dst_kind != "f" and "clamp" in ins.modifiers:
        fn = _CLAMPED[ins.name]
    dst, *sources = ins.operands
    if kinds.endswith("+"):
        kinds = kinds[:-1] + dst_kind
        sources = [*sources, dst]
    if len(sources) != len(kinds) or not dst.is_vector:
        raise unsupported(ins, "the operands do not fit the instruction")
    pattern = lane_pattern(ins)
    words = subword(ins)
    readers = [
        _source(ins, s, k, pattern if i == 0 else None, words.source(i))
        for i, (s, k) in enumerate(zip(sources, kinds, strict=True))
    ]
    run = _lane_run(ins, fn, readers, _writer(dst, dst_kind, pattern, words))
    taint = _lane_taint(ins, dst, dst_kind, sources, kinds, pattern, words)
    reads, writes = read_registers(*sources), read_registers(dst)
    return Op(ins, run, reads, writes, taint=taint, touch=reads | writes)


def _lane_run(ins: Instruction, fn: Any, readers: list[Any], write: Any) -> Any:
    finish = finish_float(ins) if LANE_OPS[ins.name][0] == "f" else None
    floating = LANE_OPS[ins.name][0] == "f"
    if not floating and len(readers) == 1:
        (first,) = readers
        return lambda front: write(front, fn(first(front)))
    if not floating and len(readers) == 2:
        a, b = readers
        return lambda front: write(front, fn(a(front), b(front)))

    def run(front: Front) -> None:
        values = [r(front) for r in readers]
        value = fn(*values)
        if front.machine.invalid:
            front.machine.invalid = False
            if floating:
                value = canonical(value, values)
        write(front, finish(value) if finish else value)

    return run


def _source(
    ins: Instruction, op: Operand, kind: str, pattern: Lanes | None, words: Subword | None
) -> Any:
    from gdn_judge.emulator.operands import reader

    if pattern is None and words is None:
        return reader(ins, op, kind)
    base = raw_reader(ins, op, "u")
    view = _VIEW[kind]
    negate = kind in FLOATS

    def read(front: Front) -> Any:
        value = base(front)
        if pattern is not None:
            value = pattern.apply(front, value)
        if words is not None:
            value = words.extract(value, op.sext)
        typed = view(value)
        if op.absolute and negate:
            typed = np.abs(typed)
        return -typed if op.neg and negate else typed

    return read


_VIEW: dict[str, Callable[[Any], Any]] = {
    "u": lambda a: a,
    "i": lambda a: np.asarray(a).view(_I),
    "f": lambda a: np.asarray(a).view(_F),
    "h": lambda a: a.astype(np.uint16).view(np.float16),
}


def _writer(dst: Operand, kind: str, pattern: Lanes | None, words: Subword) -> Any:
    index = dst.index
    if kind in WIDE:

        def wide(front: Front, value: Any) -> None:
            low, high = split(value)
            front.write(index, low)
            front.write(index + 1, high)

        return wide
    bits = _bits_of(kind)
    if words.writes_part:
        return lambda front, value: front.write(index, words.insert(bits(value), front.regs[index]))
    if pattern is not None and pattern.partial:
        return lambda front, value: front.write_where(
            index, bits(value), pattern.write_lanes(front)
        )
    return lambda front, value: front.write(index, bits(value))


def _bits_of(kind: str) -> Callable[[Any], Array]:
    if kind == "u":
        return lambda value: value
    if kind == "h":
        return lambda value: np.asarray(value).view(np.uint16).astype(_U)
    return lambda value: np.asarray(value).view(_U)


def _lane_taint(
    ins: Instruction,
    dst: Operand,
    dst_kind: str,
    sources: list[Operand],
    kinds: str,
    pattern: Lanes | None,
    words: Subword,
) -> Any:
    special = _TAINT.get(ins.name)
    raw = [
        raw_reader(ins, s, "q" if k in WIDE else "u") for s, k in zip(sources, kinds, strict=True)
    ]

    def taint(front: Front, bits: Callable[[int], Array]) -> dict[int, Array]:
        taints = [_operand_taint(s, k, bits) for s, k in zip(sources, kinds, strict=True)]
        if pattern is not None:
            taints[0] = pattern.apply(front, taints[0])
        for i, part in enumerate(taints):
            extract = words.source(i)
            taints[i] = extract.extract(part, False) if extract else part
        if special and not words.writes_part and ins.encoding != "sdwa":
            result = special(taints, [r(front) for r in raw])
        else:
            result = _any_taint(taints, dst_kind)
        if words.writes_part:
            result = words.insert(result, bits(dst.index))
        if dst_kind in WIDE:
            low, high = split(result)
            return {dst.index: low, dst.index + 1: high}
        old = bits(dst.index)
        if pattern is not None and pattern.partial:
            result = np.where(pattern.write_lanes(front), result, old)
        return {dst.index: result}

    return taint


def _operand_taint(op: Operand, kind: str, bits: Callable[[int], Array]) -> Any:
    if op.kind != "reg":
        return np.zeros((1, 1), _Q if kind in WIDE else _U)
    if kind in WIDE:
        return combine(bits(op.index), bits(op.index + 1))
    taint = bits(op.index)
    return _lo(taint) if kind in "hw" else taint


def _any_taint(taints: list[Any], dst_kind: str) -> Any:
    hit = taints[0] != 0
    for taint in taints[1:]:
        hit = hit | (taint != 0)
    kind = _Q if dst_kind in WIDE else _U
    return np.where(hit, kind(0) - kind(1), kind(0))


def vcc_or(ins: Instruction, position: int) -> Operand:
    """The mask operand at `position`, or VCC where the text leaves it out."""
    if len(ins.operands) > position:
        return ins.operands[position]
    return Operand("reg", VCC, 2, text="vcc")


__all__ = ["ALL_BITS", "CLEAN", "LANE_OPS", "canonical", "finish_float", "lane_op", "vcc_or"]
