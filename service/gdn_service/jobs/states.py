"""States of jobs and runs, and the one table of transitions of each.

job:  queued ─> running ─> passed | failed | inconclusive | error | cancelled
         └─> cancelled | error
run:  queued ─> running ─> finished | cancelled
         │         └─> running   (again, after a host failure or a crash)
         └─> finished | cancelled   (it never got a device)
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from gdn_judge.document import Verdict
from gdn_service.errors import IllegalTransition


class JobState(enum.StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self not in (JobState.QUEUED, JobState.RUNNING)


class RunState(enum.StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


FINAL_STATES = tuple(state for state in JobState if state.final)
STORED_STATES = (JobState.PASSED, JobState.FAILED)  # answers that a second submit may reuse
OPEN_STATES = (JobState.QUEUED, JobState.RUNNING)

JOB_TRANSITIONS: dict[JobState, tuple[JobState, ...]] = {
    JobState.QUEUED: (JobState.RUNNING, JobState.CANCELLED, JobState.ERROR),
    JobState.RUNNING: (JobState.RUNNING, *FINAL_STATES),
}

RUN_TRANSITIONS: dict[RunState, tuple[RunState, ...]] = {
    RunState.QUEUED: (RunState.RUNNING, RunState.FINISHED, RunState.CANCELLED),
    RunState.RUNNING: (RunState.RUNNING, RunState.FINISHED, RunState.CANCELLED),
}


def sources(target: JobState) -> tuple[JobState, ...]:
    """The states from which `target` may be reached."""
    return tuple(state for state, after in JOB_TRANSITIONS.items() if target in after)


def run_sources(target: RunState) -> tuple[RunState, ...]:
    return tuple(state for state, after in RUN_TRANSITIONS.items() if target in after)


def check_transition(before: JobState, after: JobState) -> None:
    if after not in JOB_TRANSITIONS.get(before, ()):
        raise IllegalTransition(f"a {before} job cannot become {after}")


_OF_VERDICT = {
    Verdict.PASSED: JobState.PASSED,
    Verdict.FAILED: JobState.FAILED,
    Verdict.SUSPECT: JobState.FAILED,
    Verdict.ERROR: JobState.ERROR,
    Verdict.UNSTABLE: JobState.INCONCLUSIVE,
    Verdict.INCONCLUSIVE: JobState.INCONCLUSIVE,
}
_WORST_FIRST = (JobState.FAILED, JobState.ERROR, JobState.INCONCLUSIVE, JobState.PASSED)


def job_state(verdicts: Iterable[Verdict | None]) -> JobState:
    """What a job's runs amount to. A run without a verdict is an error, and so is no run."""
    states = {_OF_VERDICT[v] if v is not None else JobState.ERROR for v in verdicts}
    return next((state for state in _WORST_FIRST if state in states), JobState.ERROR)
