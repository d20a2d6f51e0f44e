"""Exports a commit's tree into a read-only folder, without a working copy.

Blobs are read through git's plumbing and written by us, so no filter, hook,
attribute or submodule of the commit has any effect. Symbolic links that leave
the tree and submodules are left out, with a note.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gdn_service.errors import TreeError
from gdn_service.runner.git import Git, full_sha
from gdn_service.runner.mirror import Mirror

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
MAX_LINK_BYTES = 4096
_FOLDER = "040000"
_HEAD_BYTES = 200  # more than git writes before a path: mode, kind, object, size
_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of a commit's tree: bytes of its files, files and folders, names and bytes of a path.

    The defaults are those of the settings `GDN_TREE_MAX_DEPTH` and `GDN_TREE_MAX_PATH`.
    """

    max_bytes: int
    max_files: int
    max_depth: int = 64
    max_path: int = 1000


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
    entries = _list(git, mirror, sha, limits)
    scratch = Path(tempfile.mkdtemp(prefix=".export-", dir=trees))
    try:
        notes = _write(git, mirror, entries, scratch)
        _seal(scratch)
        _publish(scratch, destination)
    finally:
        remove_tree(scratch)
    return Checkout(path=destination, notes=tuple(notes))


def _list(git: Git, mirror: Mirror, sha: str, limits: Limits) -> list[Entry]:
    """The files of the tree. Read only as far as the limits go: trees that hold each other
    make 10^8 files of a few hundred bytes. Folders count, since they can do so without files.
    """
    words = ["ls-tree", "-r", "-t", "-z", "-l", "--full-tree", "--end-of-options", sha]
    entries, total = [], 0
    with git.reading(words, git_dir=mirror.path) as pieces:
        for number, record in enumerate(_records(pieces, limits), start=1):
            if number > limits.max_files:
                raise TreeError(
                    f"the commit has over {limits.max_files} files and folders (GDN_TREE_MAX_FILES)"
                )
            entry = _entry(record, limits)
            total += entry.size
            if total > limits.max_bytes:
                raise TreeError(
                    f"the commit's tree has over {limits.max_bytes} bytes (GDN_TREE_MAX_BYTES)"
                )
            if entry.mode != _FOLDER:
                entries.append(entry)
    return entries


def _records(pieces: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    """What is between the NULs; a record that does not end is not waited for."""
    rest = b""
    for piece in pieces:
        *records, rest = (rest + piece).split(b"\0")
        yield from records
        if len(rest) > limits.max_path + _HEAD_BYTES:
            raise _too_long(limits)


def _entry(record: bytes, limits: Limits) -> Entry:
    head, _, name = record.partition(b"\t")
    mode, _kind, sha, size = head.decode().split()
    if len(name) > limits.max_path:
        raise _too_long(limits)
    try:
        path = name.decode()
    except UnicodeDecodeError as error:
        raise TreeError(f"the commit holds a file name that is not UTF-8: {name!r}") from error
    _check_path(path, limits)
    return Entry(mode=mode, sha=sha, size=0 if size == "-" else int(size), path=path)


def _too_long(limits: Limits) -> TreeError:
    return TreeError(f"the commit holds a path of over {limits.max_path} bytes (GDN_TREE_MAX_PATH)")


def _check_path(path: str, limits: Limits) -> None:
    parts = path.split("/")
    if len(parts) > limits.max_depth:
        raise TreeError(
            f"the commit holds a path of over {limits.max_depth} names (GDN_TREE_MAX_DEPTH)"
        )
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise TreeError(f"the commit holds an unusable path: {path[:100]!r}")


def _write(git: Git, mirror: Mirror, entries: list[Entry], root: Path) -> list[str]:
    notes = []
    with git.asking(["cat-file", "--batch"], git_dir=mirror.path) as (requests, answers):
        for entry in entries:
            if entry.mode == "160000":
                notes.append(f"submodule {entry.path} is not fetched")
                continue
            place = root / entry.path
            place.parent.mkdir(parents=True, exist_ok=True)
            requests.write(entry.sha.encode() + b"\n")
            requests.flush()
            _expect(entry, answers.readline(_HEAD_BYTES).split())
            if entry.mode == "120000":
                notes += _link(entry.path, _short(entry, answers), place)
                continue
            if _write_file(entry, answers, place).startswith(_LFS_POINTER):
                notes.append(f"{entry.path} is a Git LFS pointer; its content is not fetched")
            place.chmod(0o555 if entry.mode == "100755" else 0o444)
    return notes


def _expect(entry: Entry, header: list[bytes]) -> None:
    """The size was counted when the tree was listed, so it must be that."""
    if len(header) != 3 or header[1] != b"blob" or int(header[2]) != entry.size:
        raise TreeError(f"git does not hold the content of {entry.path}")


def _write_file(entry: Entry, answers: IO[bytes], place: Path) -> bytes:
    """The beginning of what was written."""
    start = b""
    with place.open("wb") as file:
        for piece in _content(entry, answers):
            start = start or piece
            file.write(piece)
    return start


def _short(entry: Entry, answers: IO[bytes]) -> bytes:
    """The content as far as a link's may go, and one byte more."""
    kept = b""
    for piece in _content(entry, answers):
        kept = (kept + piece)[: MAX_LINK_BYTES + 1]
    return kept


def _content(entry: Entry, answers: IO[bytes]) -> Iterator[bytes]:
    """The pieces of a file, and the newline behind it read away."""
    left = entry.size
    while left:
        piece = answers.read(min(left, _PIECE))
        if not piece:
            raise TreeError(f"git does not hold the content of {entry.path}")
        left -= len(piece)
        yield piece
    answers.read(1)


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
