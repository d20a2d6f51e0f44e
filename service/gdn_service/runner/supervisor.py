"""Stands between the service and one judge process, and leaves nothing behind.

    python -I supervisor.py ARGV...

Standard library only; run by path. It is the subreaper of everything below it,
so a daemon that leaves its session is still found. It ends the whole tree when
the judge exits, and when its stdin closes, which also happens if the service is
killed. A byte ``T`` on stdin asks the judge to stop by itself (SIGTERM). Device
locks that it inherits are thus held until the tree is gone.

Exit status: the judge's, or 128 + signal number.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_KILL_PATIENCE_S = 10.0


def main(argv: list[str]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only stdin tells it to stop
    judge = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_default_signals
    )
    status = _watch(judge)
    end_descendants(time.monotonic() + _KILL_PATIENCE_S)
    return status


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _watch(judge: subprocess.Popen[bytes]) -> int:
    """Until the judge exits or stdin closes."""
    pidfd = os.pidfd_open(judge.pid)
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    poll.register(pidfd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if pidfd in ready:
            return _status(judge.wait())
        command = os.read(0, 1)
        if command == b"T":
            judge.terminate()
        elif command == b"":
            judge.kill()
            return _status(judge.wait())


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code


def end_descendants(deadline: float) -> None:
    """SIGKILL until no process is left below this one."""
    while True:
        for pid in descendants(os.getpid()):
            _kill(pid)
        if not _reap() or time.monotonic() > deadline:
            return
        time.sleep(0.02)


def descendants(root: int) -> list[int]:
    """Pids below `root`, parents first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        parent = _parent(name) if name.isdigit() else None
        if parent is not None:
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):  # it ended meanwhile
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _reap() -> bool:
    """Collect the dead; whether any child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
