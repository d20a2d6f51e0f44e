"""NVIDIA devices through NVML, asked in a short-lived process on the host.

A process of its own: a driver call that hangs cannot hang the worker, and no
library handle stays open on the device.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from gdn_judge.document import DeviceKind
from gdn_service.errors import DeviceUnavailable
from gdn_service.runner import nvml_query
from gdn_service.runner.probe import DeviceFacts, IdleReport, Offender, bytes_text
from gdn_service.settings import Settings, base_environment

_TIMEOUT_S = 20.0
_KINDS = {(9, 0): DeviceKind.SM90}  # compute capability -> device kind


class NvmlProbe:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def devices(self) -> Sequence[DeviceFacts]:
        return [
            DeviceFacts(
                kind=_KINDS[tuple(row["capability"])],
                index=row["index"],
                name=row["name"],
                uuid=row["uuid"],
                total_bytes=row["total"],
                measures=("gpu_time", "host_time"),
            )
            for row in query({"do": "list"})["devices"]
            if tuple(row["capability"]) in _KINDS
        ]

    def idle(self, device: DeviceFacts, baseline: int | None) -> IdleReport:
        settings = self._settings
        answer = query(
            {
                "do": "watch",
                "uuid": device.uuid,
                "samples": settings.idle_samples,
                "interval_s": settings.idle_interval_s,
            }
        )
        return judge_samples(answer["samples"], settings, baseline)


def judge_samples(
    samples: list[dict[str, Any]], settings: Settings, baseline: int | None
) -> IdleReport:
    """One report from some samples {used, total, processes: [{pid, command, used}]}, in bytes."""
    offenders = {
        process["pid"]: Offender(
            pid=process["pid"], command=process["command"], used_bytes=process["used"]
        )
        for sample in samples
        for process in sample["processes"]
        if process["used"] != 0
    }
    used = max(sample["used"] for sample in samples)
    limit = _limit(samples[0]["total"], settings, baseline)
    if offenders:
        why = "in use by " + "; ".join(_describe(o) for o in offenders.values())
    elif used > limit:
        why = f"{bytes_text(used)} in use that no process owns (limit {bytes_text(limit)})"
    else:
        why = ""
    return IdleReport(
        why=why,
        used_bytes=used,
        offenders=tuple(offenders.values()),
        dirty=bool(why) and not offenders,
    )


def _limit(total: int, settings: Settings, baseline: int | None) -> int:
    fraction = int(total * settings.idle_vram_fraction)
    recorded = 0 if baseline is None else baseline + settings.idle_vram_margin_bytes
    return max(fraction, recorded)


def _describe(offender: Offender) -> str:
    memory = "unknown memory" if offender.used_bytes is None else bytes_text(offender.used_bytes)
    return f"pid {offender.pid} ({offender.command}, {memory})"


def query(request: dict[str, Any]) -> dict[str, Any]:
    """Ask the helper process. Raises DeviceUnavailable with the driver's words."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", nvml_query.__file__],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=base_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceUnavailable(f"NVML did not answer within {_TIMEOUT_S:g} s") from error
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise DeviceUnavailable(f"the NVML helper failed: {done.stderr.strip()[-300:]}") from error
    if "error" in answer:
        raise DeviceUnavailable(answer["error"])
    return answer
