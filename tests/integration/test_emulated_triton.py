"""What Triton compiles for gfx950, executed and held against numpy and torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gdn_judge.emulator import launch as launching
from gdn_judge.emulator.assembly import Program, parse
from gdn_judge.emulator.errors import UnsupportedInstruction
from gdn_judge.emulator.launch import Launch, Pointer, Report
from gdn_judge.emulator.memory import make_buffer

FILE = Path(__file__).parents[1] / "data" / "emulator" / "triton_ops.py"
SIZES = [(64, 1), (256, 4), (1024, 8)]
B = 64
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ops() -> Any:
    spec = importlib.util.spec_from_file_location("triton_ops", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


def compiled(function: Any, constants: dict[str, int], warps: int) -> tuple[Program, int]:
    """The program for gfx950 and its LDS bytes."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile
    from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

    source = GluonASTSource if isinstance(function, GluonJITFunction) else ASTSource
    signature = {"x": "*i32", "y": "*i32", **dict.fromkeys(constants, "constexpr")}
    target = GPUTarget("hip", "gfx950", 64)
    made = compile(
        source(function, signature=signature, constexprs=constants),
        target=target,
        options={"num_warps": warps},
    )
    return parse(made.asm["amdgcn"]), made.metadata.shared


def run(function: Any, constants: dict[str, int], warps: int, x: Any, y: Any) -> tuple[Any, Report]:
    """y after the kernel, and the report."""
    program, shared = compiled(function, constants, warps)
    buffers = [make_buffer("x", x, writable=False), make_buffer("y", y)]
    pointers = (Pointer("x"), Pointer("y"), None, None)
    report = launching.run(Launch(program, (1, 1, 1), warps, pointers, shared), buffers)
    return buffers[1].contents().view(y.dtype).reshape(y.shape), report


def integers(count: int, low: int, high: int) -> Any:
    return np.random.default_rng(count).integers(low, high, count).astype(np.int32)


@pytest.mark.parametrize(("size", "warps"), SIZES)
def test_histogram_adds_in_lds(ops: Any, size: int, warps: int) -> None:
    x = integers(size, 0, B)
    got, report = run(ops.histogram, {"N": size, "B": B}, warps, x, np.zeros(B, np.int32))
    assert got.tolist() == np.bincount(x, minlength=B).tolist()
    assert report.mnemonics["ds_add_u32"] > 0


@pytest.mark.parametrize(("size", "warps"), SIZES)
def test_orders_sums_and_permutations(ops: Any, size: int, warps: int) -> None:
    x = integers(size, -(10**6), 10**6)
    constants = {"N": size, "B": B}
    y = np.zeros(size, np.int32)
    assert run(ops.sort, constants, warps, x, y)[0].tolist() == sorted(x.tolist())
    assert run(ops.cumsum, constants, warps, x, y)[0].tolist() == np.cumsum(x).tolist()
    moved = x[(np.arange(size) * 7 + 3) % size]
    assert run(ops.gather, constants, warps, x, y)[0].tolist() == moved.tolist()
    got, _ = run(ops.reductions, constants, warps, x, y)
    exact = [x.sum(), x.max(), x.argmin(), np.bitwise_xor.reduce(x)]
    assert got[:4].tolist() == [int(n) for n in exact]


@pytest.mark.parametrize(("size", "warps"), SIZES)
def test_atomics(ops: Any, size: int, warps: int) -> None:
    x = integers(size, -1000, 1000)
    got, _ = run(ops.atomics, {"N": size, "B": B}, warps, x, np.zeros(6 * B, np.int32))
    lanes = x.reshape(-1, B)
    zero = np.zeros((1, B), np.int32)
    assert got[:B].tolist() == lanes.sum(axis=0).tolist()
    assert got[B : 2 * B].tolist() == np.concatenate((lanes, zero)).max(axis=0).tolist()
    assert got[2 * B : 3 * B].tolist() == np.concatenate((lanes, zero)).min(axis=0).tolist()
    assert got[3 * B : 4 * B].tolist() == np.bitwise_xor.reduce(lanes).tolist()
    assert got[4 * B : 4 * B + 3].tolist() == [5, 0, 9]
    assert got[5 * B :].view(np.float32).tolist() == lanes.sum(axis=0).tolist()


@pytest.mark.parametrize(("size", "warps"), SIZES)
def test_fp8_of_every_width(ops: Any, size: int, warps: int) -> None:
    x = np.random.default_rng(size).normal(scale=30, size=size).astype(np.float32)
    got, _ = run(ops.fp8, {"N": size, "B": B}, warps, x, np.zeros(6 * size, np.float32))
    for i, wide in enumerate((torch.float32, torch.float16, torch.bfloat16)):
        source = torch.from_numpy(x).to(wide)
        for j, code in enumerate((torch.float8_e4m3fn, torch.float8_e5m2)):
            part = got[(2 * i + j) * size : (2 * i + j + 1) * size]
            assert part.tolist() == source.to(code).float().tolist(), (wide, code)


@pytest.mark.parametrize(("size", "warps"), SIZES)
def test_half_precision(ops: Any, size: int, warps: int) -> None:
    x = np.random.default_rng(size).normal(size=size).astype(np.float32)
    got, _ = run(ops.halves, {"N": size, "B": B}, warps, x, np.zeros(3 * size, np.float16))
    half = x.astype(np.float16).astype(np.float64)
    assert got[:size].tolist() == (half * 3).astype(np.float16).tolist()
    assert got[size : 2 * size].tolist() == (half * half + half).astype(np.float16).tolist()
    mixed = (half * np.float64(np.float32(0.3)) + x).astype(np.float32).astype(np.float16)
    assert got[2 * size :].tolist() == mixed.tolist()


@pytest.mark.parametrize("bits", [16, 8])
def test_a_transposing_load_fits_the_layout_that_triton_means(ops: Any, bits: int) -> None:
    """The tile comes back as it was, so the lanes got what the operand's layout says."""
    kind = {16: np.uint16, 8: np.uint8}[bits]
    x = np.random.default_rng(bits).integers(0, 1 << bits, (64, 64)).astype(kind)
    constants = {"BITS": bits, "N": 64}
    got, report = run(ops.through_shared, constants, 4, x, np.zeros_like(x))
    assert np.array_equal(got, x)
    assert report.mnemonics[f"ds_read_b64_tr_b{bits}"] > 0


def test_matrix_instructions_are_refused_by_name(ops: Any) -> None:
    x, y = np.zeros(2048, np.int32), np.zeros(1024, np.int32)
    with pytest.raises(UnsupportedInstruction, match=r"MFMA is not modelled: .*v_mfma_f32"):
        run(ops.dot, {"N": 64, "B": B}, 4, x, y)
