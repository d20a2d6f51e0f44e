"""Number formats against torch's own casts and against the formats' definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gdn_judge import numerics
from gdn_judge.numerics import Rounding


def test_bf16_rounds_like_torch_on_random_bits() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 200_000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    ours = numerics.bf16_nearest(values)
    theirs = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (1.0 + 2**-8, 0x3F80),  # a tie goes to even
        (1.0 + 2**-8 + 2**-40, 0x3F81),  # just above a tie: fp32 alone would lose it
        (1.0 + 3 * 2**-8, 0x3F82),
        (-(1.0 + 2**-8 + 2**-40), 0xBF81),
        (3.4e38, 0x7F80),  # past the largest finite value
        (1e-300, 0x0000),
        (float("inf"), 0x7F80),
    ],
)
def test_bf16_from_float64_is_rounded_once(value: float, code: int) -> None:
    assert int(numerics.bf16_nearest(np.array([value]))[0]) == code


def test_truncation_is_what_the_interpreter_does() -> None:
    values = np.array([1.999, -1.999, 0.3], np.float32)
    cut = numerics.to_bf16(values, Rounding.INTERPRETER)
    assert cut.tolist() == [0x3FFF, 0xBFFF, 0x3E99]
    assert numerics.to_bf16(values, Rounding.NEAREST).tolist() == [0x4000, 0xC000, 0x3E9A]


def test_e4m3_rounds_like_torch() -> None:
    values = np.random.default_rng(2).uniform(-448, 448, 100_000).astype(np.float32)
    values = np.concatenate([values, values / 2**12, [0.0, -0.0, 448, -448]]).astype(np.float32)
    theirs = torch.from_numpy(values).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(numerics.e4m3_nearest(values), theirs)


def test_e4m3_saturates_and_keeps_nan() -> None:
    values = np.array([1e9, -1e9, np.inf, np.nan], np.float32)
    assert numerics.e4m3_nearest(values).tolist() == [0x7E, 0xFE, 0x7E, 0x7F]


def test_e4m3_values_are_those_of_the_format() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(numerics.E4M3_VALUES, codes, equal_nan=True)


def test_e4m3_of_the_interpreter_is_what_it_computes() -> None:
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    import triton.language as tl

    values = np.random.default_rng(3).uniform(-448, 448, 20_000).astype(np.float32)
    values = np.concatenate([values, values / 2**14]).astype(np.float32)
    theirs = interpreter._convert_float(
        values, tl.float32, tl.float8e4nv, interpreter._ir.ROUNDING_MODE.RTNE
    )
    assert np.array_equal(numerics.e4m3_interpreter(values), theirs)


def test_all_zero_group_has_the_smallest_scale() -> None:
    codes, scales = numerics.quantise(np.zeros((1, 2, 128), np.uint16))
    assert not codes.any()
    assert scales.tolist() == [[pytest.approx(2.2321428e-13, rel=1e-6)] * 2]


def test_the_scale_comes_from_the_finite_elements() -> None:
    out = np.full((1, 1, 128), 0x3F80, np.uint16)
    out[0, 0, :3] = (0x7F80, 0xFF80, 0x7FC0)
    codes, scales = numerics.quantise(out)
    assert codes[0, 0, :4].tolist() == [0x7E, 0xFE, 0x7F, 0x7E]
    assert scales[0, 0] == np.float32(1) / np.float32(448)
