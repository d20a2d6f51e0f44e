"""The kernels of the unfused chain; `chain` launches them."""

from __future__ import annotations

import triton
import triton.language as tl

from gdn_kernels.steps_triton import (
    beta_of,
    convolve_taps,
    decay_factor,
    gated_norm,
    quantise_rows,
)


@triton.jit
def split_kernel(
    qkvz_ptr, ba_ptr, x_ptr, z_ptr, b_ptr, a_ptr, KH: tl.constexpr, R: tl.constexpr, D: tl.constexpr
):
    """One program per (token, key head): its row into x [T, C], z [T, VH, D], b and a [T, VH]."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    VH: tl.constexpr = KH * R
    GROUP: tl.constexpr = (2 + 2 * R) * D
    d = tl.arange(0, D)
    rd = tl.arange(0, R * D)
    source = qkvz_ptr + row * (KH * GROUP) + group * GROUP
    x = x_ptr + row * ((2 * KH + VH) * D)
    tl.store(x + group * D + d, tl.load(source + d))
    tl.store(x + (KH + group) * D + d, tl.load(source + D + d))
    tl.store(x + 2 * KH * D + group * R * D + rd, tl.load(source + 2 * D + rd))
    tl.store(z_ptr + (row * VH + group * R) * D + rd, tl.load(source + (2 + R) * D + rd))
    r = tl.arange(0, R)
    gate = ba_ptr + row * (2 * VH) + group * (2 * R)
    tl.store(b_ptr + row * VH + group * R + r, tl.load(gate + r))
    tl.store(a_ptr + row * VH + group * R + r, tl.load(gate + R + r))


@triton.jit(do_not_specialize=["pad_slot_id"])
def convolve_kernel(
    x_ptr, conv_ptr, index_ptr, weight_ptr, bias_ptr, y_ptr, pad_slot_id, C, BLOCK: tl.constexpr
):
    """BLOCK channels of one token: y [T, C] bf16 from x and the history, which shifts in place."""
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(index_ptr + row)
    if slot == pad_slot_id:
        tl.store(y_ptr + row * C + c, tl.zeros([BLOCK], tl.bfloat16))
        return
    window = conv_ptr + (slot.to(tl.int64) * C + c) * 3
    h0 = tl.load(window)
    h1 = tl.load(window + 1)
    h2 = tl.load(window + 2)
    x = tl.load(x_ptr + row * C + c)
    taps = tl.load(weight_ptr.to(tl.pointer_type(tl.int64)) + c)
    y = convolve_taps(h0, h1, h2, x, taps, tl.load(bias_ptr + c))
    tl.store(y_ptr + row * C + c, y.to(tl.bfloat16))
    tl.debug_barrier()  # a replicated lane may still read what another shifts
    tl.store(window, h1)
    tl.store(window + 1, h2)
    tl.store(window + 2, x)


@triton.jit(do_not_specialize=["pad_slot_id"])
def recur_kernel(
    y_ptr,
    b_ptr,
    a_ptr,
    ssm_ptr,
    index_ptr,
    a_log_ptr,
    dt_bias_ptr,
    core_ptr,
    scale,
    pad_slot_id,
    KH: tl.constexpr,
    R: tl.constexpr,
    D: tl.constexpr,
    BV: tl.constexpr,
):
    """BV state rows of one (token, value head): S in place, core [T, VH, D] bf16."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    VH: tl.constexpr = KH * R
    v = tl.program_id(2) * BV + tl.arange(0, BV)
    d = tl.arange(0, D)
    core = core_ptr + (row * VH + head) * D + v
    slot = tl.load(index_ptr + row)
    if slot == pad_slot_id:
        tl.store(core, tl.zeros([BV], tl.bfloat16))
        return
    y = y_ptr + row * ((2 * KH + VH) * D)
    q = tl.load(y + (head // R) * D + d).to(tl.float32)
    k = tl.load(y + (KH + head // R) * D + d).to(tl.float32)
    value = tl.load(y + (2 * KH + head) * D + v).to(tl.float32)
    q = q * (tl.rsqrt(tl.sum(q * q) + 1e-6) * scale)
    k = k * tl.rsqrt(tl.sum(k * k) + 1e-6)
    beta = beta_of(tl.load(b_ptr + row * VH + head))
    decay = decay_factor(
        tl.load(a_ptr + row * VH + head),
        tl.load(dt_bias_ptr + head),
        tl.load(a_log_ptr + head),
    )
    pointers = ssm_ptr + (slot.to(tl.int64) * VH + head) * (D * D) + v[:, None] * D + d[None, :]
    state = tl.load(pointers) * decay
    residual = (value - tl.sum(state * k[None, :], axis=1)) * beta
    state = state + residual[:, None] * k[None, :]
    tl.store(pointers, state)
    tl.store(core, tl.sum(state * q[None, :], axis=1).to(tl.bfloat16))


@triton.jit(do_not_specialize=["pad_slot_id"])
def norm_kernel(
    core_ptr, z_ptr, index_ptr, norm_ptr, out_ptr, norm_eps, pad_slot_id, VH, D: tl.constexpr
):
    """One program per (token, value head): out [T, VH, D] bf16."""
    row = tl.program_id(0).to(tl.int64)
    at = (row * VH + tl.program_id(1)) * D + tl.arange(0, D)[None, :]
    if tl.load(index_ptr + row) == pad_slot_id:
        tl.store(out_ptr + at, tl.zeros([1, D], tl.bfloat16))
        return
    core = tl.load(core_ptr + at).to(tl.float32)
    z = tl.load(z_ptr + at).to(tl.float32)
    weight = tl.load(norm_ptr + tl.arange(0, D)).to(tl.float32)[None, :]
    tl.store(out_ptr + at, gated_norm(core, z, weight, norm_eps, D))


@triton.jit
def quantise_kernel(out_ptr, code_ptr, scale_ptr, VH, D: tl.constexpr):
    """One program per (token, value head): e4m3fn codes [T, VH*D] and scales [T, VH]."""
    group = tl.program_id(0).to(tl.int64) * VH + tl.program_id(1)
    at = group * D + tl.arange(0, D)[None, :]
    codes, scales = quantise_rows(tl.load(out_ptr + at))
    tl.store(code_ptr + at, codes)
    tl.store(scale_ptr + group + tl.arange(0, 1), scales)
