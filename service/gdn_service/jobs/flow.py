"""The life of a job. Read this first.

    begin ─> check out ─> per suite: judge ─> store ─> finish

`run` is a DBOS workflow and every `_step` in it is durable: after a kill at any
point the job goes on at the step that was not recorded. A step may therefore
run twice and is written so that the second time changes nothing.

`judge` is one step on purpose. It locks a device, asserts that it is idle, runs
the judge, asserts that it still is, and keeps the document; the lock dies with
its holder and half a measurement is worth nothing, so it starts over as a whole.
"""

from __future__ import annotations

import enum
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from dbos import DBOS

from gdn_judge.document import DeviceKind, FailureClass, Suite, Verdict
from gdn_service.clock import iso, now
from gdn_service.errors import (
    DeviceBusy,
    DeviceError,
    GitError,
    RunnerError,
    WorkerStopping,
)
from gdn_service.jobs.states import JobState, RunState, job_state
from gdn_service.jobs.verdicts import clean, read_document
from gdn_service.runner.base import Ending, JudgeOutcome, JudgeRequest, RunControl, Runner
from gdn_service.runner.checkouts import CHECKOUT_ERRORS, Checkouts
from gdn_service.runner.inventory import HeldDevice, Inventory
from gdn_service.settings import Settings
from gdn_service.store import log
from gdn_service.store.models import Commit, Job, Run, Target
from gdn_service.store.store import Store

_log = structlog.get_logger(__name__)
T = TypeVar("T")


class Result(enum.StrEnum):
    """How the step `judge` ended."""

    DOCUMENT = "document"  # the judge left one; it is kept
    FAILED = "failed"  # there is none, and a second try would not help
    HOST = "host"  # the host spoiled it; try again
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What the step `judge` records; small, since documents are kept in the store."""

    result: Result
    reason: str = ""
    failure_class: FailureClass | None = None
    verdict: Verdict = Verdict.ERROR


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a job ends before its suites have run."""

    failure_class: FailureClass
    reason: str


class Cancelled(Exception):
    """Someone cancelled the job; raised and caught in this module."""


@dataclass(kw_only=True)
class JobFlow:
    store: Store
    checkouts: Checkouts
    inventory: Inventory
    runner: Runner
    settings: Settings
    stopping: threading.Event

    def run(self, job_id: str) -> None:
        """The whole life of one job, from the queue to its end."""
        started = time.monotonic()
        if not self._begin(job_id):
            return
        failure: Failure | None
        try:
            failure = self._go(job_id, started)
        except WorkerStopping:
            self._give_back(job_id)
            raise
        except Exception as error:  # noqa: BLE001 - the job ends with it, the worker goes on
            _log.exception("job failed by a fault of the service", job=job_id)
            failure = _failure(FailureClass.SERVICE, f"{type(error).__name__}: {error}")
        _step("finish", self.finish, job_id, failure, time.monotonic() - started)

    def _go(self, job_id: str, started: float) -> Failure | None:
        failure = _step("check out", self.check_out, job_id)
        if failure is not None:
            return failure
        for suite in self._suites(job_id):
            if self._cancelled(job_id):
                return None
            if time.monotonic() - started > self.settings.job_timeout_s:
                return _failure(
                    FailureClass.SERVICE,
                    f"the job took over {self.settings.job_timeout_s:g} s; what was done is kept",
                )
            judged = self._judge_with_retries(job_id, suite)
            _step(f"store {suite}", self.store_result, job_id, suite, judged)
        return None

    def _judge_with_retries(self, job_id: str, suite: str) -> Judged:
        """Again while the host spoils it, with a pause between."""
        judged = _step(f"judge {suite}", self.judge, job_id, suite, 0.0)
        for _ in range(1, self.settings.host_tries):
            if judged.result is not Result.HOST:
                break
            judged = _step(f"judge {suite}", self.judge, job_id, suite, self.settings.host_retry_s)
        return judged

    def _begin(self, job_id: str) -> bool:
        """Counts each start, also after a crash: a job that kills its worker ends here."""
        with self.store.write() as tx:
            tries = tx.jobs.start(job_id, self.settings.worker_name)
            if tries is None:
                return False
            text = "started" if tries == 1 else f"started again, try {tries}"
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
        job, target = self._job(job_id)
        try:
            checkout = self.checkouts.export(target, job.commit_sha, job.bundle_id)
            facts = self.checkouts.resolve(target, job.commit_sha)
        except CHECKOUT_ERRORS as error:
            kind = FailureClass.HOST if isinstance(error, GitError) else FailureClass.CANDIDATE
            return _failure(kind, f"the commit cannot be checked out: {error}")
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

    def judge(self, job_id: str, suite: str, pause_s: float) -> Judged:
        """One suite on one idle device, start to end."""
        job, target = self._job(job_id)
        run = self._run(job_id, suite)
        if run.state == RunState.FINISHED:
            return Judged(result=Result.DOCUMENT)
        try:
            self._pause(job_id, pause_s)
            with self.inventory.hold_idle(
                DeviceKind(job.device_kind),
                f"run {run.id}",
                lambda: self._give_up(job_id),
                lambda text: self.store.say(job_id, text, run=run.id),
            ) as held:
                return self._judge_on(held, job, run, target)
        except Cancelled:
            return Judged(result=Result.CANCELLED, reason="cancelled")
        except DeviceBusy as error:
            return self._spoiled(job_id, run, f"host busy: {error}", Verdict.ERROR)
        except DeviceError as error:
            return self._spoiled(job_id, run, str(error), Verdict.ERROR)

    def store_result(self, job_id: str, suite: str, judged: Judged) -> None:
        """Write the run's result, once."""
        job, target = self._job(job_id)
        run = self._run(job_id, suite)
        if run.state == RunState.FINISHED or judged.result is Result.CANCELLED:
            return
        if judged.result is Result.DOCUMENT:
            judged = self._store_document(job, run, target)
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
            if job is None:
                return
            state, failure_class, reason = _sum_up(job, failure)
            if tx.jobs.finish(
                job_id, state, reason=reason, failure_class=failure_class, duration_s=duration_s
            ):
                tx.jobs.cancel_runs(job_id, reason)
                tx.log.append(job_id, [_state_event(state, reason)])
        _log.info("job finished", job=job_id, state=str(state), reason=reason)

    # Parts of the step `judge`.

    def _judge_on(self, held: HeldDevice, job: Job, run: Run, target: Target) -> Judged:
        tree = self.checkouts.export(target, job.commit_sha, job.bundle_id).path
        work_dir = self.settings.work_dir / run.id
        shutil.rmtree(work_dir, ignore_errors=True)
        work_dir.mkdir(parents=True)
        device = held.device
        with self.store.write() as tx:
            tx.jobs.start_run(run.id, device.id)
            tx.leases.acquire(
                f"device:{device.id}",
                run.id,
                host=self.settings.worker_name,
                ttl_s=self.settings.suite_timeout_s,
                force=True,  # the file lock is ours, so any lease there is a dead one's
            )
        self.store.say(job.id, f"{run.suite} on {device.id} ({device.facts.name})", run=run.id)
        request = self._request(job, run, target, held, tree, work_dir)
        try:
            outcome = self.runner.run(request, self._control(job.id, run, held))
            judged = self._classify(outcome, job, run, target)
            return self._still_idle(held, job.id, run, judged)
        except RunnerError as error:
            return _failed(FailureClass.SERVICE, str(error))
        finally:
            with self.store.write() as tx:
                tx.leases.release(f"device:{device.id}", run.id)

    def _classify(self, outcome: JudgeOutcome, job: Job, run: Run, target: Target) -> Judged:
        if outcome.ending is Ending.STOPPED:
            raise WorkerStopping
        if outcome.ending is Ending.CANCELLED:
            raise Cancelled
        if outcome.document is None:
            return _without_document(outcome, self.settings.suite_timeout_s)
        document = read_document(outcome.document, job, run, target)
        if document.failure_class is FailureClass.HOST:
            self._count_host_failure(run, document.reason)
            return Judged(
                result=Result.HOST,
                reason=document.reason,
                failure_class=FailureClass.HOST,
                verdict=document.verdict,
            )
        with self.store.write() as tx:
            tx.results.receive(run.id, outcome.document)
        return Judged(result=Result.DOCUMENT, verdict=document.verdict)

    def _still_idle(self, held: HeldDevice, job_id: str, run: Run, judged: Judged) -> Judged:
        """The second idle assertion, still under the lock."""
        if judged.result is Result.HOST:
            return judged
        report = self.inventory.idle(held.device)
        if report.idle:
            if judged.result is Result.DOCUMENT:
                with self.store.write() as tx:
                    tx.devices.host_success(held.device.id)
            return judged
        if report.dirty:
            with self.store.write() as tx:
                tx.devices.quarantine(held.device.id, f"gpu_dirty: {report.why}")
        reason = f"the device did not stay idle during the run: {report.why}"
        return self._spoiled(job_id, run, reason, Verdict.INCONCLUSIVE)

    def _spoiled(self, job_id: str, run: Run, reason: str, verdict: Verdict) -> Judged:
        with self.store.write() as tx:
            tx.jobs.count_host_failure(run.id)
            tx.results.discard(run.id)
        self.store.say(job_id, reason, run=run.id)
        return Judged(
            result=Result.HOST, reason=reason, failure_class=FailureClass.HOST, verdict=verdict
        )

    def _count_host_failure(self, run: Run, reason: str) -> None:
        with self.store.write() as tx:
            tx.jobs.count_host_failure(run.id)
            device_id = tx.session.get_one(Run, run.id).device_id
            if device_id is not None and tx.devices.host_failure(device_id, reason):
                _log.warning("device quarantined", device=device_id, reason=reason)

    def _request(
        self, job: Job, run: Run, target: Target, held: HeldDevice, tree: Any, work_dir: Any
    ) -> JudgeRequest:
        settings = self.settings
        return JudgeRequest(
            tree=tree,
            import_path=target.import_path,
            python_path=target.python_path,
            chain_import_path=target.chain_import_path,
            target=target.name,
            commit=job.commit_sha,
            suite=Suite(run.suite),
            device_kind=DeviceKind(job.device_kind),
            device_index=held.device.facts.index,
            device_uuid=held.device.facts.uuid,
            batch_sizes=job.batch_sizes,
            heads=job.heads,
            quick=job.quick,
            candidate_user=settings.candidate_user,
            work_dir=work_dir,
            # The judge ends by itself, with a document, before the outer deadline.
            deadline_s=max(settings.suite_timeout_s - 2 * settings.stop_grace_s, 1.0),
            timeout_s=settings.suite_timeout_s,
        )

    def _control(self, job_id: str, run: Run, held: HeldDevice) -> RunControl:
        def events(batch: list[dict[str, Any]]) -> None:
            self.store.append(job_id, [_judge_event(event, run) for event in clean(batch)])

        return RunControl(
            say=lambda text: self.store.say(job_id, text, run=run.id),
            events=events,
            cancelled=lambda: self._cancelled(job_id),
            stopping=self.stopping.is_set,
            lock_fds=(held.lock_fd,),
        )

    def _store_document(self, job: Job, run: Run, target: Target) -> Judged:
        with self.store.write() as tx:
            body = tx.results.document(run.id)
            if body is None:
                return _failed(FailureClass.SERVICE, "the judge's document was lost")
            document = read_document(body, job, run, target)
            tx.results.store(run.id, document)
        return Judged(result=Result.DOCUMENT, verdict=document.verdict, reason=document.reason)

    def _pause(self, job_id: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._give_up(job_id)
        while time.monotonic() < end:
            time.sleep(min(0.5, seconds))
            self._give_up(job_id)

    def _give_up(self, job_id: str) -> None:
        if self.stopping.is_set():
            raise WorkerStopping
        if self._cancelled(job_id):
            raise Cancelled

    def _cancelled(self, job_id: str) -> bool:
        with self.store.read() as tx:
            return tx.jobs.cancel_requested(job_id)

    def _suites(self, job_id: str) -> list[str]:
        return list(self._job(job_id)[0].suites)

    def _job(self, job_id: str) -> tuple[Job, Target]:
        with self.store.read() as tx:
            job = tx.session.get_one(Job, job_id)
            return job, tx.session.get_one(Target, job.target)

    def _run(self, job_id: str, suite: str) -> Run:
        with self.store.read() as tx:
            run = tx.jobs.run_of(job_id, suite)
        if run is None:
            raise LookupError(f"job {job_id} has no run of suite {suite}")
        return run


def _step(name: str, function: Callable[..., T], *arguments: Any) -> T:
    """Run once and for all: a recorded result is returned without running again."""
    return DBOS.run_step({"name": name}, function, *arguments)


def _failure(failure_class: FailureClass, reason: str) -> Failure:
    return Failure(failure_class=failure_class, reason=reason[:2000])


def _failed(failure_class: FailureClass, reason: str) -> Judged:
    return Judged(result=Result.FAILED, reason=reason[:2000], failure_class=failure_class)


def _without_document(outcome: JudgeOutcome, timeout_s: float) -> Judged:
    """Exit 5 of the judge means that this host cannot run it; all else is a fault of ours."""
    if outcome.ending is Ending.TIMED_OUT:
        return _failed(
            FailureClass.SERVICE,
            f"the judge did not end within {timeout_s:g} s and left no document",
        )
    if outcome.exit_code == 5:
        return Judged(
            result=Result.HOST,
            reason=f"the judge cannot run on this host: {outcome.last_words or 'see the log'}",
            failure_class=FailureClass.HOST,
        )
    words = f": {outcome.last_words}" if outcome.last_words else ""
    return _failed(
        FailureClass.SERVICE,
        f"the judge left no document (exit status {outcome.exit_code}){words}",
    )


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


def _judge_event(event: dict[str, Any], run: Run) -> tuple[str, dict[str, Any]]:
    if event.get("event") == "log":
        return log.LOG, {"at": iso(now()), "run": run.id, "text": str(event.get("text", ""))}
    return log.PROGRESS, event | {"suite": run.suite}
