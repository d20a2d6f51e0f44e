"""Memory and LDS instructions: values, bounds, and exact traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gdn_judge.emulator.errors import OutOfBounds, Uninitialised, UnsupportedInstruction
from gdn_judge.emulator.memory import make_buffer
from support.emulator import execute, launch, program, words

A = words(1)
LANE = np.arange(64, dtype=np.uint32)


def kernel(body: str, pointers: int = 2, **more: int) -> Any:
    """Pointers in s[2:3], s[4:5], ...; lane id in v0; 4 * lane in v1."""
    loads = "".join(
        f"s_load_dwordx2 s[{2 + 2 * i}:{3 + 2 * i}], s[0:1], {hex(8 * i)}\n"
        for i in range(pointers)
    )
    start = "v_and_b32_e32 v0, 63, v0\nv_lshlrev_b32_e32 v1, 2, v0\n"
    text = f"s_mov_b32 s20, s2\n{loads}s_waitcnt lgkmcnt(0)\n{start}{body}"
    return program(text, pointers=pointers, **more)


SIZES = [("dword", 1), ("dwordx2", 2), ("dwordx3", 3), ("dwordx4", 4)]


@pytest.mark.parametrize(("form", "count"), SIZES)
@pytest.mark.parametrize("family", ["global", "flat", "buffer"])
def test_wide_loads_and_stores(form: str, count: int, family: str) -> None:
    data = np.arange(64 * count, dtype=np.uint32) * np.uint32(2654435761)
    registers = "v4" if count == 1 else f"v[4:{3 + count}]"
    descriptor = """
s_mov_b64 s[8:9], s[2:3]
s_mov_b32 s10, 0x7ffffffe
s_mov_b32 s11, 0x27000
s_mov_b64 s[12:13], s[4:5]
s_mov_b32 s14, 0x7ffffffe
s_mov_b32 s15, 0x27000
"""
    address = f"v_mul_u32_u24_e32 v1, {4 * count}, v0\n"
    wide = """
v_mov_b32_e32 v11, 0
v_mov_b32_e32 v10, v1
v_lshl_add_u64 v[8:9], v[10:11], 0, s[2:3]
v_lshl_add_u64 v[10:11], v[10:11], 0, s[4:5]
"""
    body = {
        "global": f"global_load_{form} {registers}, v1, s[2:3]\ns_waitcnt vmcnt(0)\n"
        f"global_store_{form} v1, {registers}, s[4:5]",
        "flat": wide + f"flat_load_{form} {registers}, v[8:9]\ns_waitcnt vmcnt(0) lgkmcnt(0)\n"
        f"flat_store_{form} v[10:11], {registers}",
        "buffer": descriptor + f"buffer_load_{form} {registers}, v1, s[8:11], 0 offen\n"
        f"s_waitcnt vmcnt(0)\nbuffer_store_{form} {registers}, v1, s[12:15], 0 offen",
    }[family]
    after, report = launch(kernel(address + body), {"a": data, "b": np.zeros_like(data)})
    assert after["b"].tolist() == data.tolist()
    traffic = report.traffic
    assert (traffic["a"].read, traffic["a"].distinct_read) == (256 * count, 256 * count)
    assert (traffic["b"].written, traffic["b"].distinct_written) == (256 * count, 256 * count)
    assert traffic["a"].written == traffic["b"].read == 0


NARROW = {
    "ubyte": lambda x: x.view(np.uint8).astype(np.uint32),
    "sbyte": lambda x: x.view(np.int8).astype(np.int32).view(np.uint32),
    "ushort": lambda x: x.view(np.uint16).astype(np.uint32),
    "sshort": lambda x: x.view(np.int16).astype(np.int32).view(np.uint32),
}


@pytest.mark.parametrize("form", NARROW)
def test_narrow_loads(form: str) -> None:
    size = 1 if "byte" in form else 2
    raw = np.random.default_rng(3).integers(0, 256, 64 * size).astype(np.uint8)
    body = f"""
v_mul_u32_u24_e32 v2, {size}, v0
global_load_{form} v4, v2, s[2:3]
s_waitcnt vmcnt(0)
global_store_dword v1, v4, s[4:5]
"""
    after, _ = launch(kernel(body), {"a": raw, "b": np.zeros(64, np.uint32)})
    assert after["b"].tolist() == NARROW[form](raw).tolist()


@pytest.mark.parametrize(
    ("form", "size", "high"),
    [
        ("short_d16", 2, False),
        ("short_d16_hi", 2, True),
        ("ubyte_d16", 1, False),
        ("ubyte_d16_hi", 1, True),
    ],
)
def test_half_register_loads_keep_the_other_half(form: str, size: int, high: bool) -> None:
    raw = np.random.default_rng(4).integers(0, 128, 64 * size).astype(np.uint8)
    values = raw.view(np.uint16 if size == 2 else np.uint8).astype(np.uint32)
    body = f"""
v_mul_u32_u24_e32 v2, {size}, v0
v_mov_b32_e32 v4, 0x12345678
global_load_{form} v4, v2, s[2:3]
s_waitcnt vmcnt(0)
global_store_dword v1, v4, s[4:5]
"""
    after, _ = launch(kernel(body), {"a": raw, "b": np.zeros(64, np.uint32)})
    expected = values << 16 | 0x5678 if high else values | 0x12340000
    assert after["b"].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("form", "size", "shift"),
    [("byte", 1, 0), ("short", 2, 0), ("byte_d16_hi", 1, 16), ("short_d16_hi", 2, 16)],
)
def test_narrow_stores(form: str, size: int, shift: int) -> None:
    kind = np.uint8 if size == 1 else np.uint16
    body = f"""
global_load_dword v4, v1, s[2:3]
v_mul_u32_u24_e32 v2, {size}, v0
s_waitcnt vmcnt(0)
global_store_{form} v2, v4, s[4:5]
"""
    after, _ = launch(kernel(body), {"a": A, "b": np.zeros(64, kind)})
    assert after["b"].tolist() == (A >> np.uint32(shift)).astype(kind).tolist()


def test_unaligned_and_offset_addresses() -> None:
    raw = np.random.default_rng(5).integers(0, 256, 300).astype(np.uint8)
    body = """
global_load_dword v4, v1, s[2:3] offset:7
s_waitcnt vmcnt(0)
global_store_dword v1, v4, s[4:5]
"""
    after, _ = launch(kernel(body), {"a": raw, "b": np.zeros(64, np.uint32)})
    assert after["b"].tobytes() == raw[7:263].tobytes()
    body = """
v_mov_b32_e32 v3, 0
v_mov_b32_e32 v2, v1
v_lshl_add_u64 v[2:3], v[2:3], 0, s[2:3]
global_load_dword v4, v[2:3], off offset:-4
s_waitcnt vmcnt(0)
"""
    with pytest.raises(OutOfBounds, match="4 bytes at 4 bytes before the buffer 'a'"):
        launch(kernel(body), {"a": raw, "b": np.zeros(64, np.uint32)})


def test_an_access_past_a_buffer_names_everything() -> None:
    body = "global_load_dword v4, v1, s[2:3] offset:4"
    with pytest.raises(OutOfBounds) as caught:
        launch(kernel(body), {"a": A, "b": A})
    text = str(caught.value)
    assert "4 bytes at offset 256 of the buffer 'a' of 256 bytes (lane 63)" in text
    assert "kernel kernel, workgroup 0, wave 0" in text
    assert "global_load_dword v4, v1, s[2:3] offset:4" in text


def test_a_null_pointer_is_in_no_buffer() -> None:
    body = "s_mov_b64 s[2:3], 0\nv_mov_b32_e32 v2, 16\nglobal_store_dword v2, v1, s[2:3]"
    with pytest.raises(OutOfBounds, match="address 0x10 is in no buffer"):
        launch(kernel(body), {"a": A, "b": A})


DESCRIPTOR = """
s_mov_b64 s[8:9], s[2:3]
s_mov_b32 s10, {records}
s_mov_b32 s11, 0x27000
"""


def test_a_descriptor_drops_lanes_past_its_records() -> None:
    body = (
        DESCRIPTOR.format(records=128)
        + """
buffer_load_dword v4, v1, s[8:11], 0 offen
s_waitcnt vmcnt(0)
buffer_store_dword v0, v1, s[8:11], 0 offen
global_store_dword v1, v4, s[4:5]
"""
    )
    after, report = launch(kernel(body), {"a": A, "b": np.zeros(64, np.uint32)})
    assert after["b"].tolist() == [*A[:32].tolist(), *[0] * 32]
    assert after["a"].tolist() == [*range(32), *A[32:].tolist()]
    assert sorted(report.clipped_lanes.values()) == [32, 32]
    assert report.traffic["a"].read == 128


def test_a_lane_may_not_straddle_the_end_of_a_descriptor() -> None:
    body = DESCRIPTOR.format(records=126) + "buffer_load_dword v4, v1, s[8:11], 0 offen"
    with pytest.raises(OutOfBounds, match="straddles the end of its descriptor"):
        launch(kernel(body), {"a": A, "b": A})


def test_a_descriptor_reaching_past_its_buffer_does_not_hide_an_overrun() -> None:
    body = DESCRIPTOR.format(records="0x7ffffffe") + (
        "s_movk_i32 s12, 0x80\nbuffer_store_dword v0, v1, s[8:11], s12 offen"
    )
    with pytest.raises(OutOfBounds, match="offset 256 of the buffer 'a'"):
        launch(kernel(body), {"a": A, "b": A})


def test_structured_descriptors_are_refused() -> None:
    body = DESCRIPTOR.format(records=128) + "buffer_load_dword v4, v1, s[8:11], 0 idxen"
    with pytest.raises(UnsupportedInstruction, match="the modifier 'idxen' is not modelled"):
        launch(kernel(body), {"a": A, "b": A})
    body = DESCRIPTOR.format(records=128) + (
        "s_or_b32 s9, s9, 0x40000\nbuffer_load_dword v4, v1, s[8:11], 0 offen"
    )
    with pytest.raises(UnsupportedInstruction, match="stride"):
        launch(kernel(body), {"a": A, "b": A})


@pytest.mark.parametrize(
    ("form", "count"),
    [("dword", 1), ("dwordx2", 2), ("dwordx4", 4), ("dwordx8", 8), ("dwordx16", 16)],
)
def test_scalar_loads(form: str, count: int) -> None:
    target = "s16" if count == 1 else f"s[16:{15 + count}]"
    moves = "".join(
        f"v_mov_b32_e32 v4, s{16 + i}\nglobal_store_dword v5, v4, s[4:5] offset:{4 * i}\n"
        for i in range(count)
    )
    body = (
        f"s_load_{form} {target}, s[2:3], 0x8\nv_mov_b32_e32 v5, 0\ns_waitcnt lgkmcnt(0)\n{moves}"
    )
    after, report = launch(kernel(body), {"a": A, "b": np.zeros(16, np.uint32)})
    assert after["b"][:count].tolist() == A[2 : 2 + count].tolist()
    assert report.traffic["a"].read == 4 * count


ATOMICS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "umin": min,
    "umax": max,
    "smin": lambda a, b: min(a, b, key=lambda x: x - 2**32 * (x >> 31)),
    "smax": lambda a, b: max(a, b, key=lambda x: x - 2**32 * (x >> 31)),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "swap": lambda a, b: b,
    "inc": lambda a, b: 0 if a >= b else a + 1,
    "dec": lambda a, b: b if a == 0 or a > b else a - 1,
}


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_return_the_old_value_in_lane_order(name: str) -> None:
    body = f"""
global_load_dword v4, v1, s[2:3]
v_mov_b32_e32 v5, 0
s_waitcnt vmcnt(0)
global_atomic_{name} v6, v5, v4, s[6:7] sc0
s_waitcnt vmcnt(0)
global_store_dword v1, v6, s[4:5]
"""
    start = np.array([0x80001234], np.uint32)
    arrays = {"a": A, "b": np.zeros(64, np.uint32), "c": start}
    after, report = launch(kernel(body, 3), arrays)
    value, olds = int(start[0]), []
    for x in A:
        olds.append(value)
        value = ATOMICS[name](value, int(x)) & 0xFFFFFFFF
    assert (after["c"][0], after["b"].tolist()) == (value, olds)
    assert report.traffic["c"].atomics == 256


def test_other_atomics() -> None:
    body = """
v_mov_b32_e32 v5, 0
v_mov_b32_e32 v6, 1.0
global_atomic_add_f32 v5, v6, s[2:3]
v_mov_b32_e32 v8, 7
v_mov_b32_e32 v9, 5
global_atomic_cmpswap v10, v5, v[8:9], s[4:5] sc0
v_mov_b32_e32 v12, 2
v_mov_b32_e32 v13, 1
global_atomic_add_x2 v5, v[12:13], s[6:7]
v_mov_b32_e32 v14, 0x3f804000
global_atomic_pk_add_bf16 v5, v14, s[8:9]
"""
    arrays: dict[str, Any] = {
        "f": np.array([0.5], np.float32),
        "c": np.array([5], np.uint32),
        "w": np.array([2**32 - 1], np.uint64),
        "h": np.array([0], np.uint32),
    }
    after, _ = launch(kernel(body, 4), arrays)
    assert after["f"][0] == 64.5
    assert after["c"][0] == 7
    assert after["w"][0] == 2**32 - 1 + 64 * (2**32 + 2)
    assert after["h"][0] == 0x42804300  # 64.0 and 64 * 2.0, in bfloat16


def test_scratch_is_private_to_each_lane() -> None:
    body = """
scratch_store_dword off, v0, off offset:8
scratch_load_dword v4, off, off offset:8
s_waitcnt vmcnt(0)
global_store_dword v1, v4, s[4:5]
"""
    after, _ = launch(kernel(body, scratch=16), {"a": A, "b": np.zeros(64, np.uint32)})
    assert after["b"].tolist() == list(range(64))
    with pytest.raises(Uninitialised, match="scratch"):
        launch(kernel("scratch_load_dword v4, off, off", scratch=16), {"a": A, "b": A})
    with pytest.raises(OutOfBounds, match="scratch offset 16 of 16"):
        launch(kernel("scratch_store_dword off, v0, off offset:16", scratch=16), {"a": A, "b": A})


LDS_WIDTHS = [("b8", "u8", 1), ("b16", "u16", 2), ("b32", "b32", 4)]


@pytest.mark.parametrize(("write", "read", "size"), LDS_WIDTHS)
def test_lds_narrow(write: str, read: str, size: int) -> None:
    body = f"""
v_mul_u32_u24_e32 v2, {size}, v0
ds_write_{write} v2, v1 offset:64
s_waitcnt lgkmcnt(0)
ds_read_{read} v3, v2 offset:64
s_waitcnt lgkmcnt(0)
"""
    state = execute(body, v={0: LANE, 1: A}, lds=512)
    assert state.v(3).tolist() == (A & np.uint32((1 << 8 * size) - 1)).tolist()


@pytest.mark.parametrize(("width", "count"), [("b64", 2), ("b96", 3), ("b128", 4)])
def test_lds_wide(width: str, count: int) -> None:
    registers = {0: LANE} | {4 + i: words(10 + i) for i in range(count)}
    body = f"""
v_mul_u32_u24_e32 v2, {4 * count}, v0
ds_write_{width} v2, v[4:{3 + count}]
s_waitcnt lgkmcnt(0)
ds_read_{width} v[10:{9 + count}], v2
s_waitcnt lgkmcnt(0)
"""
    state = execute(body, v=registers, lds=1024)
    for i in range(count):
        assert state.v(10 + i).tolist() == words(10 + i).tolist()


def test_lds_halves_and_signs() -> None:
    body = """
v_lshlrev_b32_e32 v2, 2, v0
ds_write_b16_d16_hi v2, v1
ds_write_b8_d16_hi v2, v1 offset:2
s_waitcnt lgkmcnt(0)
ds_read_i16 v3, v2
ds_read_i8 v4, v2 offset:2
ds_read_u16_d16_hi v5, v2
ds_read_u8_d16 v6, v2 offset:2
s_waitcnt lgkmcnt(0)
"""
    state = execute(body, v={0: LANE, 1: A, 5: A, 6: A}, lds=256)
    high = A >> np.uint32(16)
    assert state.v(3).view(np.int32).tolist() == high.astype(np.uint16).view(np.int16).tolist()
    assert state.v(4).view(np.int32).tolist() == high.astype(np.uint8).view(np.int8).tolist()
    assert state.v(5).tolist() == ((A & np.uint32(0xFFFF)) | high << np.uint32(16)).tolist()
    assert state.v(6).tolist() == ((A & np.uint32(0xFFFF0000)) | (high & np.uint32(255))).tolist()


def test_lds_pairs() -> None:
    body = """
v_lshlrev_b32_e32 v2, 2, v0
ds_write2_b32 v2, v1, v3 offset1:64
ds_write2st64_b64 v2, v[4:5], v[4:5] offset0:2 offset1:3
s_waitcnt lgkmcnt(0)
ds_read2_b32 v[6:7], v2 offset0:64 offset1:0
ds_read2st64_b32 v[8:9], v2 offset0:1
s_waitcnt lgkmcnt(0)
"""
    body = body.replace("ds_write2st64_b64 v2, v[4:5], v[4:5] offset0:2 offset1:3\n", "")
    state = execute(body, v={0: LANE, 1: A, 3: words(2)}, lds=2048)
    assert (state.v(6).tolist(), state.v(7).tolist()) == (words(2).tolist(), A.tolist())
    assert (state.v(8).tolist(), state.v(9).tolist()) == (words(2).tolist(), A.tolist())
    body = """
v_lshlrev_b32_e32 v2, 3, v0
ds_write2st64_b64 v2, v[4:5], v[6:7] offset1:1
s_waitcnt lgkmcnt(0)
ds_read2_b64 v[8:11], v2 offset1:64
s_waitcnt lgkmcnt(0)
"""
    registers = {0: LANE} | {4 + i: words(20 + i) for i in range(4)}
    state = execute(body, v=registers, lds=2048)
    for i in range(4):
        assert state.v(8 + i).tolist() == words(20 + i).tolist()


def test_lane_permutations_through_lds_hardware() -> None:
    pick = words(9) & np.uint32(255)
    body = "ds_bpermute_b32 v3, v2, v1\nds_permute_b32 v4, v2, v1\ns_waitcnt lgkmcnt(0)"
    state = execute(body, v={1: A, 2: pick})
    lane = pick // 4
    assert state.v(3).tolist() == A[lane].tolist()
    sent = [0] * 64
    for source, target in enumerate(lane):
        sent[int(target)] = int(A[source])
    assert state.v(4).tolist() == sent
    state = execute(
        "ds_bpermute_b32 v3, v2, v1\ns_waitcnt lgkmcnt(0)", v={1: A, 2: 0 * A + 252, 3: A}, mask=3
    )
    assert state.v(3).tolist()[:2] == [0, 0]  # lane 63 is idle


SWIZZLES = {
    "0x80b1": lambda i: i ^ 1,
    "0x041f": lambda i: i ^ 1,
    "swizzle(QUAD_PERM,2,3,0,1)": lambda i: i ^ 2,
    "swizzle(SWAP,16)": lambda i: i ^ 16,
    "swizzle(REVERSE,8)": lambda i: i // 8 * 8 + 7 - i % 8,
    "swizzle(BROADCAST,4,3)": lambda i: i // 4 * 4 + 3,
    'swizzle(BITMASK_PERM,"01pip")': lambda i: i // 32 * 32 + (8 | (i & 5) | (~i & 2)),
}


@pytest.mark.parametrize("pattern", SWIZZLES)
def test_swizzles(pattern: str) -> None:
    text = pattern
    state = execute(f"ds_swizzle_b32 v1, v0 offset:{text}\ns_waitcnt lgkmcnt(0)", v={0: A})
    assert state.v(1).tolist() == [int(A[SWIZZLES[pattern](i)]) for i in range(64)]


def test_lds_bounds_and_initialisation() -> None:
    with pytest.raises(OutOfBounds, match="4 bytes at LDS offset 256 of 256 bytes"):
        execute("ds_write_b32 v1, v1 offset:4", v={1: LANE * 4}, lds=256)
    with pytest.raises(Uninitialised, match="LDS offset 0 is read but was never written"):
        execute("ds_read_b32 v2, v1", v={1: LANE * 4}, lds=256)


def test_direct_loads_to_lds() -> None:
    data = words(30)
    buffers = [make_buffer("a", data)]
    base = 1 << 36 | 1 << 24
    body = """
s_mov_b32 m0, 0x40
v_lshlrev_b32_e32 v1, 2, v0
global_load_lds_dword v1, s[2:3]
s_waitcnt vmcnt(0)
ds_read_b32 v3, v1 offset:64
s_waitcnt lgkmcnt(0)
"""
    registers = {2: base, 3: base >> 32}
    state = execute(body, v={0: LANE}, s=registers, lds=512, buffers=buffers)
    assert state.v(3).tolist() == data.tolist()


def test_blank_memory_may_not_be_read() -> None:
    body = "global_load_dword v4, v1, s[2:3]"
    with pytest.raises(Uninitialised, match="offset 0 of the buffer 'a' was never written"):
        launch(kernel(body), {"a": A, "b": A}, blank=("a",))
    body = "global_store_dword v1, v0, s[2:3]\ns_waitcnt vmcnt(0)\nglobal_load_dword v4, v1, s[2:3]"
    launch(kernel(body), {"a": A, "b": A}, blank=("a",))
