"""The whole flow of a job, in containers of a real engine."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gdn_service import application, doctor
from gdn_service.runner.container import LABEL
from gdn_service.targets import new_target
from support.engine import ROOT, TestEngine
from support.service_bench import STANDIN, Bench, Repo, bench, bench_settings

pytestmark = [pytest.mark.docker, pytest.mark.slow]
OP = "gdn_kernels:fused_gdn_decode_qkvz"
GONE_S = 10  # a cancelled job's containers are gone within


class Containers:
    """The engine's view of the worker's containers."""

    def __init__(self, engine: TestEngine) -> None:
        self._engine = engine

    def all(self) -> list[dict[str, Any]]:
        with self._engine.api as api:
            found: list[dict[str, Any]] = api.containers(
                all=True, filters={"label": f"{LABEL}=bench"}
            )
        return found

    def running(self) -> list[dict[str, Any]]:
        return [container for container in self.all() if container["State"] == "running"]


@pytest.fixture
def containers(engine: TestEngine) -> Iterator[Containers]:
    made = Containers(engine)
    yield made
    assert made.all() == []


@pytest.fixture
def standin(
    tmp_path: Path, repo: Repo, engine: TestEngine, containers: Containers
) -> Iterator[Bench]:
    """A service whose judge in the container is the stand-in."""
    overrides = engine.settings() | {
        "container_judge_command": (engine.python, "-I", str(STANDIN)),
        "container_mounts": (*engine.mounts, str(STANDIN.parent)),
    }
    url = f"sqlite:///{tmp_path}/data/gdn.sqlite"
    with bench(tmp_path / "data", url, repo, **overrides) as made:
        yield made


def within(seconds: float, test: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not test():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_three_suites_pass_each_in_a_container_of_its_own(standin: Bench) -> None:
    standin.start()
    job = standin.wait(standin.submit(standin.repo.git("rev-parse", "HEAD"))["id"])
    assert (job["state"], [run["verdict"] for run in job["runs"]]) == ("passed", ["passed"] * 3)
    text = standin.text(job["id"])
    assert text.count("in a container of image sha256:") == 3
    assert "does not isolate" not in text
    work = standin.settings.work_dir
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("behaviour", ["hang", "stubborn"])
def test_a_cancelled_jobs_container_is_gone(
    standin: Bench, containers: Containers, behaviour: str
) -> None:
    standin.start()
    job = standin.submit(standin.repo.behave(all=behaviour))
    standin.await_log(job["id"], "hanging")
    assert len(containers.running()) == 1
    standin.http.post(f"/jobs/{job['id']}/cancel").raise_for_status()
    assert within(GONE_S, lambda: containers.all() == [])
    assert standin.wait(job["id"])["state"] == "cancelled"


def test_a_queued_job_is_cancelled_without_a_container(
    standin: Bench, containers: Containers
) -> None:
    standin.start()
    first = standin.submit(standin.repo.behave(all="hang"))
    standin.await_log(first["id"], "hanging")
    second = standin.submit(standin.repo.behave(all="pass"))
    standin.http.post(f"/jobs/{second['id']}/cancel").raise_for_status()
    assert standin.wait(second["id"])["state"] == "cancelled"
    assert len(containers.running()) == 1
    standin.http.post(f"/jobs/{first['id']}/cancel").raise_for_status()
    assert standin.wait(first["id"])["state"] == "cancelled"


def test_the_container_dies_with_the_worker_and_the_job_goes_on(
    standin: Bench, containers: Containers
) -> None:
    """The killed worker could tell the engine nothing; the leash notices its silence."""
    standin.start()
    job = standin.submit(standin.repo.behave(correctness="hang"), suites=["correctness"])
    standin.await_log(job["id"], "hanging")
    standin.kill(signal.SIGKILL)
    assert within(GONE_S, lambda: containers.running() == [])
    standin.start()
    standin.await_true(lambda: len(containers.running()) == 1, "the job runs again")
    standin.http.post(f"/jobs/{job['id']}/cancel").raise_for_status()
    assert standin.wait(job["id"])["state"] == "cancelled"


def test_a_worker_that_stops_leaves_no_container_and_its_job_is_taken_up(
    standin: Bench, containers: Containers
) -> None:
    standin.start()
    job = standin.submit(standin.repo.behave(correctness="stubborn"), suites=["correctness"])
    standin.await_log(job["id"], "hanging")
    standin.kill(signal.SIGTERM)
    assert containers.all() == []
    standin.start()
    standin.await_true(lambda: len(containers.running()) == 1, "the job runs again")
    standin.http.post(f"/jobs/{job['id']}/cancel").raise_for_status()
    assert standin.wait(job["id"])["state"] == "cancelled"


def test_a_judge_that_cannot_be_started_is_the_hosts_fault(
    standin: Bench, containers: Containers
) -> None:
    """The image has gone: no verdict on the candidate, and the reason says what to do."""
    standin.start(GDN_JUDGE_IMAGE="gdn-judge:none")
    job = standin.wait(standin.submit(standin.repo.git("rev-parse", "HEAD"))["id"])
    assert (job["state"], job["failure_class"]) == ("error", "host")
    assert "there is no image gdn-judge:none here" in job["reason"]


def test_the_doctor_knows_engine_and_image(tmp_path: Path, engine: TestEngine) -> None:
    def docker(**overrides: object) -> doctor.Finding:
        settings = bench_settings(tmp_path, "", **engine.settings() | overrides)
        (found,) = [item for item in doctor.examine(settings) if item.what == "docker"]
        return found

    assert (docker().level, f"judges in {engine.image}" in docker().detail) == ("ok", True)
    missing = docker(judge_image="gdn-judge:none")
    assert missing.level == "missing"
    assert "there is no image gdn-judge:none here" in missing.detail
    assert "GDN_RUNNER=docker" in docker(runner="process").remedy


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the sources are not a git clone")
def test_the_real_judge_in_a_container(
    tmp_path: Path, repo: Repo, engine: TestEngine, containers: Containers
) -> None:
    """The op of this repository, judged on the CPU without a network."""
    overrides = engine.settings() | {
        "container_judge_command": (engine.python, "-I", "-m", "gdn_judge")
    }
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    url = f"sqlite:///{tmp_path}/data/gdn.sqlite"
    with bench(tmp_path / "data", url, repo, **overrides) as real:
        target = new_target(
            name="gdn-lab", repository=str(ROOT), import_path=OP, python_path=["kernels"]
        )
        with application.open_store(real.settings) as store, store.write() as tx:
            tx.targets.put(target)
        real.start()
        asked = {"target": "gdn-lab", "suites": ["determinism"], "quick": True, "batch_sizes": [1]}
        job = real.wait(real.submit(head, **asked)["id"], timeout_s=280)
        assert (job["state"], job["reason"]) == ("passed", "")
        document = real.http.get(f"/runs/{job['runs'][0]['id']}/document").json()
    assert document["planned"] == [case["id"] for case in document["cases"]]
    assert document["environment"]["host"] == "bench"
    with engine.api as api:
        assert document["environment"]["image"] == api.inspect_image(engine.image)["Id"]
