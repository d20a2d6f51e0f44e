"""The roofline suite: how close to the memory roofline, on evidence that is the judge's own.

On a GPU the candidate replays graphs and reports event times, a claim that is
held against the judge's clock (the slope between N and 2N replays), against the
datasheet's peak, and against the state that so many replays must have left. A
contradiction is `suspect`. On a CPU device there is no device time: wall time
is labelled, and an emulator's exact bytes stand beside the contract's.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gdn_judge import bench, compare, correctness, generate, recurrence
from gdn_judge.cases import Planned
from gdn_judge.contract import LAST_LEVEL_CACHE, PEAK_BANDWIDTH, call_bytes
from gdn_judge.document import Check, Measurement, MeasurementKind
from gdn_judge.errors import HostError
from gdn_judge.judged import Judged
from gdn_judge.numerics import bf16_to_float
from gdn_judge.operands import CallOptions
from gdn_judge.remote import RemoteExecutor
from gdn_judge.samples import measurement
from gdn_judge.session import Session
from gdn_judge.telemetry import NoProbe, Probe, watching
from gdn_judge.yardsticks import Yardsticks

_MIN_SAMPLE_US = 100.0
_WISHED_SAMPLE_US = 400.0
_SAMPLES, _QUICK_SAMPLES = 60, 20
_CLOCK_WINDOW_S = 0.04
_CLOCK_ROUNDS = 3
_CLAIM_TOLERANCE = 0.90  # a claim below this part of the judge's own slope is suspect
_PEAK_TOLERANCE = 1.02
_STEP_TOLERANCE = 0.5  # in replays
_STATE_TOLERANCE = 2e-3
_OUT_TOLERANCE = 1e-2
_CHECKED_ROWS = 8
_HOST_BLOCKS, _HOST_CALLS = 20, 20
_CPU_SAMPLES = 3
SUSPECTS = frozenset(
    {
        "claim_over_judge_clock",
        "percent_of_peak",
        "replays_missing",
        "state_after_replays",
        "out_after_replays",
    }
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a timed run knows of its device."""

    yardsticks: Yardsticks | None = None
    probe: Probe = field(default_factory=NoProbe)


def judge(planned: Planned, session: Session, setting: Setting) -> Judged:
    """Time one planned case. Raises CandidateError and OutOfTime."""
    executor = session.executor()
    yardsticks = setting.yardsticks
    if yardsticks is None:
        return _untimed(planned, session)
    if not isinstance(executor, RemoteExecutor):
        raise HostError("only a candidate process on a device can be timed")
    return session.guarded(
        lambda: _Timed(planned, session, yardsticks, setting.probe, executor).run()
    )


class _Timed:
    """One case on a device with event timers."""

    def __init__(
        self,
        planned: Planned,
        session: Session,
        yardsticks: Yardsticks,
        probe: Probe,
        executor: RemoteExecutor,
    ) -> None:
        self.planned, self.session = planned, session
        self.yardsticks, self.probe = yardsticks, probe
        self.rng = session.seed.rng(planned.id)
        device = session.device
        cache = max(LAST_LEVEL_CACHE[device], int(yardsticks.facts.get("device.l2") or 0))
        self.peak = PEAK_BANDWIDTH[device]
        self.options = CallOptions(fp8=planned.fp8)
        self.load = bench.workload(self.rng, planned.heads, planned.rows, cache)
        self.bench = bench.Bench(executor.candidate, self.load, self.options)
        session.saw(self.bench.loaded)
        self.bytes = call_bytes(planned.heads, planned.rows, planned.fp8)

    def run(self) -> Judged:
        per_replay = {arm: self._estimate(arm) for arm in self.bench.replays}
        events, clocks = self._events(per_replay)
        slope = self._slope("fused", per_replay["fused"])
        state = self._state_checks()
        measurements = self._measurements(events, clocks, slope)
        fused = measurements[0]
        kernels = [name for name in self.bench.kernels("fused") if not name.startswith("Mem")]
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
        self.bench.timed_replay(arm, 2)
        count, took = 4, 0.0
        while took < 0.01:
            count *= 2
            took = self.bench.timed_replay(arm, count)
        return took / count

    def _events(
        self, per_replay: Mapping[str, float]
    ) -> tuple[dict[str, list[float]], dict[str, object]]:
        """us per call of every sample of every arm, arms in turn (ABBA)."""
        arms = list(per_replay)
        replays = {
            arm: max(1, math.ceil(_WISHED_SAMPLE_US * 1e-6 / seconds))
            for arm, seconds in per_replay.items()
        }
        count = _QUICK_SAMPLES if self.session.quick else _SAMPLES
        schedule = [arm for i in range(count) for arm in (arms if i % 2 == 0 else arms[::-1])]
        with watching(self.probe) as window:
            times = self.bench.samples(schedule, replays)
        self.per_sample = {arm: replays[arm] * self.load.calls for arm in arms}
        found: dict[str, list[float]] = {arm: [] for arm in arms}
        for arm, us in zip(schedule, times, strict=True):
            found[arm].append(us / self.per_sample[arm])
        return found, dict(window.summary())

    def _slope(self, arm: str, per_replay: float) -> float:
        """us per call on the judge's clock: what N more replays take."""
        count = max(1, round(_CLOCK_WINDOW_S / per_replay))
        short = [self.bench.timed_replay(arm, count) for _ in range(_CLOCK_ROUNDS)]
        long = [self.bench.timed_replay(arm, 2 * count) for _ in range(_CLOCK_ROUNDS)]
        seconds = (statistics.median(long) - statistics.median(short)) / count
        return seconds * 1e6 / self.load.calls

    def _state_checks(self) -> list[Check]:
        """The slots hold what so many replays make of them, on a sample drawn now."""
        where = bench.sample_rows(self.load, self.rng, _CHECKED_ROWS)
        got = self.bench.state("fused", where)
        fixed = recurrence.after(self.load.picked(where), self.options, self.bench.replays["fused"])
        missing = float(np.median(recurrence.hidden_error(got["ssm_state"], fixed)))
        error = compare.relative_l2(got["ssm_state"], fixed.state)
        out = compare.relative_l2(bf16_to_float(got["out"]), bf16_to_float(fixed.out))
        window = int((got["conv_state"] != fixed.window).sum())
        return [
            _bounded("replays_missing", missing, _STEP_TOLERANCE),
            _bounded("state_after_replays", error, _STATE_TOLERANCE),
            _bounded("out_after_replays", out, _OUT_TOLERANCE),
            Check(name="conv_state_wrong", passed=not window, value=window, bound=0),
        ]

    def _measurements(
        self, events: Mapping[str, list[float]], clocks: Mapping[str, object], slope: float
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
                    peak=self.peak,
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
        host = self.bench.host("fused", _HOST_BLOCKS, _HOST_CALLS)
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
        return _at_least("claim_over_judge_clock", fused.median / slope, _CLAIM_TOLERANCE)

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


def _untimed(planned: Planned, session: Session) -> Judged:
    """A device without event timers: wall time or counted bytes, and the contract's bytes."""
    rng = session.seed.rng(planned.id)
    options = CallOptions(fp8=planned.fp8)
    walls, trips, checks, names = [], [], [], []
    counters: Mapping[str, int] = {}
    for _ in range(_CPU_SAMPLES):
        operands = generate.operands(rng, planned.heads, planned.rows, slots=planned.rows + 1)
        begin = time.perf_counter()
        result = session.call(operands, options)
        trips.append((time.perf_counter() - begin) * 1e6)
        walls.append((result.seconds or 0.0) * 1e6)
        counters = result.counters
        checks.append(correctness.judge_once(operands, options, result, session))
        names += [kernel.name for kernel in result.kernels]
    moved = call_bytes(planned.heads, planned.rows, planned.fp8)
    names = list(dict.fromkeys(names))
    if not counters:
        return Judged(correctness.merge(checks), names, _walls(moved, walls, trips))
    found = [_counted("fused", moved, counters)]
    if session.chain:
        chain = session.call(operands, dataclasses.replace(options, chain=True))
        found.append(_counted("chain", moved, chain.counters))
    return Judged(correctness.merge(checks), names, found, _byte_ratio(found))


def _walls(moved: int, walls: list[float], trips: list[float]) -> list[Measurement]:
    label = "wall time on a CPU, interpreted: says nothing about a device"
    kind = MeasurementKind.WALL_TIME
    timed = [("round_trip", trips), *([("fused", walls)] if min(walls) > 0 else [])]
    return [
        measurement(name, kind, times, label=label, calls_per_sample=1)
        for name, times in reversed(timed)
    ] + [
        Measurement(
            name="contract_bytes",
            kind=MeasurementKind.EMULATED_TRAFFIC,
            unit="bytes",
            contract_bytes=moved,
            label="bytes of one call by the contract's model; nothing was counted here",
        )
    ]


def _byte_ratio(found: list[Measurement]) -> dict[str, float]:
    fused, *chain = (m.measured_bytes or 0 for m in found)
    return {"chain_bytes_over_fused": chain[0] / fused} if chain and fused else {}


def _counted(name: str, moved: int, counters: Mapping[str, int]) -> Measurement:
    read, written = counters.get("read_bytes", 0), counters.get("written_bytes", 0)
    return Measurement(
        name=name,
        kind=MeasurementKind.EMULATED_TRAFFIC,
        unit="bytes",
        contract_bytes=moved,
        measured_bytes=read + written,
        label=f"counted by the emulator: {read} bytes read, {written} written; no time",
    )


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
