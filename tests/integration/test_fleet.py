"""One API and several workers on one PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from gdn_service import application
from gdn_service.runner.locks import device_lock
from gdn_service.store.models import Case, Job, Run
from gdn_service.store.store import Store
from support import preloaded
from support.service_bench import (
    KILLABLE,
    Bench,
    Repo,
    bench,
    bench_settings,
    postgres_database,
    processes_under,
    service_environment,
)

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

Worker = preloaded.Process


class Fleet:
    def __init__(self, api: Bench, folder: Path, url: str) -> None:
        self.api = api
        self.folder = folder
        self.url = url

    def data_dir(self, name: str) -> Path:
        return self.folder / name

    @contextmanager
    def worker(
        self, name: str, data_dir: str = "", kill: tuple[str, str] | None = None
    ) -> Iterator[Worker]:
        """`kill`: ("before" or "after", step) at which it kills itself."""
        command = ["-m", "gdn_service"] if kill is None else [str(KILLABLE), *kill]
        settings = bench_settings(self.data_dir(data_dir or name), self.url, worker_name=name)
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        with open(settings.data_dir / "worker.log", "wb") as log:
            process = preloaded.start(
                [*command, "worker"],
                env=os.environ | service_environment(settings),
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=40)

    @contextmanager
    def store(self) -> Iterator[Store]:
        with application.open_store(self.api.settings) as store:
            yield store

    def quarantine(self, name: str, reason: str | None) -> None:
        with self.store() as store, store.write() as tx:
            assert tx.devices.quarantine(f"{name}/interpreter/0", reason)

    def devices_command(self, name: str, *arguments: str) -> dict[str, Any]:
        """What ``gdn-service devices`` says on that host of its only device."""
        settings = bench_settings(self.data_dir(name), self.url, worker_name=name)
        done = preloaded.run(
            ["-m", "gdn_service", "devices", "--json", *arguments],
            env=os.environ | service_environment(settings),
        )
        assert done.returncode == 0, done.stderr
        (device,) = json.loads(done.stdout)
        found: dict[str, Any] = device
        return found

    def occupied(self, name: str) -> AbstractContextManager[object]:
        """The host's only device, locked by someone else meanwhile."""
        return device_lock(self.data_dir(name) / "locks" / "interpreter-0.lock", "someone else")

    def host_failures(self, job: dict[str, Any]) -> list[tuple[int, str]]:
        """(attempt, host) of the first run's tries that a host spoiled."""
        run = self.api.http.get(f"/runs/{job['runs'][0]['id']}").raise_for_status().json()
        return [(failure["attempt"], failure["host"]) for failure in run["host_failures"]]

    def cases(self, job: dict[str, Any]) -> int:
        with self.store() as store, store.read() as tx:
            runs = select(Run.id).where(Run.job_id == job["id"])
            return len(tx.session.scalars(select(Case).where(Case.run_id.in_(runs))).all())

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
    job = api.job(job_id)
    assert job["state"] == "queued"
    gone = "no live worker serves device kind interpreter; last seen: first at "
    assert job["why_waiting"].startswith(gone)
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


def test_a_host_whose_devices_are_quarantined_leaves_the_jobs_to_others(fleet: Fleet) -> None:
    api = fleet.api

    def devices(text: str) -> dict[str, str]:
        items = api.http.get("/devices").raise_for_status().json()["items"]
        return {item["host"]: item[text] for item in items}

    with fleet.worker("first"), fleet.worker("second"):
        fleet.await_worker("first")
        fleet.await_worker("second")
        fleet.quarantine("first", "fan")
        assert devices("why_no_jobs") == {
            "first": "first has no usable interpreter device and takes no interpreter jobs; "
            "they go to second",
            "second": "",
        }
        told = fleet.devices_command("first")
        assert told["why_not_idle"] == "quarantined: fan"
        assert told["why_no_jobs"] == devices("why_no_jobs")["first"]
        ids = [
            api.submit(api.repo.behave(all="slow"), suites=["correctness"])["id"] for _ in range(3)
        ]
        jobs = [api.wait(job_id) for job_id in ids]
        assert [job["state"] for job in jobs] == ["passed"] * 3
        assert {job["runs"][0]["device"] for job in jobs} == {"second/interpreter/0"}
        told = fleet.devices_command("first", "--lift-quarantine", "first/interpreter/0")
        assert told["why_no_jobs"] == ""
        fleet.quarantine("second", "fan")
        assert devices("why_no_jobs")["first"] == ""
        job = api.wait(api.submit(api.repo.behave(all="pass"), suites=["correctness"])["id"])
        assert (job["state"], job["runs"][0]["device"]) == ("passed", "first/interpreter/0")
        fleet.quarantine("first", "fan")  # nobody is fit: the job says so and does not wait
        job = api.wait(api.submit(api.repo.behave(all="pass"), suites=["correctness"])["id"])
        assert (job["state"], job["failure_class"]) == ("error", "host")
        assert "quarantined: fan" in job["reason"]


@pytest.mark.parametrize("kill", [None, ("before", "hand on"), ("after", "hand on")])
def test_a_job_that_one_host_spoils_passes_on_another(
    fleet: Fleet, kill: tuple[str, str] | None
) -> None:
    """Also when the first host is killed before it hands the job on, or just after.

    A device that is quarantined during a run voids it.
    """
    api = fleet.api
    fatal = None if kill is None else (kill[0], f"{kill[1]} determinism")
    sha = api.repo.behave(correctness="pass", determinism="slow")
    with fleet.worker("first", kill=fatal) as first, fleet.worker("second"):
        fleet.await_worker("first")
        fleet.await_worker("second")
        fleet.quarantine("second", "fan")
        job_id = api.submit(sha, suites=["correctness", "determinism"])["id"]
        api.await_log(job_id, "slow")
        fleet.quarantine("second", None)
        fleet.quarantine("first", "fan")
        if kill is not None:
            assert first.wait(timeout=60) == -signal.SIGKILL
        job = api.wait(job_id)
    fleet.quarantine("first", None)
    fleet.quarantine("second", "fan")
    with fleet.worker("first"):
        fleet.await_worker("first")
        follower = api.wait(api.submit(api.repo.behave(all="pass"))["id"])
    assert follower["state"] == "passed"
    assert api.job(job_id) == job
    assert job["state"] == "passed"
    assert [run["device"] for run in job["runs"]] == [
        "first/interpreter/0",
        "second/interpreter/0",
    ]
    assert fleet.cases(job) == 6
    run = api.http.get(f"/runs/{job['runs'][1]['id']}").json()
    assert [(f["attempt"], f["host"], f["device"]) for f in run["host_failures"]] == [
        (1, "first", "first/interpreter/0")
    ]
    assert "quarantined: fan" in run["host_failures"][0]["reason"]
    text = api.text(job_id)
    assert text.count("correctness on ") == 1
    assert text.count("determinism on second/interpreter/0") == 1


def test_tries_are_counted_over_all_hosts(fleet: Fleet) -> None:
    api = fleet.api
    with fleet.worker("first"), fleet.worker("second"):
        fleet.await_worker("first")
        fleet.await_worker("second")
        with fleet.occupied("first"), fleet.occupied("second"):
            sha = api.repo.behave(all="pass")
            job = api.wait(api.submit(sha, suites=["correctness"])["id"])
    assert (job["state"], job["failure_class"]) == ("error", "host")
    assert "given up after 3 tries" in job["reason"]
    one, two = fleet.host_failures(job)[0][1], fleet.host_failures(job)[1][1]
    assert {one, two} == {"first", "second"}
    assert fleet.host_failures(job) == [(1, one), (2, two), (3, one)]


def test_a_job_between_two_hosts_can_be_cancelled(fleet: Fleet) -> None:
    """The second host is live and fit, but its only device is taken by another job."""
    api = fleet.api
    with fleet.worker("second"):
        fleet.await_worker("second")
        busy = api.submit(api.repo.behave(all="hang"), suites=["correctness"])["id"]
        api.await_log(busy, "hanging")
        with fleet.worker("first"):
            fleet.await_worker("first")
            with fleet.occupied("first"):
                job_id = api.submit(api.repo.behave(all="pass"), suites=["correctness"])["id"]
                api.await_log(job_id, "the job goes to second")
                assert api.job(job_id)["state"] == "running"
                answer = api.http.post(f"/jobs/{job_id}/cancel").raise_for_status()
                assert answer.json()["state"] == "cancelled"
        api.http.post(f"/jobs/{busy}/cancel").raise_for_status()
        assert api.wait(busy)["state"] == "cancelled"
        assert api.wait(api.submit(api.repo.behave(all="pass"))["id"])["state"] == "passed"
    assert "goes on, on second" not in api.text(job_id)


def test_a_commit_that_spoils_every_try_quarantines_no_host(fleet: Fleet) -> None:
    api = fleet.api
    with fleet.worker("first"), fleet.worker("second"):
        fleet.await_worker("first")
        fleet.await_worker("second")
        sha = api.repo.behave(all="host")
        for _ in range(3):
            job = api.wait(api.submit(sha, suites=["correctness"], force=True)["id"])
            assert (job["state"], job["failure_class"]) == ("error", "host")
            assert {host for _, host in fleet.host_failures(job)} == {"first", "second"}
    with fleet.store() as store, store.read() as tx:
        found = {
            device.host: (device.failures_in_row, device.quarantined) for device in tx.devices.all()
        }
    assert found == {"first": (0, None), "second": (0, None)}
