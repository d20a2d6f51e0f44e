"""All SQL on idle readings and on the canaries of earlier runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gdn_service.jobs.canary import KEPT, KERNELS, MOMENTS, identity
from gdn_service.jobs.states import RunState
from gdn_service.store.models import Environment, IdleReading, Measurement, Run


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

    def canaries(self, device_id: str, facts: Mapping[str, Any]) -> dict[str, list[float]]:
        """us by kernel, newest first: earlier runs that counted, on this device under `facts`."""
        names = [f"{kernel} {moment}" for kernel in KERNELS for moment in MOMENTS]
        query = (
            select(Measurement.name, Measurement.median, Environment.facts)
            .join(Run, Measurement.run_id == Run.id)
            .join(Environment, Run.environment_id == Environment.id)
            .where(
                Run.device_id == device_id,
                Run.state == RunState.FINISHED,
                Run.valid.is_(True),
                Measurement.case_id.is_(None),
                Measurement.name.in_(names),
                Measurement.median.is_not(None),
            )
            .order_by(Run.id.desc())
        )
        wanted = identity(facts)
        found: dict[str, list[float]] = {kernel: [] for kernel in KERNELS}
        for name, median, environment in self._session.execute(query).yield_per(100):
            readings = found[name.partition(" ")[0]]
            if len(readings) < KEPT and identity(environment) == wanted:
                readings.append(median)
            if all(len(readings) == KEPT for readings in found.values()):
                break
        return found
