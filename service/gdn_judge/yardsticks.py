"""Run the trusted process that measures a device, and read what it found."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdn_judge import settings
from gdn_judge.document import Measurement, MeasurementKind, Scalar
from gdn_judge.errors import HostError
from gdn_judge.samples import measurement

FOLDER = Path(__file__).parent / "ceilings"
_PATIENCE_S = 180.0


@dataclass(frozen=True, kw_only=True)
class Canary:
    """Times of the two fixed kernels (ceilings/canary.py) in us; `bytes` moved by one copy."""

    copy: list[float]
    compute: list[float]
    bytes: int

    def measurements(self, when: str) -> list[Measurement]:
        """For the document: `when` says "before" or "after" the candidate."""
        return [
            measurement(
                f"canary_copy {when}", MeasurementKind.GPU_TIME, self.copy, bytes_moved=self.bytes
            ),
            measurement(f"canary_compute {when}", MeasurementKind.GPU_TIME, self.compute),
        ]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a device is and how it does at one moment, for suites that time nothing."""

    canary: Canary
    facts: dict[str, Scalar]

    def measurements(self, when: str) -> list[Measurement]:
        return self.canary.measurements(when)


@dataclass(frozen=True, kw_only=True)
class Yardsticks(Look):
    """Ceilings of one device at one moment; times in us, `bytes` moved by rmw and copy."""

    rmw: list[float]
    rmw_config: str  # elements of a program x warps, the best of some at that moment
    copy: list[float]
    launch: list[float]
    bytes: int

    @property
    def rmw_bytes_per_s(self) -> float:
        return self.bytes / (statistics.median(self.rmw) * 1e-6)

    @property
    def launch_us(self) -> float:
        return statistics.median(self.launch)

    def measurements(self, when: str) -> list[Measurement]:
        """For the document: `when` says "before" or "after" the candidate's windows."""
        ceilings = [
            measurement(
                f"{name} {when}", MeasurementKind.GPU_TIME, times, bytes_moved=moved, label=label
            )
            for name, times, moved, label in (
                ("rmw_ceiling", self.rmw, self.bytes, self.rmw_config),
                ("copy_ceiling", self.copy, self.bytes, ""),
                ("launch_floor", self.launch, None, ""),
            )
        ]
        return ceilings + super().measurements(when)


def measure(device: str) -> Yardsticks:
    """Measure on `device` ("cuda:0"). Raises HostError where it cannot be used."""
    found = _ask(device)
    return Yardsticks(
        rmw=found["rmw"],
        rmw_config=found["rmw_config"],
        copy=found["copy"],
        launch=found["launch"],
        bytes=found["bytes"],
        canary=Canary(**found["canary"]),
        facts=found["facts"],
    )


def look(device: str) -> Look:
    """Facts and canary of `device`, without ceilings. Raises HostError likewise."""
    found = _ask(device, "--brief")
    return Look(canary=Canary(**found["canary"]), facts=found["facts"])


def _ask(device: str, *options: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gdn-judge-") as work:
        try:
            ended = subprocess.run(
                [sys.executable, "-I", str(FOLDER), device, *options],
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                env=dict(settings.candidate_environment(work, interpret=False)),
                cwd=work,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"cannot use {device}: {error}") from error
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:] or ["no message"]
        raise HostError(f"cannot use {device}: {last[0]}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found
