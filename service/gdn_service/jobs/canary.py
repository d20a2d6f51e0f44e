"""Is the canary of a run slower than is usual on its device?

The judge times two fixed kernels before and after the candidate. Usual is what the
same device showed under the same driver and software in earlier runs that counted:
the median of their medians, plus or minus some median absolute deviations (MAD).
Faster than usual is told and speaks against nothing: it says that the earlier runs
were slow, and nobody makes a device faster by using it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gdn_judge.document import Document
from gdn_service.settings import Settings

KERNELS = ("canary_copy", "canary_compute")
MOMENTS = ("before", "after")
KEPT = 40  # newest readings of a kernel that make up what is usual
IDENTITY = (
    "device.uuid",
    "device.driver",
    "device.vbios",
    "device.runtime",
    "device.power_limit_mw",
    "device.compute_partition",
    "device.memory_partition",
    "device.performance_level",
    "kernel",
    "image",
    "torch",
    "triton",
)
"""Facts of an environment that move the canary by right; readings under others are no guide."""

_MAD_TO_SIGMA = 1.4826  # of a normal distribution: 1 / Phi^-1(3/4)


@dataclass(frozen=True)
class Earlier:
    """What one moment of an earlier run gave: the median, us."""

    run: str
    us: float


@dataclass(frozen=True, kw_only=True)
class CanaryRule:
    """`readings`: fewer earlier ones, or of fewer `runs`, are no baseline. The range is `mads`
    scaled MADs wide on each side of the median, at least `margin` of it and at most `limit`:
    without a limit a device that knows two clocks makes everything usual."""

    readings: int
    runs: int
    mads: float
    margin: float
    limit: float

    @classmethod
    def of(cls, settings: Settings) -> CanaryRule:
        return cls(
            readings=settings.canary_readings,
            runs=settings.canary_runs,
            mads=settings.canary_mads,
            margin=settings.canary_margin,
            limit=settings.canary_limit,
        )

    def usual(self, history: Sequence[float]) -> tuple[float, float]:
        """(lowest, highest) us that are usual after `history`, which is not empty."""
        middle = statistics.median(history)
        mad = statistics.median(abs(value - middle) for value in history)
        reach = max(self.mads * _MAD_TO_SIGMA * mad, self.margin * middle)
        reach = min(reach, self.limit * middle)
        return middle - reach, middle + reach


@dataclass(frozen=True, kw_only=True)
class Canary:
    """`words` for the result; `why` names what is slower than usual, or is ""."""

    words: str
    why: str = ""


def readings(document: Document) -> dict[str, dict[str, float]]:
    """The medians in `document`, us by moment and kernel; moments without any are left out."""
    found: dict[str, dict[str, float]] = {}
    for item in document.ceilings:
        kernel, _, moment = item.name.partition(" ")
        if kernel in KERNELS and moment in MOMENTS and item.median is not None:
            found.setdefault(moment, {})[kernel] = item.median
    return found


def identity(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What of an environment must be equal for two canaries to be compared."""
    return {name: facts.get(name) for name in IDENTITY}


def judge(
    taken: Mapping[str, float], history: Mapping[str, Sequence[Earlier]], rule: CanaryRule
) -> Canary:
    """One moment's readings (us by kernel) against earlier ones of the device."""
    words, wrong = [], []
    for kernel, value in taken.items():
        name = kernel.removeprefix("canary_")
        earlier = history.get(kernel, ())
        runs = len({reading.run for reading in earlier})
        if len(earlier) < rule.readings or runs < rule.runs:
            said = f"{len(earlier)} of {rule.readings} readings, {runs} of {rule.runs} runs"
            words.append(f"{name} {value:.1f} us (no baseline yet: {said})")
            continue
        low, high = rule.usual([reading.us for reading in earlier])
        usual = f"usual {low:.1f} to {high:.1f}, {len(earlier)} readings"
        faster = "faster than " if value < low else ""
        words.append(f"{name} {value:.1f} us ({faster}{usual})")
        if not value <= high:
            wrong.append(words[-1])
    return Canary(words="; ".join(words), why="; ".join(wrong))
