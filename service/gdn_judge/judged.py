"""What one case showed, before it becomes a Case of the document."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdn_judge.document import Check, Measurement, Outcome


@dataclass(frozen=True)
class Judged:
    """Checks, the kernels that ran, and what was timed.

    A failed check named in `suspects` contradicts the candidate's claim instead
    of showing a wrong result: alone it makes the case suspect, not failed.
    """

    checks: list[Check]
    kernels: list[str] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    suspects: frozenset[str] = frozenset()

    @property
    def outcome(self) -> Outcome:
        failed = {check.name for check in self.checks if not check.passed}
        if not failed:
            return Outcome.PASSED
        return Outcome.SUSPECT if failed <= self.suspects else Outcome.FAILED
