"""The judge's side of the timed windows: what to run, how often, on which slots.

Every call of a graph walks slots of its own, so a slot comes back only after
more than four times the last-level cache has passed.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge import generate, memory
from gdn_judge.candidate import Candidate
from gdn_judge.contract import DTYPES, OPERANDS, POOLS, Heads, V, operand_shapes
from gdn_judge.errors import ProtocolViolation
from gdn_judge.numerics import bf16_nearest
from gdn_judge.operands import Array, CallOptions, KernelRun, Operands
from gdn_judge.replies import kernel_runs, text

REUSE = 4.2  # times the last-level cache between two uses of a slot
MIN_CALLS = 10
BANK = 16  # distinct slots that the pools are tiled from
_PREPARE_S = 300.0
_WINDOW_S = 120.0
_LONGEST_US = 1e12


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Rows, slots and weights of `calls` calls of T rows; pools are the bank, tiled.

    projected_qkvz [calls, T, ...], projected_ba [calls, T, ...], ssm_state_indices
    [calls, T]: each slot once.
    """

    heads: Heads
    calls: int
    arrays: Mapping[str, Array]

    @property
    def rows(self) -> int:
        return int(self.arrays["ssm_state_indices"].shape[1])

    @property
    def slots(self) -> int:
        return self.calls * self.rows

    def picked(self, where: Sequence[tuple[int, int]]) -> Operands:
        """The given (call, row) as operands of one batch, with their slots at the start."""
        calls, rows = (np.array(part) for part in zip(*where, strict=True))
        slots = self.arrays["ssm_state_indices"][calls, rows]
        arrays = {name: array for name, array in self.arrays.items() if name not in POOLS}
        arrays |= {
            "projected_qkvz": self.arrays["projected_qkvz"][calls, rows],
            "projected_ba": self.arrays["projected_ba"][calls, rows],
            "ssm_state_indices": np.arange(len(where), dtype=np.int32),
        }
        arrays |= {name: self.arrays[name][slots % BANK] for name in POOLS}
        return Operands(heads=self.heads, guard=0, **arrays)


def call_count(heads: Heads, rows: int, last_level: int) -> int:
    """Calls of a graph: each walks slots of its own, all together far more than the cache."""
    return max(MIN_CALLS, math.ceil(REUSE * last_level / (rows * heads.slot_bytes)))


def workload(
    rng: np.random.Generator, heads: Heads, rows: int, calls: int, replays: int
) -> Workload:
    """Draw a workload that is meant for so many replays.

    Decays are so near 1 that the state remembers all of them: decay**replays lies
    between about exp(-1.5) and exp(-6), and a few replays more or less still show.
    """
    shapes = operand_shapes(heads, calls * rows, BANK)
    weights = generate.weights(rng, heads)
    weights["A_log"] = np.zeros(heads.value, np.float32)
    weights["dt_bias"] = np.zeros(heads.value, np.uint16)
    slow, fast = np.clip(np.array([1.5, 6.0]) / replays, 5e-4, 0.05)
    softplus = np.exp(rng.uniform(np.log(slow), np.log(fast), (calls * rows, heads.value)))
    b = rng.normal(0, 1.5, softplus.shape)
    split = (calls * rows, heads.key, 1, heads.ratio)
    ba = np.concatenate([b.reshape(split), np.log(np.expm1(softplus)).reshape(split)], axis=2)
    qkvz = rng.standard_normal(shapes["projected_qkvz"], np.float32)
    pools = generate.pools(rng, heads, BANK, "unit", guard=0)
    arrays: dict[str, Array] = {
        **weights,
        **pools,
        "projected_qkvz": bf16_nearest(qkvz).reshape(calls, rows, -1),
        "projected_ba": bf16_nearest(ba.reshape(calls * rows, -1)).reshape(calls, rows, -1),
        "ssm_state_indices": rng.permutation(calls * rows).astype(np.int32).reshape(calls, rows),
    }
    return Workload(heads=heads, calls=calls, arrays=arrays)


class Bench:
    """Timed windows in one candidate. Counts every replay that was asked for."""

    def __init__(self, candidate: Candidate, load: Workload, options: CallOptions) -> None:
        self._candidate, self._load = candidate, load
        self.replays: dict[str, int] = {}
        self.loaded: tuple[KernelRun, ...] = ()  # code objects launched while preparing
        self._prepare(options)

    def _prepare(self, options: CallOptions) -> None:
        load = self._load
        layout = memory.Layout.of(
            {name: (DTYPES[name], load.arrays[name].shape) for name in OPERANDS}
        )
        fd = memory.publish(layout, load.arrays)
        try:
            reply = self._ask(
                {
                    "do": "bench",
                    "layout": layout.to_dict(),
                    "slots": load.slots,
                    "calls": load.calls,
                    "scale": options.scale,
                    "norm_eps": options.norm_eps,
                    "pad_slot_id": options.pad_slot_id,
                    "fp8": options.fp8,
                },
                [fd],
                deadline_s=_PREPARE_S,
            )
        finally:
            os.close(fd)
        arms = reply.get("arms")
        if arms not in (["fused"], ["fused", "chain"]):
            raise ProtocolViolation(f"the arms read {str(arms)[:100]}")
        self.replays = {str(arm): 0 for arm in arms}
        self.loaded = kernel_runs(reply.get("kernels"))

    def _ask(
        self, message: dict[str, Any], fds: Sequence[int] = (), deadline_s: float = _WINDOW_S
    ) -> dict[str, Any]:
        return self._candidate.ask(message, fds, deadline_s=deadline_s)

    def timed_replay(self, arm: str, count: int) -> float:
        """Seconds on the judge's own clock for `count` replays and their end."""
        self.replays[arm] += count
        begin = time.perf_counter()
        self._ask({"do": "bench_replay", "arm": arm, "count": count})
        return time.perf_counter() - begin

    def samples(self, schedule: Sequence[str], replays: Mapping[str, int]) -> list[float]:
        """us of each sample on the candidate's events: a claim."""
        for arm in schedule:
            self.replays[arm] += replays[arm]
        message = {"do": "bench_samples", "schedule": list(schedule), "replays": dict(replays)}
        return _times(self._ask(message), len(schedule))

    def host(self, arm: str, count: int, block: int) -> list[float]:
        """us of the Python call, means over `block` calls, on the candidate's clock.

        Not counted as replays: ask for the state before.
        """
        message = {"do": "bench_host", "arm": arm, "count": count, "block": block}
        return _times(self._ask(message), count)

    def kernels(self, arm: str) -> list[str]:
        """Names of the kernels of one call, as the device's tracer saw them."""
        found = self._ask({"do": "bench_profile", "arm": arm}).get("kernels")
        items = found if isinstance(found, list) else []
        return [text(item.get("name", "?"), 200) for item in items if isinstance(item, dict)]

    def state(self, arm: str, where: Sequence[tuple[int, int]]) -> dict[str, Array]:
        """Both pools at the slots of the given (call, row), and out of the last replay."""
        load = self._load
        slots = [int(load.arrays["ssm_state_indices"][at]) for at in where]
        shapes = operand_shapes(load.heads, 0, len(where))
        layout = memory.Layout.of(
            {name: (DTYPES[name], shapes[name]) for name in POOLS}
            | {"out": ("bfloat16", (len(where), load.heads.value, V))}
        )
        given, returned = memory.blank(0), memory.blank(layout.size)
        try:
            message = {"do": "bench_state", "arm": arm, "take": slots, "rows": list(where)}
            self._ask({**message, "after": layout.to_dict()}, [given, returned])
            return {name: memory.read(returned, entry) for name, entry in layout.entries.items()}
        finally:
            os.close(given)
            os.close(returned)


def sample_rows(load: Workload, rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """Distinct (call, row), drawn only when the timed calls are over."""
    picked: NDArray[np.int64] = rng.permutation(load.slots)[:count]
    return [divmod(int(index), load.rows) for index in picked]


def _times(reply: Mapping[str, Any], count: int) -> list[float]:
    values = reply.get("us")
    if not isinstance(values, list) or len(values) != count:
        raise ProtocolViolation(f"{count} times were asked for, got {str(values)[:100]}")
    if not all(isinstance(value, int | float) and 0 < value < _LONGEST_US for value in values):
        raise ProtocolViolation("a time is not a number of microseconds above 0")
    return [float(value) for value in values]
