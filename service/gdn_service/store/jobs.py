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
from gdn_service.store.models import Job, Run


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

    def queued(self) -> list[tuple[str, str]]:
        """(id, device kind) of every queued job, oldest first."""
        query = select(Job.id, Job.device_kind).where(Job.state == JobState.QUEUED)
        return [(row[0], row[1]) for row in self._session.execute(query.order_by(Job.id))]

    def open_ids(self) -> list[str]:
        return list(self._session.scalars(select(Job.id).where(Job.state.in_(OPEN_STATES))))

    def queue_position(self, job: Job) -> int | None:
        """1 for the next job of its device kind; None when it does not wait."""
        if job.state != JobState.QUEUED:
            return None
        ahead = select(func.count()).where(
            Job.state == JobState.QUEUED, Job.device_kind == job.device_kind, Job.id < job.id
        )
        return (self._session.scalar(ahead) or 0) + 1

    def start(self, job_id: str, worker: str) -> int | None:
        """Make the job running and count the try. None when it may not start any more."""
        moment = now()
        return self._session.scalar(
            update(Job)
            .where(Job.id == job_id, Job.state.in_(sources(JobState.RUNNING)))
            .values(
                state=JobState.RUNNING,
                worker=worker,
                tries=Job.tries + 1,
                started_at=func.coalesce(Job.started_at, moment),
            )
            .returning(Job.tries)
        )

    def claim(self, job_id: str, worker: str) -> bool:
        """queued -> running, for exactly one of any number of callers."""
        return self._changed(
            update(Job)
            .where(Job.id == job_id, Job.state == JobState.QUEUED)
            .values(state=JobState.RUNNING, worker=worker, tries=Job.tries + 1, started_at=now())
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
    ) -> bool:
        """To a final state, once; False when the job was there already."""
        return self._changed(
            update(Job)
            .where(Job.id == job_id, Job.state.in_(sources(state)))
            .values(
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

    def count_host_failure(self, run_id: str) -> None:
        self._session.execute(
            update(Run).where(Run.id == run_id).values(host_tries=Run.host_tries + 1)
        )

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
        """The latest valid finished run of each suite and device kind of a commit."""
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
        latest: dict[tuple[str, str], Run] = {}
        for run in self._session.scalars(query):
            latest.setdefault((run.suite, run.job.device_kind), run)
        return sorted(latest.values(), key=lambda run: (run.job.device_kind, run.ordinal, run.id))

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


def _with_runs() -> Select[Job]:
    """Rows as they are now, also after an UPDATE in the same transaction."""
    query = select(Job).options(selectinload(Job.runs).joinedload(Run.device))
    return query.execution_options(populate_existing=True)
