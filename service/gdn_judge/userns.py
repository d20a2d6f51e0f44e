"""Other users for a judge that is not root: a user namespace with subordinate ids.

Whoever has a line in /etc/subuid and /etc/subgid may use those ids as other users in a
namespace of their own, in which this process is root. A namespace with one id would not do:
a process there has the same user to the kernel, which lets it kill and read the judge.
Standard library only: it is entered before anything starts a thread.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import subprocess
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_WANTED = 65536  # ids, as useradd gives them
_IDS = (Path("/etc/subuid"), Path("/etc/subgid"))
_ROOT = "or run it as root, or in a container (GDN_RUNNER=docker)"


refusal = ""  # why `try_to_enter` did not; "" where it did or was not asked


class NoUsers(Exception):
    """Why there are no other users here, and what would help."""


def try_to_enter() -> None:
    """`enter` where this process is not root; `refusal` then says why it could not."""
    global refusal
    if os.geteuid() == 0:
        return
    try:
        enter()
    except NoUsers as error:
        refusal = str(error)


def enter() -> None:
    """Become root of a namespace in which uids from 1 on are other users. Raises NoUsers."""
    missing = [name for name in ("newuidmap", "newgidmap") if shutil.which(name) is None]
    if missing:
        raise NoUsers(f"{missing[0]} is not installed: apt-get install uidmap, {_ROOT}")
    ranges = [_range(path) for path in _IDS]
    commands = [
        f"{name} {os.getpid()} 0 {own} 1 1 {start} {count}"
        for name, own, (start, count) in zip(
            ("newuidmap", "newgidmap"), (os.getuid(), os.getgid()), ranges, strict=True
        )
    ]
    # Only a process outside may write the map, and only once the namespace is there.
    script = f"read go && {' && '.join(commands)}"
    helper = subprocess.Popen(
        ["/bin/sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        helper.communicate(b"")
        why = os.strerror(ctypes.get_errno())
        raise NoUsers(f"the kernel refuses a user namespace ({why}): allow it by sysctl, {_ROOT}")
    _, words = helper.communicate(b"go\n")
    if helper.returncode != 0:
        said = words.decode("utf-8", "replace").strip() or f"exit status {helper.returncode}"
        raise NoUsers(f"the ids of /etc/subuid cannot be mapped ({said}): {_ROOT}")


def _range(path: Path) -> tuple[int, int]:
    """(first id, count) that this user has in `path`."""
    name = pwd.getpwuid(os.getuid()).pw_name
    for line in path.read_text().splitlines() if path.exists() else []:
        owner, _, rest = line.partition(":")
        start, _, count = rest.partition(":")
        if owner in (name, str(os.getuid())) and start.isdecimal() and count.isdecimal():
            return int(start), min(int(count), _WANTED)
    raise NoUsers(
        f"{name} has no line in {path}: sudo usermod --add-subuids 100000-165535 "
        f"--add-subgids 100000-165535 {name}, {_ROOT}"
    )


def outer_uid() -> int:
    """The user that this process's root is outside."""
    inside, outside, _count = Path("/proc/self/uid_map").read_text().split()[:3]
    return int(outside) if inside == "0" else os.getuid()


def mapped() -> list[range]:
    """The uids that there are in this namespace."""
    rows = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return [range(int(inside), int(inside) + int(count)) for inside, _, count in rows]
