"""How long a job may take, over the hosts that have it; the steps run without the queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdn_judge.document import FailureClass, Verdict
from gdn_service.errors import WorkerStopping
from gdn_service.jobs import flow
from gdn_service.jobs.flow import JobFlow
from gdn_service.jobs.judging import Judged, Result
from gdn_service.store.models import Job
from gdn_service.store.store import Store
from support.service_bench import bench_settings
from support.service_rows import add_job, add_target

LIMIT_S = 100.0
SPOILED = Judged(result=Result.HOST, reason="busy", failure_class=FailureClass.HOST, host_tries=1)
FAILED = Judged(result=Result.FAILED, reason="no", verdict=Verdict.FAILED)
STORED = Judged(result=Result.DOCUMENT)  # of a run that has its result


class Time:
    """A monotonic clock of one host; each has a zero of its own."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Judge:
    """Each run takes `took_s` and ends as the next of `ends`."""

    def __init__(self, time: Time, took_s: float, *ends: Judged | type[Exception]) -> None:
        self.time = time
        self.took_s = took_s
        self.ends = list(ends)
        self.runs: list[str] = []

    def run(self, job_id: str, suite: str) -> Judged:
        self.runs.append(suite)
        self.time.now_s += self.took_s
        end = self.ends.pop(0)
        if isinstance(end, Judged):
            return end
        raise end


class Steps:
    """Durable steps, as the queue has them: in their order, and none runs twice."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []

    def start(self) -> Callable[..., Any]:
        """Of one start of the flow; a step in the place of another is an error."""
        replayed = iter(list(self.done))

        def step(name: str, function: Callable[..., Any], *given: Any) -> Any:
            recorded, result = next(replayed, (None, None))
            if recorded is None:
                result = function(*given)
                self.done.append((name, result))
            else:
                assert recorded == name
            return result

        return step


class Killed(BaseException):
    """The worker is gone, without a word."""


def killed(*_: Any) -> None:
    raise Killed


def killed_before(suite: str) -> Callable[..., None]:
    """A step `store_result` that stores those of other suites alone."""
    store = JobFlow.store_result

    def store_result(self: JobFlow, job_id: str, of: str, judged: Judged) -> None:
        if of == suite:
            raise Killed
        store(self, job_id, of, judged)

    return store_result


Host = Callable[..., Judge]


@pytest.fixture
def on_host(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Runs the job's flow on one host; gives the judge that it had."""
    monkeypatch.setattr(flow, "_step", lambda name, function, *given: function(*given))
    monkeypatch.setattr(JobFlow, "check_out", lambda self, job_id: None)
    add_target(store)

    def run(
        job: Job, name: str, took_s: float, *ends: Judged | type[Exception], hands_on: bool = False
    ) -> Judge:
        time = Time()
        time.now_s = 1e6 * len(name)
        monkeypatch.setattr(flow, "time", time)
        judge = Judge(time, took_s, *ends)
        settings = bench_settings(
            tmp_path,
            "",
            worker_name=name,
            kernel_timeout_s=1,
            suite_timeout_s=2,
            job_timeout_s=LIMIT_S,
        )
        checkouts: Any = None
        runner: Any = judge
        made = JobFlow(store=store, checkouts=checkouts, judge=runner, settings=settings)

        def hand_on(self: JobFlow, job_id: str) -> bool:
            with store.write() as tx:
                return hands_on and tx.jobs.hand_on(job_id, name)

        monkeypatch.setattr(JobFlow, "hand_on", hand_on)
        with store.write() as tx:
            claim = tx.jobs.claim(job.id, name)
            if claim is None:  # a worker that is back has it still
                claim = tx.session.get_one(Job, job.id).claim
        made.run(job.id, claim)
        return judge

    return run


def ended(store: Store, job: Job) -> tuple[str, str, float | None]:
    with store.read() as tx:
        found = tx.session.get_one(Job, job.id)
        return found.state, found.reason, found.duration_s


def test_a_job_that_moves_has_the_time_that_is_left(store: Store, on_host: Host) -> None:
    job = add_job(store, suites=("correctness", "determinism", "roofline"))
    assert on_host(job, "a", 60, SPOILED, hands_on=True).runs == ["correctness"]
    assert on_host(job, "bb", 30, FAILED, FAILED).runs == ["correctness", "determinism"]
    assert ended(store, job) == ("error", "the job took over 100 s; what was done is kept", 120)


def test_a_job_within_its_time_lasted_as_long_as_all_its_hosts_had_it(
    store: Store, on_host: Host
) -> None:
    job = add_job(store)
    on_host(job, "a", 60, SPOILED, hands_on=True)
    on_host(job, "bb", 30, FAILED)
    state, reason, duration_s = ended(store, job)
    assert (state, reason, duration_s) == ("failed", "correctness: no", 90)


def test_tries_of_one_suite_end_with_the_jobs_time(store: Store, on_host: Host) -> None:
    job = add_job(store)
    assert len(on_host(job, "a", 60, SPOILED, SPOILED, SPOILED).runs) == 2
    assert ended(store, job)[1] == "the job took over 100 s; what was done is kept"


def test_the_time_before_a_worker_was_stopped_counts(store: Store, on_host: Host) -> None:
    job = add_job(store, suites=("correctness", "determinism"))
    with pytest.raises(WorkerStopping):
        on_host(job, "a", 110, WorkerStopping)
    assert on_host(job, "a", 1).runs == []
    assert ended(store, job) == ("error", "the job took over 100 s; what was done is kept", 110)


def test_a_job_whose_suites_all_have_results_ends_by_them_however_late(
    store: Store, on_host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(store)
    with monkeypatch.context() as patch:
        patch.setattr(JobFlow, "finish", killed)
        with pytest.raises(Killed):
            on_host(job, "a", 110, FAILED)
    on_host(job, "a", 0, STORED)
    assert ended(store, job) == ("failed", "correctness: no", 110)


def test_a_flow_that_is_recovered_late_takes_the_way_that_it_took(
    store: Store, on_host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(store, suites=("correctness", "determinism", "roofline"))
    steps = Steps()
    with monkeypatch.context() as patch:
        patch.setattr(flow, "_step", steps.start())
        patch.setattr(JobFlow, "store_result", killed_before("determinism"))
        with pytest.raises(Killed):
            on_host(job, "a", 60, FAILED, FAILED)
    monkeypatch.setattr(flow, "_step", steps.start())
    assert on_host(job, "a", 60).runs == []
    assert [name for name, _ in steps.done] == [
        "check out",
        "judge correctness",
        "store correctness",
        "judge determinism",
        "store determinism",
        "judge roofline",
        "finish",
    ]
    assert ended(store, job)[1] == "the job took over 100 s; what was done is kept"
