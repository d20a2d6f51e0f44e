from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from gdn_judge import contract
from gdn_judge.contract import Heads
from gdn_judge.errors import IllegalIndices

TP4 = Heads(4, 8)


def test_bytes_of_a_row_at_tp4() -> None:
    state = 2 * TP4.state_bytes
    window = 2 * TP4.channels * 3 * 2
    assert (state, window) == (1_048_576, 24_576)
    assert TP4.qkvz_width * 2 == 6144
    assert 2 * TP4.value * 2 == 32
    assert contract.row_bytes(TP4, fp8=False) == 1_048_576 + 24_576 + 6_144 + 32 + 2_048 + 4
    extra = contract.row_bytes(TP4, fp8=True) - contract.row_bytes(TP4, fp8=False)
    assert extra == 8 * 128 + 4 * 8


def test_weights_count_once_and_an_empty_batch_moves_nothing() -> None:
    one, two = (contract.call_bytes(TP4, rows, fp8=True) for rows in (1, 2))
    assert two - one == contract.row_bytes(TP4, fp8=True)
    assert one - contract.row_bytes(TP4, fp8=True) == contract.weight_bytes(TP4)
    assert contract.call_bytes(TP4, 0, fp8=True) == 0


def test_pad_rows_move_no_state() -> None:
    with_pads = contract.call_bytes(TP4, 1, fp8=False, pads=3)
    assert with_pads - contract.call_bytes(TP4, 1, fp8=False) == 3 * (2048 + 4)


def test_shapes_of_qwen3_next() -> None:
    shapes = contract.operand_shapes(Heads(16, 32), rows=3, slots=5)
    assert shapes["projected_qkvz"] == (3, 12288)
    assert shapes["projected_ba"] == (3, 64)
    assert shapes["conv_state"] == (5, 8192, 3)
    assert shapes["ssm_state"] == (5, 32, 128, 128)
    assert contract.result_shapes(Heads(16, 32), 3)["quantized"] == (3, 4096)


@pytest.mark.parametrize("text", ["4", "4x", "8x4", "0x8", "4x9", "axb", "-1x2"])
def test_heads_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Heads.parse(text)


def test_heads_are_read() -> None:
    assert Heads.parse("4x8") == TP4
    assert str(TP4) == "4x8"


@pytest.mark.parametrize(
    ("indices", "pad", "message"),
    [
        ([3, 3], -1, "slot 3 is named by more than one row"),
        ([0, 4], -1, "row 1 names slot 4"),
        ([-1, 0], 0, "row 0 names slot -1"),
        ([-2], -1, "row 0 names slot -2"),
    ],
)
def test_illegal_index_vectors(indices: list[int], pad: int, message: str) -> None:
    with pytest.raises(IllegalIndices, match=message):
        contract.check_indices(np.array(indices, np.int32), 4, pad)


def test_index_dtype_and_rank() -> None:
    with pytest.raises(IllegalIndices, match="int64"):
        contract.check_indices(np.array([1]), 4)
    with pytest.raises(IllegalIndices, match="2-d"):
        contract.check_indices(np.zeros((1, 1), np.int32), 4)


@pytest.mark.parametrize(
    "module", ["gdn_judge.contract", "gdn_judge.document", "gdn_judge.cli", "gdn_judge.schema"]
)
def test_torch_free_modules(module: str) -> None:
    script = f"import sys, {module}; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
