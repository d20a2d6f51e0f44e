"""All SQL on the log of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gdn_service.store.models import Job, LogEvent

LOG, PROGRESS, STATE = "log", "progress", "state"


class LogRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def append(self, job_id: str, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """(kind, data) each. The job's row lock makes sequence numbers appear in order."""
        last = self._session.scalar(
            update(Job)
            .where(Job.id == job_id)
            .values(log_seq=Job.log_seq + len(events))
            .returning(Job.log_seq)
        )
        if last is None:
            raise LookupError(f"no job {job_id}")
        first = last - len(events) + 1
        self._session.add_all(
            LogEvent(job_id=job_id, seq=first + i, kind=kind, data=data)
            for i, (kind, data) in enumerate(events)
        )
        self._session.flush()

    def after(self, job_id: str, seq: int, limit: int = 500) -> list[LogEvent]:
        query = (
            select(LogEvent)
            .where(LogEvent.job_id == job_id, LogEvent.seq > seq)
            .order_by(LogEvent.seq)
            .limit(limit)
        )
        return list(self._session.scalars(query))
