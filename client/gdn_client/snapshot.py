"""Uncommitted changes as a commit that lives beside the repository, not in it.

The index is copied, new objects go to a temporary folder, and no ref is made, so
the user's index, HEAD, stash, refs and object store stay as they are. The same
content on the same HEAD gives the same SHA, so submitting it again finds its result.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gdn_client.errors import CommitUnavailable
from gdn_client.repository import Commit, Repository

_IDENTITY = "gdn-client"
_ADDRESS = "gdn-client@localhost"
# Writing an index may write a shared one, run a hook, or start a monitor: none of it here.
_QUIET = (
    *("-c", "core.splitIndex=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
)


@dataclass(frozen=True)
class Snapshot:
    """`repository` sees the snapshot's objects; `commit` is HEAD itself in a clean tree."""

    commit: Commit
    clean: bool
    repository: Repository


@contextmanager
def worktree_snapshot(repository: Repository) -> Iterator[Snapshot]:
    """A commit on HEAD of all changes, untracked files included unless ignored.

    Raises CommitUnavailable when there is no work tree or no HEAD yet.
    """
    if repository.git("rev-parse", "--is-inside-work-tree") != "true":
        raise CommitUnavailable(
            f"{repository.root} is bare: it has no work tree", remedy="Leave out --worktree."
        )
    head = repository.resolve("HEAD")
    if head is None:
        raise CommitUnavailable("HEAD has no commit yet", remedy="Make a first commit.")
    with tempfile.TemporaryDirectory(prefix="gdn-snapshot-") as folder:
        beside = _beside(repository, Path(folder))
        commit = _commit_all(beside, head)
        yield Snapshot(commit, clean=commit == head, repository=beside)


def _beside(repository: Repository, folder: Path) -> Repository:
    """The same repository, with its index and new objects in `folder`."""
    index = Path(repository.git("rev-parse", "--git-path", "index"))
    if (repository.root / index).is_file():
        shutil.copyfile(repository.root / index, folder / "index")
    objects = repository.root / repository.git("rev-parse", "--git-path", "objects")
    (folder / "objects").mkdir()
    return repository.with_environment(
        {
            "GIT_INDEX_FILE": str(folder / "index"),
            "GIT_OBJECT_DIRECTORY": str(folder / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(objects.resolve()),
        }
    )


def _quoted(path: Path) -> str:
    """A path for git's colon-separated list."""
    text = str(path)
    if ":" not in text and not text.startswith('"'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _commit_all(beside: Repository, head: Commit) -> Commit:
    beside.git(*_QUIET, "add", "--all", "--", ".")
    tree = beside.git(*_QUIET, "write-tree")
    if tree == beside.git("rev-parse", f"{head.sha}^{{tree}}"):
        return head
    date = beside.git("log", "-1", "--format=%cd", "--date=raw", head.sha)
    named = beside.with_environment(
        {
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in (("NAME", _IDENTITY), ("EMAIL", _ADDRESS), ("DATE", date))
        }
    )
    subject = f"Uncommitted changes on {head.sha[:12]} {head.subject}"
    sha = named.git("commit-tree", tree, "-p", head.sha, stdin=subject)
    return Commit(sha, subject)
