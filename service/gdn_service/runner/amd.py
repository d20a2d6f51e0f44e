"""AMD devices by two witnesses: the kernel's files, and amdsmi where it can be imported.

The kernel's files say which devices there are. Whether one is idle both are asked; either
can refuse, and where they contradict each other the report says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gdn_service.errors import DeviceUnavailable
from gdn_service.runner import amdsmi_query
from gdn_service.runner.helper import ask
from gdn_service.runner.idle import IdleRule, decide
from gdn_service.runner.kfd import KfdProbe
from gdn_service.runner.probe import DeviceFacts, IdleReport, Sample, Use, bytes_text
from gdn_service.settings import Settings

_SAME_BYTES = 64 << 20  # two looks a moment apart may differ by so much, or by
_SAME_PART = 0.01  # this part of the card

Answer = dict[str, Any]


def ask_amdsmi(request: Answer) -> Answer:
    """Ask the helper process. Raises DeviceUnavailable with the library's words."""
    return ask(amdsmi_query.__file__, request, "amdsmi")


class AmdProbe:
    """`root` is where /sys, /proc and /dev are; `smi` answers as amdsmi_query does."""

    def __init__(
        self,
        settings: Settings,
        root: Path = Path("/"),
        smi: Callable[[Answer], Answer] = ask_amdsmi,
    ) -> None:
        self._settings = settings
        self._kernel = KfdProbe(settings, root)
        self._smi = smi

    def devices(self) -> Sequence[DeviceFacts]:
        return self._kernel.devices()

    def idle(self, device: DeviceFacts, baseline: int | None) -> IdleReport:
        settings = self._settings
        samples = self._kernel.samples(device, settings.idle_samples, settings.idle_interval_s)
        rule = IdleRule.of(settings, settings.expected_partition)
        try:
            second = self._second(device, samples[-1])
        except DeviceUnavailable as error:
            report = decide(samples, rule, baseline)
            return dataclasses.replace(report, notes=(f"amdsmi cannot tell: {error}",))
        if second is None:
            return decide(samples, rule, baseline)
        seen, notes = second
        report = decide([seen, *samples], rule, baseline)
        return dataclasses.replace(report, notes=notes)

    def look(self, device: DeviceFacts) -> Sample:
        """By the kernel's files alone, which cost less: this is asked during a run."""
        return self._kernel.look(device)

    def _second(
        self, device: DeviceFacts, by_kernel: Sample
    ) -> tuple[Sample, tuple[str, ...]] | None:
        """amdsmi's look and where it differs from the kernel's; None without amdsmi here."""
        request = {"kfd_id": self._kernel.kernel_id(device), "samples": 1, "interval_s": 0}
        answer = self._smi(request)
        if "absent" in answer:
            return None
        if "error" in answer:
            raise DeviceUnavailable(answer["error"])
        (row,) = answer["samples"]
        by_smi = _sample(row, by_kernel)
        notes = (*disagreements(by_kernel, by_smi), *_untold(row, by_smi))
        if device.uuid is not None and row["uuid"] not in (None, device.uuid):
            notes = (f"amdsmi calls it {row['uuid']}, the kernel {device.uuid}", *notes)
        return _filled(by_smi, by_kernel), notes


def disagreements(by_kernel: Sample, by_smi: Sample) -> tuple[str, ...]:
    """Where two looks contradict each other; what one does not tell contradicts nothing."""
    found = []
    a, b, total = by_kernel.used, by_smi.used, by_kernel.total or by_smi.total or 0
    if a is not None and b is not None and abs(a - b) > max(_SAME_BYTES, int(total * _SAME_PART)):
        found.append(f"amdsmi sees {bytes_text(b)} in use, the kernel's files show {bytes_text(a)}")
    modes = by_kernel.partition, by_smi.partition
    if None not in modes and modes[0] != modes[1]:
        found.append(f"amdsmi says partition mode {modes[1]}, the kernel's files {modes[0]}")
    kernel, smi = (_pids(sample) for sample in (by_kernel, by_smi))
    found += [f"only amdsmi sees pid {pid}" for pid in sorted(smi - kernel)]
    found += [f"only the kernel's files show pid {pid}" for pid in sorted(kernel - smi)]
    return tuple(found)


def _pids(sample: Sample) -> set[int]:
    return {use.pid for use in sample.uses if use.counts}


def _sample(row: Answer, by_kernel: Sample) -> Sample:
    known = {use.pid: use for use in by_kernel.uses}
    return Sample(
        used=row["used"],
        total=row["total"],
        uses=tuple(_use(process, known.get(process["pid"])) for process in row["processes"]),
        partition=row["partition"],
        busy=row["busy_percent"],
    )


def _use(process: Answer, by_kernel: Use | None) -> Use:
    """Whether it lives, and its memory where amdsmi says "N/A", the kernel's files know.

    amdsmi lists a pid from those files, the dead among them; whom they show without
    memory, or not at all, only holds the driver open.
    """
    used = process["used"]
    if used is None:
        used = by_kernel.used if by_kernel is not None else 0
    alive = by_kernel is None or by_kernel.alive
    return Use(pid=process["pid"], command=process["command"], used=used, alive=alive)


def _untold(row: Answer, seen: Sample) -> list[str]:
    """Whose memory amdsmi does not tell, and that for this reason they do not count."""
    told = {process["pid"] for process in row["processes"] if process["used"] is not None}
    return [
        f"amdsmi does not tell the memory of pid {use.pid} ({use.command}), "
        "the kernel's files show none"
        for use in seen.uses
        if use.pid not in told and use.used == 0
    ]


def _filled(sample: Sample, other: Sample) -> Sample:
    """`sample` with what it does not tell taken from `other`."""
    return dataclasses.replace(
        sample,
        used=other.used if sample.used is None else sample.used,
        total=other.total if sample.total is None else sample.total,
        partition=other.partition if sample.partition is None else sample.partition,
        has_modes=other.has_modes,
    )
