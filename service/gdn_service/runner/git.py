"""Runs git with a configuration of our own: no hooks, no prompts, no user's settings.

Callers pass only constants, paths of ours, the operator's URL, hexadecimal
digits, and ref names that `bundle.py` has checked; revisions come after
``--end-of-options``.

What git reads comes from outside, and a few hundred bytes can unfold to gigabytes. So
every git has a limit on its memory, its time and its answer, and is ended with
whatever it started.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gdn_service.errors import GitError, GitOverLimit, InvalidRequest
from gdn_service.settings import git_environment

FULL_SHA = re.compile(r"[0-9a-f]{40}")
SHORT_SHA = re.compile(r"[0-9a-f]{4,39}")
MAX_ANSWER_BYTES = 64 << 20  # of a command that is not read piece by piece
MEMORY_SETTING, TIMEOUT_SETTING = "GDN_GIT_MEMORY_BYTES", "GDN_GIT_TIMEOUT_S"
_PIECE = 1 << 16
_NO_MEMORY = re.compile(r"out of memory|cannot allocate memory|unable to (create|start) thread")
# The limit holds from git's first instruction on, and needs no code between fork and exec.
_LIMITED = 'ulimit -v "$1" && shift && exec git "$@"'

# Packs are mapped in small windows and big files streamed: a large mirror fits the limit.
_CONFIG = """\
[core]
\thooksPath = /dev/null
\tfsmonitor = false
\tpackedGitWindowSize = 32m
\tpackedGitLimit = 256m
\tbigFileThreshold = 32m
[pack]
\tthreads = 1
\twindowMemory = 256m
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
    """`timeout_s` bounds every command; network stalls end in GitError.

    `memory_bytes` bounds the address space of each git. All methods raise GitError with
    git's last words, and GitOverLimit naming the limit.
    """

    def __init__(self, home: Path, timeout_s: float = 300, memory_bytes: int = 4 << 30) -> None:
        self._timeout_s = timeout_s
        self._memory = memory_bytes
        self._config = home / "gitconfig"
        home.mkdir(parents=True, exist_ok=True)
        if not self._config.exists() or self._config.read_text() != _CONFIG:
            self._config.write_text(_CONFIG)

    def run(
        self,
        arguments: Sequence[str],
        *,
        git_dir: Path | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
        limit_name: str = "",
    ) -> bytes:
        """Standard output. `limit_name` is the setting behind `max_bytes`, if there is one."""
        return self._whole(arguments, git_dir, None, max_bytes, limit_name)

    def feed(self, arguments: Sequence[str], data: bytes, *, git_dir: Path) -> bytes:
        return self._whole(arguments, git_dir, data, MAX_ANSWER_BYTES, "")

    @contextmanager
    def reading(
        self, arguments: Sequence[str], *, git_dir: Path | None = None, data: bytes | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The pieces of git's standard output; git ends where the body ends, read or not."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
            if data is not None:
                given.write(data)
                given.seek(0)
            with self._running(arguments, git_dir, given, said) as process:
                yield self._pieces(process, arguments[0], said)

    @contextmanager
    def asking(
        self, arguments: Sequence[str], *, git_dir: Path
    ) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Pipes to stdin and from stdout of a git that answers one request after the other."""
        with tempfile.TemporaryFile() as said:
            with self._running(arguments, git_dir, subprocess.PIPE, said) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                yield process.stdin, process.stdout

    def _whole(
        self,
        arguments: Sequence[str],
        git_dir: Path | None,
        data: bytes | None,
        max_bytes: int,
        limit_name: str,
    ) -> bytes:
        answer = bytearray()
        with self.reading(arguments, git_dir=git_dir, data=data) as pieces:
            for piece in pieces:
                answer += piece
                if len(answer) > max_bytes:
                    setting = f" ({limit_name})" if limit_name else ""
                    raise GitOverLimit(
                        f"git {arguments[0]} answers with over {max_bytes} bytes{setting}"
                    )
        return bytes(answer)

    @contextmanager
    def _running(
        self,
        arguments: Sequence[str],
        git_dir: Path | None,
        stdin: IO[bytes] | int,
        said: IO[bytes],
    ) -> Iterator[subprocess.Popen[bytes]]:
        if shutil.which("git") is None:
            raise GitError("git is not installed; apt-get install git")
        process = subprocess.Popen(
            self._argv(arguments, git_dir),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=said,
            env=self._environment(),
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end(process)

    def _pieces(
        self, process: subprocess.Popen[bytes], command: str, said: IO[bytes]
    ) -> Iterator[bytes]:
        """Until git has ended well. Raises GitError."""
        assert process.stdout is not None
        deadline = time.monotonic() + self._timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(_left(deadline)) and _left(deadline):
                piece = os.read(process.stdout.fileno(), _PIECE)
                if not piece:
                    break
                yield piece
        try:
            status = process.wait(_left(deadline))
        except subprocess.TimeoutExpired as error:
            raise GitOverLimit(
                f"git {command} took over {self._timeout_s:g} s ({TIMEOUT_SETTING})"
            ) from error
        if status != 0:
            raise self._failure(command, status, said)

    def _failure(self, command: str, status: int, said: IO[bytes]) -> GitError:
        said.seek(max(0, said.seek(0, os.SEEK_END) - 2000))
        words = said.read().decode("utf-8", "replace").strip()[-500:]
        if _NO_MEMORY.search(words.lower()):
            most = _at_most_ours(self._memory)
            return GitOverLimit(
                f"git {command} needs over {most} bytes of memory ({MEMORY_SETTING}): {words}"
            )
        return GitError(f"git {command} failed ({status}): {words}")

    def _argv(self, arguments: Sequence[str], git_dir: Path | None) -> list[str]:
        where = [] if git_dir is None else [f"--git-dir={git_dir}"]
        limited = ["/bin/sh", "-c", _LIMITED, "git", str(_at_most_ours(self._memory) // 1024)]
        return [*limited, "--no-pager", *where, *arguments]

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


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _at_most_ours(wanted: int) -> int:
    """A process may not give its children more than it may have itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and what it started (ssh, helpers); they are one process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # a request that it did not read
                stream.close()
    process.wait()


def full_sha(text: str) -> str:
    """`text` if it is a full SHA; nothing else may reach git as a revision."""
    if not FULL_SHA.fullmatch(text):
        raise InvalidRequest(f"{text[:80]!r} is not a full 40-digit commit SHA")
    return text
