"""Was the device idle around one execution of a run? All that was seen, and what follows.

The assertion before and the one after, the looks in between, and the canary, each of
which can make the run void.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gdn_judge.document import Document
from gdn_judge.wire import devices
from gdn_service.jobs import canary
from gdn_service.jobs.canary import Canary, CanaryRule
from gdn_service.runner.probe import DeviceFacts, IdleReport
from gdn_service.runner.watch import Watch
from gdn_service.settings import Settings
from gdn_service.store.models import IdleReading
from gdn_service.store.store import Store

RUN = "run"  # the arm that is all of the run


@dataclass(frozen=True, kw_only=True)
class Assertion:
    """The device at one end of a run; `others` is the load of the host's other GPUs."""

    at: datetime
    report: IdleReport
    others: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Stay:
    """One execution of a run on a device."""

    device_id: str
    facts: DeviceFacts
    before: Assertion
    after: Assertion
    watch: Watch
    canaries: Mapping[str, Canary]

    @property
    def void(self) -> str:
        """Why the run does not count, or ""."""
        if self.watch.visitor:
            return f"someone else used the device during the run: {self.watch.visitor}"
        if not self.after.report.idle:
            return f"the device did not stay idle during the run: {self.after.report.why}"
        for moment, found in self.canaries.items():
            if found.why:
                return f"the canary {moment} the run is slower than usual: {found.why}"
        return ""

    @property
    def left_dirty(self) -> bool:
        """The device was idle, the candidate came and nobody else, and memory is stranded."""
        return self.after.report.dirty and self.candidate_came and not self.watch.visitor

    @property
    def candidate_came(self) -> bool:
        """Whether the run got as far as the candidate."""
        return any(border.moment == "before" for border in self.watch.borders)

    def readings(self, run_id: str, attempt: int) -> list[IdleReading]:
        """As rows: the two ends of the run, and the borders of its arms between them."""
        rows = []
        for moment, end in (("before", self.before), ("after", self.after)):
            rows.append(
                self._row(
                    run_id,
                    attempt,
                    arm=RUN,
                    moment=moment,
                    at=end.at,
                    why=end.report.why,
                    used_bytes=end.report.used_bytes,
                    canary=self._canary(moment),
                    others=end.others,
                )
            )
        borders = [self._row(run_id, attempt, **vars(border)) for border in self.watch.borders]
        return [rows[0], *borders, rows[1]]

    def _row(self, run_id: str, attempt: int, **values: Any) -> IdleReading:
        return IdleReading(run_id=run_id, attempt=attempt, device_id=self.device_id, **values)

    def _canary(self, moment: str) -> str:
        if devices.spec(self.facts.kind).on_cpu:
            return "not applicable: this device has no clock of its own"
        found = self.canaries.get(moment)
        return "not taken: the judge did not come so far" if found is None else found.words


def canaries(
    store: Store, device_id: str, document: Document | None, settings: Settings
) -> dict[str, Canary]:
    """By moment, what `document` has, held against the store's earlier readings."""
    taken = {} if document is None else canary.readings(document)
    if document is None or not taken:
        return {}
    with store.read() as tx:
        history = tx.readings.canaries(device_id, document.environment)
    rule = CanaryRule.of(settings)
    return {moment: canary.judge(values, history, rule) for moment, values in taken.items()}
