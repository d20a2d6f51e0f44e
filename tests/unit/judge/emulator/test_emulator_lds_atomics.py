"""LDS atomics and transposing loads: values, what they return, and their races."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gdn_judge.emulator.errors import LdsRace, Uninitialised, UnsupportedInstruction
from gdn_judge.emulator.lds_special import ATOMICS
from support.emulator import execute, launch, program

M = {4: 2**32 - 1, 8: 2**64 - 1}


def signed(x: int, size: int) -> int:
    return x - (1 << 8 * size) if x >> (8 * size - 1) else x


def real(fn: Callable[[Any, Any], Any]) -> Callable[[int, int, int], int]:
    def run(old: int, new: int, size: int) -> int:
        kind = {4: "<f4", 8: "<f8"}[size]
        a, b = (np.frombuffer(x.to_bytes(size, "little"), kind) for x in (old, new))
        return int.from_bytes(fn(a, b).astype(kind).tobytes(), "little")

    return run


EXACT: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda old, new, size: old + new,
    "sub": lambda old, new, size: old - new,
    "rsub": lambda old, new, size: new - old,
    "inc": lambda old, new, size: 0 if old >= new else old + 1,
    "dec": lambda old, new, size: new if old == 0 or old > new else old - 1,
    "and": lambda old, new, size: old & new,
    "or": lambda old, new, size: old | new,
    "xor": lambda old, new, size: old ^ new,
    "wrxchg": lambda old, new, size: new,
    "min_i": lambda old, new, size: min(signed(old, size), signed(new, size)),
    "max_i": lambda old, new, size: max(signed(old, size), signed(new, size)),
    "min_u": lambda old, new, size: min(old, new),
    "max_u": lambda old, new, size: max(old, new),
    "add_f": real(lambda a, b: a + b),
    "min_f": real(np.minimum),
    "max_f": real(np.maximum),
}
SINGLE = [name for name in ATOMICS if not name.startswith(("cmpst", "pk_"))]


def exact(name: str) -> Callable[[int, int, int], int]:
    head, kind = name.split("_")
    return EXACT.get(f"{head}_{kind[0]}") or EXACT[head]


def setup(values: list[int], size: int) -> tuple[str, dict[int, Any]]:
    """Lane i's place holds values[i]; v4 is 8 * lane, v[0:1] free, v[2:3] the old values."""
    wide = np.array(values, np.uint64)
    registers = {
        2: (wide & np.uint64(M[4])).astype(np.uint32),
        3: (wide >> np.uint64(32)).astype(np.uint32),
        4: np.arange(64, dtype=np.uint32) * 8,
    }
    store = "ds_write_b64 v4, v[2:3]" if size == 8 else "ds_write_b32 v4, v2"
    return f"{store}\ns_waitcnt lgkmcnt(0)\n", registers


def operands(seed: int, size: int, real: bool) -> list[int]:
    rng = np.random.default_rng(seed)
    if real:
        kind = {4: np.float32, 8: np.float64}[size]
        raw = rng.normal(size=64).astype(kind).view({4: np.uint32, 8: np.uint64}[size])
        return [int(x) for x in raw]
    found = [int(x) for x in rng.integers(0, M[size], 64, dtype=np.uint64, endpoint=True)]
    return [0, M[size], *found[2:]]


def pair(values: list[int]) -> tuple[Any, Any]:
    wide = np.array(values, np.uint64)
    return (wide & np.uint64(M[4])).astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)


@pytest.mark.parametrize("name", SINGLE)
def test_each_operation(name: str) -> None:
    size = ATOMICS[name][1]
    floating = name.split("_")[1].startswith("f")
    old, new = operands(1, size, floating), operands(2, size, floating)
    body, registers = setup(old, size)
    registers[0], registers[1] = pair(new)
    head, kind = name.rsplit("_", 1)
    data, dst, read = (
        ("v[0:1]", "v[6:7]", "ds_read_b64 v[8:9], v4")
        if size == 8
        else ("v0", "v6", "ds_read_b32 v8, v4")
    )
    body += f"ds_{head}_rtn_{kind} {dst}, v4, {data}\ns_waitcnt lgkmcnt(0)\n{read}\n"
    state = execute(body + "s_waitcnt lgkmcnt(0)", v=registers, lds=1024)

    def read64(index: int) -> list[int]:
        low, high = state.v(index).tolist(), state.v(index + 1).tolist() if size == 8 else [0] * 64
        return [int(a | b << 32) for a, b in zip(low, high, strict=True)]

    assert read64(6) == old
    want = [exact(name)(a, b, size) & M[size] for a, b in zip(old, new, strict=True)]
    assert read64(8) == want


def test_compare_and_store() -> None:
    """The first operand is compared with, the second is stored."""
    old = list(range(64))
    body, registers = setup(old, 4)
    registers[0] = np.array([i if i % 2 else i + 1 for i in old], np.uint32)
    registers[1] = np.full(64, 99, np.uint32)
    body += "ds_cmpst_rtn_b32 v6, v4, v0, v1\ns_waitcnt lgkmcnt(0)\nds_read_b32 v8, v4\n"
    state = execute(body + "s_waitcnt lgkmcnt(0)", v=registers, lds=1024)
    assert state.v(6).tolist() == old
    assert state.v(8).tolist() == [99 if i % 2 else i for i in old]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_packed_sums(kind: str) -> None:
    import torch

    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[kind]
    a, b = (torch.randn(128, generator=torch.Generator().manual_seed(i)).to(dtype) for i in (1, 2))
    body, registers = setup(a.view(torch.int16).numpy().view(np.uint32).tolist(), 4)
    registers[0] = b.view(torch.int16).numpy().view(np.uint32)
    body += f"ds_pk_add_{kind} v4, v0\ns_waitcnt lgkmcnt(0)\nds_read_b32 v8, v4\n"
    got = execute(body + "s_waitcnt lgkmcnt(0)", v=registers, lds=1024).v(8)
    assert got.tolist() == (a + b).view(torch.int16).numpy().view(np.uint32).tolist()


def test_lanes_that_share_a_place_all_count() -> None:
    body = """
v_mov_b32_e32 v1, 0
v_mov_b32_e32 v2, 0
ds_write_b32 v1, v2 offset:16
s_waitcnt lgkmcnt(0)
ds_add_rtn_u32 v6, v1, v0 offset:16
s_waitcnt lgkmcnt(0)
ds_read_b32 v8, v1 offset:16
s_waitcnt lgkmcnt(0)
"""
    values = np.arange(1, 65, dtype=np.uint32)
    state = execute(body, v={0: values}, mask=0xFF, lds=64)
    assert state.v(8)[0] == 36
    assert state.v(6)[:8].tolist() == [0, 1, 3, 6, 10, 15, 21, 28]


SHARED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32_e32 v3, 2, v0
v_mov_b32_e32 v4, 0
v_mov_b32_e32 v5, 1
v_cmp_eq_u32_e32 vcc, 0, v0
s_and_saveexec_b64 s[6:7], vcc
ds_write_b32 v4, v4
s_mov_b64 exec, s[6:7]
s_waitcnt lgkmcnt(0)
s_barrier
ds_add_u32 v4, v5
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v8, v4
s_waitcnt lgkmcnt(0)
global_store_dword v3, v8, s[4:5]
"""


def counted(body: str) -> Any:
    kernel = program(body, pointers=1, lds=64)
    after, _ = launch(kernel, {"a": np.zeros(256, np.uint32)}, waves=4)
    return after["a"]


def test_waves_need_no_order_between_their_atomics() -> None:
    assert counted(SHARED).tolist() == [256] * 256


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (("s_barrier\nds_add_u32", "ds_add_u32"), "was written by wave 0"),
        (("s_barrier\nds_read_b32", "ds_read_b32"), "was changed by an atomic by wave"),
        (("ds_read_b32 v8, v4", "ds_read_b32 v8, v4\nds_add_u32 v4, v5"), "was read by wave"),
        (("s_barrier\nds_read_b32 v8, v4", "ds_write_b32 v4, v5\nds_read_b32 v8, v4"), "atomic"),
    ],
)
def test_an_atomic_and_another_access_need_a_barrier(change: tuple[str, str], how: str) -> None:
    spoiled = SHARED.replace(*change)
    assert spoiled != SHARED
    with pytest.raises(LdsRace, match=how):
        counted(spoiled)


def test_what_an_atomic_finds_must_have_been_written() -> None:
    with pytest.raises(Uninitialised, match="LDS offset 0 is read but was never written"):
        execute("v_mov_b32_e32 v1, 0\nds_add_u32 v1, v0", v={0: np.ones(64, np.uint32)}, lds=64)
    body = "v_mov_b32_e32 v1, 0\nds_write_b32 v1, v1\ns_waitcnt lgkmcnt(0)\nds_add_u32 v1, v9"
    with pytest.raises(Uninitialised, match="nobody wrote goes into an atomic"):
        execute(body, lds=64)


@pytest.mark.parametrize(("size", "across"), [(2, 4), (1, 2)])
def test_a_transposing_load_gives_each_lane_a_column(size: int, across: int) -> None:
    """`across` lanes hold one row of 16 elements; 16 lanes a matrix of 8 / size rows."""
    kind = {2: np.uint16, 1: np.uint8}[size]
    values = np.random.default_rng(1).integers(0, 1 << 8 * size, (4, 8 // size, 16)).astype(kind)
    data = values.reshape(-1).view(np.uint32)
    body = f"""
ds_write_b64 v4, v[2:3]
s_waitcnt lgkmcnt(0)
ds_read_b64_tr_b{8 * size} v[6:7], v4
s_waitcnt lgkmcnt(0)
"""
    registers = {2: data[::2], 3: data[1::2], 4: np.arange(64, dtype=np.uint32) * 8}
    state = execute(body, v=registers, lds=512)
    got = np.stack([state.v(6), state.v(7)], axis=1).view(kind).reshape(4, 16, 8 // size)
    assert np.array_equal(got, values.transpose(0, 2, 1))
    assert across * 8 // size == 16
    with pytest.raises(UnsupportedInstruction, match="transposing load with inactive lanes"):
        execute(body, v=registers, lds=512, mask=1)
