"""Leases with an end: whoever does not renew in time has lost it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gdn_service.clock import now
from gdn_service.store.models import Lease


class LeaseRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def acquire(
        self,
        name: str,
        holder: str,
        *,
        host: str,
        ttl_s: float,
        facts: dict[str, Any] | None = None,
        force: bool = False,
    ) -> bool:
        """Take or renew a lease; False while another holder's has not run out."""
        lease = self._session.get(Lease, name, with_for_update=True)
        expires = now() + timedelta(seconds=ttl_s)
        if lease is None:
            lease = Lease(name=name, holder=holder, host=host, facts={}, expires_at=expires)
            self._session.add(lease)
        elif lease.holder != holder and lease.expires_at > now() and not force:
            return False
        lease.holder, lease.host, lease.expires_at = holder, host, expires
        lease.facts = facts or {}
        self._session.flush()
        return True

    def release(self, name: str, holder: str) -> None:
        self._session.execute(delete(Lease).where(Lease.name == name, Lease.holder == holder))

    def get(self, name: str) -> Lease | None:
        return self._session.get(Lease, name)

    def under(self, prefix: str) -> list[Lease]:
        query = select(Lease).where(Lease.name.startswith(prefix, autoescape=True))
        return list(self._session.scalars(query.order_by(Lease.name)))

    def expired(self, prefix: str) -> list[Lease]:
        return [lease for lease in self.under(prefix) if lease.expires_at <= now()]

    def live(self, prefix: str) -> list[Lease]:
        return [lease for lease in self.under(prefix) if lease.expires_at > now()]
