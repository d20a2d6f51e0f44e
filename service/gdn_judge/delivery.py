"""How a document leaves the judge: over a descriptor that only it holds, or into a file.

A file is for whoever runs the judge by hand. An old one is removed at once, so that what
lies there afterwards is of this run, and it may not lie where the candidate may write.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from gdn_judge.document import Document
from gdn_judge.errors import UsageError


def clear(path: Path) -> None:
    """Remove an old document. Raises UsageError where none could be written."""
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--out {path}: there is no folder {path.absolute().parent}")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"--out {path} cannot be replaced: {error.strerror}") from error


def refuse_place(path: Path, uid: int) -> None:
    """Raises UsageError for a file that user `uid` could replace."""
    for folder in path.absolute().resolve().parents:
        found = folder.stat()
        open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
        if found.st_uid == uid or open_to_all:
            raise UsageError(
                f"--out {path}: the candidate, uid {uid}, may write in {folder}; give a folder "
                "that only you may write"
            )


def take(descriptor: int) -> None:
    """Keep the descriptor from everything that this process starts."""
    try:
        os.set_inheritable(descriptor, False)
    except OSError as error:
        raise UsageError(f"--out-fd {descriptor}: {error.strerror}") from error


def send(document: Document, descriptor: int) -> None:
    """The number of bytes on a line, then the document; the descriptor is closed after it."""
    text = document.to_json(indent=1).encode()
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(b"%d\n" % len(text) + text)


def write(document: Document, path: Path) -> None:
    """Write the document whole or not at all."""
    text = document.to_json(indent=1)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
