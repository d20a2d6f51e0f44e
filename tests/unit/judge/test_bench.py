"""The timed windows between judge and candidate, over a real process with a pretended CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gdn_judge import bench, compare, recurrence
from gdn_judge.candidate import Launch
from gdn_judge.contract import Heads
from gdn_judge.errors import CandidateRaised, ProtocolViolation
from gdn_judge.generate import Seed
from gdn_judge.operands import CallOptions
from gdn_judge.remote import RemoteExecutor
from support import plain_op

SUPPORT = Path(plain_op.__file__).parent
OPTIONS = CallOptions(fp8=True)
LOAD = bench.workload(Seed(b"bench").rng("load"), Heads(1, 2), 2, calls=10, replays=20)
WHERE = [(0, 0), (3, 1), (9, 1)]


@pytest.fixture(scope="module")
def executor() -> Iterator[RemoteExecutor]:
    launch = Launch(
        root=SUPPORT,
        import_path="pretend_cuda:fused_gdn_decode_qkvz",
        chain="pretend_cuda:lazy",
        python_path=[SUPPORT],
    )
    made = RemoteExecutor(launch)
    made.start()
    yield made
    made.close()


@pytest.fixture
def windows(executor: RemoteExecutor) -> bench.Bench:
    return bench.Bench(executor.candidate, LOAD, OPTIONS)


def test_replays_are_counted_and_leave_their_state(windows: bench.Bench) -> None:
    assert windows.replays == {"fused": 0, "chain": 0}
    assert windows.timed_replay("fused", 3) > 0
    times = windows.samples(["fused", "chain", "chain", "fused"], {"fused": 2, "chain": 1})
    assert len(times) == 4
    assert min(times) > 0
    assert windows.replays == {"fused": 7, "chain": 2}
    got = windows.state("fused", WHERE)
    fixed = recurrence.after(LOAD.picked(WHERE), OPTIONS, 7)
    assert np.array_equal(got["conv_state"], fixed.window)
    assert compare.relative_l2(got["ssm_state"], fixed.state) < 1e-5
    assert recurrence.hidden_error(got["ssm_state"], fixed).max() < 0.01
    assert (got["out"] == fixed.out).mean() > 0.97


def test_the_arms_have_pools_of_their_own(windows: bench.Bench) -> None:
    windows.timed_replay("chain", 5)
    start = LOAD.picked(WHERE)
    untouched = windows.state("fused", WHERE)
    assert np.array_equal(untouched["ssm_state"], start.ssm_state)
    assert np.array_equal(untouched["conv_state"], start.conv_state)


def test_an_op_on_few_slots_is_seen(windows: bench.Bench) -> None:
    windows.timed_replay("chain", 8)
    got = windows.state("chain", WHERE)
    fixed = recurrence.after(LOAD.picked(WHERE), OPTIONS, 8)
    assert np.median(recurrence.hidden_error(got["ssm_state"], fixed)) > 4


def test_the_host_is_timed_apart(windows: bench.Bench) -> None:
    times = windows.host("fused", 3, 4)
    assert len(times) == 3
    assert windows.replays["fused"] == 0


def test_a_window_that_fails_says_why(windows: bench.Bench) -> None:
    windows.replays["other"] = 0
    with pytest.raises(CandidateRaised, match="KeyError"):
        windows.timed_replay("other", 1)


@pytest.mark.parametrize("arms", [[], ["chain"], [{}], "fused", None, ["fused", "fused"]])
def test_arms_of_another_form_break_the_protocol(arms: object) -> None:
    class Answers:
        def ask(self, *_: object, **__: object) -> dict[str, object]:
            return {"arms": arms}

    with pytest.raises(ProtocolViolation, match="the arms read"):
        bench.Bench(Answers(), LOAD, OPTIONS)  # type: ignore[arg-type]


@pytest.mark.parametrize("time", [10**400, float("inf"), float("nan"), 0, -1, "1", None])
def test_a_time_is_a_plausible_number(time: object) -> None:
    with pytest.raises(ProtocolViolation, match="a time is not"):
        bench._times({"us": [1.0, time]}, 2)
