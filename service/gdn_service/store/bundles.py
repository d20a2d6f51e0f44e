"""All SQL on bundles."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from gdn_service.store.models import Bundle


class BundleRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, bundle: Bundle) -> None:
        self._session.add(bundle)
        self._session.flush()

    def get(self, bundle_id: str) -> Bundle | None:
        return self._session.get(Bundle, bundle_id)

    def content(self, bundle_id: str) -> bytes | None:
        return self._session.scalar(select(Bundle.content).where(Bundle.id == bundle_id))
