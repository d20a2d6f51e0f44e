"""Under whom a candidate runs: a user of its own, or the judge's, with the reason why.

One uid a run, out of a range that has no accounts: what one candidate leaves can neither
reach another run nor outlive its own (`processes.end_user`). A uid is held by a lock that
the kernel frees with this process. Without such a user nothing is passed (`verdicts`).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdn_judge import processes, settings, userns
from gdn_judge.errors import HostError, UsageError

AGENT = Path(__file__).parent / "agent"
ENTER = Path(__file__).parent / "enter.py"
_LOCKS = (Path("/run"), Path("/tmp"))
_PATHS = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, *sys.path]))"
_LOOK = "import os, sys; [os.listdir(path) for path in sys.argv[1:]]"
_held: list[int] = []  # descriptors of locks, until this process ends


@dataclass(frozen=True, kw_only=True)
class Account:
    """`uid` is None where it is the judge's own user; `why_shared` then says why and what would
    help. `shown`: the folders that must be shown to it (`enter`), none where all lie open.
    `copy`: of the checkout, which it reads instead; it goes with this process."""

    uid: int | None
    why_shared: str = ""
    shown: tuple[Path, ...] = ()
    copy: Path | None = None


def choose(
    name: str | None, uids: range, root: Path, work: Path | None, *, device: str, python: str
) -> Account:
    """An account that can run this Python, read the checkout and use the device, tried out.

    `name` asks for one by name or uid. Raises UsageError where that one cannot be, and
    HostError where it, or all of `uids`, are in use.
    """
    asked = resolve_user(name)
    if asked is not None and asked in (0, os.getuid()):
        return Account(uid=None, why_shared=f"--candidate-user {name} is the judge's own user")
    if os.geteuid() != 0:
        if asked is not None:
            raise UsageError("--candidate-user needs a judge that runs as root")
        return Account(uid=None, why_shared=_why_no_users())
    uid = _lease(uids) if asked is None else _take(asked, str(name))
    closed = _closed_devices(device)
    words = f"no other user can use {closed} from a user namespace: run it as root"
    if not closed:
        account = _reaching(uid, root, work, python)
        if account.uid is not None:
            return account
        words = account.why_shared
    if asked is not None:
        raise UsageError(f"user {name} cannot run {python} or read {root}: {words}")
    return Account(uid=None, why_shared=words)


def resolve_user(name: str | None) -> int | None:
    """The uid for `--candidate-user`: a name or a number. Raises UsageError for an unknown one."""
    if name is None:
        return None
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise UsageError(f"there is no user {name!r} on this machine") from error


def identity(uid: int) -> dict[str, Any]:
    """uid, gid and groups of an account; it keeps the groups of AMD's device nodes."""
    groups = sorted({node.stat().st_gid for node in _nodes() if _mapped_group(node)} - {0})
    try:
        group = pwd.getpwuid(uid).pw_gid
    except KeyError:
        group = uid
    return {"uid": uid, "gid": group, "groups": groups}


def started(uid: int | None, shown: Sequence[Path], work: Path) -> tuple[list[str], dict[str, Any]]:
    """Words before a command, and Popen's arguments, that make it run as `uid` in `work`."""
    if uid is None:
        return [], {"cwd": work}
    who = identity(uid)
    if shown:
        plan = json.dumps({**who, "show": [str(path) for path in shown], "work": str(work)})
        return [sys.executable, "-I", str(ENTER), plan], {"cwd": "/"}
    popen = {"user": uid, "group": who["gid"], "extra_groups": who["groups"]}
    return [], {"cwd": work, **popen}


def shown_folders(root: Path, python: str) -> tuple[Path, ...]:
    """What a candidate reads: the checkout, the agent, and the Python that runs it."""
    told = subprocess.run(
        [python, "-I", "-c", _PATHS], capture_output=True, text=True, check=False
    ).stdout
    paths = [root, AGENT.parent, *map(Path, json.loads(told) if told else [])]
    folders = [path for path in paths if path.is_absolute() and path.is_dir()]
    return tuple(dict.fromkeys([*folders, *(path.resolve() for path in folders)]))


def _reaching(uid: int, root: Path, work: Path | None, python: str) -> Account:
    """As things lie, else with closed folders passed by, else (who may not mount) with a copy."""
    if not _try(uid, (), root, work, python):
        return Account(uid=uid)
    folders = shown_folders(root, python)
    words = _try(uid, folders, root, work, python)
    if not words:
        return Account(uid=uid, shown=folders)
    if not _try(uid, (), Path("/"), None, python):
        copy = Path(tempfile.mkdtemp(prefix="gdn-checkout-")) / root.name
        atexit.register(shutil.rmtree, copy.parent, ignore_errors=True)
        copy.parent.chmod(0o755)
        shutil.copytree(root, copy, symlinks=True)
        if not _try(uid, (), copy, None, python):
            return Account(uid=uid, copy=copy)
    return Account(uid=None, why_shared=words)


def _try(uid: int, shown: Sequence[Path], root: Path, work: Path | None, python: str) -> str:
    """Why `uid` cannot start this Python in a folder of its own and read `root`, or ""."""
    scratch = Path(tempfile.mkdtemp(prefix="gdn-try-", dir=work))
    try:
        os.chown(scratch, uid, -1)
        before, arguments = started(uid, shown, scratch)
        ended = subprocess.run(
            [*before, python, "-I", "-c", _LOOK, str(root), str(AGENT), "."],
            capture_output=True,
            text=True,
            env=settings.candidate_environment(str(scratch), interpret=False),
            check=False,
            **arguments,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"no process can be started as uid {uid}: {error}"
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if ended.returncode == 0:
        return ""
    last = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
    return (
        f"uid {uid} cannot run {python} and read {root} ({last}): keep both where every user may "
        "read, or run the judge with the right to mount (CAP_SYS_ADMIN)"
    )


def _lease(uids: range) -> int:
    """A uid that no account and no process has, held until this process ends."""
    taken = processes.users()
    mapped = userns.mapped()
    there = [uid for uid in uids if any(uid in each for each in mapped)] or mapped[-1][-len(uids) :]
    for uid in there:
        if uid and uid not in taken and not _has_account(uid) and _lock(uid):
            return uid
    raise HostError(f"all uids of {uids.start}-{uids.stop - 1} are in use (--candidate-uids)")


def _take(uid: int, name: str) -> int:
    """Someone's own account: one run at a time, since its end ends all processes of it."""
    if not _lock(uid):
        raise HostError(
            f"another run has user {name}; leave it out, and each run gets a user of its own"
        )
    others = processes.of_user(uid)
    if others:
        raise HostError(
            f"user {name} has other processes ({', '.join(map(str, others[:5]))}), which would end "
            "with the run; name an account that nothing else uses, or none"
        )
    return uid


def _has_account(uid: int) -> bool:
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwuid(uid))
    return False


def _lock(uid: int) -> bool:
    descriptor = os.open(_lock_folder() / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    _held.append(descriptor)
    return True


def _lock_folder() -> Path:
    """A folder of this root's own, the same for each of its judges. Raises HostError."""
    for parent in _LOCKS:
        folder = parent / f"gdn-lab-uids-{userns.outer_uid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
            if found.st_uid == os.geteuid() and found.st_mode & 0o077 == 0:
                return folder
    raise HostError(f"no folder for the locks of uids can be made below {_LOCKS[0]} or {_LOCKS[1]}")


def _nodes() -> Iterator[Path]:
    nodes = [Path("/dev/kfd"), *Path("/dev/dri").glob("renderD*")]
    return (node for node in nodes if node.exists())


def _mapped_group(node: Path) -> bool:
    """Whether this process can give the node's group to another (a user namespace hides most)."""
    group = node.stat().st_gid
    gids = [line.split() for line in Path("/proc/self/gid_map").read_text().splitlines()]
    there = any(int(first) <= group < int(first) + int(count) for first, _, count in gids)
    return there and (group != 65534 or len(gids) == 1)


def _closed_devices(device: str) -> str:
    """A device node that another user could not be let to, or ""."""
    if not device.startswith("cuda"):
        return ""
    closed = [n for n in _nodes() if not _mapped_group(n) and n.stat().st_mode & 0o006 != 0o006]
    return str(closed[0]) if closed else ""


def _why_no_users() -> str:
    """After `userns.enter` was tried: it cannot be tried twice, so its words are kept there."""
    return userns.refusal or "the judge is not root: run it as root"
