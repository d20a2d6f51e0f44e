"""The real client executable against the real service, each a process of its own.

The service judges with the stand-in judge: a real process with real documents,
whose verdicts come from the tree under test.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from support.user_repository import IDENTITY, git

STANDIN = Path(__file__).parents[2] / "support" / "standin_judge.py"
START_S = 60.0


@dataclass(frozen=True)
class Lab:
    """A running service, the repository it knows, and a clone with the user's commits."""

    url: str
    token: str
    upstream: Path
    clone: Path
    config: Path
    service: dict[str, str]  # environment

    def environment(self, **changes: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GDN_")}
        return {
            **kept,
            **IDENTITY,
            "GDN_SERVER": self.url,
            "GDN_TOKEN": self.token,
            "GDN_CONFIG_DIR": str(self.config),
            **changes,
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "gdn_client", *arguments]

    def client(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.clone,
            env=self.environment(**changes),
            text=True,
            capture_output=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    def behave(self, message: str, **behaviour: str) -> str:
        """A commit, not pushed, whose tree tells the stand-in judge what to do."""
        (self.clone / "behaviour.json").write_text(json.dumps(behaviour))
        (self.clone / "message.txt").write_text(message)
        return commit(self.clone, message)


def commit(directory: Path, message: str) -> str:
    git(directory, "add", "--all")
    git(directory, "commit", "-q", "-m", message)
    return git(directory, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    upstream = root / "upstream"
    git(root, "init", "-q", "-b", "main", str(upstream))
    for number in range(3):
        (upstream / "file.txt").write_text(f"{number}\n")
        commit(upstream, f"Commit {number}")
    clone = root / "clone"
    git(root, "clone", "-q", str(upstream), str(clone))
    environment = service_environment(root)
    manage(
        "target",
        "add",
        "gdn-lab",
        "--repository",
        str(upstream),
        "--import-path",
        "op:fused",
        environment=environment,
    )
    token = manage(
        "token", "create", "--name", "ada", "--scope", "submit", environment=environment
    ).strip()
    url = f"http://127.0.0.1:{environment['GDN_PORT']}"
    log = root / "service.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gdn_service", "serve"],
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        await_ready(process, url, log)
        yield Lab(url, token, upstream, clone, root / "config", environment)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.fixture(autouse=True)
def nothing_left_running(lab: Lab) -> Iterator[None]:
    """A test that fails half-way leaves the one device to the next."""
    yield
    headers = {"Authorization": f"Bearer {lab.token}"}
    with httpx.Client(base_url=f"{lab.url}/api/v1", headers=headers, trust_env=False) as http:
        for job in http.get("/jobs").raise_for_status().json()["items"]:
            if job["state"] in ("queued", "running"):
                http.post(f"/jobs/{job['id']}/cancel").raise_for_status()


def service_environment(root: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GDN_")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        **kept,
        "GDN_DATA_DIR": str(root / "data"),
        "GDN_PORT": str(port),
        "GDN_DEVICE_KINDS": "interpreter",
        "GDN_DATABASE_POLL_S": "0.1",
        "GDN_HOST_RETRY_S": "0.1",
        "GDN_STOP_GRACE_S": "1",
        "GDN_JUDGE_COMMAND": f"{sys.executable},{STANDIN}",
    }


def manage(*arguments: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gdn_service", *arguments],
        env=environment,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def await_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(f"{url}/api/v1/ready", trust_env=False).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_an_unpushed_commit_from_submission_to_tables(lab: Lab) -> None:
    sha = lab.behave("Pass everything")
    done = lab.client("submit")
    assert done.returncode == 0, done.stderr
    assert f"sending {sha[:12]} as a bundle" in done.stderr
    assert "correctness 3/3 T64: passed" in done.stderr
    for suite in ("correctness", "determinism", "roofline"):
        assert f"✓ {suite} on interpreter: passed" in done.stdout
    assert "11.00 [10.00-12.00]" in done.stdout
    again = lab.client("submit")
    assert again.returncode == 0
    assert "answered from the store" in again.stderr
    assert "bundle" not in again.stderr
    assert "11.00 [10.00-12.00]" in again.stdout
    shown = lab.client("show")
    assert shown.returncode == 0
    assert f"Commit {sha[:12]}  passed" in shown.stdout
    assert "Pass everything" in shown.stdout


def test_a_failing_commit_in_all_formats(lab: Lab) -> None:
    sha = lab.behave("Fail one", correctness="fail")
    done = lab.client("submit", "--suite", "correctness")
    assert done.returncode == 1
    assert "Not passed: 1 of 3" in done.stdout
    assert "said" in done.stdout
    for form in ("json", "markdown", "junit"):
        done = lab.client("submit", "--suite", "correctness", "--format", form, "--quiet")
        assert (done.returncode, done.stderr) == (1, "")
        if form == "json":
            data = json.loads(done.stdout)
            assert data["job"]["commit"] == sha
            assert data["documents"][0]["verdict"] == "failed"
        elif form == "junit":
            assert ET.fromstring(done.stdout).attrib["failures"] == "1"
        else:
            assert "### ❌ correctness on interpreter: failed" in done.stdout


def test_uncommitted_changes(lab: Lab) -> None:
    lab.behave("Clean")
    (lab.clone / "behaviour.json").write_text('{"all": "fail"}')
    (lab.clone / "untracked.txt").write_text("new")
    before = git(lab.clone, "status", "--porcelain")
    done = lab.client("submit", "--suite", "correctness")
    assert done.returncode == 0
    assert "uncommitted changes in 2 paths are not included" in done.stderr
    done = lab.client("submit", "--suite", "correctness", "--worktree")
    assert done.returncode == 1
    assert "(uncommitted changes)" in done.stdout
    assert git(lab.clone, "status", "--porcelain") == before
    assert git(lab.clone, "stash", "list") == ""
    again = lab.client("submit", "--suite", "correctness", "--worktree")
    assert "answered from the store" in again.stderr
    git(lab.clone, "checkout", "-q", "--", ".")
    (lab.clone / "untracked.txt").unlink()


def test_detach_status_logs_cancel_retry(lab: Lab) -> None:
    lab.behave("Hang", correctness="hang")
    done = lab.client("submit", "--suite", "correctness", "--detach")
    assert done.returncode == 8
    job = done.stdout.strip()
    assert lab.client("status", job).returncode == 8
    waited = lab.client("logs", "-f", job, "--timeout", "2s")
    assert waited.returncode == 3
    assert f"job {job} goes on" in waited.stderr
    assert job in lab.client("status").stdout
    follower = subprocess.Popen(
        lab.command("logs", "-f", job),
        cwd=lab.clone,
        env=lab.environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert lab.client("cancel", job).returncode == 0
    out, _ = follower.communicate(timeout=60)
    assert follower.returncode == 3
    assert out.splitlines()[-1].startswith("cancelled")
    assert lab.client("status", job).returncode == 3
    assert lab.client("cancel", job).returncode == 0
    assert "hanging" in lab.client("logs", job).stdout
    again = lab.client("retry", job, "--detach")
    assert again.returncode == 8
    assert lab.client("cancel", again.stdout.strip()).returncode == 0
    assert json.loads(lab.client("status", again.stdout.strip(), "--json").stdout)["attempt"] == 2


def test_ctrl_c_leaves_the_job_running(lab: Lab) -> None:
    lab.behave("Hang again", correctness="hang")
    process = subprocess.Popen(
        lab.command("submit", "--suite", "correctness"),
        cwd=lab.clone,
        env=lab.environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "3 cases planned" in line:
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    job = said.split("interrupted; job ")[1].split()[0]
    assert lab.client("status", job).returncode == 8
    assert lab.client("cancel", job).returncode == 0


@pytest.mark.parametrize(
    ("behaviour", "code", "said"),
    [("crash", 5, ""), ("cannot", 5, "no such device here")],
)
def test_what_is_not_the_candidates_fault(lab: Lab, behaviour: str, code: int, said: str) -> None:
    lab.behave(behaviour, correctness=behaviour)
    done = lab.client("submit", "--suite", "correctness")
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    assert "correctness on interpreter: error" in done.stdout
    # three spoiled tries have quarantined the one device, which the next tests need
    (device,) = json.loads(lab.client("devices", "--json").stdout)["items"]
    manage("devices", "--lift-quarantine", device["id"], environment=lab.service)


def test_bad_input(lab: Lab) -> None:
    wrong = lab.client("status", GDN_TOKEN="gdn_nobody_wrong")
    assert wrong.returncode == 4
    assert "gdn-client login" in wrong.stderr
    unknown = lab.client("submit", "--commit", "beef" * 10)
    assert unknown.returncode == 6
    assert "nor on the server" in unknown.stderr
    suite = lab.client("submit", "--suite", "roofing")
    assert suite.returncode == 2
    assert "Known suites: correctness" in suite.stderr
    target = lab.client("submit", "--target", "aiter")
    assert target.returncode == 2
    assert "Known targets: gdn-lab" in target.stderr
    kind = lab.client("submit", "--device", "gfx950")
    assert kind.returncode == 5
    assert "served: interpreter" in kind.stderr
    down = lab.client("status", "--server", "http://127.0.0.1:9")
    assert down.returncode == 5
    missing = lab.client("status", "jnosuch")
    assert missing.returncode == 2
    assert "there is no job" in missing.stderr


def test_login_and_devices(lab: Lab, tmp_path: Path) -> None:
    environment = lab.environment(GDN_CONFIG_DIR=str(tmp_path))
    del environment["GDN_TOKEN"]

    def run(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            lab.command(*arguments), env=environment, input=typed, text=True, capture_output=True
        )

    assert run("devices").returncode == 4
    done = run("login", typed=lab.token + "\n")
    assert done.returncode == 0, done.stderr
    assert "as ada with scope submit" in done.stderr
    listed = run("devices", "--json")
    assert [d["kind"] for d in json.loads(listed.stdout)["items"]] == ["interpreter"]


def test_history_compare_environment_report(lab: Lab, tmp_path: Path) -> None:
    first = lab.behave("History one")
    assert lab.client("submit").returncode == 0
    second = lab.behave("History two")
    assert lab.client("submit").returncode == 0
    history = lab.client("history", "--limit", "2")
    assert history.returncode == 0
    rows = [line.split()[:6] for line in history.stdout.splitlines() if "passed" in line]
    assert rows == [
        [sha[:12], "passed", "passed", "passed", "11.00", "11.00"] for sha in (second, first)
    ]
    compared = lab.client("compare", first)
    assert compared.returncode == 0
    assert "+0.0%" in compared.stdout
    assert "same binary" in compared.stdout
    environments = lab.client("show", "--environment", first, second)
    assert "roofline on interpreter: 0 differences" in environments.stdout
    path = tmp_path / "report.md"
    assert lab.client("report", "-o", str(path)).returncode == 0
    assert path.read_text().startswith(f"## ✅ Commit {second[:12]}: passed")
