"""All SQL on jobs and their runs. State changes are single conditional UPDATEs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select, text, update
from sqlalchemy.orm import Session, joinedload, selectinload

from gdn_service.clock import now
from gdn_service.jobs.states import (
    OPEN_STATES,
    STORED_STATES,
    JobState,
    RunState,
    run_sources,
    sources,
)
from gdn_service.store.models import HostFailure, Job, Run


class JobRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def lock_submissions(self) -> None:
        """Hold off other submitters until this transaction ends (SQLite: it already does)."""
        if self._session.get_bind().dialect.name == "postgresql":
            self._session.execute(text("SELECT pg_advisory_xact_lock(7466111)"))

    def add(self, job: Job, runs: Sequence[Run]) -> None:
        self._session.add(job)
        self._session.flush()
        self._session.add_all(runs)
        self._session.flush()
        self._session.refresh(job, ["runs"])

    def get(self, job_id: str) -> Job | None:
        return self._session.scalar(_with_runs().where(Job.id == job_id))

    def run(self, run_id: str) -> Run | None:
        return self._session.scalar(
            select(Run).options(joinedload(Run.device), joinedload(Run.job)).where(Run.id == run_id)
        )

    def run_of(self, job_id: str, suite: str) -> Run | None:
        return self._session.scalar(select(Run).where(Run.job_id == job_id, Run.suite == suite))

    def same(self, fingerprint: str, states: Sequence[JobState]) -> Job | None:
        """The newest job that asks exactly the same and is in one of `states`."""
        return self._session.scalar(
            _with_runs()
            .where(Job.fingerprint == fingerprint, Job.state.in_(states))
            .order_by(Job.id.desc())
            .limit(1)
        )

    def stored(self, fingerprint: str) -> Job | None:
        return self.same(fingerprint, STORED_STATES)

    def open(self, fingerprint: str) -> Job | None:
        job = self.same(fingerprint, OPEN_STATES)
        return None if job is not None and job.cancel_requested else job

    def page(
        self,
        *,
        state: str | None,
        commit: str | None,
        target: str | None,
        before: str | None,
        limit: int,
    ) -> list[Job]:
        """Newest first; `before` is the id of the last job of the page before."""
        query = _with_runs().order_by(Job.id.desc()).limit(limit)
        conditions = {
            Job.state: state,
            Job.commit_sha: commit,
            Job.target: target,
        }
        for column, value in conditions.items():
            if value is not None:
                query = query.where(column == value)
        if before is not None:
            query = query.where(Job.id < before)
        return list(self._session.scalars(query))

    def unclaimed(self, device_kind: str) -> list[str]:
        """Open jobs that no host has, oldest first."""
        query = select(Job.id).where(
            Job.state.in_(OPEN_STATES), Job.worker.is_(None), Job.device_kind == device_kind
        )
        return list(self._session.scalars(query.order_by(Job.id)))

    def held(self, worker: str) -> list[tuple[str, int, str]]:
        """(id, claim, device kind) of every open job that `worker` has."""
        query = select(Job.id, Job.claim, Job.device_kind).where(
            Job.state.in_(OPEN_STATES), Job.worker == worker
        )
        return [(row[0], row[1], row[2]) for row in self._session.execute(query)]

    def claim(self, job_id: str, worker: str) -> int | None:
        """Give an open job that no host has to `worker`: exactly one of any number of callers.

        The number of the claim, or None. A flow of an earlier claim is void from now on.
        """
        return self._session.scalar(
            update(Job)
            .where(Job.id == job_id, Job.state.in_(OPEN_STATES), Job.worker.is_(None))
            .values(worker=worker, claim=Job.claim + 1)
            .returning(Job.claim)
        )

    def hand_on(self, job_id: str, worker: str) -> bool:
        """Leave a running job of `worker` to other hosts; that was no failed start."""
        return self._changed(
            update(Job)
            .where(
                Job.id == job_id,
                Job.state == JobState.RUNNING,
                Job.worker == worker,
                Job.cancel_requested.is_(False),
            )
            .values(worker=None, tries=Job.tries - 1)
        )

    def release(self, worker: str) -> None:
        """Leave all open jobs of `worker` to other hosts, or to its own next start."""
        self._session.execute(
            update(Job).where(Job.worker == worker, Job.state.in_(OPEN_STATES)).values(worker=None)
        )

    def claimed(self) -> list[tuple[str, int, str]]:
        """(id, claim, worker) of every open job that some host has."""
        query = select(Job.id, Job.claim, Job.worker).where(
            Job.state.in_(OPEN_STATES), Job.worker.is_not(None)
        )
        return [(row[0], row[1], str(row[2])) for row in self._session.execute(query)]

    def void_claim(self, job_id: str, claim: int) -> bool:
        """Take an open job from the host that has it by `claim`."""
        return self._changed(
            update(Job)
            .where(
                Job.id == job_id,
                Job.state.in_(OPEN_STATES),
                Job.claim == claim,
                Job.worker.is_not(None),
            )
            .values(worker=None)
        )

    def queue_position(self, job: Job) -> int | None:
        """1 for the next job of its device kind; None when it does not wait."""
        if job.state != JobState.QUEUED:
            return None
        ahead = select(func.count()).where(
            Job.state == JobState.QUEUED, Job.device_kind == job.device_kind, Job.id < job.id
        )
        return (self._session.scalar(ahead) or 0) + 1

    def start(self, job_id: str, worker: str, claim: int) -> int | None:
        """Make the job running and count the try.

        None when it may not start any more: it is ended, or the claim is not in force.
        """
        moment = now()
        return self._session.scalar(
            update(Job)
            .where(
                Job.id == job_id,
                Job.state.in_(sources(JobState.RUNNING)),
                Job.worker == worker,
                Job.claim == claim,
            )
            .values(
                state=JobState.RUNNING,
                tries=Job.tries + 1,
                started_at=func.coalesce(Job.started_at, moment),
            )
            .returning(Job.tries)
        )

    def spend(self, job_id: str, seconds: float) -> None:
        """Add to the time that hosts have spent on the job."""
        self._session.execute(
            update(Job).where(Job.id == job_id).values(spent_s=Job.spent_s + seconds)
        )

    def give_back_try(self, job_id: str) -> None:
        """An orderly stop of the worker is not a failed try."""
        self._session.execute(
            update(Job)
            .where(Job.id == job_id, Job.state == JobState.RUNNING, Job.tries > 0)
            .values(tries=Job.tries - 1)
        )

    def finish(
        self,
        job_id: str,
        state: JobState,
        *,
        reason: str,
        failure_class: str | None,
        duration_s: float | None,
        claim: int | None = None,
    ) -> bool:
        """To a final state, once; False when the job was there already.

        With `claim` only while that one is in force and the job is on a host.
        """
        statement = update(Job).where(Job.id == job_id, Job.state.in_(sources(state)))
        if claim is not None:
            statement = statement.where(Job.claim == claim, Job.worker.is_not(None))
        return self._changed(
            statement.values(
                state=state,
                reason=reason,
                failure_class=failure_class,
                finished_at=now(),
                duration_s=duration_s,
            )
        )

    def request_cancel(self, job_id: str) -> bool:
        """Mark an open job; True when this call was the first to do so."""
        return self._changed(
            update(Job)
            .where(Job.id == job_id, Job.state.in_(OPEN_STATES), Job.cancel_requested.is_(False))
            .values(cancel_requested=True)
        )

    def cancel_requested(self, job_id: str) -> bool:
        return bool(self._session.scalar(select(Job.cancel_requested).where(Job.id == job_id)))

    def start_run(self, run_id: str, device_id: str) -> bool:
        return self._change_run(
            run_id,
            RunState.RUNNING,
            device_id=device_id,
            started_at=func.coalesce(Run.started_at, now()),
        )

    def host_failure(
        self, run_id: str, *, host: str, device_id: str | None, reason: str, dirty: bool = False
    ) -> int:
        """Keep a try that the host spoiled; the number of such tries of this run."""
        run = self._session.get_one(Run, run_id, with_for_update=True)
        run.host_tries += 1
        self._session.add(
            HostFailure(
                run_id=run_id,
                attempt=run.host_tries,
                host=host,
                device_id=device_id,
                reason=reason,
                dirty=dirty,
                at=now(),
            )
        )
        self._session.flush()
        return run.host_tries

    def host_failures(self, job_id: str) -> list[HostFailure]:
        """Of all runs of the job, oldest first."""
        query = select(HostFailure).join(Run, HostFailure.run_id == Run.id)
        query = query.where(Run.job_id == job_id).order_by(HostFailure.at, HostFailure.attempt)
        return list(self._session.scalars(query))

    def failures_of(self, run_id: str) -> list[HostFailure]:
        query = select(HostFailure).where(HostFailure.run_id == run_id)
        return list(self._session.scalars(query.order_by(HostFailure.attempt)))

    def finish_run(self, run_id: str, **values: Any) -> bool:
        """To finished, once; False when a result is stored already."""
        return self._change_run(run_id, RunState.FINISHED, finished_at=now(), **values)

    def cancel_runs(self, job_id: str, reason: str) -> None:
        """End every run that has no result."""
        self._session.execute(
            update(Run)
            .where(Run.job_id == job_id, Run.state.in_(run_sources(RunState.CANCELLED)))
            .values(state=RunState.CANCELLED, reason=reason)
        )

    def results(self, sha: str, target: str, device_kind: str | None) -> list[Run]:
        """The latest valid finished run of each suite, device kind and plan of a commit.

        The widest plan of a suite comes first: one that options narrowed stands beside it
        and never in its place.
        """
        query = (
            select(Run)
            .join(Run.job)
            .options(joinedload(Run.job), joinedload(Run.device))
            .where(
                Job.commit_sha == sha,
                Job.target == target,
                Run.state == RunState.FINISHED,
                Run.valid.is_(True),
            )
            .order_by(Run.id.desc())
        )
        if device_kind is not None:
            query = query.where(Job.device_kind == device_kind)
        latest: dict[tuple[object, ...], Run] = {}
        for run in self._session.scalars(query):
            job = run.job
            plan = (tuple(job.batch_sizes or ()), job.heads, job.quick)
            latest.setdefault((run.suite, job.device_kind, *plan), run)
        return sorted(
            latest.values(),
            key=lambda run: (run.job.device_kind, run.ordinal, run.suite, _narrowed(run), run.id),
        )

    def finished_since(self, moment: datetime) -> int:
        return self._session.scalar(select(func.count()).where(Job.finished_at >= moment)) or 0

    def _change_run(self, run_id: str, state: RunState, **values: Any) -> bool:
        return self._changed(
            update(Run)
            .where(Run.id == run_id, Run.state.in_(run_sources(state)))
            .values(state=state, **values)
        )

    def _changed(self, statement: Any) -> bool:
        result: Any = self._session.execute(statement.execution_options(synchronize_session=False))
        return bool(result.rowcount)


def _narrowed(run: Run) -> tuple[bool, bool, bool]:
    """Orders plans of one suite from all of it to a few sizes."""
    return (run.job.batch_sizes is not None, run.job.heads is not None, run.job.quick)


def _with_runs() -> Select[Job]:
    """Rows as they are now, also after an UPDATE in the same transaction."""
    query = select(Job).options(selectinload(Job.runs).joinedload(Run.device))
    return query.execution_options(populate_existing=True)
