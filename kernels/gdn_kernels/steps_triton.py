"""Device functions of the step that every kernel here shares: one formula, one place."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def finish_stores(WAIT: tl.constexpr):
    """Each wave waits for its own stores; the barrier that follows then orders the program's.

    WAIT is `platform.store_wait`.
    """
    if WAIT != "":
        tl.inline_asm_elementwise(
            WAIT + "\n\tv_mov_b32 $0, 0", "=v,~{memory}", [], tl.int32, False, 1
        )


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def low_half(word):
    """The bf16 in bits 0..15 of an int64 word, widened to fp32."""
    return ((word & 0xFFFF) << 16).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def convolve_taps(h0, h1, h2, x, words, bias):
    """Four taps in fp32, oldest first, then SiLU rounded to bf16; returned as fp32.

    `words` holds the channel's four bf16 taps, tap 0 in the low bits.
    """
    acc = bias.to(tl.float32)
    acc += h0.to(tl.float32) * low_half(words)
    acc += h1.to(tl.float32) * low_half(words >> 16)
    acc += h2.to(tl.float32) * low_half(words >> 32)
    acc += x.to(tl.float32) * low_half(words >> 48)
    return silu(acc).to(tl.bfloat16).to(tl.float32)


@triton.jit
def decay_factor(a, dt_bias, a_log):
    """exp(-exp(A_log) * softplus(a + dt_bias)); an infinite rate times exactly 0 is decay 1."""
    u = a.to(tl.float32) + dt_bias.to(tl.float32)
    e = tl.exp(tl.minimum(u, 20.0, propagate_nan=tl.PropagateNan.ALL))
    # log(1 + e) loses e below half an ulp of 1; the series keeps it
    log1p = tl.where(e < 0.000244140625, e * (1.0 - 0.5 * e), tl.log(1.0 + e))
    softplus = tl.where(u > 20.0, u, log1p)
    exponent = tl.where(softplus == 0.0, 0.0, tl.exp(a_log) * softplus)
    return tl.exp(-exponent)


@triton.jit
def beta_of(b):
    """sigmoid(b) rounded to bf16, in fp32."""
    return (1.0 / (1.0 + tl.exp(-b.to(tl.float32)))).to(tl.bfloat16).to(tl.float32)


@triton.jit
def gates(gate_ptr, a_log_ptr, dt_bias_ptr, head, R: tl.constexpr):
    """beta, as fp32 value of bf16, and decay of one value head, counted from the group's first."""
    beta = beta_of(tl.load(gate_ptr + head))
    a = tl.load(gate_ptr + R + head)
    return beta, decay_factor(a, tl.load(dt_bias_ptr + head), tl.load(a_log_ptr + head))


@triton.jit
def encode_e4m3(x):
    """Round |x| <= 448 to e4m3fn codes, nearest even, in integer arithmetic.

    The same bits on every architecture, also where the hardware has no e4m3
    cast or one that does not saturate. NaN becomes 0x7F.
    """
    bits = x.to(tl.int32, bitcast=True)
    sign = (bits >> 24) & 0x80
    magnitude = tl.abs(x)
    # below 2**-6 the codes are multiples of 2**-9: adding 2**23 rounds to an integer
    subnormal = (magnitude * 512.0 + 8388608.0).to(tl.int32, bitcast=True) & 0xFF
    absolute = bits & 0x7FFFFFFF
    rounded = absolute + 0x7FFFF + ((absolute >> 20) & 1)
    normal = (rounded >> 20) - 960  # exponent bias 127 -> 7, times 8 mantissa steps
    code = tl.where(magnitude < 0.015625, subnormal, normal) | sign
    return tl.where(x == x, code, 0x7F).to(tl.uint8)


@triton.jit
def gated_norm(core, z, weight, eps, V: tl.constexpr):
    """RMS norm over the last axis of `core` [heads, V] (fp32 values of bf16), gated by SiLU(z)."""
    mean = tl.sum(core * core, axis=1) / V
    return (core * tl.rsqrt(mean + eps)[:, None] * weight * silu(z)).to(tl.bfloat16)


@triton.jit
def finite_magnitude(y):
    """|y| in fp32, and 0 where it is not finite: a scale comes from finite elements only."""
    magnitude = tl.abs(y.to(tl.float32))
    return tl.where(magnitude < float("inf"), magnitude, 0.0)


@triton.jit
def scale_of(largest):
    """The FP8 scale of a row from its largest finite magnitude."""
    return tl.div_rn(tl.maximum(largest, 1e-10), 448.0)


@triton.jit
def codes_of(y, scale):
    """e4m3fn codes of bf16 `y`, by a scale that broadcasts to it."""
    value = y.to(tl.float32)
    ratio = tl.div_rn(value, scale)
    clamped = tl.where(ratio > 448.0, 448.0, tl.where(ratio < -448.0, -448.0, ratio))
    return encode_e4m3(clamped)


@triton.jit
def quantise_rows(y):
    """Codes [heads, V] and scales [heads] of bf16 `y`."""
    scales = scale_of(tl.max(finite_magnitude(y), axis=1))
    return codes_of(y, scales[:, None]), scales


@triton.jit
def updated_core(dq, res, kq):
    """S'.q of each row in fp32, from D.q, res and k.q: S' = D + res (x) k needs no second pass.

    An infinite res makes S' infinite with the signs of k, and S'.q a sum of both
    infinities: NaN, which res * 0 gives there, and nothing elsewhere. (Only where
    every product k*q had one sign would the sum be an infinity.) Not res - res: a
    compiler that contracts takes the difference of res before and after its rounding.
    """
    return dq + res * kq + res * 0.0
