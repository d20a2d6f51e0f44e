"""The store as its users see it: one transaction at a time, repositories inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from gdn_service.clock import iso, now
from gdn_service.store import log
from gdn_service.store.bundles import BundleRepository
from gdn_service.store.database import Database
from gdn_service.store.devices import DeviceRepository
from gdn_service.store.jobs import JobRepository
from gdn_service.store.leases import LeaseRepository
from gdn_service.store.readings import ReadingRepository
from gdn_service.store.results import ResultRepository
from gdn_service.store.targets import TargetRepository
from gdn_service.store.tokens import TokenRepository


class Transaction:
    """Repositories that share one database transaction."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.targets = TargetRepository(session)
        self.tokens = TokenRepository(session)
        self.bundles = BundleRepository(session)
        self.jobs = JobRepository(session)
        self.results = ResultRepository(session)
        self.devices = DeviceRepository(session)
        self.readings = ReadingRepository(session)
        self.leases = LeaseRepository(session)
        self.log = log.LogRepository(session)


class Store:
    def __init__(self, url: str) -> None:
        self.database = Database(url)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        with self.database.read() as session:
            yield Transaction(session)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Commits at the end of the block; rolls back if it raises."""
        with self.database.write() as session:
            yield Transaction(session)

    def say(self, job_id: str, message: str, *, run: str | None = None) -> None:
        """One line of the service's own in a job's log."""
        self.append(job_id, [(log.LOG, {"at": iso(now()), "run": run, "text": message})])

    def append(self, job_id: str, events: list[tuple[str, dict[str, Any]]]) -> None:
        with self.write() as tx:
            tx.log.append(job_id, events)

    def check(self) -> None:
        """Raises when the database does not answer."""
        with self.read() as tx:
            tx.session.execute(text("SELECT 1 FROM targets WHERE 1 = 0"))

    def migrate(self) -> None:
        self.database.migrate()

    def close(self) -> None:
        self.database.close()
