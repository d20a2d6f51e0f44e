"""The fused decode step in Gluon, for Hopper (warps of 32) and CDNA4 (waves of 64).

One program handles `BV` state rows of one value head, or all rows of both
value heads of a group, of one token. LK lanes lie along K: a load instruction
covers whole 128-byte lines of several rows, and a reduction over K is mostly
within a thread. The tile is taken in CHUNKS slices, of which the first DEPTH
are asked for before anything is waited for and each of the others once there
are registers for it: two programs share a processor then, and one keeps the
memory busy while the other begins or ends. No warp waits for another in that
loop. The convolution and the norms of q and k run while the tile travels, and
reach its layout through shared memory with one barrier.

Where several programs share a (token, key head) the last to arrive, by a
ticket, writes the shifted q/k history and, when V is split, the gated norm;
`fused_triton` has the same contract and arguments.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from gdn_kernels.steps_triton import (
    convolve_taps,
    finish_stores,
    gated_norm,
    gates,
    quantise_rows,
    scale_of,
    updated_core,
)

__all__ = ["fused_decode_gluon_kernel"]


@gluon.jit
def _launch_dependents():
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; // $0", "=r,~{memory}", [], gl.int32, False, 1
    )


@gluon.jit
def _wait_for_predecessor():
    gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r,~{memory}", [], gl.int32, False, 1)


@gluon.jit
def _prefetch(pointer, BYTES: gl.constexpr):
    """Ask for BYTES from the scalar `pointer` in L2, by one thread; changes nothing."""
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    gl.inline_asm_elementwise(
        "{ .reg .pred first; .reg .u32 thread; mov.u32 thread, %tid.x;"
        " setp.eq.u32 first, thread, 0;"
        " @first cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r",
        [pointer + gl.arange(0, 1, ONE), gl.full([1], BYTES, gl.int32, ONE)],
        gl.int32,
        False,
        1,
    )


@gluon.jit
def _prefetch_lines(q_ptr, k_ptr, v_ptr, x_ptr, QK: gl.constexpr, V: gl.constexpr, X: gl.constexpr):
    """Ask for QK, QK, V and X bf16 from the four scalar pointers in L2, line by line."""
    LINE: gl.constexpr = 64  # bf16 of 128 bytes
    ALL: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    line = gl.arange(0, 64, ALL)
    gl.static_assert(max(QK, V, X) <= 16 * LINE)
    of, nth = line // 16, line % 16
    start = gl.where(of < 2, gl.where(of == 0, q_ptr, k_ptr), gl.where(of == 2, v_ptr, x_ptr))
    size = gl.where(of < 2, QK, gl.where(of == 2, V, X))
    gl.inline_asm_elementwise(
        "{ .reg .pred wanted; setp.ne.s32 wanted, $2, 0;"
        " @wanted prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
        "=r,l,r",
        [start + nth * LINE, (nth * LINE < size).to(gl.int32)],
        gl.int32,
        False,
        1,
    )


@gluon.jit
def _load(base, offsets, HIP: gl.constexpr):
    """Elements at int32 `offsets` from the scalar pointer `base`; by buffer descriptor on AMD."""
    if HIP:
        return gl.amd.cdna4.buffer_load(base, offsets)
    else:
        return gl.load(base + offsets)


@gluon.jit
def _store(base, offsets, value, HIP: gl.constexpr):
    if HIP:
        gl.amd.cdna4.buffer_store(value, base, offsets)
    else:
        gl.store(base + offsets, value)


@gluon.jit
def _tile_at(
    slot, group, first, VH: gl.constexpr, R: gl.constexpr, V: gl.constexpr, K: gl.constexpr
):
    """Where in the pool of states row `first` of the group's heads begins, in elements."""
    return ((slot.to(gl.int64) * VH + group * R) * V + first) * K


@gluon.jit
def _window(window, channel, HIP: gl.constexpr):
    """The three stored values of each channel, oldest first."""
    return (
        _load(window, channel * 3, HIP),
        _load(window, channel * 3 + 1, HIP),
        _load(window, channel * 3 + 2, HIP),
    )


@gluon.jit
def _shift(window, channel, h1, h2, x, HIP: gl.constexpr):
    """Drop the oldest of three values of each channel and append `x`."""
    _store(window, channel * 3, h1, HIP)
    _store(window, channel * 3 + 1, h2, HIP)
    _store(window, channel * 3 + 2, x, HIP)


@gluon.jit
def _arrive(ticket, PARTS: gl.constexpr):
    """Whether this program is the last of PARTS at `ticket`, which the last one resets."""
    last = gl.atomic_add(ticket, 1, sem="acq_rel", scope="gpu") == PARTS - 1
    if last:
        gl.store(ticket, 0)
    return last


@gluon.jit(do_not_specialize=["pad_slot_id", "num_slots"])
def fused_decode_gluon_kernel(
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
    KH: gl.constexpr,
    R: gl.constexpr,
    K: gl.constexpr,
    V: gl.constexpr,
    HP: gl.constexpr,
    BV: gl.constexpr,
    LK: gl.constexpr,
    CHUNKS: gl.constexpr,
    DEPTH: gl.constexpr,
    FP8: gl.constexpr,
    WAIT: gl.constexpr,
    PDL: gl.constexpr,
    EARLY_MIB: gl.constexpr,
    TICKET_FIRST: gl.constexpr,
    HIP: gl.constexpr,
    WARP: gl.constexpr,
    WARPS: gl.constexpr,
):
    """BV state rows of HP value heads of one token; operands as in `fused_triton`.

    qkvz [T, KH*(2K+2RV)] bf16, ba [T, 2*R*KH] bf16, conv [N, C, 3] bf16 (in
    place), ssm [N, VH, V, K] fp32 (in place), index [T] int32, weight [C, 4]
    bf16, out [T, VH, V] bf16, code [T, VH*V] e4m3fn bytes, scale_ptr [T, VH]
    fp32, core [T, VH, V] bf16 scratch, ticket [T, KH] int32, zero and left
    zero. Grid: T * KH * (R/HP) * (V/BV), splits fastest. A row whose slot is
    `pad_slot_id` touches no pool and gives zeros.
    """
    gl.static_assert(HP == 1 or BV == V)
    # a row in several warps could be read by one when another has stored it
    gl.static_assert(HP * BV // CHUNKS >= WARP // LK * WARPS)
    VH: gl.constexpr = KH * R
    SPLIT: gl.constexpr = V // BV
    PARTS: gl.constexpr = (R // HP) * SPLIT
    ROWS: gl.constexpr = HP * BV
    CHUNK: gl.constexpr = ROWS // CHUNKS
    GROUP: gl.constexpr = 2 * K + 2 * R * V
    C: gl.constexpr = 2 * KH * K + VH * V
    GATED_HEADS: gl.constexpr = HP if SPLIT == 1 else R

    TILE: gl.constexpr = gl.BlockedLayout([1, 4], [WARP // LK, LK], [WARPS, 1], [1, 0])
    BY_ROW: gl.constexpr = gl.SliceLayout(1, TILE)
    BY_K: gl.constexpr = gl.SliceLayout(0, TILE)
    QK: gl.constexpr = gl.BlockedLayout([max(2 * K // (WARPS * WARP), 1)], [WARP], [WARPS], [0])
    VS: gl.constexpr = gl.BlockedLayout([1], [WARP], [WARPS], [0])
    # a head to each warp as far as they go, the other warps repeating them
    HEAD_WARPS: gl.constexpr = min(WARPS, GATED_HEADS)
    GATED: gl.constexpr = gl.BlockedLayout(
        [1, V // 32], [WARP // 32, 32], [HEAD_WARPS, WARPS // HEAD_WARPS], [1, 0]
    )
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])

    pid = gl.program_id(0)
    part = pid % PARTS
    group = (pid // PARTS) % KH
    row = (pid // (PARTS * KH)).to(gl.int64)
    first = part * ROWS  # first state row, counted from the group's
    head0 = first // V  # first value head, local to the group
    gated0 = head0 if SPLIT == 1 else 0

    x_row = qkvz_ptr + row * (KH * GROUP) + group * GROUP
    v_first = 2 * KH * K + group * R * V + first  # channel of this program's first v
    TILE_BYTES: gl.constexpr = ROWS * K * 4
    EARLY: gl.constexpr = (EARLY_MIB << 20) // TILE_BYTES
    if EARLY > 0:
        # The index may still be in the writing of an earlier kernel: it only
        # chooses which lines come closer, and only where it is in range.
        early = gl.load(index_ptr + row, volatile=True)
        if (early >= 0) & (early < num_slots) & (pid < EARLY):
            _prefetch(ssm_ptr + _tile_at(early, group, first, VH, R, V, K), TILE_BYTES)
            near = conv_ptr + early.to(gl.int64) * (C * 3)
            q_near = near + group * (K * 3)
            _prefetch_lines(
                q_near, q_near + KH * K * 3, near + v_first * 3, x_row, K * 3, ROWS * 3, GROUP
            )
    if PDL:
        _wait_for_predecessor()

    slot = gl.load(index_ptr + row)
    qk = gl.arange(0, 2 * K, QK)
    vs = gl.arange(0, ROWS, VS)
    qk_channel = (qk // K * KH + group) * K + qk % K
    taps = weight_ptr.to(gl.pointer_type(gl.int64))
    x_qk = _load(x_row, qk, HIP)
    x_v = _load(x_row + 2 * K + first, vs, HIP)
    w_qk = _load(taps, qk_channel, HIP)
    w_v = _load(taps + v_first, vs, HIP)
    b_qk = _load(bias_ptr, qk_channel, HIP)
    b_v = _load(bias_ptr + v_first, vs, HIP)

    heads = gl.arange(0, GATED_HEADS, gl.SliceLayout(1, GATED))
    v_all = gl.arange(0, V, gl.SliceLayout(0, GATED))
    at = gl.expand_dims(gated0 + heads, 1) * V + gl.expand_dims(v_all, 0)
    out_row = (row * VH + group * R) * V
    if slot == pad_slot_id:
        if SPLIT == 1 or part == 0:
            zero = gl.zeros([GATED_HEADS, V], gl.bfloat16, GATED)
            _store(out_ptr + out_row, at, zero, HIP)
            if FP8:
                _store(code_ptr + out_row, at, zero.to(gl.uint8), HIP)
                empty = scale_of(gl.full_like(heads, 0.0, dtype=gl.float32))
                gl.store(scale_ptr + row * VH + group * R + gated0 + heads, empty)
        return

    state_base = ssm_ptr + _tile_at(slot, group, first, VH, R, V, K)
    tile = gl.expand_dims(gl.arange(0, CHUNK, BY_ROW), 1) * K + gl.expand_dims(
        gl.arange(0, K, BY_K), 0
    )
    chunks = ()
    for i in gl.static_range(DEPTH):
        chunks = chunks + (_load(state_base + i * CHUNK * K, tile, HIP),)
    window = conv_ptr + slot.to(gl.int64) * (C * 3)
    v_window = window + v_first * 3
    h0, h1, h2 = _window(window, qk_channel, HIP)
    g0, g1, g2 = _window(v_window, vs, HIP)

    # All that does not wait for the tile: gates, convolution, norms of q and k.
    gate = ba_ptr + row * (2 * VH) + group * (2 * R)
    beta, decay = gates(gate, a_log_ptr + group * R, dt_bias_ptr + group * R, head0, R)
    if HP > 1:
        beta1, decay1 = gates(gate, a_log_ptr + group * R, dt_bias_ptr + group * R, head0 + 1, R)
    z_ptr = x_row + 2 * K + R * V
    LATE_GATE: gl.constexpr = HIP and HP > 1  # registers are what its occupancy hangs on
    if not LATE_GATE:
        z = _load(z_ptr, at, HIP)
        norm = _load(norm_ptr, v_all, HIP)

    y_qk = gl.allocate_shared_memory(gl.float32, [2 * K], FLAT)
    y_v = gl.allocate_shared_memory(gl.float32, [ROWS], FLAT)
    cores = gl.allocate_shared_memory(gl.float32, [ROWS], FLAT)
    y_qk.store(convolve_taps(h0, h1, h2, x_qk, w_qk, b_qk))
    y_v.store(convolve_taps(g0, g1, g2, x_v, w_v, b_v))
    gl.barrier()
    # Everybody in this program has read its windows: from here on they may shift.
    last = True
    ticket = ticket_ptr + row * KH + group
    if SPLIT == 1 and PARTS > 1:
        last = _arrive(ticket, PARTS)
    if SPLIT == 1:
        _shift(v_window, vs, g1, g2, x_v, HIP)
    if PARTS == 1:
        _shift(window, qk_channel, h1, h2, x_qk, HIP)
    q = y_qk.slice(0, K).load(BY_K)
    k = y_qk.slice(K, K).load(BY_K)
    q = q * (gl.rsqrt(gl.sum(q * q, axis=0) + 1e-6) * scale)
    k = k * gl.rsqrt(gl.sum(k * k, axis=0) + 1e-6)
    kq = gl.sum(k * q, axis=0)
    q = gl.expand_dims(q, 0)
    k = gl.expand_dims(k, 0)

    for i in gl.static_range(CHUNKS):
        state = chunks[i]
        if i * CHUNK >= BV:
            chunk_beta = beta1
            state = state * decay1
        else:
            chunk_beta = beta
            state = state * decay
        dk = gl.sum(state * k, axis=1)
        dq = gl.sum(state * q, axis=1)
        if PDL and i == CHUNKS // 2:
            # Not before the last load has been asked for: programs of the next launch
            # that lie about while these load crowd some processors and leave others idle.
            _launch_dependents()
        res = (y_v.slice(i * CHUNK, CHUNK).load(BY_ROW) - dk) * chunk_beta
        updated = state + gl.expand_dims(res, 1) * k
        if SPLIT == 1 or i < CHUNKS - 1 or not TICKET_FIRST:
            _store(state_base + i * CHUNK * K, tile, updated, HIP)
        if i + DEPTH < CHUNKS:
            chunks = chunks + (_load(state_base + (i + DEPTH) * CHUNK * K, tile, HIP),)
        core = updated_core(dq, res, kq).to(gl.bfloat16)
        if SPLIT > 1:
            _store(core_ptr + out_row + first + i * CHUNK, gl.arange(0, CHUNK, BY_ROW), core, HIP)
        else:
            cores.slice(i * CHUNK, CHUNK).store(core.to(gl.float32))
    if SPLIT > 1:
        finish_stores(WAIT)
    gl.barrier()
    if SPLIT > 1:
        last = _arrive(ticket, PARTS)
        if TICKET_FIRST:
            # the release waits for the stores before it: the largest comes after
            _store(state_base + (CHUNKS - 1) * CHUNK * K, tile, updated, HIP)
        _shift(v_window, vs, g1, g2, x_v, HIP)
    if PARTS > 1 and last:
        _shift(window, qk_channel, h1, h2, x_qk, HIP)
    if SPLIT == 1 or last:
        if LATE_GATE:
            z = _load(z_ptr, at, HIP)
            norm = _load(norm_ptr, v_all, HIP)
        if SPLIT == 1:
            rows = cores.reshape([HP, V]).load(GATED)
        else:
            rows = gl.load(core_ptr + out_row + at, cache_modifier=".cg").to(gl.float32)
        weight = gl.expand_dims(norm.to(gl.float32), 0)
        y = gated_norm(rows, z.to(gl.float32), weight, norm_eps, V)
        _store(out_ptr + out_row, at, y, HIP)
        if FP8:
            codes, scales = quantise_rows(y)
            _store(code_ptr + out_row, at, codes, HIP)
            gl.store(scale_ptr + row * VH + group * R + gated0 + heads, scales)
