"""What is to be judged: a job, one of its runs, and the target, as rows of the store."""

from __future__ import annotations

from dataclasses import dataclass

from gdn_service.store.models import Job, Run, Target
from gdn_service.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Assignment:
    job: Job
    run: Run
    target: Target


def load_job(store: Store, job_id: str) -> tuple[Job, Target]:
    """Raises sqlalchemy's NoResultFound for a job that does not exist."""
    with store.read() as tx:
        job = tx.session.get_one(Job, job_id)
        return job, tx.session.get_one(Target, job.target)


def load_assignment(store: Store, job_id: str, suite: str) -> Assignment:
    """Raises LookupError when the job has no such suite."""
    job, target = load_job(store, job_id)
    with store.read() as tx:
        run = tx.jobs.run_of(job_id, suite)
    if run is None:
        raise LookupError(f"job {job_id} has no run of suite {suite}")
    return Assignment(job=job, run=run, target=target)
