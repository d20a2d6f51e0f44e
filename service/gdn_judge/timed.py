"""One case timed on a device with event timers, on evidence that is the judge's own.

The candidate's event times are a claim. It is held against the judge's clock
(the slope between N and 2N replays), against the datasheet's peak, and against
the state that so many replays must have left; a contradiction is `suspect`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from gdn_judge import bench, compare, recurrence
from gdn_judge.bench import Workload
from gdn_judge.cases import Planned
from gdn_judge.contract import call_bytes
from gdn_judge.document import Check, Measurement, MeasurementKind, Scalar
from gdn_judge.judged import Judged
from gdn_judge.numerics import bf16_to_float
from gdn_judge.operands import Array, CallOptions
from gdn_judge.samples import measurement
from gdn_judge.session import Session
from gdn_judge.telemetry import Probe, watching
from gdn_judge.yardsticks import Yardsticks

_WISHED_SAMPLE_US = 400.0  # at least 100 us a sample
_SAMPLES, _QUICK_SAMPLES = 60, 20
_MAX_REPLAYS = 1 << 14  # of one estimate: a candidate that answers at once must not go on for ever
_CLOCK_WINDOW_S = 0.04
_CLOCK_ROUNDS = 3
_CLAIM_TOLERANCE = 0.90  # a claim below this part of the judge's own slope is suspect
_PEAK_TOLERANCE = 1.02
_STEP_TOLERANCE = 0.5  # replays that may seem to be missing, or
_STEP_TOLERANCE_PART = 0.005  # this part of all of them: fp32 decays err by 1e-7 each
_STATE_TOLERANCE = 2e-3
_OUT_TOLERANCE = 1e-2
_CHECKED_ROWS = 8
_HOST_BLOCKS, _HOST_CALLS = 20, 20
SUSPECTS = frozenset(
    {
        "claim_over_judge_clock",
        "percent_of_peak",
        "replays_missing",
        "state_after_replays",
        "out_after_replays",
        "conv_state_after_replays",
    }
)


class Windows(Protocol):
    """What a candidate does on the judge's word; `bench.Bench` is the real one."""

    replays: dict[str, int]

    def timed_replay(self, arm: str, count: int) -> float: ...

    def samples(self, schedule: Sequence[str], replays: Mapping[str, int]) -> list[float]: ...

    def host(self, arm: str, count: int, block: int) -> list[float]: ...

    def kernels(self, arm: str) -> list[str]: ...

    def state(self, arm: str, where: Sequence[tuple[int, int]]) -> dict[str, Array]: ...


def expected_replays(calls: int, bytes_moved: int, peak: float) -> int:
    """At most about so many replays does a case make of a graph of `calls` calls."""
    replay_s = calls * max(bytes_moved / peak, 1e-6)
    windows_s = _CLOCK_WINDOW_S * _CLOCK_ROUNDS * 3 + _SAMPLES * _WISHED_SAMPLE_US * 1e-6
    return round(windows_s / replay_s) + _SAMPLES


class Timed:
    """One case on a device with event timers."""

    def __init__(
        self,
        planned: Planned,
        session: Session,
        yardsticks: Yardsticks,
        probe: Probe,
        load: Workload,
        windows: Windows,
    ) -> None:
        self.session, self.load, self.windows = session, load, windows
        self.yardsticks, self.probe = yardsticks, probe
        self.rng = session.seed.rng(planned.id, "rows that are checked")
        self.options = CallOptions(fp8=planned.fp8)
        self.bytes = call_bytes(planned.heads, planned.rows, planned.fp8)

    def run(self) -> Judged:
        per_replay = {arm: self._estimate(arm) for arm in self.windows.replays}
        events, clocks = self._events(per_replay)
        slope = self._slope("fused", per_replay["fused"])
        state = self._state_checks()
        measurements = self._measurements(events, clocks, slope)
        fused = measurements[0]
        kernels = [name for name in self.windows.kernels("fused") if not name.startswith("Mem")]
        checks = [
            self._claim(fused, slope),
            self._below_peak(fused),
            *state,
            self._launches(kernels),
        ]
        names = list(dict.fromkeys(kernels))
        return Judged(checks, names, measurements, self._ratios(events), SUSPECTS)

    def _estimate(self, arm: str) -> float:
        """Seconds of one replay, roughly."""
        self.windows.timed_replay(arm, 2)
        count, took = 4, 0.0
        while took < 0.01 and count < _MAX_REPLAYS:
            count *= 2
            took = self.windows.timed_replay(arm, count)
        return took / count

    def _events(
        self, per_replay: Mapping[str, float]
    ) -> tuple[dict[str, list[float]], dict[str, Scalar]]:
        """us per call of every sample of every arm, arms in turn (ABBA)."""
        arms = list(per_replay)
        replays = {
            arm: max(1, math.ceil(_WISHED_SAMPLE_US * 1e-6 / seconds))
            for arm, seconds in per_replay.items()
        }
        count = _QUICK_SAMPLES if self.session.quick else _SAMPLES
        schedule = [arm for i in range(count) for arm in (arms if i % 2 == 0 else arms[::-1])]
        with watching(self.probe) as window:
            times = self.windows.samples(schedule, replays)
        self.per_sample = {arm: replays[arm] * self.load.calls for arm in arms}
        found: dict[str, list[float]] = {arm: [] for arm in arms}
        for arm, us in zip(schedule, times, strict=True):
            found[arm].append(us / self.per_sample[arm])
        return found, dict(window.summary())

    def _slope(self, arm: str, per_replay: float) -> float:
        """us per call on the judge's clock: what N more replays take."""
        count = max(1, round(_CLOCK_WINDOW_S / per_replay))
        short = [self.windows.timed_replay(arm, count) for _ in range(_CLOCK_ROUNDS)]
        long = [self.windows.timed_replay(arm, 2 * count) for _ in range(_CLOCK_ROUNDS)]
        seconds = (statistics.median(long) - statistics.median(short)) / count
        return seconds * 1e6 / self.load.calls

    def _state_checks(self) -> list[Check]:
        """The slots hold what so many replays make of them, on a sample drawn now."""
        where = bench.sample_rows(self.load, self.rng, _CHECKED_ROWS)
        got = self.windows.state("fused", where)
        done = self.windows.replays["fused"]
        fixed = recurrence.after(self.load.picked(where), self.options, done)
        missing = float(np.median(recurrence.hidden_error(got["ssm_state"], fixed)))
        error = compare.relative_l2(got["ssm_state"], fixed.state)
        out = compare.relative_l2(bf16_to_float(got["out"]), bf16_to_float(fixed.out))
        window = int((got["conv_state"] != fixed.window).sum())
        return [
            _bounded("replays_missing", missing, max(_STEP_TOLERANCE, _STEP_TOLERANCE_PART * done)),
            _bounded("state_after_replays", error, _STATE_TOLERANCE),
            _bounded("out_after_replays", out, _OUT_TOLERANCE),
            Check(name="conv_state_after_replays", passed=not window, value=window, bound=0),
        ]

    def _measurements(
        self, events: Mapping[str, list[float]], clocks: Mapping[str, Scalar], slope: float
    ) -> list[Measurement]:
        ceiling = self.yardsticks.rmw_bytes_per_s
        found = []
        for arm, times in events.items():
            floor_us = self.bytes / ceiling * 1e6
            regime = "bandwidth" if floor_us > statistics.median(times) / 2 else "latency"
            found.append(
                measurement(
                    arm,
                    MeasurementKind.GPU_TIME,
                    times,
                    bytes_moved=self.bytes,
                    peak=self.session.device_spec.peak,
                    rmw_ceiling=ceiling,
                    calls_per_sample=self.per_sample[arm],
                    regime=regime,
                    clocks=dict(clocks),
                    label="graph replay over disjoint cold slots; event times of the candidate",
                )
            )
        found.append(
            measurement(
                "judge_clock",
                MeasurementKind.GPU_TIME,
                [max(slope, 1e-3)],
                label="slope between N and 2N replays on the judge's own clock",
            )
        )
        host = self.windows.host("fused", _HOST_BLOCKS, _HOST_CALLS)
        found.append(
            measurement(
                "host_call",
                MeasurementKind.HOST_TIME,
                host,
                calls_per_sample=_HOST_CALLS,
                label="Python call until it returns, outside capture; the candidate's clock",
            )
        )
        return found

    def _claim(self, fused: Measurement, slope: float) -> Check:
        assert fused.median is not None
        ratio = fused.median / slope if slope > 0 else math.inf  # no time passed: no evidence
        return _at_least("claim_over_judge_clock", ratio, _CLAIM_TOLERANCE)

    def _below_peak(self, fused: Measurement) -> Check:
        assert fused.percent_of_peak is not None
        return _bounded("percent_of_peak", fused.percent_of_peak, 100 * _PEAK_TOLERANCE)

    def _launches(self, kernels: list[str]) -> Check:
        allowed = self.session.launches
        if allowed is None:
            return Check(name="launches", passed=True, value=len(kernels), relation="measured")
        return Check(
            name="launches",
            passed=len(kernels) == allowed,
            value=len(kernels),
            bound=allowed,
            relation="==",
            detail="; ".join(kernels)[:300],
        )

    def _ratios(self, events: Mapping[str, list[float]]) -> dict[str, float]:
        if "chain" not in events:
            return {}
        fused, chain = (statistics.median(events[arm]) for arm in ("fused", "chain"))
        return {"chain_over_fused": chain / fused}


def _bounded(name: str, value: float, bound: float) -> Check:
    fine = math.isfinite(value)
    return Check(
        name=name, passed=fine and value <= bound, value=value if fine else "inf", bound=bound
    )


def _at_least(name: str, value: float, bound: float) -> Check:
    fine = math.isfinite(value)
    return Check(
        name=name,
        passed=fine and value >= bound,
        value=value if fine else "inf",
        bound=bound,
        relation=">=",
    )
