"""Exports a commit's tree into a read-only folder, without a working copy.

Blobs are read through git's plumbing and written by us, so no filter, hook,
attribute or submodule of the commit has any effect. Symbolic links that leave
the tree and submodules are left out, with a note.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gdn_service.errors import TreeError
from gdn_service.runner.git import Git, full_sha
from gdn_service.runner.mirror import Mirror

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
MAX_LINK_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Limits:
    max_bytes: int
    max_files: int


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of ``git ls-tree``: `mode` is git's, `path` relative with slashes."""

    mode: str
    sha: str
    size: int
    path: str


@dataclass(frozen=True, kw_only=True)
class Checkout:
    path: Path
    notes: tuple[str, ...]


def export_tree(git: Git, mirror: Mirror, sha: str, trees: Path, limits: Limits) -> Checkout:
    """The commit's tree under `trees`/<sha>; nothing appears there until it is complete."""
    destination = trees / full_sha(sha)
    if destination.exists():
        return Checkout(path=destination, notes=())
    trees.mkdir(parents=True, exist_ok=True)
    entries = _list(git, mirror, sha)
    _check_limits(entries, limits)
    scratch = Path(tempfile.mkdtemp(prefix=".export-", dir=trees))
    try:
        notes = _write(git, mirror, entries, scratch)
        _seal(scratch)
        _publish(scratch, destination)
    finally:
        remove_tree(scratch)
    return Checkout(path=destination, notes=tuple(notes))


def _list(git: Git, mirror: Mirror, sha: str) -> list[Entry]:
    listed = git.run(
        ["ls-tree", "-r", "-z", "-l", "--full-tree", "--end-of-options", sha],
        git_dir=mirror.path,
    )
    return [_entry(record) for record in listed.split(b"\0") if record]


def _entry(record: bytes) -> Entry:
    head, _, name = record.partition(b"\t")
    mode, _kind, sha, size = head.decode().split()
    try:
        path = name.decode()
    except UnicodeDecodeError as error:
        raise TreeError(f"the commit holds a file name that is not UTF-8: {name!r}") from error
    _check_path(path)
    return Entry(mode=mode, sha=sha, size=0 if size == "-" else int(size), path=path)


def _check_path(path: str) -> None:
    parts = path.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts) or len(path) > 1000:
        raise TreeError(f"the commit holds an unusable path: {path[:100]!r}")


def _check_limits(entries: list[Entry], limits: Limits) -> None:
    total = sum(entry.size for entry in entries)
    if len(entries) > limits.max_files:
        raise TreeError(f"the commit has {len(entries)} files; {limits.max_files} are allowed")
    if total > limits.max_bytes:
        raise TreeError(f"the commit's tree has {total} bytes; {limits.max_bytes} are allowed")


def _write(git: Git, mirror: Mirror, entries: list[Entry], root: Path) -> list[str]:
    notes = []
    with _blobs(git, mirror) as reader:
        for entry in entries:
            if entry.mode == "160000":
                notes.append(f"submodule {entry.path} is not fetched")
                continue
            content = reader(entry)
            place = root / entry.path
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry.mode == "120000":
                notes += _link(entry.path, content, place)
                continue
            if content.startswith(_LFS_POINTER):
                notes.append(f"{entry.path} is a Git LFS pointer; its content is not fetched")
            place.write_bytes(content)
            place.chmod(0o555 if entry.mode == "100755" else 0o444)
    return notes


@contextmanager
def _blobs(git: Git, mirror: Mirror) -> Iterator[_BlobReader]:
    process = git.spawn(["cat-file", "--batch"], git_dir=mirror.path)
    try:
        yield _BlobReader(process)
    finally:
        process.kill()
        process.communicate()


class _BlobReader:
    """Asks one ``git cat-file --batch`` for one blob after the other."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._requests, self._answers = process.stdin, process.stdout

    def __call__(self, entry: Entry) -> bytes:
        self._requests.write(entry.sha.encode() + b"\n")
        self._requests.flush()
        header = self._answers.readline().split()
        if len(header) != 3 or header[1] != b"blob" or int(header[2]) != entry.size:
            raise TreeError(f"git does not hold the content of {entry.path}")
        content = self._answers.read(entry.size + 1)
        return content[:-1]


def _link(path: str, content: bytes, place: Path) -> list[str]:
    text = content.decode("utf-8", "replace")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
    if len(content) > MAX_LINK_BYTES or text.startswith("/") or target.split("/")[0] == "..":
        return [f"symbolic link {path} leaves the tree and is left out"]
    place.symlink_to(text)
    return []


def _seal(root: Path) -> None:
    """Drop links that resolve outside through other links; make every folder read-only."""
    inside = root.resolve()
    for folder, names, files in os.walk(root, topdown=False):
        for name in (*names, *files):
            place = Path(folder, name)
            if place.is_symlink() and not _resolves_inside(place, inside):
                place.unlink()
        os.chmod(folder, 0o555)


def _resolves_inside(link: Path, root: Path) -> bool:
    try:
        return link.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a loop of links
        return False


def _publish(scratch: Path, destination: Path) -> None:
    os.chmod(scratch, 0o755)  # a folder of another owner cannot be renamed while read-only
    try:
        scratch.rename(destination)
    except OSError as error:
        if not destination.exists():
            raise TreeError(f"the checkout cannot be put at {destination}: {error}") from error
    os.chmod(destination, 0o555)


def remove_tree(path: Path) -> None:
    """Remove a sealed tree; a missing one is fine."""
    if not path.exists():
        return
    for folder, _names, _files in os.walk(path):
        os.chmod(folder, 0o755)
    shutil.rmtree(path)
