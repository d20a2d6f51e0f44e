"""The candidate's process as the judge sees it: start, talk, limit, end.

Its environment is empty but for what finds the device; it has its own session,
its own uid (`accounts`), no descriptor but one socket and its log, and it dies
with the judge.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gdn_judge import accounts, processes, replies, settings
from gdn_judge.accounts import AGENT
from gdn_judge.agent import wire
from gdn_judge.candidate_log import Log
from gdn_judge.errors import (
    CandidateCrashed,
    CandidateError,
    CandidateOverLimit,
    CandidateRaised,
    CandidateRefused,
    CandidateTimedOut,
    HostError,
    ProtocolViolation,
)

_WATCH_S = 0.2
_FAILURE = ("kind", "message", "traceback")
_LIVE: set[int] = set()  # pids of live candidates of this process
_GRACE_S = 2.0  # for a process that broke the protocol to show that it has ended
_EXIT_S = 15.0  # for a process that closed its connection to be gone


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Quotas of one candidate: bytes and counts."""

    memory: int = 64 << 30
    file: int = 4 << 30
    disk: int = 8 << 30
    processes: int = 512
    log: int = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What to start: the checkout, its import paths, the device, and as whom."""

    root: Path
    import_path: str
    python_path: Sequence[Path] = ()
    chain: str | None = None
    device: str = "cpu"  # torch device
    uid: int | None = None
    shown: Sequence[Path] = ()  # folders that this uid must be shown, as in `accounts.Account`
    limits: Limits = field(default_factory=Limits)
    work: Path | None = None  # where temporary folders are made
    python: str = sys.executable


class Candidate:
    """One live candidate process. `ask` raises CandidateError for whatever it does."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.work = Path(tempfile.mkdtemp(prefix="gdn-candidate-", dir=launch.work))
        self._strangers = set(processes.children().get(os.getpid(), []))
        self._log = Log(launch.limits.log)
        self._over: str = ""
        self._closed = threading.Event()
        self._number = 0
        self._start()

    def _start(self) -> None:
        launch = self.launch
        processes.adopt_orphans()
        if launch.uid is not None:
            os.chown(self.work, launch.uid, -1)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        reader, writer = os.pipe()
        theirs.set_inheritable(True)
        try:
            before, arguments = accounts.started(launch.uid, launch.shown, self.work)
            self.process = subprocess.Popen(
                [*before, launch.python, "-I", str(AGENT), str(theirs.fileno())],
                env=settings.candidate_environment(str(self.work), launch.device == "cpu"),
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                **arguments,
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(reader)
            ours.close()
            raise HostError(f"cannot start a candidate process: {error}") from error
        finally:
            theirs.close()
            os.close(writer)
        self._connection = ours
        self._log.follow(reader)
        _LIVE.add(self.process.pid)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def hello(self, deadline_s: float) -> dict[str, Any]:
        """Have the op imported."""
        launch, limits = self.launch, self.launch.limits
        config = {
            "root": str(launch.root),
            "import_path": launch.import_path,
            "python_path": [str(path) for path in launch.python_path],
            "chain": launch.chain,
            "device": launch.device,
            "fp8": False,
            "limits": {
                "RLIMIT_CORE": 0,
                "RLIMIT_FSIZE": limits.file,
                "RLIMIT_NOFILE": 4096,
                **({"RLIMIT_NPROC": limits.processes} if launch.uid is not None else {}),
            },
        }
        return self.ask({"do": "start", **config}, deadline_s=deadline_s)

    def ask(
        self, message: Mapping[str, Any], fds: Sequence[int] = (), *, deadline_s: float
    ) -> dict[str, Any]:
        """Send a request, wait for its reply. Every way to fail has its own error."""
        self._number += 1
        deadline = time.monotonic() + deadline_s
        try:
            wire.send(self._connection, {"id": self._number, **message}, fds)
            reply = wire.receive(self._connection, deadline)
        except wire.Late as error:
            raise self._late(deadline_s) from error
        except (wire.Closed, BrokenPipeError, ConnectionError) as error:
            raise self._ended() from error
        except wire.WireError as error:
            raise self._violation(str(error)) from error
        return self._accept(reply)

    def _accept(self, reply: dict[str, Any]) -> dict[str, Any]:
        if reply.get("id") != self._number:
            raise self._violation(f"it answers request {reply.get('id')!r}, not {self._number}")
        if reply.get("status") == "ok":
            return reply
        if reply.get("status") not in ("raised", "refused"):
            raise self._violation(f"unknown status {reply.get('status')!r}")
        kind = CandidateRefused if reply["status"] == "refused" else CandidateRaised
        raise kind(*(replies.text(reply.get(key, ""), 8000) for key in _FAILURE))

    def _late(self, deadline_s: float) -> CandidateError:
        if self._over:
            return CandidateOverLimit(self._over)
        return CandidateTimedOut(f"no answer within {deadline_s:.0f} s")

    def _ended(self) -> CandidateError:
        try:
            code = self.process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            return ProtocolViolation("it closed the connection and runs on")
        if self._over:
            return CandidateOverLimit(self._over)
        return CandidateCrashed(describe_exit(code))

    def _violation(self, why: str) -> CandidateError:
        """A broken frame from a process that has then ended is a crash, however it looked."""
        try:
            code = self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            return ProtocolViolation(why)
        return CandidateCrashed(f"{describe_exit(code)}; before that it broke the protocol: {why}")

    def _watch(self) -> None:
        limits = self.launch.limits
        while not self._closed.wait(_WATCH_S):
            used = processes.usage(processes.family(self.process.pid, self._others()))
            disk = processes.folder_bytes(self.work)
            for what, value, limit in (
                ("bytes of memory", used.memory, limits.memory),
                ("processes", used.processes, limits.processes),
                ("bytes on disk", disk, limits.disk),
            ):
                if value > limit:
                    self._over = f"over its quota: {value} {what}, allowed {limit}"
                    self._end()
                    return

    def _end(self) -> list[int]:
        """Kill the whole tree; the pids that are left.

        By its user, so that nothing that it started can outrun the kill. Another candidate of
        this run has the same user and ends too: they are of one commit, and end together.
        """
        uid = self.launch.uid
        left = [] if uid is None else processes.end_user(uid, self.process.pid)
        return sorted({*left, *processes.end(self.process.pid, self._others())})

    def _others(self) -> frozenset[int]:
        """Children of this process that are none of this candidate's."""
        return frozenset(self._strangers | (_LIVE - {self.process.pid}))

    def log_tail(self) -> str:
        return self._log.text()

    def close(self) -> list[int]:
        """End the whole process tree, whatever state it is in; the pids that are left."""
        if self._closed.is_set():
            return []
        self._closed.set()
        self._connection.close()
        left = self._end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self._watcher.join(5)
        _LIVE.discard(self.process.pid)
        self._log.stop()
        shutil.rmtree(self.work, ignore_errors=True)
        if left:
            self._log.add(f"\n[judge] processes {left} could not be ended\n")
        return left


def describe_exit(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(-code).name}"
        return f"ended by signal {-code}"
    return f"exited with {code} before it answered"
