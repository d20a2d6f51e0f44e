"""The fused decode step as one portable Triton launch.

One program handles `BV` state rows of one value head, or all rows of both value
heads of a group, of one token. It takes them in chunks of a few rows a warp, so
that a reduction over K stays within a warp; DEPTH chunks are on their way from
memory at a time.

Where several programs share a (row, key head), which is whenever HP < R or BV <
V, the last to arrive writes what must be written once and after everybody has
read: the shifted q/k history and, when V is split, the gated norm. Arrival is
counted by an acquire-release ticket that the last arriver resets; nobody
waits. The core is rounded to bf16 by the contract, so passing it between
programs through a bf16 scratch changes no bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gdn_kernels.steps_triton import (
    convolve_taps,
    finish_stores,
    gated_norm,
    gates,
    quantise_rows,
    scale_of,
    updated_core,
)

__all__ = ["fused_decode_kernel"]


@triton.jit
def _window(window, channel):
    """The three stored values of each channel, oldest first."""
    at = window + channel * 3
    return tl.load(at), tl.load(at + 1), tl.load(at + 2)


@triton.jit
def _shift(window, channel, h1, h2, x):
    """Drop the oldest of three values of each channel and append `x`."""
    at = window + channel * 3
    tl.store(at, h1)
    tl.store(at + 1, h2)
    tl.store(at + 2, x)


@triton.jit(do_not_specialize=["pad_slot_id", "num_slots"])
def fused_decode_kernel(
    qkvz_ptr,
    ba_ptr,
    conv_ptr,
    ssm_ptr,
    index_ptr,
    weight_ptr,
    bias_ptr,
    a_log_ptr,
    dt_bias_ptr,
    norm_ptr,
    out_ptr,
    code_ptr,
    scale_ptr,
    core_ptr,
    ticket_ptr,
    scale,
    norm_eps,
    pad_slot_id,
    num_slots,
    KH: tl.constexpr,
    R: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    HP: tl.constexpr,
    BV: tl.constexpr,
    CHUNKS: tl.constexpr,
    DEPTH: tl.constexpr,
    FP8: tl.constexpr,
    WAIT: tl.constexpr,
):
    """One program: BV state rows of HP value heads of one token.

    Pointers are the op's operands in its own layouts (see `op.py`), contiguous:
    qkvz [T, KH*(2K+2RV)] bf16, ba [T, 2*R*KH] bf16, conv [N, C, 3] bf16 (changed
    in place), ssm [N, VH, V, K] fp32 (changed in place), index [T] int32,
    weight [C, 4] bf16, out [T, VH, V] bf16, code [T, VH*V] e4m3fn bytes,
    scale_ptr [T, VH] fp32, core [T, KH, P*2K + 2RV] bf16 scratch, P the programs of
    a group, ticket [T, KH] int32 zeros (left zero).
    Grid: T * KH * (R/HP) * (V/BV), splits fastest.
    A row whose slot is `pad_slot_id` touches no pool and gives zeros.
    """
    tl.static_assert(HP == 1 or BV == V)
    VH: tl.constexpr = KH * R
    SPLIT: tl.constexpr = V // BV
    PARTS: tl.constexpr = (R // HP) * SPLIT
    ROWS: tl.constexpr = HP * BV
    CHUNK: tl.constexpr = ROWS // CHUNKS
    A_HEAD: tl.constexpr = CHUNKS // HP  # chunks of one value head
    GROUP: tl.constexpr = 2 * K + 2 * R * V
    C: tl.constexpr = 2 * KH * K + VH * V

    pid = tl.program_id(0)
    part = pid % PARTS
    group = (pid // PARTS) % KH
    row = (pid // (PARTS * KH)).to(tl.int64)
    first = part * ROWS  # first state row, counted from the group's
    head = first // V  # first value head, local to the group

    slot = tl.load(index_ptr + row)
    x_row = qkvz_ptr + row * (KH * GROUP) + group * GROUP
    rows = tl.arange(0, CHUNK)
    out_row = (row * VH + group * R) * V  # where the group's outputs begin
    scale_row = scale_ptr + row * VH + group * R
    GATED_HEADS: tl.constexpr = HP if SPLIT == 1 else R
    gated0 = head if SPLIT == 1 else 0
    # scratch of the group: q and k of each program, v, core
    scratch = core_ptr + (row * KH + group) * (PARTS * 2 * K + 2 * R * V)
    own_qk = scratch + part * (2 * K)
    values = scratch + PARTS * 2 * K
    cores = values + R * V
    if slot == pad_slot_id:
        for i in tl.static_range(CHUNKS):
            at = out_row + first + i * CHUNK + rows
            tl.store(out_ptr + at, tl.zeros([CHUNK], tl.bfloat16))
            if FP8:
                tl.store(code_ptr + at, tl.zeros([CHUNK], tl.uint8))
        if FP8 and part % SPLIT == 0:
            for h in tl.static_range(HP):
                one = tl.arange(0, 1)
                tl.store(scale_row + head + h + one, scale_of(tl.zeros([1], tl.float32)))
        return

    wide = slot.to(tl.int64)
    k_of = tl.arange(0, K)
    tile = ssm_ptr + ((wide * VH + group * R) * V + first) * K
    tile = tile + rows[:, None] * K + k_of[None, :]
    states = ()
    for i in tl.static_range(DEPTH):
        states = states + (tl.load(tile + i * CHUNK * K),)

    # All that does not wait for the state: convolution, norms of q and k, gates.
    # What the convolution gives is bf16 by the contract, so it loses nothing on its
    # way through memory, from one channel a thread to the layout of the state's tile;
    # left to itself the compiler loads every window again in each warp instead.
    window = conv_ptr + wide * (C * 3)
    taps = weight_ptr.to(tl.pointer_type(tl.int64))
    qk = tl.arange(0, 2 * K)
    qk_channel = (qk // K * KH + group) * K + qk % K
    x_qk = tl.load(x_row + qk)
    h0, h1, h2 = _window(window, qk_channel)
    y_qk = convolve_taps(
        h0, h1, h2, x_qk, tl.load(taps + qk_channel), tl.load(bias_ptr + qk_channel)
    )
    vs = first + tl.arange(0, ROWS)
    v_channel = 2 * KH * K + group * R * V + vs
    x_v = tl.load(x_row + 2 * K + vs)
    g0, g1, g2 = _window(window, v_channel)
    y_v = convolve_taps(g0, g1, g2, x_v, tl.load(taps + v_channel), tl.load(bias_ptr + v_channel))
    tl.store(own_qk + qk, y_qk.to(tl.bfloat16))
    tl.store(values + vs, y_v.to(tl.bfloat16))
    finish_stores(WAIT)
    tl.debug_barrier()
    # Everybody in this program has read its windows: from here on they may shift.
    _shift(window, v_channel, g1, g2, x_v)
    if PARTS == 1:
        _shift(window, qk_channel, h1, h2, x_qk)
    q = tl.load(own_qk + k_of, cache_modifier=".cg").to(tl.float32)
    k = tl.load(own_qk + K + k_of, cache_modifier=".cg").to(tl.float32)
    q = q * (tl.rsqrt(tl.sum(q * q, axis=0) + 1e-6) * scale)
    k = k * tl.rsqrt(tl.sum(k * k, axis=0) + 1e-6)
    kq = tl.sum(k * q, axis=0)
    q = q[None, :]
    k = k[None, :]

    for i in tl.static_range(CHUNKS):
        if i % A_HEAD == 0:
            beta, decay = gates(
                ba_ptr + row * (2 * VH) + group * (2 * R),
                a_log_ptr + group * R,
                dt_bias_ptr + group * R,
                head + i // A_HEAD,
                R,
            )
        v_of = first + i * CHUNK + rows
        value = tl.load(values + v_of, cache_modifier=".cg").to(tl.float32)
        state = states[i] * decay
        dk = tl.sum(state * k, axis=1)
        dq = tl.sum(state * q, axis=1)
        res = (value - dk) * beta
        tl.store(tile + i * CHUNK * K, state + res[:, None] * k)
        if i + DEPTH < CHUNKS:
            states = states + (tl.load(tile + (i + DEPTH) * CHUNK * K),)
        tl.store(cores + v_of, updated_core(dq, res, kq).to(tl.bfloat16))
    finish_stores(WAIT)
    tl.debug_barrier()

    last = True
    if PARTS > 1:
        ticket = ticket_ptr + row * KH + group
        last = tl.atomic_add(ticket, 1, sem="acq_rel", scope="gpu") == PARTS - 1
        if last:
            tl.store(ticket, 0)
            _shift(window, qk_channel, h1, h2, x_qk)
    if SPLIT == 1 or last:
        heads = gated0 + tl.arange(0, GATED_HEADS)
        v_all = tl.arange(0, V)
        at = heads[:, None] * V + v_all[None, :]
        z = tl.load(x_row + 2 * K + R * V + at).to(tl.float32)
        norm = tl.load(norm_ptr + v_all).to(tl.float32)[None, :]
        core = tl.load(cores + at, cache_modifier=".cg").to(tl.float32)
        y = gated_norm(core, z, norm, norm_eps, V)
        tl.store(out_ptr + out_row + at, y)
        if FP8:
            codes, scales = quantise_rows(y)
            tl.store(code_ptr + out_row + at, codes)
            tl.store(scale_row + heads, scales)
