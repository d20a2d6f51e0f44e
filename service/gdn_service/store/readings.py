"""All SQL on idle readings and on the canaries of earlier runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gdn_service.jobs.canary import KEPT, KERNELS, MOMENTS, Earlier, identity
from gdn_service.jobs.states import RunState
from gdn_service.store.models import Device, Environment, IdleReading, Measurement, Run


class ReadingRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, readings: Iterable[IdleReading]) -> None:
        self._session.add_all(readings)
        self._session.flush()

    def of_run(self, run_id: str) -> list[IdleReading]:
        """In the order in which they were taken, attempts that did not count included."""
        query = select(IdleReading).where(IdleReading.run_id == run_id)
        return list(self._session.scalars(query.order_by(IdleReading.attempt, IdleReading.at)))

    def canaries(self, device_id: str, facts: Mapping[str, Any]) -> dict[str, list[Earlier]]:
        """By kernel, newest first: of earlier runs that counted, on this device under `facts`.

        Runs that began before an operator last put the device back to use are left out.
        """
        names = [f"{kernel} {moment}" for kernel in KERNELS for moment in MOMENTS]
        query = (
            select(Measurement.name, Run.id, Measurement.median, Environment.facts)
            .join(Run, Measurement.run_id == Run.id)
            .join(Device, Run.device_id == Device.id)
            .join(Environment, Run.environment_id == Environment.id)
            .where(
                Run.device_id == device_id,
                Run.state == RunState.FINISHED,
                Run.valid.is_(True),
                Measurement.case_id.is_(None),
                Measurement.name.in_(names),
                Measurement.median.is_not(None),
                or_(Device.canary_since.is_(None), Run.started_at >= Device.canary_since),
            )
            .order_by(Run.id.desc())
        )
        wanted = identity(facts)
        found: dict[str, list[Earlier]] = {kernel: [] for kernel in KERNELS}
        for name, run_id, median, environment in self._session.execute(query).yield_per(100):
            readings = found[name.partition(" ")[0]]
            if len(readings) < KEPT and identity(environment) == wanted:
                readings.append(Earlier(run_id, median))
            if all(len(readings) == KEPT for readings in found.values()):
                break
        return found
