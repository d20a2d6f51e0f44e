"""Stands between the service and one judge process, and leaves nothing behind.

    python -I supervisor.py [--hand-on FD] ARGV...

Standard library only; run by path. It is the subreaper of everything below it,
so a daemon that leaves its session is still found. It ends the whole tree when
the judge exits, and when its stdin closes, which also happens if the service is
killed. A byte ``T`` on stdin asks the judge to stop by itself (SIGTERM). Device
locks that it inherits are thus held until the tree is gone; the judge gets FD alone.

A tree is ended by the users in it, other than its own, and then one by one: what forks
faster than it can be looked for has no user but the candidate's.

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
from pathlib import Path

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_KILL_PATIENCE_S = 10.0


def main(argv: list[str]) -> int:
    handed: list[int] = []
    if argv[0] == "--hand-on":
        handed, argv = [int(argv[1])], argv[2:]
    _enter_users()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_DUMPABLE, 0)  # nothing of the same user reads or steers it
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only stdin tells it to stop
    judge = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_default_signals,
        pass_fds=handed,
    )
    for descriptor in handed:
        os.close(descriptor)
    status = _watch(judge)
    end_descendants(time.monotonic() + _KILL_PATIENCE_S)
    return status


def _enter_users() -> None:
    """Where this is not root: into the user namespace in which the judge has other users, so
    that their processes can be ended from here. The judge says why where there is none."""
    if os.geteuid() != 0:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        from gdn_judge import userns

        userns.try_to_enter()


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


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
    users: set[int] = set()
    while True:
        found = _descendants(os.getpid())
        users |= set(found.values()) - {os.getuid()}
        for uid in users:
            _end_user(uid)
        for pid in found:
            _kill(pid)
        if not _reap() or time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _end_user(uid: int) -> None:
    """Every process of a user in one system call, by a process that has become that user: as
    in `gdn_judge.reap`. One of them may end that process first; then the next round does it.
    """
    if os.geteuid() != 0:
        return
    try:
        child = os.fork()
    except BlockingIOError:  # no room for one more; the kills one by one make some
        return
    if child == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        except OSError:  # nobody is left, or the user cannot be taken
            pass
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def descendants(root: int) -> list[int]:
    """Pids below `root`, parents first."""
    return list(_descendants(root))


def _descendants(root: int) -> dict[int, int]:
    """Pid -> real uid of all processes below `root`, parents first."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        seen = _parent_and_user(name) if name.isdigit() else None
        if seen is not None:
            children.setdefault(seen[0], []).append((int(name), seen[1]))
    found: dict[int, int] = {}
    ahead = children.get(root, [])
    while ahead:
        found |= ahead
        ahead = [child for pid, _uid in ahead for child in children.get(pid, [])]
    return found


def _parent_and_user(pid: str) -> tuple[int, int] | None:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = dict(
                line.split(b":\t", 1) for line in file.read().splitlines() if b":\t" in line
            )
        return int(lines[b"PPid"]), int(lines[b"Uid"].split()[0])
    except (OSError, KeyError):  # it ended meanwhile
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # gone, or another user's: see _end_user
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
