"""NVIDIA devices through NVML, asked in a short-lived process on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gdn_judge.document import DeviceKind
from gdn_judge.wire import devices
from gdn_judge.wire.devices import Vendor
from gdn_service.runner import nvml_query
from gdn_service.runner.helper import ask
from gdn_service.runner.idle import IdleRule, decide
from gdn_service.runner.probe import DeviceFacts, IdleReport, Sample, Use, node_list
from gdn_service.settings import Settings


def kind_of(capability: Sequence[int]) -> DeviceKind | None:
    """The device kind of a compute capability, (major, minor), or None."""
    return devices.named_by_driver(Vendor.NVIDIA, ".".join(map(str, capability)))


class NvmlProbe:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def devices(self) -> Sequence[DeviceFacts]:
        return [
            DeviceFacts(
                kind=kind,
                index=row["index"],
                name=row["name"],
                uuid=row["uuid"],
                total_bytes=row["total"],
                measures=("gpu_time", "host_time"),
                cpus=row["cpus"],
                memory_nodes=node_list(row["numa_node"]),
            )
            for row in query({"do": "list"})["devices"]
            if (kind := kind_of(row["capability"])) is not None
        ]

    def idle(self, device: DeviceFacts, baseline: int | None) -> IdleReport:
        settings = self._settings
        rows = self._watch(device, settings.idle_samples, settings.idle_interval_s)
        return judge_samples(rows, settings, baseline)

    def look(self, device: DeviceFacts) -> Sample:
        (row,) = self._watch(device, 1, 0)
        return _sample(row)

    def _watch(self, device: DeviceFacts, samples: int, interval_s: float) -> list[dict[str, Any]]:
        request = {"do": "watch", "uuid": device.uuid}
        answer = query({**request, "samples": samples, "interval_s": interval_s})
        rows: list[dict[str, Any]] = answer["samples"]
        return rows


def judge_samples(
    samples: list[dict[str, Any]], settings: Settings, baseline: int | None
) -> IdleReport:
    """One report from some samples as nvml_query gives them."""
    return decide([_sample(row) for row in samples], IdleRule.of(settings), baseline)


def _sample(row: dict[str, Any]) -> Sample:
    uses = tuple(
        Use(pid=process["pid"], command=process["command"], used=process["used"])
        for process in row["processes"]
    )
    return Sample(used=row["used"], total=row["total"], uses=uses, busy=row["busy"])


def query(request: dict[str, Any]) -> dict[str, Any]:
    """Ask the helper process. Raises DeviceUnavailable with the driver's words."""
    return ask(nvml_query.__file__, request, "NVML")
