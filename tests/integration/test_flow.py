"""The life of a job in a real service process, on both databases.

The judge is the stand-in, so each outcome can be had on purpose; the real one
runs in test_demo.py.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from gdn_service import application
from gdn_service.runner.locks import device_lock
from gdn_service.store.models import Case, Document, Run
from support import bombs
from support.service_bench import Bench, Repo, bench, postgres_database, processes_under


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """One running service for all tests that neither stop nor kill it."""
    folder = tmp_path_factory.mktemp("service")
    with ExitStack() as stack:
        url = f"sqlite:///{folder}/data/gdn.sqlite"
        if request.param == "postgresql":
            template = request.getfixturevalue("postgres_template")
            url = stack.enter_context(postgres_database(template))
        made = stack.enter_context(bench(folder / "data", url, Repo(folder / "repo")))
        made.start()
        yield made


@pytest.fixture
def stopped(database_url: str, tmp_path: Path, repo: Repo) -> Iterator[Bench]:
    """A service of the test's own, not started."""
    with bench(tmp_path / "data", database_url, repo) as made:
        yield made


def stored_rows(service: Bench, job_id: str) -> dict[str, int]:
    """How many rows of each kind a job has."""
    runs = select(Run.id).where(Run.job_id == job_id)
    counted = {
        "runs": select(func.count()).select_from(Run).where(Run.job_id == job_id),
        "documents": select(func.count()).select_from(Document).where(Document.run_id.in_(runs)),
        "cases": select(func.count()).select_from(Case).where(Case.run_id.in_(runs)),
    }
    with application.open_store(service.settings) as store, store.read() as tx:
        return {name: tx.session.scalar(query) or 0 for name, query in counted.items()}


def verdicts(job: dict[str, Any]) -> list[str | None]:
    return [run["verdict"] for run in job["runs"]]


def test_a_commit_is_judged_stored_and_answered_from_the_store(service: Bench) -> None:
    sha = service.repo.behave(all="pass")
    job = service.wait(service.submit(sha[:12])["id"])
    assert (job["state"], job["commit"]) == ("passed", sha)
    assert verdicts(job) == ["passed"] * 3
    assert stored_rows(service, job["id"]) == {"runs": 3, "documents": 3, "cases": 9}
    again = service.submit(sha)
    assert (again["id"], again["from_store"]) == (job["id"], True)
    assert f"checked out {sha}" in service.text(job["id"])
    assert "does not isolate" in service.text(job["id"])
    assert processes_under(service.settings.data_dir) == []
    assert list(service.settings.work_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("behaviour", "state", "failure_class", "words"),
    [
        ("fail", "failed", "candidate", "correctness: T8: out differs"),
        ("crash", "error", "service", "the judge left no document (exit status 139)"),
        ("silent", "error", "service", "the judge left no document (exit status 0)"),
        ("nan", "error", "service", "NaN is not allowed"),
        ("other", "error", "service", "commit is 'ffffffff"),
    ],
)
def test_each_end_has_its_state_and_its_class(
    service: Bench, behaviour: str, state: str, failure_class: str, words: str
) -> None:
    sha = service.repo.behave(all=behaviour)
    job = service.wait(service.submit(sha, suites=["correctness"])["id"])
    assert (job["state"], job["failure_class"]) == (state, failure_class)
    assert words in job["reason"]
    assert (job["runs"][0]["state"], job["runs"][0]["suite"]) == ("finished", "correctness")
    document = service.http.get(f"/runs/{job['runs'][0]['id']}/document")
    assert document.status_code == (200 if behaviour == "fail" else 404)
    follower = service.submit(service.repo.behave(all="pass"), suites=["correctness"])
    assert service.wait(follower["id"])["state"] == "passed"


def test_three_host_failures_in_a_row_quarantine_the_device(service: Bench) -> None:
    """The judge gives up before the candidate comes."""
    reason = "the judge cannot run on this host: no such device here"
    sha = service.repo.behave(all="cannot")
    job = service.wait(service.submit(sha, suites=["correctness"])["id"])
    assert (job["state"], job["failure_class"]) == ("error", "host")
    assert job["reason"] == f"correctness: {reason} (given up after 3 tries)"
    assert service.http.get(f"/runs/{job['runs'][0]['id']}/document").status_code == 404
    (device,) = service.http.get("/devices").json()["items"]
    assert device["quarantined"]
    follower = service.submit(service.repo.behave(all="pass"), suites=["correctness"])
    ended = service.wait(follower["id"])
    assert f"quarantined: 3 host failures in a row, last: {reason}" in ended["reason"]
    with application.open_store(service.settings) as store, store.write() as tx:
        assert tx.devices.quarantine(device["id"], None)


def test_host_failures_with_the_candidate_running_count_once_other_commits_have_them(
    service: Bench,
) -> None:
    """Four commits in a row: the first is suspected, each later one clears the one before."""
    for number in range(4):
        (device,) = service.http.get("/devices").json()["items"]
        assert device["quarantine_reason"] is None, number
        sha = service.repo.behave(all="host")
        job = service.wait(service.submit(sha, suites=["correctness"])["id"])
        assert (job["state"], job["failure_class"]) == ("error", "host")
        if number < 3:  # the fourth is quarantined under its first try
            assert job["reason"] == "correctness: the driver is gone (given up after 3 tries)"
    assert "only if it fails without this commit as well" in service.text(job["id"])
    (device,) = service.http.get("/devices").json()["items"]
    assert device["quarantine_reason"] == ("3 host failures in a row, last: the driver is gone")
    with application.open_store(service.settings) as store, store.write() as tx:
        assert tx.devices.quarantine(device["id"], None)


def test_one_failed_suite_does_not_hide_the_others(service: Bench) -> None:
    sha = service.repo.behave(correctness="fail", determinism="crash")
    job = service.wait(service.submit(sha)["id"])
    assert job["state"] == "failed"
    assert verdicts(job) == ["failed", "error", "passed"]


def test_a_suite_that_does_not_end_is_ended(stopped: Bench) -> None:
    stopped.start(GDN_KERNEL_TIMEOUT_S="1", GDN_SUITE_TIMEOUT_S="2")
    job = stopped.wait(
        stopped.submit(stopped.repo.behave(all="stubborn"), suites=["roofline"])["id"]
    )
    assert job["state"] == "error"
    assert "did not end within 2 s" in job["reason"]
    assert processes_under(stopped.settings.data_dir) == []


def test_a_commit_that_cannot_be_exported_fails_by_name(stopped: Bench) -> None:
    stopped.start(GDN_TREE_MAX_BYTES="100")
    job = stopped.wait(stopped.submit(stopped.repo.commit("big", {"big": "x" * 200}))["id"])
    assert (job["state"], job["failure_class"]) == ("error", "candidate")
    assert job["reason"].endswith("has over 100 bytes (GDN_TREE_MAX_BYTES)")


@pytest.mark.parametrize("behaviour", ["hang", "stubborn"])
def test_cancelling_a_running_job_ends_its_tree(service: Bench, repo: Repo, behaviour: str) -> None:
    job_id = service.submit(service.repo.behave(all=behaviour))["id"]
    service.await_log(job_id, "hanging")
    for _ in range(2):
        answer = service.http.post(f"/jobs/{job_id}/cancel")
        assert answer.status_code == 200, answer.text
    service.await_true(
        lambda: service.job(job_id)["state"] == "cancelled", "cancelled", timeout_s=10
    )
    assert processes_under(service.settings.data_dir) == []
    assert service.http.post(f"/jobs/{job_id}/cancel").json()["state"] == "cancelled"
    assert service.wait(service.submit(service.repo.behave(all="pass"))["id"])["state"] == "passed"


def test_cancelling_a_job_that_waits_for_a_device(service: Bench) -> None:
    lock = service.settings.locks_dir / "interpreter-0.lock"
    with device_lock(lock, "someone else"):
        job_id = service.submit(service.repo.behave(all="pass"))["id"]
        service.await_log(job_id, "locked by someone else")
        service.http.post(f"/jobs/{job_id}/cancel").raise_for_status()
        assert service.wait(job_id, timeout_s=10)["state"] == "cancelled"


def test_a_busy_device_ends_the_job_as_host_busy(service: Bench) -> None:
    lock = service.settings.locks_dir / "interpreter-0.lock"
    with device_lock(lock, "someone else"):
        job = service.wait(
            service.submit(service.repo.behave(all="pass"), suites=["correctness"])["id"]
        )
    assert (job["state"], job["failure_class"]) == ("error", "host")
    assert "host busy: no idle interpreter device" in job["reason"]
    assert "locked by someone else (pid" in job["reason"]


def test_jobs_of_one_device_run_one_after_the_other(service: Bench) -> None:
    ids = [
        service.submit(service.repo.behave(all="slow"), suites=["correctness"])["id"]
        for _ in range(3)
    ]
    service.await_log(ids[0], "slow")
    assert [service.job(job_id)["state"] for job_id in ids] == ["running", "queued", "queued"]
    assert [service.job(job_id)["queue_position"] for job_id in ids] == [None, 1, 2]
    jobs = [service.wait(job_id) for job_id in ids]
    assert [job["state"] for job in jobs] == ["passed"] * 3
    ends = [job["finished_at"] for job in jobs]
    starts = [job["started_at"] for job in jobs]
    assert ends[0] <= starts[1]
    assert ends[1] <= starts[2]


def test_sigterm_leaves_the_job_to_the_next_start(stopped: Bench) -> None:
    stopped.start()
    running = stopped.submit(stopped.repo.behave(correctness="pass", determinism="hang"))["id"]
    stopped.await_log(running, "hanging")
    queued = stopped.submit(stopped.repo.behave(all="pass"))["id"]
    stopped.kill(signal.SIGTERM)
    assert processes_under(stopped.settings.data_dir) == []
    stopped.start()
    assert stopped.job(running)["state"] == "running"
    stopped.await_true(lambda: stopped.text(running).count("hanging") == 2, "the suite starts over")
    assert "the worker is stopping" in stopped.text(running)
    stopped.http.post(f"/jobs/{running}/cancel").raise_for_status()
    assert stopped.wait(running)["state"] == "cancelled"
    assert verdicts(stopped.job(running)) == ["passed", None, None]
    assert stopped.wait(queued)["state"] == "passed"


def test_an_orderly_stop_is_not_a_failed_try(stopped: Bench) -> None:
    stopped.start(GDN_JOB_TRIES="1")
    job_id = stopped.submit(stopped.repo.behave(all="hang"))["id"]
    stopped.await_log(job_id, "hanging")
    stopped.kill(signal.SIGTERM)
    stopped.start(GDN_JOB_TRIES="1")
    stopped.await_true(lambda: stopped.text(job_id).count("hanging") == 2, "it started again")
    assert stopped.job(job_id)["state"] == "running"


STEPS = ("check out", "judge correctness", "store correctness", "judge roofline", "finish")


@pytest.mark.slow
def test_after_a_kill_at_any_step_the_job_goes_on(stopped: Bench) -> None:
    """SIGKILL strikes before each step begins, and when it is done but not yet recorded."""
    sha = stopped.repo.behave(all="pass")
    job_id = ""
    for step in STEPS:
        for when in ("before", "after"):
            stopped.start(kill=(when, step), GDN_JOB_TRIES="100")
            job_id = job_id or stopped.submit(sha, suites=["correctness", "roofline"])["id"]
            stopped.await_death()
    stopped.start()
    job = stopped.wait(job_id)
    assert (job["state"], verdicts(job)) == ("passed", ["passed", "passed"])
    assert stored_rows(stopped, job_id) == {"runs": 2, "documents": 2, "cases": 6}
    assert stopped.text(job_id).count("[passed]") == 1


def test_a_kill_in_the_middle_of_a_suite_leaves_no_process(stopped: Bench) -> None:
    stopped.start()
    job_id = stopped.submit(stopped.repo.behave(all="hang"))["id"]
    stopped.await_log(job_id, "hanging")
    stopped.kill(signal.SIGKILL)
    stopped.await_true(
        lambda: processes_under(stopped.settings.data_dir) == [], "the tree is gone", timeout_s=10
    )
    stopped.start()
    stopped.await_true(lambda: stopped.text(job_id).count("hanging") == 2, "the suite starts over")


def test_a_poison_job_fails_after_three_tries_and_the_next_one_runs(stopped: Bench) -> None:
    """The worker dies each time it judges this commit."""
    stopped.start(kill=("before", "judge correctness"))
    job_id = stopped.submit(stopped.repo.behave(all="pass"), suites=["correctness"])["id"]
    follower = stopped.submit(stopped.repo.behave(all="pass"), suites=["roofline"])["id"]
    for _ in range(3):
        stopped.await_death()
        stopped.start(kill=("before", "judge correctness"))
    job = stopped.wait(job_id)
    assert (job["state"], job["failure_class"]) == ("error", "service")
    assert "the worker died 3 times while it ran this job" in job["reason"]
    assert stopped.wait(follower)["state"] == "passed"


def test_a_job_queued_while_no_worker_ran_is_found(stopped: Bench) -> None:
    """As after a kill between the store's commit and the queue's."""
    stopped.start()
    done = stopped.wait(stopped.submit(stopped.repo.behave(all="pass"))["id"])
    stopped.kill(signal.SIGKILL)
    with application.open_store(stopped.settings) as store, store.write() as tx:
        job = tx.jobs.get(done["id"])
        assert job is not None
        copy = type(job)(
            **{
                column.key: getattr(job, column.key)
                for column in job.__table__.columns
                if column.key not in ("id", "finished_at", "started_at", "duration_s", "worker")
            }
            | {"id": "jlost", "state": "queued", "tries": 0, "log_seq": 0}
        )
        run = Run(id="rlost", job_id="jlost", suite="correctness", ordinal=0, state="queued")
        copy.suites = ["correctness"]
        tx.jobs.add(copy, [run])
    stopped.start()
    assert stopped.wait("jlost")["state"] == "passed"


def test_a_bundle_that_unfolds_is_the_commits_fault_and_costs_no_memory(stopped: Bench) -> None:
    """10^8 files in under 2 kB, as anyone with scope submit may send."""
    dev = Repo(stopped.settings.data_dir.parent / "dev")
    sha = bombs.commit(dev, bombs.many_files(dev))
    path = dev.path / "sent.bundle"
    dev.git("bundle", "create", "--quiet", str(path), "bomb")
    assert path.stat().st_size < 2000
    stopped.start()
    assert stopped.process is not None
    resource.prlimit(stopped.process.pid, resource.RLIMIT_AS, (3 << 30, 3 << 30))
    octets = {"Content-Type": "application/octet-stream"}
    answer = stopped.http.post(
        "/bundles", params={"target": "demo"}, content=path.read_bytes(), headers=octets
    )
    assert answer.status_code == 201, answer.text
    job = stopped.wait(stopped.submit(sha, bundle=answer.json()["id"])["id"])
    assert (job["state"], job["failure_class"]) == ("error", "candidate")
    assert "over 50000 files and folders (GDN_TREE_MAX_FILES)" in job["reason"]
    good = stopped.wait(stopped.submit(stopped.repo.behave(all="pass"))["id"])
    assert good["state"] == "passed"
