"""The fused decode step as one portable Triton launch.

One program handles `BV` state rows of `HP` value heads of one token row. Where
several programs share a (row, key head), which is whenever HP < R or BV < V,
the last to arrive writes what must be written once and after everybody has
read: the shifted q/k history and, when V is split, the gated norm. Arrival is
counted by an acquire-release ticket that the last arriver resets; nobody
waits. The core is rounded to bf16 by the contract, so passing it between
programs through a bf16 scratch changes no bit.

State tiles are loaded as [KC, rows, KI] with KC*KI = K: a warp then spans
several rows, and the reductions over K are mostly in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gdn_kernels.steps_triton import (
    convolve_taps,
    decay_factor,
    gated_norm,
    quantise_rows,
    updated_core,
)

__all__ = ["fused_decode_kernel"]


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
    KC: tl.constexpr,
    FP8: tl.constexpr,
):
    """One program: BV state rows of HP value heads of one token.

    Pointers are the op's operands in its own layouts (see `op.py`), contiguous:
    qkvz [T, KH*(2K+2RV)] bf16, ba [T, 2*R*KH] bf16, conv [N, C, 3] bf16 (changed
    in place), ssm [N, VH, V, K] fp32 (changed in place), index [T] int32,
    weight [C, 4] bf16, out [T, VH, V] bf16, code [T, VH*V] e4m3fn bytes,
    scale_ptr [T, VH] fp32, core [T, VH, V] bf16 scratch, ticket [T, KH] int32
    zeros (left zero). Grid: T * KH * (R/HP) * (V/BV), splits fastest.
    A row whose slot is `pad_slot_id` touches no pool and gives zeros.
    """
    VH: tl.constexpr = KH * R
    SPLIT: tl.constexpr = V // BV
    PARTS: tl.constexpr = (R // HP) * SPLIT
    ROWS: tl.constexpr = HP * BV
    KI: tl.constexpr = K // KC
    GROUP: tl.constexpr = 2 * K + 2 * R * V
    C: tl.constexpr = 2 * KH * K + VH * V

    pid = tl.program_id(0)
    part = pid % PARTS
    group = (pid // PARTS) % KH
    row = (pid // (PARTS * KH)).to(tl.int64)
    split = part % SPLIT
    head = (part // SPLIT) * HP  # first value head, local to the group

    tl.static_assert(HP == 1 or BV == V)
    first = head * V + split * BV  # first state row, counted from the group's
    local = tl.arange(0, ROWS)
    r_of = first + local
    head_of = head + local // BV  # value head of each state row, local to the group
    k_of = tl.arange(0, KC)[:, None] * KI + tl.arange(0, KI)[None, :]
    tile = local[None, :, None] * K + k_of[:, None, :]

    slot = tl.load(index_ptr + row)
    x_row = qkvz_ptr + row * (KH * GROUP) + group * GROUP
    # q and k of the group together, [2, KC, KI]: one tensor large enough that the
    # compiler does not load it again in the state tile's layout
    which = tl.arange(0, 2)[:, None, None]
    qk_of = k_of[None, :, :]
    qk_ch = (which * KH + group) * K + qk_of
    v_ch = 2 * KH * K + group * R * V + r_of
    x_qk = tl.load(x_row + which * K + qk_of)
    x_v = tl.load(x_row + 2 * K + r_of)
    taps = weight_ptr.to(tl.pointer_type(tl.int64))
    w_qk = tl.load(taps + qk_ch)
    w_v = tl.load(taps + v_ch)
    b_qk = tl.load(bias_ptr + qk_ch)
    b_v = tl.load(bias_ptr + v_ch)
    gate = ba_ptr + row * (2 * VH) + group * (2 * R) + head_of
    b_gate = tl.load(gate)
    a_gate = tl.load(gate + R)
    a_log = tl.load(a_log_ptr + group * R + head_of)
    dt_bias = tl.load(dt_bias_ptr + group * R + head_of)

    if slot == pad_slot_id:
        at = (row * VH + group * R) * V + r_of
        tl.store(out_ptr + at, tl.zeros([ROWS], tl.bfloat16))
        if FP8:
            tl.store(code_ptr + at, tl.zeros([ROWS], tl.uint8))
            empty = tl.full([ROWS], 1e-10, tl.float32) / 448.0
            tl.store(scale_ptr + row * VH + group * R + head_of, empty, mask=r_of % V == 0)
        return

    wide = slot.to(tl.int64)
    state_ptrs = ssm_ptr + ((wide * VH + group * R) * V + first) * K + tile
    state = tl.load(state_ptrs)
    window = conv_ptr + wide * (C * 3)
    h0 = tl.load(window + qk_ch * 3)
    h1 = tl.load(window + qk_ch * 3 + 1)
    h2 = tl.load(window + qk_ch * 3 + 2)
    hv0 = tl.load(window + v_ch * 3)
    hv1 = tl.load(window + v_ch * 3 + 1)
    hv2 = tl.load(window + v_ch * 3 + 2)

    qk = convolve_taps(h0, h1, h2, x_qk, w_qk, b_qk)
    v = convolve_taps(hv0, hv1, hv2, x_v, w_v, b_v)
    inverse = tl.rsqrt(tl.sum(tl.sum(qk * qk, axis=2), axis=1) + 1e-6)
    qk = qk * inverse[:, None, None] * tl.where(which == 0, scale, 1.0)
    q = tl.sum(tl.where(which == 0, qk, 0.0), axis=0)
    k = tl.sum(tl.where(which == 1, qk, 0.0), axis=0)
    kq = tl.sum(k * q)
    beta = (1.0 / (1.0 + tl.exp(-b_gate.to(tl.float32)))).to(tl.bfloat16).to(tl.float32)
    decay = decay_factor(a_gate, dt_bias, a_log)

    q3 = q[:, None, :]
    k3 = k[:, None, :]
    state = state * decay[None, :, None]
    dk = tl.sum(tl.sum(state * k3, axis=2), axis=0)
    dq = tl.sum(tl.sum(state * q3, axis=2), axis=0)
    res = (v - dk) * beta
    tl.store(state_ptrs, state + res[None, :, None] * k3)
    core = updated_core(dq, res, kq).to(tl.bfloat16)

    # Everybody in this program has read its windows before anybody shifts them.
    tl.debug_barrier()
    tl.store(window + v_ch * 3, hv1)
    tl.store(window + v_ch * 3 + 1, hv2)
    tl.store(window + v_ch * 3 + 2, x_v)

    last = True
    if SPLIT > 1:
        tl.store(core_ptr + (row * VH + group * R) * V + r_of, core)
        tl.debug_barrier()
    if PARTS > 1:
        ticket = ticket_ptr + row * KH + group
        arrived = tl.atomic_add(ticket, 1, sem="acq_rel", scope="gpu")
        last = arrived == PARTS - 1
        if last:
            tl.store(ticket, 0)
    if last:
        tl.store(window + qk_ch * 3, h1)
        tl.store(window + qk_ch * 3 + 1, h2)
        tl.store(window + qk_ch * 3 + 2, x_qk)

    if SPLIT == 1:
        heads = head + tl.arange(0, HP)
        v_all = tl.arange(0, V)
        at2 = heads[:, None] * V + v_all[None, :]
        z = tl.load(x_row + 2 * K + R * V + at2).to(tl.float32)
        norm = tl.load(norm_ptr + v_all).to(tl.float32)[None, :]
        rows = tl.reshape(core, [HP, V]).to(tl.float32)
        y = gated_norm(rows, z, norm, norm_eps, V)
        dest = (row * VH + group * R) * V + at2
        tl.store(out_ptr + dest, y)
        if FP8:
            codes, scales = quantise_rows(y)
            tl.store(code_ptr + dest, codes)
            tl.store(scale_ptr + row * VH + group * R + heads, scales)
    elif last:
        heads = tl.arange(0, R)
        v_all = tl.arange(0, V)
        at2 = heads[:, None] * V + v_all[None, :]
        dest = (row * VH + group * R) * V + at2
        z = tl.load(x_row + 2 * K + R * V + at2).to(tl.float32)
        norm = tl.load(norm_ptr + v_all).to(tl.float32)[None, :]
        rows = tl.load(core_ptr + dest, cache_modifier=".cg").to(tl.float32)
        y = gated_norm(rows, z, norm, norm_eps, V)
        tl.store(out_ptr + dest, y)
        if FP8:
            codes, scales = quantise_rows(y)
            tl.store(code_ptr + dest, codes)
            tl.store(scale_ptr + row * VH + group * R + heads, scales)
