"""One suite on an AMD device whose files change while it runs; the judge is the stand-in."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdn_judge.document import FailureClass, Verdict
from gdn_service import application
from gdn_service.jobs.judging import Judged, Result, SuiteJudge
from gdn_service.runner.checkouts import Checkouts
from gdn_service.runner.inventory import Inventory
from gdn_service.runner.kfd import KfdProbe
from gdn_service.runner.process import ProcessRunner
from gdn_service.store.store import Store
from support.amd_tree import GIB, MI355X, AmdTree
from support.service_bench import Repo, bench_settings, demo_target
from support.service_rows import add_job

SUITE = "correctness"
DEVICE = "bench/gfx950/0"


class Bench:
    """A worker's parts for one card, without a queue."""

    def __init__(self, folder: Path, repo: Repo, **overrides: object) -> None:
        values = {"device_kinds": ("gfx950",), "idle_interval_s": 0, "idle_watch_s": 0.1}
        self.settings = bench_settings(folder / "data", "", **values | overrides)
        application.migrate(self.settings)
        self.store = Store(self.settings.store_url)
        self.repo = repo
        self.tree = AmdTree(folder / "host", MI355X, cards=1)
        self.gpu = self.tree.gpu_id(0)
        self.inventory = Inventory(
            self.settings, self.store, [KfdProbe(self.settings, self.tree.root)]
        )
        self.inventory.refresh()
        with self.store.write() as tx:
            tx.targets.put(demo_target(repo.path))

    def judge(self, behaviour: str) -> Judged:
        sha = self.repo.behave(all=behaviour)
        job = add_job(self.store, suites=(SUITE,), commit_sha=sha, device_kind="gfx950")
        self.job_id = job.id
        judge = SuiteJudge(
            store=self.store,
            checkouts=Checkouts(self.settings, lambda _bundle: None),
            inventory=self.inventory,
            runner=ProcessRunner(self.settings),
            settings=self.settings,
            stopping=threading.Event(),
        )
        return judge.run(job.id, SUITE, 0.0)

    def quarantined(self) -> str | None:
        with self.store.read() as tx:
            device = tx.devices.get(DEVICE)
        assert device is not None
        return device.quarantined


@pytest.fixture
def bench(tmp_path: Path, repo: Repo) -> Iterator[Bench]:
    made = Bench(tmp_path, repo)
    yield made
    made.store.close()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that is none of the run's."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_run_on_a_device_that_stays_idle_counts(bench: Bench) -> None:
    judged = bench.judge("slow")
    assert (judged.result, judged.verdict) == (Result.DOCUMENT, Verdict.PASSED)


def test_a_busy_device_is_host_busy_with_the_offender_named(
    bench: Bench, stranger: subprocess.Popen[bytes]
) -> None:
    bench.tree.process(stranger.pid, "python serve.py", {bench.gpu: 10 * GIB})
    judged = bench.judge("pass")
    assert (judged.result, judged.failure_class) == (Result.HOST, FailureClass.HOST)
    assert judged.reason == (
        f"host busy: no idle gfx950 device: {DEVICE}: in use by pid {stranger.pid} "
        "(python serve.py, 10.0 GiB)"
    )


def test_someone_who_comes_and_goes_during_the_run_voids_it(
    bench: Bench, stranger: subprocess.Popen[bytes]
) -> None:
    """After the run the device is idle again; only the looks in between saw it."""

    def visit() -> None:
        bench.tree.process(stranger.pid, "python train.py", {bench.gpu: 2 * GIB})
        gone.wait()
        bench.tree.process(stranger.pid, "python train.py", {bench.gpu: 0})

    gone = threading.Event()
    arrive = threading.Timer(0, visit)
    original = bench.inventory.idle
    looks: list[bool] = []

    def idle_then_visited(device: object) -> object:
        """The first assertion finds it idle, then the visitor comes; before the second it left."""
        if looks:
            gone.set()
            arrive.join()
        report = original(device)  # type: ignore[arg-type]
        if not looks:
            arrive.start()
        looks.append(report.idle)
        return report

    bench.inventory.idle = idle_then_visited  # type: ignore[assignment,method-assign]
    judged = bench.judge("slow")
    gone.set()
    assert (judged.result, judged.verdict) == (Result.HOST, Verdict.INCONCLUSIVE)
    assert judged.reason == (
        "someone else used the device during the run: "
        f"pid {stranger.pid} (python train.py, 2.0 GiB)"
    )
    assert looks == [True]
    assert bench.quarantined() is None


def test_memory_that_the_run_leaves_without_a_process_quarantines_the_device(
    bench: Bench,
) -> None:
    original = bench.inventory.idle

    def dirty_at_the_end(device: object) -> object:
        report = original(device)  # type: ignore[arg-type]
        bench.tree.use(0, 20 * GIB)
        return report

    bench.inventory.idle = dirty_at_the_end  # type: ignore[assignment,method-assign]
    judged = bench.judge("pass")
    assert (judged.result, judged.verdict) == (Result.HOST, Verdict.INCONCLUSIVE)
    assert "20.0 GiB in use that no process owns" in judged.reason
    assert (bench.quarantined() or "").startswith("gpu_dirty: 20.0 GiB in use")
    again = bench.judge("pass")
    assert again.failure_class is FailureClass.HOST
    assert "quarantined: gpu_dirty" in again.reason
