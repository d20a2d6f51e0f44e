"""One API and several workers on one PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from gdn_service import application
from gdn_service.store.models import Job
from support.service_bench import (
    Bench,
    Repo,
    bench,
    bench_settings,
    postgres_database,
    processes_under,
    service_environment,
)

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

Worker = subprocess.Popen[bytes]


class Fleet:
    def __init__(self, api: Bench, folder: Path, url: str) -> None:
        self.api = api
        self.folder = folder
        self.url = url

    def data_dir(self, name: str) -> Path:
        return self.folder / name

    @contextmanager
    def worker(self, name: str, data_dir: str = "") -> Iterator[Worker]:
        settings = bench_settings(self.data_dir(data_dir or name), self.url, worker_name=name)
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        with open(settings.data_dir / "worker.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gdn_service", "worker"],
                env=os.environ | service_environment(settings),
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=40)

    def worker_log(self, name: str) -> str:
        return (self.data_dir(name) / "worker.log").read_text()

    def await_worker(self, name: str) -> None:
        self.api.await_true(
            lambda: "worker started" in self.worker_log(name), f"worker {name} is up"
        )


@pytest.fixture
def fleet(postgres_template: str, tmp_path: Path, repo: Repo) -> Iterator[Fleet]:
    with ExitStack() as stack:
        url = stack.enter_context(postgres_database(postgres_template))
        api = stack.enter_context(bench(tmp_path / "api", url, repo))
        api.start(command="api")
        yield Fleet(api, tmp_path, url)


def test_a_dead_workers_job_is_taken_over(fleet: Fleet) -> None:
    api = fleet.api
    with fleet.worker("first") as first:
        fleet.await_worker("first")
        job_id = api.submit(api.repo.behave(all="hang"), suites=["correctness"])["id"]
        api.await_log(job_id, "correctness on first/interpreter/0")
        api.await_log(job_id, "hanging")
        with fleet.worker("second"):
            fleet.await_worker("second")
            first.kill()
            first.wait()
            api.await_log(job_id, "correctness on second/interpreter/0")
            assert "started again, try 2" in api.text(job_id)
            assert processes_under(fleet.data_dir("first")) == []
            api.http.post(f"/jobs/{job_id}/cancel").raise_for_status()
            assert api.wait(job_id)["state"] == "cancelled"


def test_two_workers_share_the_jobs_and_run_each_once(fleet: Fleet) -> None:
    api = fleet.api
    with fleet.worker("first"), fleet.worker("second"):
        fleet.await_worker("first")
        fleet.await_worker("second")
        ids = [
            api.submit(api.repo.behave(all="slow"), suites=["correctness"])["id"] for _ in range(4)
        ]
        assert [api.wait(job_id)["state"] for job_id in ids] == ["passed"] * 4
    with application.open_store(api.settings) as store, store.read() as tx:
        jobs = tx.session.scalars(select(Job)).all()
    assert {job.tries for job in jobs} == {1}
    assert set(Counter(job.worker for job in jobs)) == {"first", "second"}


def test_a_workers_name_is_taken_once(fleet: Fleet) -> None:
    with fleet.worker("first"):
        fleet.await_worker("first")
        with fleet.worker("first", data_dir="elsewhere") as twin:
            assert twin.wait(timeout=60) == 2
        assert "a live worker named 'first' uses this database" in fleet.worker_log("elsewhere")


def test_a_job_waits_until_a_worker_is_back(fleet: Fleet) -> None:
    api = fleet.api
    with fleet.worker("first"):
        fleet.await_worker("first")
    job_id = api.submit(api.repo.behave(all="pass"), suites=["correctness"])["id"]
    assert api.job(job_id)["state"] == "queued"
    with fleet.worker("first"):
        assert api.wait(job_id)["state"] == "passed"


def test_an_unpushed_commit_is_judged_on_a_host_that_never_saw_its_bundles(
    fleet: Fleet, tmp_path: Path
) -> None:
    """The second bundle builds on the first; the second job names no bundle at all."""
    api = fleet.api
    dev = Repo(tmp_path / "dev")
    dev.git("fetch", "--quiet", str(api.repo.path), "main")
    dev.git("reset", "--quiet", "--hard", "FETCH_HEAD")
    base = dev.git("rev-parse", "HEAD")
    for _ in range(2):
        sha = dev.behave(all="pass")
        dev.git("bundle", "create", "--quiet", "b", f"{base}..main")
        base = sha
        answer = api.http.post(
            "/bundles", params={"target": "demo"}, content=(dev.path / "b").read_bytes()
        )
        assert answer.status_code == 201, answer.text
    with fleet.worker("first"):
        fleet.await_worker("first")
        asked = {"suites": ["correctness"], "bundle": answer.json()["id"]}
        assert api.wait(api.submit(sha, **asked)["id"])["state"] == "passed"
    with fleet.worker("second"):
        fleet.await_worker("second")
        job = api.wait(api.submit(sha, suites=["determinism"])["id"])
        assert (job["state"], job["runs"][0]["device"]) == ("passed", "second/interpreter/0")
