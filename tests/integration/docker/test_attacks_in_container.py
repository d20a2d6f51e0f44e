"""Hostile candidates under the real judge in a real container.

Each does its worst when the op is imported, writes what it could do to its log,
which the judge keeps as the log's tail, and lets the import fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdn_judge.document import DeviceKind, Document, Suite, Verdict
from gdn_service.runner import container
from gdn_service.runner.base import Ending, JudgeOutcome, JudgeRequest, RunControl
from gdn_service.runner.container import LABEL, candidate_uid
from gdn_service.runner.docker_runner import DockerRunner
from support.engine import TestEngine
from support.service_bench import bench_settings, processes_under
from support.service_rows import SHA

pytestmark = [pytest.mark.docker, pytest.mark.slow]
MIB = 1 << 20

# `tell(name, action)` writes what an action gave, or how it was refused.
PRELUDE = """
import json, os, socket, subprocess, sys, time
def tell(name, action):
    try:
        value = action()
    except BaseException as error:
        value = "refused: " + type(error).__name__ + ": " + str(error)[:120]
    print("SEEN " + json.dumps({name: value}), file=sys.stderr, flush=True)
def read(path):
    with open(path, "rb") as file:
        return file.read(2000).decode("utf-8", "replace")
def write(path):
    with open(path, "w") as file:
        file.write("x")
    return "written"
"""


class Stand:
    """One hostile tree, one runner, and what it said."""

    def __init__(self, folder: Path, engine: TestEngine) -> None:
        self.folder = folder
        self.engine = engine
        self.tree = folder / "tree"
        self.work = folder / "work"
        self.tree.mkdir()
        self.work.mkdir()
        self.events: list[dict[str, Any]] = []
        self.said: list[str] = []

    def request(self, timeout_s: float) -> JudgeRequest:
        return JudgeRequest(
            tree=self.tree,
            import_path="hostile:fused",
            python_path=["."],
            chain_import_path=None,
            target="demo",
            commit=SHA,
            suite=Suite.DETERMINISM,
            device_kind=DeviceKind.INTERPRETER,
            device_index=0,
            device_uuid=None,
            batch_sizes=[1],
            heads=None,
            quick=True,
            candidate_user="",
            work_dir=self.work,
            deadline_s=timeout_s,
            call_timeout_s=timeout_s,
            timeout_s=timeout_s,
        )

    def run(
        self,
        attack: str,
        *,
        timeout_s: float = 60,
        cancelled: Callable[[], bool] = lambda: False,
        **settings: Any,
    ) -> JudgeOutcome:
        (self.tree / "hostile.py").write_text(PRELUDE + textwrap.dedent(attack))
        (self.tree / "hostile.py").chmod(0o644)
        made = bench_settings(self.folder, "", **self.engine.settings() | settings)
        control = RunControl(
            say=self.said.append,
            events=self.events.extend,
            cancelled=cancelled,
            stopping=lambda: False,
        )
        outcome = DockerRunner(made).run(self.request(timeout_s), control)
        assert self.containers() == []
        return outcome

    def containers(self) -> list[Any]:
        with self.engine.api as api:
            found: list[Any] = api.containers(all=True, filters={"label": f"{LABEL}=bench"})
        return found

    def seen(self, outcome: JudgeOutcome) -> dict[str, Any]:
        """What the candidate told, from the judge's document."""
        assert outcome.document is not None, (outcome, self.events[-5:])
        tail = Document.from_json(outcome.document).log_tail
        found: dict[str, Any] = {}
        for line in tail.splitlines():
            if line.startswith("SEEN "):
                found |= json.loads(line[5:])
        return found


@pytest.fixture
def stand(tmp_path: Path, engine: TestEngine) -> Stand:
    return Stand(tmp_path, engine)


def test_what_a_candidate_can_reach(stand: Stand) -> None:
    """Network, host, root file system, judge, capabilities: one container, many attempts."""
    outcome = stand.run(
        """
        def status(field):
            lines = read("/proc/self/status").splitlines()
            return [line for line in lines if line.startswith(field + ":")][0].split()[1]
        def connect(address):
            socket.create_connection(address, timeout=3)
            return "connected"
        def judges():
            return [p for p in os.listdir("/proc") if p.isdigit()
                    and os.stat("/proc/" + p).st_uid == 0]
        tell("uid", os.getuid)
        tell("groups", os.getgroups)
        for field in ("CapEff", "CapPrm", "CapInh", "CapAmb", "NoNewPrivs", "Seccomp"):
            tell(field, lambda: status(field))
        tell("interfaces", lambda: [name for _, name in socket.if_nameindex()])
        tell("internet", lambda: connect(("1.1.1.1", 53)))
        tell("host", lambda: connect(("172.17.0.1", 22)))
        for path in ("/root-file", "/usr/lib/x", "/etc/passwd", "/gdn/tree/x", "/gdn/out/x",
                     "/gdn/out/verdict.json", "/gdn/leash.py", "/gdn/work/x", "/sys/x",
                     "/proc/sys/kernel/core_pattern"):
            tell("write " + path, lambda: write(path))
        tell("socket", lambda: [p for p in ("/var/run/docker.sock", "/run/docker.sock",
             "/run/containerd/containerd.sock") if os.path.exists(p)])
        tell("others", lambda: sorted(set(read(f"/proc/{p}/cmdline").split("\\0")[0]
             for p in judges())))
        tell("environ of the judge", lambda: [read(f"/proc/{p}/environ") for p in judges()])
        tell("memory of the judge", lambda: [open(f"/proc/{p}/mem", "rb") for p in judges()])
        tell("kill the judge", lambda: [os.kill(int(p), 9) for p in judges()])
        tell("setuid", lambda: os.setuid(0))
        tell("mount", lambda: subprocess.run(["mount", "-t", "tmpfs", "x", "/tmp"],
             capture_output=True).returncode)
        tell("sudo", lambda: subprocess.run(["su", "-c", "id"], capture_output=True,
             stdin=subprocess.DEVNULL).returncode)
        tell("unshare", lambda: subprocess.run(["unshare", "-Ur", "id"],
             capture_output=True).returncode)
        tell("host pids", lambda: len([p for p in os.listdir("/proc") if p.isdigit()]))
        tell("cgroups", lambda: sorted({line.rpartition(":")[2]
                                        for line in read("/proc/self/cgroup").splitlines()}))
        tell("environment", lambda: sorted(os.environ))
        raise ImportError("enough seen")
        """,
        timeout_s=120,
    )
    seen = stand.seen(outcome)
    assert seen["uid"] == candidate_uid("work")
    assert seen["groups"] == []
    for field in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert int(seen[field], 16) == 0, field
    assert (seen["NoNewPrivs"], seen["Seccomp"]) == ("1", "2")
    assert seen["interfaces"] == ["lo"]
    for name in ("internet", "host", "environ of the judge", "memory of the judge"):
        assert str(seen[name]).startswith("refused"), (name, seen[name])
    for name, value in seen.items():
        if name.startswith("write "):
            assert value.startswith("refused"), (name, value)
    assert seen["socket"] == []
    assert str(seen["kill the judge"]).startswith("refused: PermissionError")
    assert str(seen["setuid"]).startswith("refused: PermissionError")
    for name in ("mount", "sudo", "unshare"):
        assert seen[name] != 0, name
    assert seen["host pids"] < 12
    assert seen["cgroups"] == ["/"]  # on v1 too, where an engine shows the host's own by default
    assert not [name for name in seen["environment"] if "GDN" in name or "TOKEN" in name]


def test_a_fork_bomb_is_held_and_ended(stand: Stand) -> None:
    outcome = stand.run(
        """
        def bomb():
            made = 0
            while True:
                try:
                    if os.fork() == 0:
                        time.sleep(600)
                except BlockingIOError:
                    return made
                made += 1
        tell("made", bomb)
        raise ImportError("no more")
        """,
        container_pids=200,
    )
    assert outcome.document is not None
    assert Document.from_json(outcome.document).verdict is not Verdict.PASSED
    assert stand.seen(outcome).get("made", 0) < 200


def test_memory_beyond_the_limit_ends_the_candidate_not_the_judge(stand: Stand) -> None:
    outcome = stand.run(
        """
        blocks = []
        while True:
            blocks.append(bytearray(64 << 20))
        """,
        container_memory=1500 * MIB,
    )
    document = Document.from_json(outcome.document or "{}")
    assert document.verdict is not Verdict.PASSED
    assert "SIGKILL" in document.reason + "".join(case.reason for case in document.cases)
    assert any("memory limit" in text for text in stand.said)


def test_a_full_disk_does_not_keep_the_judge_from_its_document(stand: Stand) -> None:
    outcome = stand.run(
        """
        def fill(folder):
            written = 0
            with open(os.path.join(folder, "big"), "wb", buffering=0) as file:
                try:
                    while True:
                        written += file.write(bytes(1 << 20))
                except OSError as error:
                    return [error.strerror, written >> 20]
        for folder in (os.getcwd(), "/tmp", "/dev/shm"):
            tell(folder[:8], lambda: fill(folder))
        raise ImportError("all is full")
        """,
        container_scratch=64 * MIB,
        container_shared_memory=16 * MIB,
    )
    seen = stand.seen(outcome)
    assert seen["/gdn/wor"][0] == "No space left on device", seen
    assert seen["/tmp"][0] == "No space left on device", seen
    assert seen["/gdn/wor"][1] <= 64
    assert seen["/tmp"][1] <= 4
    assert seen["/dev/shm"][1] <= 16


def test_a_flood_of_output_is_cut(stand: Stand) -> None:
    outcome = stand.run(
        """
        for _ in range(40_000):
            print("x" * 1000)
        raise ImportError("said enough")
        """,
        log_max_bytes=50_000,
    )
    assert outcome.document is not None
    assert len(Document.from_json(outcome.document).log_tail) <= 64 << 10
    texts = [event.get("text", "") for event in stand.events]
    assert sum(map(len, texts)) < 60_000


def test_a_daemon_dies_with_the_container(stand: Stand) -> None:
    outcome = stand.run(
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "98765"])
            os._exit(0)
        raise ImportError("left one behind")
        """
    )
    assert outcome.document is not None
    assert not [command for command in commands() if "98765" in command]


def test_a_hang_ends_at_the_outer_deadline(stand: Stand) -> None:
    outcome = stand.run("time.sleep(600)", timeout_s=12)
    assert outcome.ending in (Ending.TIMED_OUT, Ending.EXITED)  # EXITED: by the judge's own
    assert processes_under(stand.folder) == []


def test_nothing_stays_that_the_worker_could_not_remove(stand: Stand) -> None:
    """A worker that is not root owns the run's folder; the judge inside is root."""
    os.chown(stand.work, 12345, 12345)
    stand.run("raise ImportError('x')")
    assert sorted(path.name for path in (stand.work / "out").iterdir()) == ["verdict.json"]
    assert oct((stand.work / "out" / "verdict.json").stat().st_mode & 0o777) == "0o644"


# KILL is for a candidate that leaves no room for another process: the fork bomb.
@pytest.mark.parametrize("without", [None, *sorted({*container.CAPABILITIES} - {"KILL"})])
def test_the_judge_needs_each_of_its_capabilities(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, without: str | None
) -> None:
    """An op that leaves a private folder and a daemon is judged and cleared, or is not."""
    kept = tuple(name for name in container.CAPABILITIES if name != without)
    monkeypatch.setattr(container, "CAPABILITIES", kept)
    outcome = stand.run(
        """
        os.makedirs("private", 0o700)
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        def fused(*arguments, **options):
            raise RuntimeError("called")
        """
    )
    judged = outcome.document is not None and "called" in outcome.document
    cleared = outcome.document is not None and "could not be ended" not in outcome.document
    assert (judged and cleared) is (without is None), outcome


def commands() -> list[str]:
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()
