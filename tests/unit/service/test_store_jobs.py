from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from gdn_service.jobs.states import JobState, RunState
from gdn_service.store.store import Store
from support.service_rows import DEVICE, SHA, add_device, add_job, add_target

WRITERS = 8
JOBS = {"sqlite": 1000, "postgresql": 200}


@pytest.fixture(autouse=True)
def target(store: Store) -> None:
    add_target(store)
    add_device(store)


@pytest.mark.slow
def test_eight_writers_claim_each_job_once(store: Store) -> None:
    """Every writer tries every job, all at the same time; "database is locked" never comes."""
    count = JOBS[store.database.engine.dialect.name]
    ids = [add_job(store, suites=(), id=f"j{n:016d}").id for n in range(count)]
    wins: list[tuple[str, int]] = []
    errors: list[BaseException] = []
    gate = threading.Barrier(WRITERS)

    def write(number: int) -> None:
        gate.wait()
        try:
            for job_id in ids:
                with store.write() as tx:
                    if tx.jobs.claim(job_id, f"w{number}"):
                        wins.append((job_id, number))
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert Counter(job_id for job_id, _ in wins) == dict.fromkeys(ids, 1)


def test_every_start_of_a_job_is_counted(store: Store) -> None:
    job = add_job(store)
    with store.write() as tx:
        assert tx.jobs.claim(job.id, "w") == 1
        assert tx.jobs.start(job.id, "w", 1) == 1
        assert tx.jobs.start(job.id, "w", 1) == 2
        tx.jobs.give_back_try(job.id)
        assert tx.jobs.start(job.id, "w", 1) == 2


def test_a_claim_that_is_not_in_force_starts_and_ends_nothing(store: Store) -> None:
    """A host hands a job on; the flow of its old claim wakes up later."""
    job = add_job(store)
    ended = {"reason": "r", "failure_class": None, "duration_s": None}
    with store.write() as tx:
        assert tx.jobs.claim(job.id, "a") == 1
        assert tx.jobs.start(job.id, "a", 1) == 1
        assert not tx.jobs.hand_on(job.id, "b")
        assert tx.jobs.hand_on(job.id, "a")
        assert tx.jobs.unclaimed("interpreter") == [job.id]
        assert tx.jobs.start(job.id, "a", 1) is None
        assert tx.jobs.claim(job.id, "b") == 2
        assert tx.jobs.start(job.id, "b", 2) == 1
        assert tx.jobs.start(job.id, "a", 1) is None
        assert not tx.jobs.void_claim(job.id, 1)
        assert not tx.jobs.finish(job.id, JobState.ERROR, claim=1, **ended)
        assert tx.jobs.held("b") == [(job.id, 2, "interpreter")]
        assert tx.jobs.request_cancel(job.id)
        assert not tx.jobs.hand_on(job.id, "b")
        assert tx.jobs.void_claim(job.id, 2)
        assert tx.jobs.claim(job.id, "a") == 3
        assert tx.jobs.finish(job.id, JobState.ERROR, claim=3, **ended)
        assert tx.jobs.claim(job.id, "a") is None


def test_the_time_spent_on_a_job_adds_up(store: Store) -> None:
    job = add_job(store)
    with store.write() as tx:
        tx.jobs.spend(job.id, 1.5)
        tx.jobs.spend(job.id, 2.0)
    with store.read() as tx:
        assert [tx.session.get_one(type(job), job.id).spent_s] == [3.5]


def test_a_final_state_is_reached_once_and_never_left(store: Store) -> None:
    job = add_job(store)
    with store.write() as tx:
        tx.jobs.claim(job.id, "w")
        tx.jobs.start(job.id, "w", 1)
        ended = {"reason": "r", "failure_class": None, "duration_s": 1.0}
        assert tx.jobs.finish(job.id, JobState.PASSED, **ended)
        assert not tx.jobs.finish(job.id, JobState.ERROR, **ended)
        assert tx.jobs.start(job.id, "w", 1) is None
        assert not tx.jobs.request_cancel(job.id)
    with store.read() as tx:
        found = tx.jobs.get(job.id)
        assert found is not None
        assert (found.state, found.duration_s) == ("passed", 1.0)


def test_cancelling_ends_the_runs_that_have_no_result(store: Store) -> None:
    job = add_job(store, suites=("correctness", "roofline"))
    done, waiting = job.runs
    with store.write() as tx:
        tx.jobs.start_run(done.id, DEVICE)
        assert tx.jobs.finish_run(done.id, verdict="passed")
        tx.jobs.cancel_runs(job.id, "why")
    with store.read() as tx:
        runs = {run.id: run for run in tx.session.get_one(type(job), job.id).runs}
    assert runs[done.id].state == RunState.FINISHED
    assert (runs[waiting.id].state, runs[waiting.id].reason) == ("cancelled", "why")


def test_the_same_question_finds_open_and_stored_jobs(store: Store) -> None:
    passed = add_job(store, fingerprint="a" * 64, state=JobState.PASSED)
    waiting = add_job(store, fingerprint="b" * 64)
    add_job(store, fingerprint="c" * 64, state=JobState.ERROR)
    with store.write() as tx:
        found = tx.jobs.stored("a" * 64)
        assert found is not None
        assert found.id == passed.id
        assert tx.jobs.open("a" * 64) is None
        joined = tx.jobs.open("b" * 64)
        assert joined is not None
        assert joined.id == waiting.id
        assert tx.jobs.stored("c" * 64) is None
        tx.jobs.request_cancel(waiting.id)
        assert tx.jobs.open("b" * 64) is None


def test_queue_positions_count_within_a_device_kind(store: Store) -> None:
    first = add_job(store, id="j1")
    other = add_job(store, id="j2", device_kind="sm90")
    second = add_job(store, id="j3")
    with store.read() as tx:
        assert [tx.jobs.queue_position(job) for job in (first, other, second)] == [1, 1, 2]


def test_pages_go_back_in_time_without_gaps(store: Store) -> None:
    ids = [add_job(store, id=f"j{n}").id for n in range(5)]
    seen: list[str] = []
    before = None
    with store.read() as tx:
        while page := tx.jobs.page(state=None, commit=SHA, target="demo", before=before, limit=2):
            seen += [job.id for job in page]
            before = seen[-1]
    assert seen == ids[::-1]


def test_a_narrowed_run_never_takes_the_place_of_the_whole_plan(store: Store) -> None:
    plans: dict[str, dict[str, Any]] = {
        "j1": {},
        "j2": {"batch_sizes": [256]},
        "j3": {"quick": True},
        "j4": {"batch_sizes": [256]},
    }
    for name, plan in plans.items():
        job = add_job(store, id=name, **plan)
        with store.write() as tx:
            tx.jobs.start_run(job.runs[0].id, DEVICE)
            tx.jobs.finish_run(job.runs[0].id, verdict="failed" if name == "j1" else "passed")
    with store.read() as tx:
        assert [run.job_id for run in tx.jobs.results(SHA, "demo", None)] == ["j1", "j3", "j4"]


def test_results_show_the_latest_valid_run_of_each_suite(store: Store) -> None:
    old, new = add_job(store, id="j1"), add_job(store, id="j2")
    for job in (old, new):
        with store.write() as tx:
            tx.jobs.start_run(job.runs[0].id, DEVICE)
            tx.jobs.finish_run(job.runs[0].id, verdict="passed")
    with store.read() as tx:
        assert [run.job_id for run in tx.jobs.results(SHA, "demo", None)] == ["j2"]
        assert tx.jobs.results(SHA, "demo", "sm90") == []
