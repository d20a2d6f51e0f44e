"""Which earlier result a run is compared with.

It is the complete, valid result of the nearest first-parent ancestor: same target,
device kind, suite and heads, and either the same sizes or the suite's full plan.
Order is git's, never that of dates.
"""

from __future__ import annotations

from dataclasses import dataclass

from gdn_judge.document import Suite, Verdict
from gdn_judge.wire import suites
from gdn_service.jobs.assignment import Assignment
from gdn_service.runner.checkouts import Checkouts
from gdn_service.store.models import Run
from gdn_service.store.store import Store

SEARCHED = 1000  # ancestors looked at


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """`commits_behind` is 1 for the parent; `document` is as the judge wrote it."""

    commit: str
    commits_behind: int
    document: str


def why_no_baseline(run: Run) -> str:
    """Why nothing is compared with a run even when an operator accepts it, or ""."""
    if not _compares(run.suite):
        compared = ", ".join(name for name, row in suites.SUITES.items() if row.compares)
        return f"it is of the suite {run.suite}; only {compared} compares with another"
    if run.verdict != Verdict.FAILED:
        ended = run.verdict or run.state
        return f"it is {ended}, not failed; a run that passed is one as it is"
    if run.partial:
        return "it is partial: some planned cases did not run; retry the job"
    if not run.valid:
        return "it is void: its device was not in order; retry the job"
    return ""


def find_baseline(store: Store, checkouts: Checkouts, asked: Assignment) -> Baseline | None:
    """None where no ancestor has such a result. Raises GitError."""
    if not _compares(asked.run.suite):
        return None
    ancestors = checkouts.first_parents(asked.target, asked.job.commit_sha, SEARCHED)
    with store.read() as tx:
        runs = tx.results.comparable(asked.job, asked.run.suite, ancestors)
        for behind, sha in enumerate(ancestors, start=1):
            body = tx.results.document(runs[sha]) if sha in runs else None
            if body is not None:
                return Baseline(commit=sha, commits_behind=behind, document=body)
    return None


def _compares(suite: str) -> bool:
    """Whether it judges against an earlier result."""
    return suites.spec(Suite(suite)).compares
