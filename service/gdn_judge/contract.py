"""The op's contract in numbers: names, shapes, dtypes, constants, bytes, bounds.

numpy only, so that parts without torch can import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.errors import IllegalIndices

K = 128  # key dimension of a head
V = 128  # value dimension of a head
W = 4  # taps of the causal convolution
L2_EPS = 1e-6  # inside the root, on the sum, of the q and k norms
NORM_EPS = 1e-6
SCALE = K**-0.5
SOFTPLUS_THRESHOLD = 20.0
FP8_MAX = 448.0  # largest finite e4m3fn
FP8_MIN_ABSMAX = 1e-10
FP8_ZERO_SCALE = FP8_MIN_ABSMAX / FP8_MAX
FP8_NAN = 0x7F
PAD_SLOT = -1

OPERANDS = (
    "projected_qkvz",
    "projected_ba",
    "conv_state",
    "ssm_state",
    "ssm_state_indices",
    "conv_weight",
    "conv_bias",
    "A_log",
    "dt_bias",
    "norm_weight",
)
POOLS = ("conv_state", "ssm_state")
DTYPES = {
    "projected_qkvz": "bfloat16",
    "projected_ba": "bfloat16",
    "conv_state": "bfloat16",
    "ssm_state": "float32",
    "ssm_state_indices": "int32",
    "conv_weight": "bfloat16",
    "conv_bias": "bfloat16",
    "A_log": "float32",
    "dt_bias": "bfloat16",
    "norm_weight": "bfloat16",
}
RESULTS = ("out", "quantized", "scales")
RESULT_DTYPES = {"out": "bfloat16", "quantized": "float8_e4m3fn", "scales": "float32"}


@dataclass(frozen=True)
class Heads:
    """Key heads and value heads of one layer shard; value head h uses key head h // r."""

    key: int
    value: int

    @classmethod
    def parse(cls, text: str) -> Heads:
        """Read "4x8". Raises ValueError saying what would be right."""
        parts = text.lower().split("x")
        if len(parts) != 2 or not all(part.isdecimal() for part in parts):
            raise ValueError(f"heads {text!r} should read KHxVH, for instance 4x8")
        heads = cls(int(parts[0]), int(parts[1]))
        if heads.key < 1 or heads.value < heads.key or heads.value % heads.key:
            raise ValueError(f"heads {text!r}: VH should be a positive multiple of KH")
        return heads

    def __str__(self) -> str:
        return f"{self.key}x{self.value}"

    @property
    def ratio(self) -> int:
        return self.value // self.key

    @property
    def group_width(self) -> int:
        """Columns of projected_qkvz that belong to one key head."""
        return 2 * K + 2 * self.ratio * V

    @property
    def qkvz_width(self) -> int:
        return self.key * self.group_width

    @property
    def channels(self) -> int:
        """Convolution channels: q of all key heads, k of all, v of all value heads."""
        return 2 * self.key * K + self.value * V

    @property
    def state_bytes(self) -> int:
        """Bytes of one slot of the recurrent state, fp32."""
        return self.value * V * K * 4

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot of both pools."""
        return self.state_bytes + self.channels * (W - 1) * 2


def operand_shapes(heads: Heads, rows: int, slots: int) -> dict[str, tuple[int, ...]]:
    return {
        "projected_qkvz": (rows, heads.qkvz_width),
        "projected_ba": (rows, 2 * heads.value),
        "conv_state": (slots, heads.channels, W - 1),
        "ssm_state": (slots, heads.value, V, K),
        "ssm_state_indices": (rows,),
        "conv_weight": (heads.channels, W),
        "conv_bias": (heads.channels,),
        "A_log": (heads.value,),
        "dt_bias": (heads.value,),
        "norm_weight": (V,),
    }


def result_shapes(heads: Heads, rows: int) -> dict[str, tuple[int, ...]]:
    return {
        "out": (rows, heads.value, V),
        "quantized": (rows, heads.value * V),
        "scales": (rows, heads.value),
    }


def row_bytes(heads: Heads, fp8: bool) -> int:
    """Bytes that one live row must move: each operand element once, state and window twice."""
    state = 2 * heads.state_bytes
    window = 2 * heads.channels * (W - 1) * 2
    inputs = heads.qkvz_width * 2 + 2 * heads.value * 2 + 4
    outputs = heads.value * V * 2
    if fp8:
        outputs += heads.value * V + heads.value * 4
    return state + window + inputs + outputs


def weight_bytes(heads: Heads) -> int:
    """Bytes of the weights, read once per launch."""
    convolution = heads.channels * (W + 1) * 2
    return convolution + heads.value * 4 + heads.value * 2 + V * 2


def pad_row_bytes(heads: Heads, fp8: bool) -> int:
    """Bytes of a pad row: its index is read and its outputs are written."""
    outputs = heads.value * V * 2
    if fp8:
        outputs += heads.value * V + heads.value * 4
    return outputs + 4


def call_bytes(heads: Heads, live: int, fp8: bool, pads: int = 0) -> int:
    """The contract's byte model of one launch; 0 for an empty batch."""
    if live + pads == 0:
        return 0
    rows = live * row_bytes(heads, fp8) + pads * pad_row_bytes(heads, fp8)
    return rows + (weight_bytes(heads) if live else 0)


def check_indices(indices: NDArray[Any], slots: int, pad_slot_id: int = PAD_SLOT) -> None:
    """Raise IllegalIndices unless every live slot is in range and named once."""
    if indices.ndim != 1 or indices.dtype != np.int32:
        raise IllegalIndices(
            f"ssm_state_indices should be a vector of int32, got {indices.ndim}-d {indices.dtype}"
        )
    rows = np.flatnonzero(indices != pad_slot_id)
    live = indices[rows]
    outside = np.flatnonzero((live < 0) | (live >= slots))
    if outside.size:
        row = int(rows[outside[0]])
        raise IllegalIndices(
            f"row {row} names slot {int(indices[row])}, which is neither one of the {slots} slots "
            f"nor pad_slot_id {pad_slot_id}"
        )
    values, counts = np.unique(live, return_counts=True)
    if (counts > 1).any():
        raise IllegalIndices(f"slot {int(values[counts > 1][0])} is named by more than one row")


# The contract's pooled bounds, where many elements make a share mean something; each element
# has a derived bound of its own in any case (`bounds`).
OUT_EXACT = 0.98  # of out's elements bit for bit
POOLED_FROM = 64  # rows times heads; in fewer one tie of a large element of core shows
DRIFT_REL_L2 = 4e-5  # of the states after many steps; fp32 stays under 1e-6, bf16 makes 1e-2
