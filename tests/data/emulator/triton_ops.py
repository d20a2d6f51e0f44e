"""Small Triton and Gluon kernels whose compiled code the emulator has to understand.

Each takes pointers to int32: x, the inputs, and y, the results.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def histogram(x, y, N: tl.constexpr, B: tl.constexpr):
    tl.store(y + tl.arange(0, B), tl.histogram(tl.load(x + tl.arange(0, N)), B))


@triton.jit
def sort(x, y, N: tl.constexpr, B: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.sort(tl.load(x + tl.arange(0, N))))


@triton.jit
def cumsum(x, y, N: tl.constexpr, B: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.cumsum(tl.load(x + tl.arange(0, N)), 0))


@triton.jit
def reductions(x, y, N: tl.constexpr, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(y, tl.sum(v, 0))
    tl.store(y + 1, tl.max(v, 0))
    tl.store(y + 2, tl.argmin(v, 0))
    tl.store(y + 3, tl.xor_sum(v, 0))


@triton.jit
def gather(x, y, N: tl.constexpr, B: tl.constexpr):
    at = (tl.arange(0, N) * 7 + 3) % N
    tl.store(y + tl.arange(0, N), tl.gather(tl.load(x + tl.arange(0, N)), at, 0))


@triton.jit
def atomics(x, y, N: tl.constexpr, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    at = tl.arange(0, N) % B
    tl.atomic_add(y + at, v)
    tl.atomic_max(y + B + at, v)
    tl.atomic_min(y + 2 * B + at, v)
    tl.atomic_xor(y + 3 * B + at, v)
    count = tl.atomic_add(y + 4 * B, 5)
    tl.store(y + 4 * B + 1, count)
    tl.atomic_cas(y + 4 * B + 2, 0, 9)
    tl.atomic_add((y + 5 * B).to(tl.pointer_type(tl.float32)) + at, v.to(tl.float32))


@triton.jit
def fp8(x, y, N: tl.constexpr, B: tl.constexpr):
    """float32, float16 and bfloat16 to both kinds of FP8 and back."""
    at = tl.arange(0, N)
    out = y.to(tl.pointer_type(tl.float32))
    wide = tl.load(x.to(tl.pointer_type(tl.float32)) + at)
    tl.store(out + at, wide.to(tl.float8e4nv).to(tl.float32))
    tl.store(out + N + at, wide.to(tl.float8e5).to(tl.float32))
    half = wide.to(tl.float16)
    tl.store(out + 2 * N + at, half.to(tl.float8e4nv).to(tl.float16).to(tl.float32))
    tl.store(out + 3 * N + at, half.to(tl.float8e5).to(tl.float16).to(tl.float32))
    brain = wide.to(tl.bfloat16)
    tl.store(out + 4 * N + at, brain.to(tl.float8e4nv).to(tl.bfloat16).to(tl.float32))
    tl.store(out + 5 * N + at, brain.to(tl.float8e5).to(tl.bfloat16).to(tl.float32))


@triton.jit
def halves(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, N)
    wide = tl.load(x.to(tl.pointer_type(tl.float32)) + at)
    half = wide.to(tl.float16)
    out = y.to(tl.pointer_type(tl.float16))
    tl.store(out + at, half * 2 + half)
    tl.store(out + N + at, tl.fma(half, half, half))
    tl.store(out + 2 * N + at, (half.to(tl.float32) * 0.3 + wide).to(tl.float16))


@triton.jit
def dot(x, y, N: tl.constexpr, B: tl.constexpr):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    source = x.to(tl.pointer_type(tl.float16)) + i * 32 + j
    tl.store(
        y.to(tl.pointer_type(tl.float32)) + i * 32 + j,
        tl.dot(tl.load(source), tl.load(source)),
    )


@gluon.jit
def through_shared(x, y, BITS: gl.constexpr, N: gl.constexpr):
    """A tile through LDS to the layout of a matrix unit's operand, which reads it transposed."""
    kind: gl.constexpr = gl.float16 if BITS == 16 else gl.int8
    flat: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [4, 1], [1, 0])
    unit: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4,
        instr_shape=[32, 32, 16 if BITS == 16 else 32],
        transposed=False,
        warps_per_cta=[2, 2],
    )
    wanted: gl.constexpr = gl.DotOperandLayout(operand_index=1, parent=unit, k_width=8)
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    rows = gl.arange(0, N, layout=gl.SliceLayout(1, flat))[:, None]
    columns = gl.arange(0, N, layout=gl.SliceLayout(0, flat))[None, :]
    tile = gl.load(x.to(gl.pointer_type(kind)) + rows * N + columns)
    memory = gl.allocate_shared_memory(kind, [N, N], shared, tile)
    read = memory.load(wanted)
    rows = gl.arange(0, N, layout=gl.SliceLayout(1, wanted))[:, None]
    columns = gl.arange(0, N, layout=gl.SliceLayout(0, wanted))[None, :]
    gl.store(y.to(gl.pointer_type(kind)) + rows * N + columns, read)
