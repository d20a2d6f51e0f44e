"""A bare mirror of a target's repository: fetch, resolve, read facts of a commit."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gdn_service.errors import (
    AmbiguousCommit,
    GitError,
    InvalidRequest,
    MirrorError,
    UnknownCommit,
)
from gdn_service.runner.git import FULL_SHA, SHORT_SHA, Git, full_sha

UPSTREAM, QUARANTINE = "refs/upstream", "refs/quarantine"
_REFSPECS = (f"+HEAD:{UPSTREAM}/HEAD", f"+refs/*:{UPSTREAM}/refs/*")
MAX_CANDIDATES = 20


@dataclass(frozen=True, kw_only=True)
class CommitFacts:
    """`author_date` is ISO 8601 with the author's own zone; `parents` in git's order."""

    sha: str
    subject: str
    author_date: str
    parents: tuple[str, ...]


class Mirror:
    """One target's mirror on this host. Every fetch holds a file lock."""

    def __init__(self, git: Git, folder: Path, name: str, repository: str) -> None:
        self._git = git
        self.repository = repository
        digest = hashlib.sha256(repository.encode()).hexdigest()[:12]
        self.path = folder / f"{name}-{digest}.git"

    def fetch(self) -> None:
        """Bring everything the repository has. Raises MirrorError."""
        with self.locked():
            try:
                self._git.run(
                    [
                        "fetch",
                        "--quiet",
                        "--force",
                        "--no-tags",
                        "--no-recurse-submodules",
                        "--no-write-fetch-head",
                        "--update-shallow",
                        "--end-of-options",
                        self.repository,
                        *_REFSPECS,
                    ],
                    git_dir=self.path,
                )
            except GitError as error:
                raise MirrorError(
                    f"the target's repository {self.repository} cannot be fetched: {error}"
                ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The mirror exists and nobody else writes to it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (self.path / "HEAD").exists():
                self._git.run(["init", "--quiet", "--bare", "--template=", str(self.path)])
            yield

    def has(self, sha: str) -> bool:
        """Whether the commit is here already."""
        if not (self.path / "HEAD").exists():
            return False
        try:
            self._git.run(["cat-file", "-e", full_sha(sha) + "^{commit}"], git_dir=self.path)
        except GitError:
            return False
        return True

    def bundles_with(self, sha: str) -> list[str]:
        """Ids of the bundles that brought the commit here; none where it is pushed."""
        if self._refs_with(sha, UPSTREAM):
            return []
        refs = self._refs_with(sha, QUARANTINE)
        return list(dict.fromkeys(ref.split("/")[2] for ref in refs))

    def _refs_with(self, sha: str, prefix: str) -> list[str]:
        words = ["for-each-ref", "--format=%(refname)", f"--contains={full_sha(sha)}", prefix]
        return self._git.run(words, git_dir=self.path).decode().split()

    def resolve(self, rev: str) -> str:
        """The full SHA of a full or unique short one. Fetches when that may help."""
        rev = rev.strip().lower()
        if FULL_SHA.fullmatch(rev):
            if not self.has(rev):
                self.fetch()
            if not self.has(rev):
                raise UnknownCommit(
                    f"commit {rev} is not in {self.repository}; push it, or send it as a bundle "
                    "(gdn-client does so by itself)"
                )
            return rev
        if not SHORT_SHA.fullmatch(rev):
            raise InvalidRequest(
                f"{rev[:80]!r} is not a commit SHA: give 40 hexadecimal digits, or at least the "
                "first 4; names of branches and tags are resolved by the client"
            )
        return self._resolve_short(rev)

    def _resolve_short(self, prefix: str) -> str:
        self.fetch()
        found = self._commits_with(prefix)
        if not found:
            raise UnknownCommit(f"no commit of {self.repository} begins with {prefix}")
        if len(found) > 1:
            candidates = [self.facts(sha) for sha in found[:MAX_CANDIDATES]]
            raise AmbiguousCommit(
                f"{prefix} begins {len(found)} commits; give more digits",
                candidates=[
                    {"sha": c.sha, "subject": c.subject, "author_date": c.author_date}
                    for c in candidates
                ],
            )
        return found[0]

    def _commits_with(self, prefix: str) -> list[str]:
        listed = self._git.run(["rev-parse", f"--disambiguate={prefix}"], git_dir=self.path)
        if not listed.strip():
            return []
        typed = self._git.feed(
            ["cat-file", "--batch-check=%(objecttype) %(objectname)"], listed, git_dir=self.path
        )
        lines = (line.split() for line in typed.decode().splitlines())
        return sorted(words[1] for words in lines if words[0] == "commit")

    def facts(self, sha: str) -> CommitFacts:
        output = self._git.run(
            [
                "log",
                "-1",
                "--no-show-signature",
                "--encoding=UTF-8",
                "--format=%s%x00%aI%x00%P",
                "--end-of-options",
                full_sha(sha),
            ],
            git_dir=self.path,
        )
        subject, date, parents = output.decode("utf-8", "replace").rstrip("\n").split("\0")
        return CommitFacts(
            sha=sha,
            subject=subject.replace("\x00", "")[:500],
            author_date=date,
            parents=tuple(parents.split()),
        )

    def first_parents(self, sha: str, limit: int) -> list[str]:
        """At most `limit` ancestors along first parents, the nearest first, without `sha`."""
        listed = self._git.run(
            [
                "rev-list",
                "--first-parent",
                f"--max-count={limit + 1}",
                "--end-of-options",
                full_sha(sha),
            ],
            git_dir=self.path,
        )
        return listed.decode().split()[1:]
