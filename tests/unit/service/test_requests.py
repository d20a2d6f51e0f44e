"""What a user asks for, where no worker is there to answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdn_service.clock import now
from gdn_service.jobs.requests import JobRequests
from gdn_service.jobs.states import JobState
from gdn_service.runner.checkouts import Checkouts
from gdn_service.store.models import Job
from gdn_service.store.store import Store
from support.service_bench import bench_settings
from support.service_rows import add_job, add_target, add_worker


@pytest.mark.parametrize(
    ("ttl_s", "state", "runs"), [(-1, "cancelled", "cancelled"), (600, "running", "queued")]
)
def test_a_running_job_whose_worker_is_dead_is_cancelled_at_once(
    store: Store, tmp_path: Path, ttl_s: float, state: str, runs: str
) -> None:
    """There may be no other worker to take the job over and end it."""
    add_target(store)
    add_worker(store, "a", ttl_s=ttl_s)
    job = add_job(store, state=JobState.RUNNING, worker="a", claim=1, started_at=now())
    settings = bench_settings(tmp_path, "")
    requests = JobRequests(settings, store, Checkouts(settings, lambda _: None))
    for _ in range(2):
        assert requests.cancel(job.id).state == state
    with store.read() as tx:
        found = tx.session.get_one(Job, job.id)
        assert found.cancel_requested
        assert [run.state for run in found.runs] == [runs]
