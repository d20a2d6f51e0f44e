"""What a runner is asked and what it answers. Small enough to swap."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gdn_judge.document import DeviceKind, Suite


class Ending(enum.StrEnum):
    """Why the judge process is no longer there."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    STOPPED = "stopped"  # the worker is going down


@dataclass(frozen=True, kw_only=True)
class JudgeRequest:
    """One run of one suite. `timeout_s` is the outer deadline; `deadline_s` the judge's own.

    `call_timeout_s` bounds one call of the op, beside what its rows need.
    A GPU is named by `device_uuid`: it alone is made visible, so its index becomes 0.
    `device_nodes` are its device files with their group ids (AMD), `cpus` and
    `memory_nodes` the kernel's lists of the cores and NUMA nodes near it. `baseline` is
    an earlier document, `commits_behind` how far. `emulator_processes` bounds those of
    the emulator; 0 leaves them to the judge. `candidate_uids` like "60706-61183" are for
    candidates without a `candidate_user`.
    """

    tree: Path
    import_path: str
    python_path: Sequence[str]
    chain_import_path: str | None
    target: str
    commit: str
    suite: Suite
    device_kind: DeviceKind
    device_index: int
    device_uuid: str | None
    batch_sizes: Sequence[int] | None
    heads: str | None
    quick: bool
    candidate_user: str
    work_dir: Path
    deadline_s: float
    call_timeout_s: float
    timeout_s: float
    device_nodes: tuple[tuple[str, int], ...] = ()
    cpus: str = ""
    memory_nodes: str = ""
    baseline: Path | None = None
    commits_behind: int | None = None
    emulator_processes: int = 0
    candidate_uids: str = ""


@dataclass(frozen=True, kw_only=True)
class RunControl:
    """How a runner talks back while it works."""

    say: Callable[[str], None]
    events: Callable[[list[dict[str, Any]]], None]  # the judge's progress objects, in order
    cancelled: Callable[[], bool]
    stopping: Callable[[], bool]
    lock_fds: tuple[int, ...] = ()
    started: Callable[[int], None] = lambda _pid: None  # root of the tree, as the host sees it

    def why_stop(self, deadline: float) -> Ending | None:
        """Why the run must end now; `deadline` on the monotonic clock."""
        if self.stopping():
            return Ending.STOPPED
        if self.cancelled():
            return Ending.CANCELLED
        return Ending.TIMED_OUT if time.monotonic() >= deadline else None


@dataclass(frozen=True, kw_only=True)
class JudgeOutcome:
    """`document` is the text the judge left, unchecked, or None; `last_words` its last line
    on stderr, or ""."""

    ending: Ending
    exit_code: int
    document: str | None
    last_words: str = ""


class Runner(Protocol):
    """Runs the judge on a tree. Exit codes prove nothing; the document does."""

    isolates: bool

    def run(self, request: JudgeRequest, control: RunControl) -> JudgeOutcome: ...


def judge_arguments(request: JudgeRequest, out: Sequence[str]) -> list[str]:
    """The judge's command line for a request (after the command itself).

    `out` are the words that say where the document goes.
    """
    arguments = [
        "run",
        *("--target", str(request.tree)),
        *("--import-path", request.import_path),
        *("--target-name", request.target),
        *("--commit", request.commit),
        *("--suite", str(request.suite)),
        *("--device", str(request.device_kind)),
        *("--device-index", "0" if request.device_uuid else str(request.device_index)),
        *("--deadline", f"{request.deadline_s:g}"),
        *("--call-timeout", f"{request.call_timeout_s:g}"),
        *("--work-dir", str(request.work_dir)),
        *out,
        *("--progress", "json"),
    ]
    for folder in request.python_path:
        arguments += ["--python-path", folder]
    if request.chain_import_path:
        arguments += ["--chain", request.chain_import_path]
    if request.batch_sizes:
        arguments += ["--batch-sizes", ",".join(str(size) for size in request.batch_sizes)]
    if request.heads:
        arguments += ["--heads", request.heads]
    if request.baseline is not None:
        arguments += ["--baseline", str(request.baseline)]
        if request.commits_behind is not None:
            arguments += ["--commits-behind", str(request.commits_behind)]
    if request.emulator_processes:
        arguments += ["--processes", str(request.emulator_processes)]
    if request.candidate_user:
        arguments += ["--candidate-user", request.candidate_user]
    if request.candidate_uids:
        arguments += ["--candidate-uids", request.candidate_uids]
    if request.quick:
        arguments.append("--quick")
    return arguments
