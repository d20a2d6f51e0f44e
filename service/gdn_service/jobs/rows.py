"""New rows for new jobs. The fingerprint covers all that decides a job's answer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from gdn_judge import JUDGE_VERSION
from gdn_service.clock import now
from gdn_service.ids import new_id
from gdn_service.jobs.states import JobState, RunState
from gdn_service.store.models import Job, Run, Token


@dataclass(frozen=True, kw_only=True)
class Submission:
    """As the user sent it; `commit` may be a short SHA."""

    target: str
    commit: str
    device_kind: str | None = None
    suites: list[str] | None = None
    bundle: str | None = None
    batch_sizes: list[int] | None = None
    heads: str | None = None
    quick: bool = False
    force: bool = False
    subject: str | None = None
    worktree: bool = False

    @property
    def digest(self) -> str:
        return _digest(asdict(self))


def new_job(
    submission: Submission, sha: str, suites: list[str], device_kind: str, token: Token
) -> Job:
    """A queued job for the resolved commit `sha`."""
    sizes = submission.batch_sizes
    asked = {
        "target": submission.target,
        "commit_sha": sha,
        "device_kind": device_kind,
        "suites": suites,
        "batch_sizes": sorted(set(sizes)) if sizes else None,
        "heads": submission.heads,
        "quick": submission.quick,
        "judge_version": JUDGE_VERSION,
    }
    return Job(
        id=new_id("j"),
        **asked,
        fingerprint=_digest(asked),
        worktree=submission.worktree,
        subject=submission.subject,
        bundle_id=submission.bundle,
        state=JobState.QUEUED,
        reason="",
        attempt=1,
        tries=0,
        cancel_requested=False,
        log_seq=0,
        submitted_by=token.name,
        created_at=now(),
    )


def new_runs(job: Job) -> list[Run]:
    return [
        Run(
            id=new_id("r"),
            job_id=job.id,
            suite=suite,
            ordinal=ordinal,
            state=RunState.QUEUED,
            reason="",
            partial=False,
            valid=True,
            host_tries=0,
        )
        for ordinal, suite in enumerate(job.suites)
    ]


_INPUTS = (
    "target",
    "commit_sha",
    "subject",
    "worktree",
    "bundle_id",
    "device_kind",
    "suites",
    "batch_sizes",
    "heads",
    "quick",
)


def retry_of(old: Job, token: Token) -> Job:
    """A queued job with the inputs of `old`, one attempt later."""
    asked: dict[str, Any] = {name: getattr(old, name) for name in _INPUTS}
    decisive = {k: v for k, v in asked.items() if k not in ("subject", "worktree", "bundle_id")}
    return Job(
        id=new_id("j"),
        **asked,
        judge_version=JUDGE_VERSION,
        fingerprint=_digest(decisive | {"judge_version": JUDGE_VERSION}),
        state=JobState.QUEUED,
        reason="",
        attempt=old.attempt + 1,
        retry_of=old.id,
        tries=0,
        cancel_requested=False,
        log_seq=0,
        submitted_by=token.name,
        created_at=now(),
    )


def _digest(value: dict[str, Any]) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
