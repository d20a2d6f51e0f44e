"""The process runner with real processes; the stand-in judge obeys the tree it is given."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdn_judge.document import DeviceKind, Document, Suite, Verdict
from gdn_service.errors import RunnerError
from gdn_service.runner.base import Ending, JudgeOutcome, JudgeRequest, RunControl, judge_arguments
from gdn_service.runner.process import WARNING, ProcessRunner
from support.service_bench import bench_settings, processes_under
from support.service_rows import SHA


class Stand:
    """One tree, one runner, and what the runner said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.work = folder / "work"
        self.tree = folder / "tree"
        self.work.mkdir()
        self.tree.mkdir()

    def request(self, timeout_s: float = 30, cpus: str = "") -> JudgeRequest:
        return JudgeRequest(
            tree=self.tree,
            import_path="m:f",
            python_path=["kernels"],
            chain_import_path=None,
            target="demo",
            commit=SHA,
            suite=Suite.CORRECTNESS,
            device_kind=DeviceKind.INTERPRETER,
            device_index=0,
            device_uuid=None,
            batch_sizes=[1, 8],
            heads="4x8",
            quick=True,
            candidate_user="",
            work_dir=self.work,
            deadline_s=timeout_s,
            call_timeout_s=timeout_s,
            timeout_s=timeout_s,
            cpus=cpus,
        )

    def run(
        self,
        behaviour: str,
        *,
        timeout_s: float = 30,
        cancelled: Callable[[], bool] = lambda: False,
        stopping: Callable[[], bool] = lambda: False,
        cpus: str = "",
        **settings: Any,
    ) -> JudgeOutcome:
        (self.tree / "behaviour.json").write_text(json.dumps({"all": behaviour}))
        runner = ProcessRunner(bench_settings(self.folder, "", **settings))
        control = RunControl(
            say=self.said.append,
            events=self.events.extend,
            cancelled=cancelled,
            stopping=stopping,
        )
        outcome = runner.run(self.request(timeout_s, cpus), control)
        assert processes_under(self.folder) == []
        return outcome

    def has_logged(self, text: str) -> bool:
        return any(event.get("text") == text for event in self.events)


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def test_a_run_gives_its_document_and_its_progress(stand: Stand) -> None:
    outcome = stand.run("pass")
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0)
    assert outcome.document is not None
    assert Document.from_json(outcome.document).verdict is Verdict.PASSED
    assert stand.said == [WARNING]
    names = [event["event"] for event in stand.events]
    assert names == ["planned", "arm", "case", "case", "case", "arm", "finished"]


def test_the_judge_is_kept_on_the_cores_near_the_device(stand: Stand) -> None:
    core = max(os.sched_getaffinity(0))
    document = stand.run("pass", cpus=str(core)).document
    assert document is not None
    assert Document.from_json(document).environment["pinned.cpus"] == str([core])


def test_the_command_line_says_everything(stand: Stand) -> None:
    words = judge_arguments(stand.request(), ("--out-fd", "7"))
    text = " ".join(words)
    assert words[0] == "run"
    for part in (
        "--suite correctness --device interpreter --device-index 0",
        "--python-path kernels --batch-sizes 1,8 --heads 4x8 --quick",
        f"--import-path m:f --target-name demo --commit {SHA}",
        "--out-fd 7 --progress json",
    ):
        assert part in text
    assert "--chain" not in words


def test_a_baseline_is_named_with_its_place(stand: Stand) -> None:
    request = stand.request()
    assert "--baseline" not in judge_arguments(request, ("--out-fd", "7"))
    compared = dataclasses.replace(request, baseline=Path("/b.json"), commits_behind=3)
    text = " ".join(judge_arguments(compared, ("--out-fd", "7")))
    assert "--baseline /b.json --commits-behind 3" in text


def test_processes_of_the_emulator_are_named_where_they_are_bounded(stand: Stand) -> None:
    request = stand.request()
    assert "--processes" not in judge_arguments(request, ("--out-fd", "7"))
    words = judge_arguments(dataclasses.replace(request, emulator_processes=3), ("--out-fd", "7"))
    assert words[words.index("--processes") + 1] == "3"


def test_a_crash_is_seen_by_its_signal(stand: Stand) -> None:
    outcome = stand.run("crash")
    assert (outcome.exit_code, outcome.document) == (128 + 11, None)


def test_the_last_words_of_a_judge_that_cannot_run_are_kept(stand: Stand) -> None:
    outcome = stand.run("cannot")
    assert (outcome.exit_code, outcome.last_words) == (5, "no such device here")


@pytest.mark.parametrize("behaviour", ["hang", "stubborn"])
def test_the_deadline_ends_the_whole_tree(stand: Stand, behaviour: str) -> None:
    outcome = stand.run(behaviour, timeout_s=1.5, stop_grace_s=0.5)
    assert outcome.ending is Ending.TIMED_OUT
    assert outcome.document is None


@pytest.mark.parametrize(
    ("which", "ending"), [("cancelled", Ending.CANCELLED), ("stopping", Ending.STOPPED)]
)
def test_a_running_tree_is_ended_on_request(stand: Stand, which: str, ending: Ending) -> None:
    outcome = stand.run("hang", **{which: lambda: stand.has_logged("hanging")})  # type: ignore[arg-type]
    assert outcome.ending is ending


def test_a_daemon_in_its_own_session_dies_with_the_judge(stand: Stand) -> None:
    started = time.monotonic()
    outcome = stand.run("daemon")
    assert outcome.document is not None
    assert time.monotonic() - started < 25  # it did not wait for the daemon's pipe


def test_a_flood_is_cut_with_a_note(stand: Stand) -> None:
    outcome = stand.run("flood", log_max_bytes=20_000)
    assert outcome.document is not None
    texts = [event["text"] for event in stand.events if event["event"] == "log"]
    assert sum(len(text) for text in texts) < 21_000
    assert texts[-1] == "[the log is cut here: too much output]"


def test_a_document_in_the_work_folder_is_not_taken(stand: Stand) -> None:
    assert stand.run("forged").document is None
    assert (stand.work / "verdict.json").exists()
    assert stand.run("silent").document is None


def test_a_document_that_is_cut_off_is_none(stand: Stand) -> None:
    assert stand.run("torn").document is None


def test_a_document_over_the_limit_is_refused(stand: Stand) -> None:
    with pytest.raises(RunnerError, match="has over 1000000 bytes"):
        stand.run("long", document_max_bytes=1_000_000)
