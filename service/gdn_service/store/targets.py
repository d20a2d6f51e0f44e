"""All SQL on targets and commits."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from gdn_service.store.models import Commit, Target


class TargetRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, name: str) -> Target | None:
        return self._session.get(Target, name)

    def all(self) -> list[Target]:
        return list(self._session.scalars(select(Target).order_by(Target.name)))

    def put(self, target: Target) -> None:
        """Add the target, or replace what its name means."""
        self._session.merge(target)

    def commit(self, target: str, sha: str) -> Commit | None:
        return self._session.scalar(
            select(Commit).where(Commit.target == target, Commit.sha == sha)
        )

    def add_commit(self, commit: Commit) -> None:
        if self.commit(commit.target, commit.sha) is None:
            self._session.add(commit)
            self._session.flush()
