"""What a user can do with jobs: submit, cancel, retry. Used by API and demo alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gdn_judge.document import Suite
from gdn_judge.wire import suites
from gdn_service.clock import iso, now
from gdn_service.errors import (
    Conflict,
    IdempotencyMismatch,
    InvalidRequest,
    NotCancellable,
    NotFound,
    UnknownDeviceKind,
    UnknownSuite,
    UnknownTarget,
)
from gdn_service.jobs import placement
from gdn_service.jobs.rows import Submission, new_job, new_runs, retry_of
from gdn_service.jobs.states import JobState
from gdn_service.runner.checkouts import Checkouts
from gdn_service.settings import Settings, best_kind
from gdn_service.store import log
from gdn_service.store.models import Job, Target, Token
from gdn_service.store.store import Store, Transaction


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """`created` is False when the answer is an older job."""

    job: Job
    created: bool = False
    from_store: bool = False
    joined: bool = False


class JobRequests:
    def __init__(self, settings: Settings, store: Store, checkouts: Checkouts) -> None:
        self._settings = settings
        self._store = store
        self._checkouts = checkouts

    def submit(self, submission: Submission, token: Token, key: str | None) -> Submitted:
        """A new job, or the one that answers already. Raises a RequestError."""
        with self._store.read() as tx:
            replayed = self._replay(tx, submission, token, key)
            target = self._target(tx, submission.target)
            kinds = tx.devices.served_kinds()
            if submission.bundle is not None:
                _bundle_of(tx, submission.bundle, target)
        if replayed is not None:
            return replayed
        wanted = _suites(submission.suites, target)
        _something_to_do(wanted, submission.batch_sizes)
        device_kind = self._device_kind(submission.device_kind, target, kinds)
        facts = self._checkouts.resolve(target, submission.commit, submission.bundle)
        job = new_job(submission, facts.sha, wanted, device_kind, token)
        job.subject = job.subject or facts.subject
        job.bundle_id = job.bundle_id or self._bundle_with(target, facts.sha)
        return self._add(job, submission, token, key)

    def cancel(self, job_id: str) -> Job:
        """Idempotent. A job that no living host has ends now; a running one within seconds."""
        with self._store.write() as tx:
            job = _existing(tx, job_id)
            if JobState(job.state).final:
                if job.state == JobState.CANCELLED:
                    return job
                raise NotCancellable(f"job {job_id} is already {job.state}")
            first = tx.jobs.request_cancel(job_id)
            job = _existing(tx, job_id)
            if job.state == JobState.QUEUED or job.worker not in placement.living(tx):
                self._end_waiting(tx, job_id)
            elif first:
                tx.log.append(job_id, [log_line("cancellation requested")])
        with self._store.read() as tx:
            return _existing(tx, job_id)

    def retry(self, job_id: str, token: Token) -> Job:
        """A new job with the same inputs. Raises Conflict while the old one is open."""
        with self._store.write() as tx:
            old = _existing(tx, job_id)
            if not JobState(old.state).final:
                raise Conflict(f"job {job_id} is {old.state}; cancel it or wait for its end")
            job = retry_of(old, token)
            tx.jobs.add(job, new_runs(job))
            tx.log.append(job.id, [_queued_event(f"retry of {job_id}")])
        return job

    def _add(self, job: Job, submission: Submission, token: Token, key: str | None) -> Submitted:
        with self._store.write() as tx:
            tx.jobs.lock_submissions()
            submitted = self._replay(tx, submission, token, key)
            if submitted is None and not submission.force:
                submitted = _answered(tx, job.fingerprint)
            if submitted is None:
                tx.jobs.add(job, new_runs(job))
                tx.log.append(job.id, [_queued_event(f"queued for {job.device_kind}")])
                submitted = Submitted(job=job, created=True)
            if key is not None and tx.tokens.used_key(token.id, key) is None:
                tx.tokens.remember_key(token.id, key, submission.digest, submitted.job.id)
        return submitted

    def _bundle_with(self, target: Target, sha: str) -> str | None:
        """The kept bundle that a worker on another host needs for a commit sent earlier."""
        ids = self._checkouts.bundles_with(target, sha)
        with self._store.read() as tx:
            return next((name for name in ids if tx.bundles.get(name) is not None), None)

    def _replay(
        self, tx: Transaction, submission: Submission, token: Token, key: str | None
    ) -> Submitted | None:
        """The job that this Idempotency-Key made before."""
        used = None if key is None else tx.tokens.used_key(token.id, key)
        if used is None:
            return None
        if used.request_hash != submission.digest:
            raise IdempotencyMismatch(
                "this Idempotency-Key came with another request before; use a new key"
            )
        job = _existing(tx, used.job_id)
        final = JobState(job.state).final
        return Submitted(job=job, from_store=final, joined=not final)

    def _target(self, tx: Transaction, name: str) -> Target:
        target = tx.targets.get(name)
        if target is None:
            known = (
                ", ".join(t.name for t in tx.targets.all()) or "none; see gdn-service target add"
            )
            raise UnknownTarget(f"there is no target {name!r}; known: {known}")
        return target

    def _device_kind(self, wanted: str | None, target: Target, served: list[str]) -> str:
        if wanted is None:
            wanted = target.default_device_kind or self._settings.default_device_kind
        if wanted is None or wanted == "":
            wanted = best_kind(served)
        if wanted is None or wanted not in served:
            raise UnknownDeviceKind(
                f"no worker serves device kind {wanted!r}; served: {', '.join(served) or 'none'}",
                served=served,
            )
        return wanted

    def _end_waiting(self, tx: Transaction, job_id: str) -> None:
        reason = "cancelled on request"
        if tx.jobs.finish(
            job_id, JobState.CANCELLED, reason=reason, failure_class=None, duration_s=None
        ):
            tx.jobs.cancel_runs(job_id, reason)
            event = {"state": str(JobState.CANCELLED), "reason": reason}
            tx.log.append(job_id, [(log.STATE, event)])


def _bundle_of(tx: Transaction, bundle_id: str, target: Target) -> None:
    """Raises NotFound, and InvalidRequest for a bundle that was sent for another target."""
    bundle = tx.bundles.get(bundle_id)
    if bundle is None:
        raise NotFound(f"there is no bundle {bundle_id}; upload it again")
    if bundle.target != target.name:
        raise InvalidRequest(
            f"bundle {bundle_id} was sent for target {bundle.target!r}, not for {target.name!r}; "
            "upload it again for this one"
        )


def _answered(tx: Transaction, fingerprint: str) -> Submitted | None:
    open_job = tx.jobs.open(fingerprint)
    if open_job is not None:
        return Submitted(job=open_job, joined=True)
    stored = tx.jobs.stored(fingerprint)
    return None if stored is None else Submitted(job=stored, from_store=True)


def _suites(wanted: list[str] | None, target: Target) -> list[str]:
    """In the target's order, each once."""
    if wanted is None:
        wanted = [str(suite) for suite in suites.defaults() if suite in target.suites]
    for word in wanted:
        if word not in target.suites:
            known = ", ".join(target.suites)
            raise UnknownSuite(f"target {target.name} has no suite {word[:40]!r}; known: {known}")
    if not wanted:
        raise InvalidRequest("suites is empty; name at least one, or leave it out")
    return [name for name in target.suites if name in wanted]


def _something_to_do(wanted: list[str], batch_sizes: list[int] | None) -> None:
    """No suite may end without a case: a call of no rows launches nothing."""
    if batch_sizes is None or any(batch_sizes):
        return
    idle = [name for name in wanted if not suites.spec(Suite(name)).empty_batch]
    if idle:
        raise InvalidRequest(
            f"batch size 0 launches nothing, so {' and '.join(idle)} would have nothing to judge; "
            "name a larger one beside it"
        )


def _existing(tx: Transaction, job_id: str) -> Job:
    job = tx.jobs.get(job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id[:40]!r}")
    return job


def log_line(text: str) -> tuple[str, dict[str, Any]]:
    return log.LOG, {"at": iso(now()), "run": None, "text": text}


def _queued_event(reason: str) -> tuple[str, dict[str, Any]]:
    return log.STATE, {"state": str(JobState.QUEUED), "reason": reason}
