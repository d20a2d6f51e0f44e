"""Real parts for tests of the service: git repositories, databases, service processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import uvicorn
from fastapi import FastAPI

from gdn_service import application
from gdn_service.auth import Scope, create_token
from gdn_service.settings import Settings, load_settings
from gdn_service.store.models import Target
from gdn_service.targets import new_target
from support import preloaded

POSTGRES = "postgresql://postgres@127.0.0.1:5432"
STANDIN = Path(__file__).with_name("standin_judge.py")
KILLABLE = Path(__file__).with_name("killable_service.py")
IMPORT_PATH = "demo_op:fused"
GIT_IDENTITY = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class Repo:
    """A real git repository with one commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit("first", {"demo_op.py": "def fused(): ...\n"})

    def git(self, *arguments: str, data: bytes | None = None, **environment: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=os.environ | GIT_IDENTITY | environment,
            input=data,
            check=True,
            capture_output=True,
        )
        return done.stdout.decode().strip()

    def commit(self, subject: str, files: dict[str, str]) -> str:
        """The new commit's SHA."""
        for name, text in files.items():
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def behave(self, **behaviour: Any) -> str:
        """A commit on which the stand-in judge behaves as told."""
        return self.commit(
            f"behave {behaviour}",
            {"behaviour.json": json.dumps(behaviour), "salt": uuid.uuid4().hex},
        )


def postgres_missing() -> str:
    """Why there is no PostgreSQL server, or ""."""
    try:
        psycopg.connect(POSTGRES, connect_timeout=3).close()
    except psycopg.OperationalError as error:
        return f"no PostgreSQL server at {POSTGRES}: {str(error).splitlines()[0]}"
    return ""


@contextmanager
def postgres_database(template: str = "template1") -> Iterator[str]:
    """A database of our own, a copy of `template`; dropped at the end."""
    name = f"gdn_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield f"{POSTGRES}/{name}"
    finally:
        with psycopg.connect(POSTGRES, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def demo_target(repository: Path, name: str = "demo") -> Target:
    return new_target(name=name, repository=str(repository), import_path=IMPORT_PATH)


def bench_settings(data_dir: Path, database_url: str, **overrides: Any) -> Settings:
    values: dict[str, Any] = {
        "data_dir": data_dir,
        "database_url": database_url,
        "worker_name": "bench",
        "device_kinds": ("interpreter",),
        "judge_command": (sys.executable, "-I", str(STANDIN)),
        "database_poll_s": 0.1,
        "stop_grace_s": 1,
        "host_retry_s": 0.1,
        "heartbeat_s": 1,
        "worker_ttl_s": 5,
        "busy_wait_s": 1.5,
    }
    return load_settings(**values | overrides)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Bench:
    """A service in a process of its own, and a client for it."""

    settings: Settings
    token: str
    repo: Repo
    process: preloaded.Process | None = None
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.settings.port}/api/v1",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=20,
        )

    def start(
        self, command: str = "serve", kill: tuple[str, str] | None = None, **environment: str
    ) -> None:
        """`kill`: ("before" or "after", step) at which the service kills itself."""
        arguments = ["-m", "gdn_service", command] if kill is None else [str(KILLABLE), *kill]
        log = open(self.settings.data_dir / "service.log", "ab")  # noqa: SIM115
        self.process = preloaded.start(
            arguments,
            env=os.environ | service_environment(self.settings) | environment,
            stdout=log,
            stderr=log,
        )
        log.close()
        process = self.process
        self.await_true(
            lambda: (kill is not None and process.poll() is not None) or self._is_ready(),
            "the service is ready",
        )

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        try:
            return self.http.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(timeout=40)
        self.process = None
        return status

    def await_death(self) -> None:
        """Until the service has killed itself."""
        assert self.process is not None
        assert self.process.wait(timeout=60) == -signal.SIGKILL, self.log()
        self.process = None

    def close(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.http.close()

    def log(self) -> str:
        return (self.settings.data_dir / "service.log").read_text()

    def submit(self, commit: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post("/jobs", json={"target": "demo", "commit": commit, **body})
        assert answer.status_code in (200, 201), answer.text
        job: dict[str, Any] = answer.json()
        return job

    def job(self, job_id: str) -> dict[str, Any]:
        try:
            answer = self.http.get(f"/jobs/{job_id}")
        except httpx.TransportError as error:
            status = None if self.process is None else self.process.poll()
            raise AssertionError(f"the service is gone (status {status})\n{self.log()}") from error
        job: dict[str, Any] = answer.raise_for_status().json()
        return job

    def text(self, job_id: str) -> str:
        return self.http.get(f"/jobs/{job_id}/log", params={"format": "text"}).text

    def wait(self, job_id: str, timeout_s: float = 60) -> dict[str, Any]:
        """The job once it is in a final state."""

        def ended() -> bool:
            return self.job(job_id)["state"] not in ("queued", "running")

        self.await_true(ended, f"job {job_id} ends", timeout_s)
        return self.job(job_id)

    def await_log(self, job_id: str, text: str) -> None:
        self.await_true(lambda: text in self.text(job_id), f"{text!r} in the log of {job_id}")

    def await_true(self, test: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not test():
            assert time.monotonic() < deadline, f"waited in vain until {what}\n{self.log()}"
            time.sleep(0.05)


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """The app behind a real server in a thread; gives its base URL."""
    port = free_port()
    config = uvicorn.Config(app, port=port, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def service_environment(settings: Settings) -> dict[str, str]:
    """`settings` as the environment of a service process."""
    changed = settings.model_dump(exclude_defaults=True)
    return {
        f"GDN_{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in changed.items()
    }


@contextmanager
def bench(data_dir: Path, database_url: str, repo: Repo, **overrides: Any) -> Iterator[Bench]:
    """A migrated store with a token and the target ``demo``; the service is not started."""
    settings = bench_settings(data_dir, database_url, port=free_port(), **overrides)
    application.migrate(settings)
    with application.open_store(settings) as store:
        token = create_token(store, "bench", Scope.SUBMIT)
        with store.write() as tx:
            tx.targets.put(demo_target(repo.path))
    made = Bench(settings=settings, token=token, repo=repo)
    try:
        yield made
    finally:
        made.close()


def processes_under(path: Path) -> list[str]:
    """Command lines of living processes that mention `path` or run inside it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (
                (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            )
            inside = str(path) in str((entry / "cwd").readlink())
        except OSError:
            continue
        if str(path) in command or inside:
            found.append(command)
    return found
