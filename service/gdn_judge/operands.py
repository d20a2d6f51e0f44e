"""Operands and results of one call, as numpy arrays.

bfloat16 travels as uint16 and float8 as uint8. Pools carry guard slots before
and after the slots that the op sees: the candidate gets a slice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.contract import DTYPES, NORM_EPS, OPERANDS, PAD_SLOT, POOLS, SCALE, Heads

Array = NDArray[Any]

STORAGE: dict[str, np.dtype[Any]] = {
    "bfloat16": np.dtype(np.uint16),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "float8_e4m3fn": np.dtype(np.uint8),
}
"""torch dtype name -> the numpy dtype that carries its bits."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Slots of the operands' pools lie far apart in pools of `slots` slots.

    Slot i of the operands (guards not counted) is slot places[i] for the op; all
    others hold zeros. So pools of gigabytes need not travel.
    """

    slots: int
    places: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """The op's keyword arguments, and how the candidate's side prepares the call."""

    scale: float = SCALE
    norm_eps: float = NORM_EPS
    fp8: bool = False
    pad_slot_id: int = PAD_SLOT
    poison: int = 0xFF  # byte that fills fresh output memory; 0xFF is NaN in every dtype here
    chain: bool = False  # call the target's unfused op instead, where it has one
    spread: Spread | None = None


@dataclass(frozen=True, kw_only=True)
class Operands:
    """The ten operands. Pools are [guard + N + guard, ...]; the op sees the middle N."""

    heads: Heads
    projected_qkvz: Array
    projected_ba: Array
    conv_state: Array
    ssm_state: Array
    ssm_state_indices: Array
    conv_weight: Array
    conv_bias: Array
    A_log: Array
    dt_bias: Array
    norm_weight: Array
    guard: int = 0

    @property
    def rows(self) -> int:
        return int(self.ssm_state_indices.shape[0])

    @property
    def slots(self) -> int:
        return int(self.ssm_state.shape[0]) - 2 * self.guard

    def arrays(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in OPERANDS}

    def pool(self, name: str) -> Array:
        """The N slots that the op sees, as a view."""
        pool: Array = getattr(self, name)
        return pool[self.guard : self.guard + self.slots]

    def copy(self) -> Operands:
        return self.replace(**{name: array.copy() for name, array in self.arrays().items()})

    def replace(self, **changes: Any) -> Operands:
        return dataclasses.replace(self, **changes)

    def live_rows(self, pad_slot_id: int) -> NDArray[np.intp]:
        return np.flatnonzero(self.ssm_state_indices != pad_slot_id)


@dataclass(frozen=True, kw_only=True)
class TensorForm:
    """What the op returned in one place: torch dtype name and shape; None for None."""

    dtype: str | None
    shape: tuple[int, ...] | None

    @classmethod
    def of_none(cls) -> TensorForm:
        return cls(dtype=None, shape=None)


@dataclass(frozen=True, kw_only=True)
class KernelRun:
    """A kernel that the candidate launched. `digest` is SHA-256 of its code object, or ""."""

    name: str
    digest: str = ""
    arch: str = ""
    resources: Mapping[str, int | float | str | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CallResult:
    """What came back from one call: bytes only, nothing that the candidate says about itself.

    `forms` holds dtype and shape of out, quantized and scales as returned; an
    array of `results` is None where its form is not what can be carried.
    `after` holds all ten operands as they stood after the call, guards included.
    `kernels` are the launches in order, as far as the executor can see them.
    `notes` are the executor's own words for the document.
    `counters` are exact counts of an executor that can count, such as the emulator:
    read_bytes and written_bytes of global memory, instructions.
    """

    form_error: str = ""  # not a tuple of three, or an unusable tensor
    forms: Mapping[str, TensorForm] = field(default_factory=dict)
    results: Mapping[str, Array | None] = field(default_factory=dict)
    after: Mapping[str, Array] = field(default_factory=dict)
    kernels: tuple[KernelRun, ...] = ()
    notes: tuple[str, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)  # read_bytes, written_bytes, ...
    seconds: float | None = None  # the candidate's own clock round the op: a claim


def storage_dtype(name: str) -> np.dtype[Any]:
    """numpy dtype of an operand."""
    return STORAGE[DTYPES[name]]


def is_pool(name: str) -> bool:
    return name in POOLS
