"""The user's git repository: what a revision means, and whether the tree is dirty.

Nothing here changes the repository. Revisions come from the command line, so each
reaches git after --end-of-options.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gdn_client.errors import AmbiguousCommit, CommitUnavailable, GitFailure, NotARepository
from gdn_client.text import one_line

FULL_SHA = re.compile(r"[0-9a-f]{40}")
HEX = re.compile(r"[0-9a-fA-F]{4,40}")  # what may be a SHA, full or short


@dataclass(frozen=True)
class Commit:
    sha: str
    subject: str


@dataclass(frozen=True)
class Repository:
    """A work tree or bare repository. `environment` is added to git's own."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def find(cls, directory: Path) -> Repository:
        """The repository around `directory`; NotARepository when there is none."""
        here = cls(directory)
        try:
            bare = here.git("rev-parse", "--is-bare-repository") == "true"
            root = here.git("rev-parse", "--absolute-git-dir" if bare else "--show-toplevel")
        except GitFailure as error:
            raise NotARepository(
                f"{directory} is not in a git repository ({error.message})",
                remedy="Run this inside the repository of the op, or give --commit as a full SHA "
                "that the server knows.",
            ) from error
        return cls(Path(root))

    def with_environment(self, extra: Mapping[str, str]) -> Repository:
        return Repository(self.root, {**self.environment, **extra})

    def git(self, *arguments: str, stdin: str = "") -> str:
        """Standard output of a git command, stripped. Raises GitFailure with git's words."""
        return self.git_bytes(*arguments, stdin=stdin.encode()).decode("utf-8", "replace").strip()

    def git_bytes(self, *arguments: str, stdin: bytes = b"") -> bytes:
        env = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **self.environment}
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=self.root, env=env, input=stdin, capture_output=True
            )
        except FileNotFoundError as error:
            raise GitFailure("git is not installed", remedy="Install git.") from error
        if done.returncode != 0:
            said = one_line(done.stderr.decode("utf-8", "replace"))
            raise GitFailure(said or f"git {arguments[0]} ended with {done.returncode}")
        return done.stdout

    def resolve(self, revision: str) -> Commit | None:
        """The commit that `revision` names here, None if none. Raises AmbiguousCommit."""
        try:
            sha = self.git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
            )
        except GitFailure:
            self._refuse_ambiguous(revision)
            return None
        if not FULL_SHA.fullmatch(sha):
            raise CommitUnavailable(
                f"{revision} is {sha}, not a SHA-1 name of 40 digits",
                remedy="The service takes repositories in git's SHA-1 object format only.",
            )
        return Commit(sha, self.subject(sha))

    def subject(self, sha: str) -> str:
        return one_line(self.git("log", "-1", "--format=%s", "--end-of-options", sha), 200)

    def _refuse_ambiguous(self, revision: str) -> None:
        if not HEX.fullmatch(revision) or FULL_SHA.fullmatch(revision):
            return
        objects = self.git("rev-parse", f"--disambiguate={revision}").split()
        commits = [sha for sha in objects if self.git("cat-file", "-t", sha) == "commit"]
        if len(commits) > 1:
            lines = "".join(f"\n  {sha[:16]}  {self.subject(sha)}" for sha in commits[:10])
            raise AmbiguousCommit(
                f"{revision} is short for {len(commits)} commits:{lines}",
                remedy="Give more digits.",
            )

    def uncommitted(self) -> int:
        """How many paths `git status` lists: changed, staged, or untracked and not ignored."""
        if self.git("rev-parse", "--is-inside-work-tree") != "true":
            return 0
        return len(self.git("status", "--porcelain", "--untracked-files=normal").splitlines())

    def first_parents(self, sha: str, limit: int) -> list[Commit]:
        """`sha` and its first-parent ancestors, newest first, at most `limit`."""
        text = self.git(
            "log",
            "--first-parent",
            f"--max-count={limit}",
            "--format=%H %s",
            "--end-of-options",
            sha,
        )
        pairs = [line.partition(" ") for line in text.splitlines()]
        return [Commit(sha, one_line(subject, 200)) for sha, _, subject in pairs]
