"""Processes of ``gdn-service`` that do not import it anew: forked from one that has.

The import takes most of a process's start. Everything else is as in a process started
from a command line: its own pid, environment, output, signals and exit status.

    python preloaded.py SOCKET_FD       the process that forks; ends with its connection
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

_SIZE = 1 << 16  # bytes of a message: an environment and a few words


class Process:
    """What tests use of subprocess.Popen."""

    def __init__(self, parent: _Parent, arguments: Sequence[str], pid: int) -> None:
        self.args, self.pid = list(arguments), pid
        self.returncode: int | None = None
        self._parent = parent
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        if self.returncode is None:
            status = self._parent.ask({"reap": self.pid})["status"]
            if status is not None:
                self.returncode = os.waitstatus_to_exitcode(status)
                os.close(self._handle)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None and not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    stdout: IO[bytes],
    stderr: IO[bytes],
) -> Process:
    """As `python *arguments`, which are ``-m gdn_service ...`` or a script with its words."""
    parent = _parent()
    asked = {"start": list(arguments), "env": dict(env), "cwd": os.getcwd()}
    pid = parent.ask(asked, [stdout.fileno(), stderr.fileno()])["pid"]
    return Process(parent, arguments, pid)


def run(arguments: Sequence[str], *, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Start, wait for the end, and give what was printed."""
    texts = {}
    with open(os.memfd_create("out"), "w+b") as out, open(os.memfd_create("err"), "w+b") as err:
        status = start(arguments, env=env, stdout=out, stderr=err).wait()
        for name, file in (("stdout", out), ("stderr", err)):
            file.seek(0)
            texts[name] = file.read().decode()
    return subprocess.CompletedProcess(list(arguments), status, **texts)


class _Parent:
    """The process that forks, as the tests' process sees it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        self._connection = ours
        self._lock = threading.Lock()
        atexit.register(self.close)

    def ask(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock:
            socket.send_fds(self._connection, [json.dumps(message).encode()], fds)
            answer: dict[str, Any] = json.loads(self._connection.recv(_SIZE))
        return answer

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


@functools.cache
def _parent() -> _Parent:
    return _Parent()


def _serve(connection: socket.socket) -> list[str] | None:
    """Answer until the connection ends; in a forked process, what it has to run."""
    while True:
        data, fds, *_ = socket.recv_fds(connection, _SIZE, 2)
        if not data:
            return None
        asked = json.loads(data)
        if "reap" in asked:
            pid, status = os.waitpid(asked["reap"], os.WNOHANG)
            answer = {"status": status if pid else None}
        else:
            pid = os.fork()
            if pid == 0:
                connection.close()
                _become(asked, fds)
                arguments: list[str] = asked["start"]
                return arguments
            for fd in fds:
                os.close(fd)
            answer = {"pid": pid}
        connection.send(json.dumps(answer).encode())


def _become(asked: Mapping[str, Any], fds: Sequence[int]) -> None:
    for number, fd in enumerate(fds, start=1):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])


def main() -> None:
    from sqlalchemy.orm import configure_mappers

    import gdn_service.cli  # noqa: F401 - what every process needs

    configure_mappers()
    gc.freeze()  # a collection would copy what forked processes share
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is None:
        return
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
