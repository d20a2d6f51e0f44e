"""Is the canary of a run in its device's usual range?

The judge times two fixed kernels before and after the candidate. Usual is what the
same device showed under the same driver and software in earlier runs that counted:
the median of their medians, plus or minus some median absolute deviations (MAD).
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

Readings = Mapping[str, Mapping[str, float]]
"""us by moment and kernel."""


@dataclass(frozen=True, kw_only=True)
class CanaryRule:
    """`readings`: fewer earlier ones are no baseline. The range is `mads` scaled MADs wide on
    each side of the median, and at least `margin` of it."""

    readings: int
    mads: float
    margin: float

    @classmethod
    def of(cls, settings: Settings) -> CanaryRule:
        return cls(
            readings=settings.canary_readings,
            mads=settings.canary_mads,
            margin=settings.canary_margin,
        )

    def usual(self, history: Sequence[float]) -> tuple[float, float]:
        """(lowest, highest) us that are usual after `history`, which is not empty."""
        middle = statistics.median(history)
        mad = statistics.median(abs(value - middle) for value in history)
        reach = max(self.mads * _MAD_TO_SIGMA * mad, self.margin * middle)
        return middle - reach, middle + reach


@dataclass(frozen=True, kw_only=True)
class Canary:
    """`words` for the result; `why` names what is out of its range, or is ""."""

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
    taken: Mapping[str, float], history: Mapping[str, Sequence[float]], rule: CanaryRule
) -> Canary:
    """One moment's readings (us by kernel) against earlier ones of the device."""
    words, wrong = [], []
    for kernel, value in taken.items():
        name = kernel.removeprefix("canary_")
        earlier = history.get(kernel, ())
        if len(earlier) < rule.readings:
            said = f"no baseline yet: {len(earlier)} of {rule.readings} readings"
            words.append(f"{name} {value:.1f} us ({said})")
            continue
        low, high = rule.usual(earlier)
        usual = f"usual {low:.1f} to {high:.1f}, {len(earlier)} readings"
        words.append(f"{name} {value:.1f} us ({usual})")
        if not low <= value <= high:
            wrong.append(words[-1])
    return Canary(words="; ".join(words), why="; ".join(wrong))
