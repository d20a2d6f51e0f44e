"""Writes a verdict document into its tables, and reads it back. Once per run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from gdn_judge.document import Case as JudgedCase
from gdn_judge.document import Document as VerdictDocument
from gdn_judge.document import Kernel as JudgedKernel
from gdn_judge.document import Measurement as JudgedMeasurement
from gdn_judge.document import Verdict
from gdn_service.jobs.states import RunState
from gdn_service.store import models
from gdn_service.store.jobs import JobRepository


class ResultRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def receive(self, run_id: str, body: str) -> None:
        """Keep what the judge left, unchecked, until `store` or `discard`."""
        self._session.merge(models.Document(run_id=run_id, body=body))
        self._session.flush()

    def discard(self, run_id: str) -> None:
        self._session.execute(delete(models.Document).where(models.Document.run_id == run_id))

    def store(self, run_id: str, document: VerdictDocument) -> bool:
        """Everything the received document says; False when it is stored already."""
        environment_id = self._environment(document.environment)
        finished = JobRepository(self._session).finish_run(
            run_id,
            verdict=document.verdict,
            failure_class=document.failure_class,
            reason=document.reason,
            partial=document.partial,
            duration_s=document.duration_s,
            judge_version=document.judge_version,
            kernel_digest=document.kernel_digest,
            environment_id=environment_id,
        )
        if not finished:
            return False
        self._kernels(run_id, document.kernels)
        for ordinal, case in enumerate(document.cases):
            self._case(run_id, ordinal, case)
        for ceiling in document.ceilings:
            self._session.add(_measurement(run_id, None, ceiling))
        self._session.flush()
        return True

    def document(self, run_id: str) -> str | None:
        return self._session.scalar(
            select(models.Document.body).where(models.Document.run_id == run_id)
        )

    def comparable(self, job: models.Job, suite: str, commits: Sequence[str]) -> dict[str, str]:
        """The latest run of `suite` to compare with on each of `commits`: commit -> run id.

        Complete and valid, and passed or accepted by an operator: a commit that lost a
        workgroup is no measure for the one after it.

        Only runs that may be held against one of `job`: same target, device kind and heads,
        and the same sizes or all of the suite's own.
        """
        query = (
            select(models.Job, models.Run.id)
            .join(models.Run.job)
            .where(
                models.Job.target == job.target,
                models.Job.device_kind == job.device_kind,
                models.Job.commit_sha.in_(commits),
                models.Run.suite == suite,
                models.Run.state == RunState.FINISHED,
                models.Run.valid.is_(True),
                models.Run.partial.is_(False),
                or_(
                    models.Run.verdict == Verdict.PASSED,
                    and_(models.Run.verdict == Verdict.FAILED, models.Run.accepted.is_not(None)),
                ),
                models.Run.environment_id.is_not(None),
            )
            .order_by(models.Run.id)
        )
        plan = (job.batch_sizes, job.quick)
        return {
            other.commit_sha: run_id
            for other, run_id in self._session.execute(query)
            if other.heads == job.heads
            and (other.batch_sizes, other.quick) in (plan, (None, False))
        }

    def accept(self, run_id: str, reason: str | None) -> bool:
        """Let a failed run be a baseline, or with None no longer; False where there is none."""
        run = self._session.get(models.Run, run_id)
        if run is None or run.verdict != Verdict.FAILED:
            return False
        run.accepted = reason
        self._session.flush()
        return True

    def counts(self, run_id: str) -> dict[str, int]:
        """How many cases ended in each outcome."""
        query = (
            select(models.Case.outcome, func.count())
            .where(models.Case.run_id == run_id)
            .group_by(models.Case.outcome)
        )
        return {row[0]: row[1] for row in self._session.execute(query)}

    def environment(self, environment_id: str) -> dict[str, Any] | None:
        row = self._session.get(models.Environment, environment_id)
        return None if row is None else row.facts

    def _environment(self, facts: dict[str, Any]) -> str:
        canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        key = hashlib.sha256(canonical.encode()).hexdigest()
        self._insert_once(models.Environment, {"id": key, "facts": facts})
        return key

    def _kernels(self, run_id: str, kernels: list[JudgedKernel]) -> None:
        for kernel in {kernel.digest: kernel for kernel in kernels}.values():
            self._insert_once(models.Kernel, asdict(kernel))
            self._session.add(models.RunKernel(run_id=run_id, digest=kernel.digest))

    def _case(self, run_id: str, ordinal: int, case: JudgedCase) -> None:
        row = models.Case(
            run_id=run_id,
            ordinal=ordinal,
            name=case.id,
            params=case.params,
            outcome=case.outcome,
            reason=case.reason,
            ratios=case.ratios,
            kernel_names=case.kernels,
            seconds=case.seconds,
        )
        self._session.add(row)
        self._session.flush()
        self._session.add_all(
            models.Check(case_id=row.id, **asdict(check)) for check in case.checks
        )
        self._session.add_all(_measurement(run_id, row.id, item) for item in case.measurements)

    def _insert_once(self, table: type[models.Base], values: dict[str, Any]) -> None:
        dialect = self._session.get_bind().dialect.name
        insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
        self._session.execute(insert(table).values(**values).on_conflict_do_nothing())


def _measurement(run_id: str, case_id: int | None, item: JudgedMeasurement) -> models.Measurement:
    return models.Measurement(run_id=run_id, case_id=case_id, **asdict(item))
