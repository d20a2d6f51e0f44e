"""All SQL on devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gdn_service.clock import now
from gdn_service.store.models import Device

QUARANTINE_AFTER = 3  # host failures in a row


class DeviceRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[Device]:
        return list(self._session.scalars(select(Device).order_by(Device.id)))

    def get(self, device_id: str) -> Device | None:
        return self._session.get(Device, device_id)

    def seen(self, device_id: str, **values: Any) -> None:
        """Record what a probe saw; keeps baseline, quarantine and failure count."""
        device = self.get(device_id)
        if device is None:
            self._session.add(Device(id=device_id, **values))
        else:
            for name, value in values.items():
                setattr(device, name, value)
        self._session.flush()

    def retain(self, host: str, device_ids: Sequence[str]) -> None:
        """Devices of `host` that are not listed are marked as not there any more."""
        self._session.execute(
            update(Device)
            .where(Device.host == host, Device.id.not_in(device_ids))
            .values(present=False, idle=False, why_not_idle="no worker serves it any more")
        )

    def served_kinds(self) -> list[str]:
        query = select(Device.kind).where(Device.present.is_(True)).distinct()
        return sorted(self._session.scalars(query))

    def usable(self, kind: str, host: str | None = None) -> list[Device]:
        """Devices of `kind`, of all hosts or one, that are there and not quarantined."""
        query = select(Device).where(
            Device.kind == kind, Device.present.is_(True), Device.quarantined.is_(None)
        )
        if host is not None:
            query = query.where(Device.host == host)
        return list(self._session.scalars(query))

    def host_failure(
        self,
        device_id: str,
        reason: str,
        *,
        suspect: str | None = None,
        after: str | None = None,
    ) -> bool:
        """Count it; True when the device is quarantined by this one.

        With `suspect`, the commit whose candidate was running, it counts only once the
        device fails without that commit. With `after`, the commit whose candidate had ended,
        it counts, and in a row of such failures of one commit once.
        """
        device = self._session.get_one(Device, device_id, with_for_update=True)
        if device.suspect not in (None, suspect or after):
            device.failures_in_row += 1
        device.suspect = suspect
        if suspect is None and (after is None or device.counted != after):
            device.failures_in_row += 1
        if suspect is None or suspect != device.counted:  # else its row goes on
            device.counted = after
        if device.quarantined or device.failures_in_row < QUARANTINE_AFTER:
            return False
        device.quarantined = f"{device.failures_in_row} host failures in a row, last: {reason}"
        return True

    def host_success(self, device_id: str) -> None:
        self._session.execute(
            update(Device)
            .where(Device.id == device_id)
            .values(failures_in_row=0, suspect=None, counted=None)
        )

    def quarantine(self, device_id: str, reason: str | None) -> bool:
        """Set or, with None, lift the quarantine; False when there is no such device.

        Lifting begins a new history of canaries: what was usual before whatever the
        operator did, a reset or a changed power cap, is no guide after it.
        """
        device = self.get(device_id)
        if device is None:
            return False
        device.quarantined = reason
        device.failures_in_row, device.suspect, device.counted = 0, None, None
        if reason is None:
            device.canary_since = now()
        return True

    def set_baseline(self, device_id: str, used_bytes: int) -> None:
        self._session.get_one(Device, device_id).vram_baseline = used_bytes
