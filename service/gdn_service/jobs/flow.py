"""The life of a job. Read this first.

    begin ─> check out ─> per suite: judge ─> store ─> finish
                                       └─> hand on      (the host spoiled it; another takes the job)

`run` is a DBOS workflow and every `_step` in it is durable: after a kill at any
point the job goes on at the step that was not recorded. A step may therefore
run twice and is written so that the second time changes nothing.

`judge` (judging.py) is one step on purpose. It locks a device, asserts that it is idle, runs
the judge, asserts that it still is, and keeps the document; the lock dies with
its holder and half a measurement is worth nothing, so it starts over as a whole.

A flow belongs to one claim of one host (queue.py). A job that another host takes gets a flow
there, in which the steps that are done already change nothing; an older flow, woken later, ends
in `begin`.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from dbos import DBOS

from gdn_judge.document import FailureClass, Verdict
from gdn_service.errors import GitError, GitOverLimit, WorkerStopping
from gdn_service.jobs import placement
from gdn_service.jobs.assignment import Assignment, load_assignment, load_job
from gdn_service.jobs.judging import Judged, Result, SuiteJudge, failed
from gdn_service.jobs.requests import log_line
from gdn_service.jobs.states import JobState, RunState, job_state
from gdn_service.jobs.verdicts import read_document
from gdn_service.runner.checkouts import CHECKOUT_ERRORS, Checkouts
from gdn_service.settings import Settings
from gdn_service.store import log
from gdn_service.store.models import Commit, Job, Run
from gdn_service.store.store import Store

_log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a job ends before its suites have run."""

    failure_class: FailureClass
    reason: str


class HandedOn(Exception):
    """Another host takes the job; raised and caught in this module."""


class OutOfTime(Exception):
    """The job has taken as long as it may; raised and caught in this module."""


class Spent:
    """The time spent on a job: by hosts that had it before, and here since the flow began.

    What a host had not told yet when it died is lost; the number of starts bounds that.
    """

    def __init__(self, store: Store, job_id: str) -> None:
        self._store = store
        self._job_id = job_id
        self._since = time.monotonic()
        self._told = load_job(store, job_id)[0].spent_s

    @property
    def seconds(self) -> float:
        return self._told + time.monotonic() - self._since

    def tell(self) -> None:
        """Keep it in the store, for the next host or the next start of this one."""
        moment = time.monotonic()
        lap, self._since = moment - self._since, moment
        self._told += lap
        with self._store.write() as tx:
            tx.jobs.spend(self._job_id, lap)


@dataclass(frozen=True, kw_only=True)
class JobFlow:
    store: Store
    checkouts: Checkouts
    judge: SuiteJudge
    settings: Settings

    def run(self, job_id: str, claim: int) -> None:
        """The life of one job on this host: to its end, or until another host takes it."""
        if not self._begin(job_id, claim):
            return
        spent = Spent(self.store, job_id)
        failure: Failure | None
        try:
            failure = self._go(job_id, spent)
        except WorkerStopping:
            spent.tell()
            self._give_back(job_id)
            raise
        except HandedOn:
            return
        except OutOfTime:
            limit = f"{self.settings.job_timeout_s:g} s"
            failure = _failure(
                FailureClass.SERVICE, f"the job took over {limit}; what was done is kept"
            )
        except Exception as error:  # noqa: BLE001 - the job ends with it, the worker goes on
            _log.exception("job failed by a fault of the service", job=job_id)
            failure = _failure(FailureClass.SERVICE, f"{type(error).__name__}: {error}")
        _step("finish", self.finish, job_id, failure, spent.seconds)

    def _go(self, job_id: str, spent: Spent) -> Failure | None:
        """Raises HandedOn, OutOfTime."""
        failure = _step("check out", self.check_out, job_id)
        if failure is not None:
            return failure
        for suite in load_job(self.store, job_id)[0].suites:
            if self._cancelled(job_id):
                return None
            judged = self._judge_with_retries(job_id, suite, spent)
            _step(f"store {suite}", self.store_result, job_id, suite, judged)
        return None

    def _judge_with_retries(self, job_id: str, suite: str, spent: Spent) -> Judged:
        """Again while the host spoils it, elsewhere if possible; the last time is its error.

        Raises HandedOn, and OutOfTime before a run: one that has begun has its own limit.
        """
        while True:
            judged = _step(f"judge {suite}", self.judge_in_time, job_id, suite, spent)
            if judged is None:
                raise OutOfTime
            spent.tell()
            if judged.result is not Result.HOST or judged.host_tries >= self.settings.host_tries:
                return given_up(judged, self.settings.host_tries)
            if _step(f"hand on {suite}", self.hand_on, job_id):
                raise HandedOn

    def _begin(self, job_id: str, claim: int) -> bool:
        """Counts each start, also after a crash: a job that kills its worker ends here."""
        with self.store.write() as tx:
            tries = tx.jobs.start(job_id, self.settings.worker_name, claim)
            if tries is None:
                return False
            text = "started" if tries == 1 else f"started again, try {tries}"
            if tries == 1 and claim > 1:
                text = f"goes on, on {self.settings.worker_name}"
            tx.log.append(job_id, [_state_event(JobState.RUNNING, text)])
        if tries > self.settings.job_tries:
            self.finish(
                job_id,
                _failure(
                    FailureClass.SERVICE,
                    f"the worker died {tries - 1} times while it ran this job; given up",
                ),
                None,
            )
            return False
        return True

    def _give_back(self, job_id: str) -> None:
        with self.store.write() as tx:
            tx.jobs.give_back_try(job_id)
        self.store.say(job_id, "the worker is stopping; the job goes on when one is back")

    # The steps.

    def check_out(self, job_id: str) -> Failure | None:
        """Export the commit's tree and keep the facts of the commit."""
        job, target = load_job(self.store, job_id)
        try:
            checkout = self.checkouts.export(target, job.commit_sha, job.bundle_id)
            facts = self.checkouts.resolve(target, job.commit_sha)
        except CHECKOUT_ERRORS as error:
            return _failure(_at_fault(error), f"the commit cannot be checked out: {error}")
        with self.store.write() as tx:
            tx.targets.add_commit(
                Commit(
                    target=target.name,
                    sha=facts.sha,
                    subject=facts.subject,
                    author_date=facts.author_date,
                    parents=list(facts.parents),
                )
            )
        for note in (f"checked out {job.commit_sha}", *checkout.notes):
            self.store.say(job_id, note)
        return None

    def judge_in_time(self, job_id: str, suite: str, spent: Spent) -> Judged | None:
        """None where the job's time is over; a suite that has its result needs none.

        Within the step, so that a flow that is recovered takes the way that it took.
        """
        run = load_assignment(self.store, job_id, suite).run
        if run.state != RunState.FINISHED and spent.seconds > self.settings.job_timeout_s:
            return None
        return self.judge.run(job_id, suite)

    def hand_on(self, job_id: str) -> bool:
        """Leave the job to hosts that spoiled it less; False where there is none."""
        here = self.settings.worker_name
        with self.store.write() as tx:
            job = tx.session.get_one(Job, job_id)
            turn = placement.hosts_for(tx, job_id, job.device_kind)
            if not turn or here in turn or not tx.jobs.hand_on(job_id, here):
                return False
            names = " or ".join(sorted(turn))
            tx.log.append(job_id, [log_line(f"{here} spoiled it; the job goes to {names}")])
        return True

    def store_result(self, job_id: str, suite: str, judged: Judged) -> None:
        """Write the run's result, once."""
        asked = load_assignment(self.store, job_id, suite)
        run = asked.run
        if (
            self._taken(asked.job)
            or run.state == RunState.FINISHED
            or judged.result is Result.CANCELLED
        ):
            return
        if judged.result is Result.DOCUMENT:
            judged = self._store_document(asked)
        with self.store.write() as tx:
            if judged.result is not Result.DOCUMENT:
                tx.results.discard(run.id)
                tx.jobs.finish_run(
                    run.id,
                    verdict=judged.verdict,
                    failure_class=judged.failure_class,
                    reason=judged.reason,
                )
        self.store.say(job_id, f"{suite}: {judged.verdict} {judged.reason}".strip(), run=run.id)
        shutil.rmtree(self.settings.work_dir / run.id, ignore_errors=True)

    def finish(self, job_id: str, failure: Failure | None, duration_s: float | None) -> None:
        """The job's final state, from its runs."""
        with self.store.write() as tx:
            job = tx.jobs.get(job_id)
            if job is None or self._taken(job):
                return
            state, failure_class, reason = _sum_up(job, failure)
            if tx.jobs.finish(
                job_id, state, reason=reason, failure_class=failure_class, duration_s=duration_s
            ):
                tx.jobs.cancel_runs(job_id, reason)
                tx.log.append(job_id, [_state_event(state, reason)])
        _log.info("job finished", job=job_id, state=str(state), reason=reason)

    def _store_document(self, asked: Assignment) -> Judged:
        with self.store.write() as tx:
            body = tx.results.document(asked.run.id)
            if body is None:
                return failed(FailureClass.SERVICE, "the judge's document was lost")
            document = read_document(body, asked)
            tx.results.store(asked.run.id, document)
        return Judged(result=Result.DOCUMENT, verdict=document.verdict, reason=document.reason)

    def _taken(self, job: Job) -> bool:
        """Another host has it: this one was thought dead, and its word comes too late."""
        return job.worker not in (None, self.settings.worker_name)

    def _cancelled(self, job_id: str) -> bool:
        with self.store.read() as tx:
            return tx.jobs.cancel_requested(job_id)


def given_up(judged: Judged, tries: int) -> Judged:
    """What the last of `tries` amounts to: one that the host spoiled is no verdict on the op."""
    if judged.result is not Result.HOST:
        return judged
    reason = f"{judged.reason} (given up after {tries} tries)"
    return dataclasses.replace(judged, verdict=Verdict.ERROR, reason=reason)


def _step(name: str, function: Callable[..., T], *arguments: Any) -> T:
    """Run once and for all: a recorded result is returned without running again."""
    return DBOS.run_step({"name": name}, function, *arguments)


def _at_fault(error: Exception) -> FailureClass:
    """A commit that git cannot hold within its limits is at fault, not the host."""
    by_host = isinstance(error, GitError) and not isinstance(error, GitOverLimit)
    return FailureClass.HOST if by_host else FailureClass.CANDIDATE


def _failure(failure_class: FailureClass, reason: str) -> Failure:
    return Failure(failure_class=failure_class, reason=reason[:2000])


def _sum_up(job: Job, failure: Failure | None) -> tuple[JobState, str | None, str]:
    if job.cancel_requested:
        return JobState.CANCELLED, None, "cancelled on request"
    if failure is not None:
        return JobState.ERROR, failure.failure_class, failure.reason
    state = job_state(Verdict(run.verdict) if run.verdict else None for run in job.runs)
    blamed = next((run for run in job.runs if job_state([_verdict(run)]) is state), None)
    if state is JobState.PASSED or blamed is None:
        return state, None, ""
    failure_class = blamed.failure_class or (
        FailureClass.CANDIDATE if state is JobState.FAILED else None
    )
    return state, failure_class, f"{blamed.suite}: {blamed.reason or blamed.verdict or 'no result'}"


def _verdict(run: Run) -> Verdict | None:
    return Verdict(run.verdict) if run.verdict else None


def _state_event(state: JobState, reason: str) -> tuple[str, dict[str, Any]]:
    return log.STATE, {"state": str(state), "reason": reason}
