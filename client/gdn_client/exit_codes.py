"""The exit codes, which scripts and CI rely on."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gdn_client.models import Job


class ExitCode(enum.IntEnum):
    PASSED = 0
    WRONG = 1
    USAGE = 2
    STOPPED = 3  # cancelled, or the client's own --timeout ran out
    NOT_AUTHORISED = 4
    INFRASTRUCTURE = 5  # host busy or without a worker, server down, a failure of ours
    COMMIT_UNAVAILABLE = 6
    INCONCLUSIVE = 7  # only with --strict
    PENDING = 8
    INTERRUPTED = 130


def of_job(job: Job, *, strict: bool = False) -> ExitCode:
    """The code that says how `job` stands; `strict` makes inconclusive a failure."""
    from gdn_client.models import JobState

    match job.state:
        case JobState.PASSED:
            return ExitCode.PASSED
        case JobState.FAILED:
            return ExitCode.WRONG
        case JobState.INCONCLUSIVE:
            return ExitCode.INCONCLUSIVE if strict else ExitCode.PASSED
        case JobState.CANCELLED:
            return ExitCode.STOPPED
        case JobState.QUEUED | JobState.RUNNING:
            return ExitCode.PENDING
        case JobState.ERROR:
            blamed = job.failure_class == "candidate"
            return ExitCode.WRONG if blamed else ExitCode.INFRASTRUCTURE


def of_verdicts(verdicts: list[str], *, strict: bool = False) -> ExitCode:
    """The code for a commit's stored verdicts, the worst of them deciding."""
    if any(verdict in ("failed", "suspect") for verdict in verdicts):
        return ExitCode.WRONG
    if "error" in verdicts:
        return ExitCode.INFRASTRUCTURE
    if strict and any(verdict != "passed" for verdict in verdicts):
        return ExitCode.INCONCLUSIVE
    return ExitCode.PASSED
