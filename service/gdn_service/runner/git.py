"""Runs git with a configuration of our own: no hooks, no prompts, no user's settings.

Callers pass only constants, paths of ours, the operator's URL, hexadecimal
digits, and ref names that `bundle.py` has checked; revisions come after
``--end-of-options``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gdn_service.errors import GitError, InvalidRequest
from gdn_service.settings import git_environment

FULL_SHA = re.compile(r"[0-9a-f]{40}")
SHORT_SHA = re.compile(r"[0-9a-f]{4,39}")

_CONFIG = """\
[core]
\thooksPath = /dev/null
\tfsmonitor = false
[safe]
\tdirectory = *
[protocol "ext"]
\tallow = never
[submodule]
\trecurse = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[fetch]
\trecurseSubmodules = false
[advice]
\tdetachedHead = false
"""


class Git:
    """`timeout_s` bounds every command; network stalls end in GitError."""

    def __init__(self, home: Path, timeout_s: float = 300) -> None:
        self._timeout_s = timeout_s
        self._config = home / "gitconfig"
        home.mkdir(parents=True, exist_ok=True)
        if not self._config.exists() or self._config.read_text() != _CONFIG:
            self._config.write_text(_CONFIG)

    def run(self, arguments: Sequence[str], *, git_dir: Path | None = None) -> bytes:
        """Standard output. Raises GitError with git's last words."""
        return self._run(arguments, git_dir, None)

    def feed(self, arguments: Sequence[str], data: bytes, *, git_dir: Path) -> bytes:
        return self._run(arguments, git_dir, data)

    def spawn(self, arguments: Sequence[str], *, git_dir: Path) -> subprocess.Popen[bytes]:
        """A git process with pipes on stdin and stdout; the caller ends it."""
        return subprocess.Popen(
            self._argv(arguments, git_dir),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment(),
        )

    def _run(self, arguments: Sequence[str], git_dir: Path | None, data: bytes | None) -> bytes:
        try:
            done = subprocess.run(
                self._argv(arguments, git_dir),
                input=data,
                stdin=subprocess.DEVNULL if data is None else None,
                capture_output=True,
                timeout=self._timeout_s,
                env=self._environment(),
                check=False,
            )
        except FileNotFoundError as error:
            raise GitError("git is not installed; apt-get install git") from error
        except subprocess.TimeoutExpired as error:
            raise GitError(f"git {arguments[0]} took over {self._timeout_s:g} s") from error
        if done.returncode != 0:
            words = done.stderr.decode("utf-8", "replace").strip()[-500:]
            raise GitError(f"git {arguments[0]} failed ({done.returncode}): {words}")
        return done.stdout

    def _argv(self, arguments: Sequence[str], git_dir: Path | None) -> list[str]:
        where = [] if git_dir is None else [f"--git-dir={git_dir}"]
        return ["git", "--no-pager", *where, *arguments]

    def _environment(self) -> dict[str, str]:
        return git_environment() | {
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self._config),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C.UTF-8",
        }


def full_sha(text: str) -> str:
    """`text` if it is a full SHA; nothing else may reach git as a revision."""
    if not FULL_SHA.fullmatch(text):
        raise InvalidRequest(f"{text[:80]!r} is not a full 40-digit commit SHA")
    return text
