"""The closed form against stepping the reference."""

from __future__ import annotations

import numpy as np
import pytest

from gdn_judge import bench, compare, recurrence, reference
from gdn_judge.contract import Heads
from gdn_judge.generate import Seed
from gdn_judge.operands import CallOptions, Operands

OPTIONS = CallOptions()


@pytest.fixture(scope="module")
def rows() -> Operands:
    load = bench.workload(Seed(b"r").rng("load"), Heads(1, 2), 2, calls=10, replays=200)
    return load.picked([(0, 0), (3, 1), (5, 0)])


def stepped(rows: Operands, count: int) -> tuple[Operands, np.ndarray]:  # type: ignore[type-arg]
    after = rows.copy()
    for _ in range(count):
        out = reference.step(after, OPTIONS).out
    return after, out


@pytest.mark.parametrize("count", [4, 5, 60])
def test_closed_form_is_what_the_steps_give(rows: Operands, count: int) -> None:
    after, out = stepped(rows, count)
    fixed = recurrence.after(rows, OPTIONS, count)
    assert compare.relative_l2(after.ssm_state, fixed.state) < 2e-6
    assert np.array_equal(after.conv_state, fixed.window)
    assert (out == fixed.out).mean() > 0.98
    assert recurrence.hidden_error(after.ssm_state, fixed).max() < 0.01


@pytest.mark.parametrize("count", [40, 80])
def test_one_replay_too_few_is_one_step(rows: Operands, count: int) -> None:
    after, _ = stepped(rows, count - 1)
    fixed = recurrence.after(rows, OPTIONS, count)
    error = recurrence.hidden_error(after.ssm_state, fixed)
    assert np.median(error) == pytest.approx(1, abs=0.05)


def test_no_replay_at_all_is_many_steps(rows: Operands) -> None:
    fixed = recurrence.after(rows, OPTIONS, 40)
    assert np.median(recurrence.hidden_error(rows.ssm_state, fixed)) > 20


def test_workload_walks_each_slot_once_and_far_apart() -> None:
    cache = 8 << 20
    calls = bench.call_count(Heads(1, 2), 3, cache)
    load = bench.workload(Seed(b"w").rng("x"), Heads(1, 2), 3, calls, replays=100)
    indices = load.arrays["ssm_state_indices"]
    assert sorted(indices.reshape(-1).tolist()) == list(range(load.slots))
    assert load.slots * load.heads.slot_bytes > 4 * cache
    assert load.calls >= 10
    assert bench.call_count(Heads(1, 2), 3, last_level=1) == 10
