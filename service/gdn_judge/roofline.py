"""The roofline suite: how close to the memory roofline.

With event timers a case is timed (`timed`). A device on the CPU has no device
time: wall time is labelled, and an emulator's exact bytes stand beside the
contract's.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

from gdn_judge import bench, cases, correctness, generate
from gdn_judge.cases import Planned
from gdn_judge.contract import call_bytes
from gdn_judge.document import Measurement, MeasurementKind
from gdn_judge.errors import HostError
from gdn_judge.judged import Judged
from gdn_judge.operands import CallOptions
from gdn_judge.remote import RemoteExecutor
from gdn_judge.samples import measurement
from gdn_judge.session import Session
from gdn_judge.timed import Timed, expected_replays

_CPU_SAMPLES = 3


plan = cases.roofline


def judge(planned: Planned, session: Session) -> Judged:
    """Time one planned case. Raises CandidateError and OutOfTime."""
    executor = session.executor()
    yardsticks = session.setting.yardsticks
    if yardsticks is None:
        return _untimed(planned, session)
    if not isinstance(executor, RemoteExecutor):
        raise HostError("only a candidate process on a device can be timed")
    cache = max(session.device_spec.cache, int(yardsticks.facts.get("device.l2") or 0))
    calls = bench.call_count(planned.heads, planned.rows, cache)
    moved = call_bytes(planned.heads, planned.rows, planned.fp8)
    replays = expected_replays(calls, moved, session.device_spec.peak)
    rng = session.seed.rng(planned.id)
    load = bench.workload(rng, planned.heads, planned.rows, calls, replays)

    def measured() -> Judged:
        windows = bench.Bench(executor.candidate, load, CallOptions(fp8=planned.fp8))
        session.saw(windows.loaded)
        timed = Timed(planned, session, yardsticks, session.setting.probe, load, windows)
        return timed.run()

    return session.guarded(measured)


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
        label="bytes counted by the emulator; no time",
    )
