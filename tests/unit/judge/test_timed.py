"""Claims against evidence, with a device that is simulated at the seam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from gdn_judge import bench, recurrence
from gdn_judge.cases import Planned
from gdn_judge.contract import Heads, call_bytes
from gdn_judge.document import DeviceKind, Outcome
from gdn_judge.generate import Seed
from gdn_judge.judged import Judged
from gdn_judge.operands import Array, CallOptions
from gdn_judge.session import Session
from gdn_judge.telemetry import NoProbe
from gdn_judge.timed import Timed, expected_replays
from gdn_judge.yardsticks import Canary, Yardsticks

HEADS = Heads(1, 2)
PLANNED = Planned(id="x", kind="roofline", heads=HEADS, rows=2, fp8=False)
BYTES = call_bytes(HEADS, 2, fp8=False)
LOAD = bench.workload(Seed(b"timed").rng("load"), HEADS, 2, calls=10, replays=4000)
YARDSTICKS = Yardsticks(
    rmw=[1000.0],
    rmw_config="1024x4",
    copy=[1000.0],
    launch=[0.5],
    bytes=4_000_000_000,
    canary=Canary(copy=[500.0], compute=[40.0], bytes=512 << 20),
    facts={},
)


class Device:
    """Answers as an honest candidate whose calls take `us` each; `skip` replays are not done."""

    def __init__(self, us: float = 10.0, chain_us: float | None = 25.0, skip: int = 0) -> None:
        self.us = {"fused": us} | ({} if chain_us is None else {"chain": chain_us})
        self.replays = dict.fromkeys(self.us, 0)
        self.skip, self.schedules = skip, []  # type: ignore[var-annotated]
        self.claim_factor, self.names = 1.0, ["fused_kernel"]

    def timed_replay(self, arm: str, count: int) -> float:
        self.replays[arm] += count
        return 30e-6 + count * LOAD.calls * self.us[arm] * 1e-6

    def samples(self, schedule: Sequence[str], replays: Mapping[str, int]) -> list[float]:
        self.schedules.append((list(schedule), dict(replays)))
        for arm in schedule:
            self.replays[arm] += replays[arm]
        return [replays[arm] * LOAD.calls * self.us[arm] * self.claim_factor for arm in schedule]

    def host(self, arm: str, count: int, block: int) -> list[float]:
        return [12.0] * count

    def kernels(self, arm: str) -> list[str]:
        return self.names

    def state(self, arm: str, where: Sequence[tuple[int, int]]) -> dict[str, Array]:
        done = self.replays[arm] - self.skip
        fixed = recurrence.after(LOAD.picked(where), CallOptions(), done)
        return {
            "ssm_state": fixed.state.astype(np.float32),
            "conv_state": fixed.window,
            "out": fixed.out,
        }


def judge(device: Any, launches: int | None = 1) -> Judged:
    session = Session(
        factory=lambda: pytest.fail("no candidate is needed"),  # type: ignore[arg-type, return-value]
        device=DeviceKind.SM90,
        launches=launches,
        quick=True,
        seed=Seed(b"s"),
    )
    return Timed(PLANNED, session, YARDSTICKS, NoProbe(), LOAD, device).run()


def failed(judged: Judged) -> set[str]:
    return {check.name for check in judged.checks if not check.passed}


def test_an_honest_device_passes_with_its_figures() -> None:
    judged = judge(Device())
    assert judged.outcome is Outcome.PASSED, failed(judged)
    fused, chain, clock, host = judged.measurements
    assert (fused.name, chain.name, clock.name, host.name) == (
        "fused",
        "chain",
        "judge_clock",
        "host_call",
    )
    assert fused.median == pytest.approx(10.0)
    assert clock.median == pytest.approx(10.0, rel=1e-6)
    assert fused.tb_per_s == pytest.approx(BYTES / 10e-6 / 1e12)
    assert fused.percent_of_rmw_ceiling == pytest.approx(BYTES / 10e-6 / 4e12 * 100)
    assert fused.calls_per_sample is not None
    assert fused.calls_per_sample >= 10
    assert fused.calls_per_sample * 10.0 >= 100
    assert judged.ratios == {"chain_over_fused": pytest.approx(2.5)}
    assert len(fused.samples) >= 20


def test_the_regime_says_what_binds() -> None:
    floor = BYTES / 4e12 * 1e6
    assert judge(Device(us=floor * 1.1)).measurements[0].regime == "bandwidth"
    assert judge(Device(us=floor * 5)).measurements[0].regime == "latency"


def test_short_claims_are_suspect() -> None:
    device = Device()
    device.claim_factor = 0.5
    judged = judge(device)
    assert failed(judged) == {"claim_over_judge_clock"}
    assert judged.outcome is Outcome.SUSPECT


def test_more_than_the_peak_is_suspect() -> None:
    judged = judge(Device(us=BYTES / 5.5e12 * 1e6, chain_us=None))
    assert "percent_of_peak" in failed(judged)
    assert judged.outcome is Outcome.SUSPECT


@pytest.mark.parametrize("skip", [40, 400])
def test_replays_that_were_not_done_are_suspect(skip: int) -> None:
    judged = judge(Device(skip=skip))
    assert "replays_missing" in failed(judged)
    assert judged.outcome is Outcome.SUSPECT


def test_slots_that_were_not_walked_are_suspect() -> None:
    class Lazy(Device):
        def state(self, arm: str, where: Sequence[tuple[int, int]]) -> dict[str, Array]:
            rows = LOAD.picked(where)
            right = super().state(arm, where)
            return {**right, "ssm_state": rows.ssm_state, "conv_state": rows.conv_state}

    judged = judge(Lazy())
    assert failed(judged) >= {
        "replays_missing",
        "state_after_replays",
        "conv_state_after_replays",
    }
    assert judged.outcome is Outcome.SUSPECT


def test_a_chain_passed_off_as_fused_fails() -> None:
    device = Device()
    device.names = ["split", "convolve", "recur", "norm"]
    judged = judge(device)
    assert failed(judged) == {"launches"}
    assert judged.outcome is Outcome.FAILED
    assert judge(device, launches=None).outcome is Outcome.PASSED


def test_copies_and_fills_are_no_kernels() -> None:
    device = Device()
    device.names = ["Memset (Device)", "fused_kernel"]
    assert judge(device).outcome is Outcome.PASSED


def test_arms_take_turns_so_that_drift_falls_on_both() -> None:
    device = Device()
    judge(device)
    ((schedule, replays),) = device.schedules
    assert schedule[:4] == ["fused", "chain", "chain", "fused"]
    assert schedule.count("fused") == schedule.count("chain") == 20
    assert all(replays[arm] * LOAD.calls * device.us[arm] >= 100 for arm in replays)


def test_replays_are_foreseen_within_a_factor_of_a_few() -> None:
    device = Device(us=10.0, chain_us=None)
    judge(device)
    foreseen = expected_replays(LOAD.calls, int(10e-6 * 4.8e12), 4.8e12)
    assert 0.5 < device.replays["fused"] / foreseen < 1.5


def test_a_device_that_answers_at_once_does_not_go_on_for_ever() -> None:
    class Instant(Device):
        def timed_replay(self, arm: str, count: int) -> float:
            self.replays[arm] += count
            return 1e-9

    judged = judge(Instant(skip=5))
    assert judged.outcome is Outcome.SUSPECT
