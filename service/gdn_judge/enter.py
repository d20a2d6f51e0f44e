"""Becomes another user, and lets that user in where a closed folder lies in between.

    python -I enter.py PLAN ARGV...

Standard library only; run by path, as root (of the host, or of a user namespace).
PLAN is JSON: {"uid", "gid", "groups", "show": [folders], "work": folder}. In a mount
namespace of its own each closed folder on the way to one of these is covered by an empty
one that everybody may enter and that holds nothing but them, under the same paths: `show`
read-only, `work` as it is. What else lies there is not seen at all.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 1 << 12, 1 << 14, 1 << 18
_MS_NOSUID, _MS_NODEV = 2, 4
_KEPT = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}  # statvfs flag: mount flag
_libc = ctypes.CDLL(None, use_errno=True)


def main(plan: dict[str, object], argv: list[str]) -> None:
    work = Path(str(plan["work"]))
    shown = plan["show"]
    assert isinstance(shown, list)
    show([Path(folder) for folder in shown], work)
    os.chdir(work)
    become(plan)
    os.execv(argv[0], argv)


def become(plan: dict[str, object]) -> None:
    """Another user for good; the kernel takes every capability with the last root id."""
    uid, gid, groups = plan["uid"], plan["gid"], plan["groups"]
    assert isinstance(uid, int)
    assert isinstance(gid, int)
    assert isinstance(groups, list)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def show(folders: Iterable[Path], work: Path) -> None:
    """Raises OSError where this process may not mount."""
    wanted = dict.fromkeys(folders, False) | {work: True}
    behind = {path: top for path in wanted if (top := closed_above(path)) is not None}
    _check(_libc.unshare(_CLONE_NEWNS))
    _mount(None, Path("/"), None, _MS_REC | _MS_PRIVATE)
    # By descriptor: they are still reached when their way is covered.
    held = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in behind}
    for top in sorted(set(behind.values())):
        _mount("none", top, "tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=0755,size=1m")
    for path in sorted(behind, key=lambda path: len(path.parts)):
        _bind(held[path], path, writable=wanted[path])


def closed_above(path: Path) -> Path | None:
    """The topmost folder on the way to `path` that not everybody may enter."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def _bind(source: int, target: Path, *, writable: bool) -> None:
    if not _same(source, target):  # else it lies in one that is shown already
        target.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif not writable:
        return
    _mount(f"/proc/self/fd/{source}", target, None, _MS_BIND | _MS_REC)
    if not writable:
        flags = os.statvfs(target).f_flag
        kept = sum(flag for seen, flag in _KEPT.items() if flags & seen)
        _mount(None, target, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | kept)


def _same(source: int, target: Path) -> bool:
    return target.exists() and os.path.samestat(os.fstat(source), target.stat())


def _mount(
    source: str | None, target: Path, kind: str | None, flags: int, data: bytes | None = None
) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
