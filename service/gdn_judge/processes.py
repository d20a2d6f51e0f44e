"""Process trees: find, limit, end. Linux /proc.

Who starts a candidate is a child subreaper, so that a daemon that it leaves
behind becomes the judge's child and is found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gdn_judge.errors import HostError

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_REAP = Path(__file__).parent / "reap.py"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_own: set[int] = set()  # children that are the judge's own, no candidate's
_starting = threading.Lock()  # so that no look at the tree falls between start and note


class Startable(Protocol):
    """A process that `start` starts, such as multiprocessing's."""

    @property
    def pid(self) -> int | None: ...

    def start(self) -> None: ...


def start_own(process: Startable) -> None:
    """Start a process of the judge's own: it counts to no candidate's family."""
    with _starting:
        process.start()
        if process.pid is not None:
            _own.add(process.pid)


def forget_own(pid: int) -> None:
    """After it has ended and was collected; its pid may come again."""
    with _starting:
        _own.discard(pid)


def die_with_parent() -> None:
    """Have this process killed when the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def harden() -> None:
    """Make this process unreadable for other processes of its uid."""
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Make this process the new parent of its descendants' orphans."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise HostError(f"prctl({option}) failed: {os.strerror(ctypes.get_errno())}")


@dataclass(frozen=True)
class Usage:
    """What a process tree takes."""

    processes: int
    memory: int  # resident bytes, shared pages counted each time


def children() -> dict[int, list[int]]:
    """parent pid -> child pids, over all processes that can be seen."""
    tree: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = Path(f"/proc/{entry}/stat").read_text()
                parent = int(stat.rpartition(")")[2].split()[1])
                tree.setdefault(parent, []).append(int(entry))
    return tree


def descendants(root: int, tree: dict[int, list[int]] | None = None) -> list[int]:
    """All processes under `root`, without it."""
    tree = children() if tree is None else tree
    found, ahead = [], list(tree.get(root, []))
    while ahead:
        pid = ahead.pop()
        found.append(pid)
        ahead += tree.get(pid, [])
    return found


def family(root: int, adopted_from: frozenset[int]) -> list[int]:
    """`root`, its descendants, and orphans of it that this process has adopted.

    `adopted_from` are the children that this process had before `root` was started.
    """
    with _starting:
        tree = children()
        mine = set(tree.get(os.getpid(), [])) - adopted_from - _own
    heads = {root} | mine
    return sorted({pid for head in heads for pid in [head, *descendants(head, tree)]})


def users() -> dict[int, list[int]]:
    """Real uid -> pids of the living processes that can be seen."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                status = Path(f"/proc/{entry}/status").read_text()
                if status.partition("\nState:\t")[2][:1] not in "ZX":
                    uid = int(status.partition("\nUid:\t")[2].split()[0])
                    found.setdefault(uid, []).append(int(entry))
    return found


def of_user(uid: int) -> list[int]:
    return users().get(uid, [])


def end_user(uid: int, root: int = 0, patience_s: float = 10.0) -> list[int]:
    """Kill every process of a user; the pids that are still there after `patience_s`.

    All in one system call (`reap`), without a look before: a chain of forks outruns what goes
    from one process to the next, and is not seen by who lists them either. Needs root. The
    child `root` is left to whoever waits for it.
    """
    limit = time.monotonic() + patience_s
    while not _reaped(uid) and time.monotonic() < limit:
        # No room for one more process, or one of them ended it: fewer of them, one by one.
        for pid in of_user(uid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _collect(root)
    while (alive := of_user(uid)) and time.monotonic() < limit:
        time.sleep(0.01)
    return alive


def _reaped(uid: int) -> bool:
    """Whether the call was made that ends them all."""
    command = [sys.executable, "-I", str(_REAP), str(uid)]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0
    except BlockingIOError:
        return False


def _collect(root: int) -> None:
    """The dead among this process's children count as processes until they are collected."""
    with _starting:
        mine = set(children().get(os.getpid(), [])) - _own - {root}
    for pid in mine:
        if _is_gone(pid):
            _reap(pid)


def usage(pids: list[int]) -> Usage:
    count = resident = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            resident += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
            count += 1
    return Usage(count, resident)


def folder_bytes(folder: Path) -> int:
    """Disk taken by the files under `folder`; what vanishes meanwhile counts as 0."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


def end(root: int, adopted_from: frozenset[int], patience_s: float = 10.0) -> list[int]:
    """Kill the whole family; returns the pids that are still there after `patience_s`."""
    limit = time.monotonic() + patience_s
    while alive := [pid for pid in family(root, adopted_from) if not _is_gone(pid)]:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > limit:
            return alive
        time.sleep(0.01)
    for pid in family(root, adopted_from):  # what died as a child of this process
        if pid != root:
            _reap(pid)
    return []


def _is_gone(pid: int) -> bool:
    """Whether the process has ended (a zombie counts as ended)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
