"""One suite on an AMD device whose files change while it runs; the judge is the stand-in."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gdn_judge.document import FailureClass, Verdict
from gdn_service import application
from gdn_service.jobs.flow import JobFlow
from gdn_service.jobs.judging import Judged, Result, SuiteJudge
from gdn_service.runner.checkouts import Checkouts
from gdn_service.runner.inventory import Inventory, LocalDevice
from gdn_service.runner.kfd import KfdProbe
from gdn_service.runner.probe import IdleReport
from gdn_service.runner.process import ProcessRunner
from gdn_service.store.models import IdleReading
from gdn_service.store.store import Store
from support.amd_tree import GIB, MI355X, AmdTree
from support.service_bench import Repo, bench_settings, demo_target
from support.service_rows import add_job

SUITE = "correctness"
DEVICE = "bench/gfx950/0"


class Bench:
    """A worker's parts for one card, without a queue."""

    def __init__(self, folder: Path, repo: Repo, cards: int = 1, **overrides: object) -> None:
        values = {"device_kinds": ("gfx950",), "idle_interval_s": 0, "idle_watch_s": 0.1}
        values |= {"canary_readings": 4, "canary_runs": 2}
        self.settings = bench_settings(folder / "data", "", **values | overrides)
        application.migrate(self.settings)
        self.store = Store(self.settings.store_url)
        self.repo = repo
        self.tree = AmdTree(folder / "host", MI355X, cards=cards)
        self.gpu = self.tree.gpu_id(0)
        self.inventory = Inventory(
            self.settings, self.store, [KfdProbe(self.settings, self.tree.root)]
        )
        self.inventory.refresh()
        with self.store.write() as tx:
            tx.targets.put(demo_target(repo.path))

    def judge(self, behaviour: str, canary: Sequence[float] = ()) -> Judged:
        sha = self.repo.behave(all=behaviour, canary=list(canary))
        job = add_job(self.store, suites=(SUITE,), commit_sha=sha, device_kind="gfx950")
        self.job_id = job.id
        return self.suite_judge().run(job.id, SUITE)

    def suite_judge(self) -> SuiteJudge:
        return SuiteJudge(
            store=self.store,
            checkouts=Checkouts(self.settings, lambda _bundle: None),
            inventory=self.inventory,
            runner=ProcessRunner(self.settings),
            settings=self.settings,
            stopping=threading.Event(),
        )

    def count(self) -> None:
        """Store the judged run, as the flow does."""
        flow = JobFlow(
            store=self.store,
            checkouts=Checkouts(self.settings, lambda _bundle: None),
            judge=self.suite_judge(),
            settings=self.settings,
        )
        flow.store_result(self.job_id, SUITE, Judged(result=Result.DOCUMENT))

    def readings(self) -> list[IdleReading]:
        """Of the last job's run, in order."""
        with self.store.read() as tx:
            run = tx.jobs.run_of(self.job_id, SUITE)
            assert run is not None
            return tx.readings.of_run(run.id)

    def reasons(self) -> list[tuple[int, str, str, str]]:
        return [(row.attempt, row.arm, row.moment, row.why) for row in self.readings()]

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
    assert bench.reasons() == [
        (1, "run", "before", ""),
        (1, "candidate", "before", ""),
        (1, "candidate", "after", ""),
        (1, "run", "after", ""),
    ]
    assert {row.canary for row in bench.readings() if row.arm == "run"} == {
        "not taken: the judge did not come so far"
    }


def test_an_intruder_is_in_the_rows_of_the_attempt_that_it_spoiled(
    bench: Bench, stranger: subprocess.Popen[bytes]
) -> None:
    original = bench.inventory.idle

    def idle_then_joined(device: object) -> object:
        report = original(device)  # type: ignore[arg-type]
        bench.tree.process(stranger.pid, "python train.py", {bench.gpu: 2 * GIB})
        return report

    bench.inventory.idle = idle_then_joined  # type: ignore[assignment,method-assign]
    bench.judge("pass")
    seen = f"pid {stranger.pid} (python train.py, 2.0 GiB)"
    assert bench.reasons() == [
        (1, "run", "before", ""),
        (1, "candidate", "before", seen),
        (1, "candidate", "after", seen),
        (1, "run", "after", f"in use by {seen}"),
    ]


def test_a_canary_slower_than_usual_voids_the_run_with_the_figures(bench: Bench) -> None:
    """Two readings of each of two runs make the baseline; the third is twice as slow after."""
    for _ in range(2):
        judged = bench.judge("pass", canary=(500.0, 501.0))
        assert judged.result is Result.DOCUMENT
        bench.count()
    judged = bench.judge("pass", canary=(502.0, 1000.0))
    assert (judged.result, judged.verdict) == (Result.HOST, Verdict.INCONCLUSIVE)
    assert judged.reason == (
        "the canary after the run is slower than usual: "
        "copy 1000.0 us (usual 475.5 to 525.5, 4 readings)"
    )
    before, *_, after = bench.readings()
    assert before.canary == "copy 502.0 us (usual 475.5 to 525.5, 4 readings)"
    assert after.canary == "copy 1000.0 us (usual 475.5 to 525.5, 4 readings)"
    with bench.store.read() as tx:
        assert tx.results.document(before.run_id) is None


def test_three_spoiled_runs_in_a_row_quarantine_the_device(
    bench: Bench, stranger: subprocess.Popen[bytes]
) -> None:
    original = bench.inventory.idle
    looks: list[bool] = []

    def visited_meanwhile(device: object) -> object:
        """Idle at each first look; the visitor is there at each second one, then gone."""
        looks.append(True)
        first = len(looks) % 2 == 1
        bench.tree.process(stranger.pid, "train.py", {bench.gpu: 0 if first else 2 * GIB})
        return original(device)  # type: ignore[arg-type]

    bench.inventory.idle = visited_meanwhile  # type: ignore[assignment,method-assign]
    for _ in range(3):
        assert bench.quarantined() is None
        assert bench.judge("pass").result is Result.HOST
    assert (bench.quarantined() or "").startswith(
        "3 host failures in a row, last: the device did not stay idle during the run: in use by"
    )


def test_a_failure_in_the_judges_last_look_is_the_hosts(bench: Bench) -> None:
    """All cases were judged and the candidate is gone; one commit's tries count once."""

    def again() -> Judged:
        return bench.suite_judge().run(bench.job_id, SUITE)

    def failures() -> int:
        with bench.store.read() as tx:
            device = tx.devices.get(DEVICE)
        assert device is not None
        return device.failures_in_row

    for number in (1, 2, 3):
        assert bench.quarantined() is None
        for judged in (bench.judge("last look"), again()):
            assert (judged.result, judged.failure_class) == (Result.HOST, FailureClass.HOST)
            assert judged.reason == "the device is gone"
            assert failures() == number
            if number == 3:
                break
    assert bench.quarantined() == "3 host failures in a row, last: the device is gone"
    with bench.store.read() as tx:
        told = [str(event.data.get("text")) for event in tx.log.after(bench.job_id, 0)]
    assert f"the candidate had ended: it counts against {DEVICE}, for this commit once" in told
    assert not any("only if it fails without this commit" in text for text in told)


def test_a_failure_with_the_candidate_running_is_not_counted_yet(bench: Bench) -> None:
    assert bench.judge("host").result is Result.HOST
    with bench.store.read() as tx:
        device = tx.devices.get(DEVICE)
    assert device is not None
    assert (device.failures_in_row, device.counted) == (0, None)
    assert device.suspect == bench.repo.git("rev-parse", "HEAD")


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
    assert looks == [True, True]
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


def test_a_commit_that_leaves_two_devices_dirty_is_not_tried_on_a_third(
    tmp_path: Path, repo: Repo
) -> None:
    bench = Bench(tmp_path, repo, cards=3)
    original = bench.inventory.idle
    asked: list[int] = []

    def dirty_at_the_end(device: LocalDevice) -> IdleReport:
        asked.append(device.facts.index)
        if asked.count(device.facts.index) == 2:
            bench.tree.use(device.facts.index, 20 * GIB)
        return original(device)

    bench.inventory.idle = dirty_at_the_end  # type: ignore[method-assign]
    first = bench.judge("pass")
    assert (first.result, first.host_tries) == (Result.HOST, 1)
    second = bench.suite_judge().run(bench.job_id, SUITE)
    assert (second.result, second.failure_class) == (Result.FAILED, FailureClass.CANDIDATE)
    assert second.reason.startswith(
        "it left memory that no process owns on bench/gfx950/0 and bench/gfx950/1, idle before"
    )
    assert set(asked) == {0, 1}
    with bench.store.read() as tx:
        found = [
            (f.attempt, f.host, f.device_id, f.dirty) for f in tx.jobs.host_failures(bench.job_id)
        ]
        assert [device.id for device in tx.devices.usable("gfx950")] == ["bench/gfx950/2"]
    assert found == [
        (1, "bench", "bench/gfx950/0", True),
        (2, "bench", "bench/gfx950/1", True),
    ]
    bench.store.close()
