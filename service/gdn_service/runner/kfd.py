"""AMD devices by the kernel's files, read in a short-lived process on the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gdn_judge.document import DeviceKind
from gdn_judge.wire import devices
from gdn_judge.wire.devices import Vendor
from gdn_service.errors import DeviceUnavailable
from gdn_service.runner import kfd_query
from gdn_service.runner.helper import ask
from gdn_service.runner.idle import IdleRule, decide
from gdn_service.runner.probe import DeviceFacts, IdleReport, Sample, Use, node_list
from gdn_service.settings import Settings


def kind_of(gfx: str) -> DeviceKind | None:
    """The device kind of an architecture as the kernel driver names it, or None."""
    return devices.named_by_driver(Vendor.AMD, gfx)


class KfdProbe:
    """`root` is where /sys, /proc and /dev are."""

    def __init__(self, settings: Settings, root: Path = Path("/")) -> None:
        self._settings = settings
        self._root = str(root)

    def devices(self) -> Sequence[DeviceFacts]:
        return [
            _facts(row, kind) for row in self.rows() if (kind := kind_of(row["gfx"])) is not None
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Every AMD GPU as the kernel shows it, of whatever kind."""
        found: list[dict[str, Any]] = self._ask({"do": "list"})["devices"]
        return found

    def idle(self, device: DeviceFacts, baseline: int | None) -> IdleReport:
        settings = self._settings
        samples = self.samples(device, settings.idle_samples, settings.idle_interval_s)
        return decide(samples, IdleRule.of(settings, settings.expected_partition), baseline)

    def look(self, device: DeviceFacts) -> Sample:
        (sample,) = self.samples(device, 1, 0)
        return sample

    def samples(self, device: DeviceFacts, count: int, interval_s: float) -> list[Sample]:
        request = {"do": "watch", "gpu_id": self.kernel_id(device)}
        answer = self._ask({**request, "samples": count, "interval_s": interval_s})
        return [_sample(row) for row in answer["samples"]]

    def kernel_id(self, device: DeviceFacts) -> int:
        """KFD's number of the GPU. Raises DeviceUnavailable where it is not there any more."""
        row = next((row for row in self.rows() if row["index"] == device.index), None)
        if row is None or (device.uuid is not None and row["uuid"] != device.uuid):
            raise DeviceUnavailable(f"the kernel shows no GPU {device.index} ({device.uuid})")
        return int(row["gpu_id"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return ask(kfd_query.__file__, {**request, "root": self._root}, "KFD")


def _facts(row: dict[str, Any], kind: DeviceKind) -> DeviceFacts:
    render_group, kfd_group = row["groups"]
    nodes = (("/dev/kfd", kfd_group), (row["render"], render_group))
    return DeviceFacts(
        kind=kind,
        index=row["index"],
        name=row["name"],
        uuid=row["uuid"],
        total_bytes=row["total"],
        measures=("gpu_time", "host_time"),
        nodes=tuple((node, group) for node, group in nodes if node and group is not None),
        cpus=row["cpus"],
        memory_nodes=node_list(row["numa_node"]),
    )


def _sample(row: dict[str, Any]) -> Sample:
    uses = tuple(
        Use(
            pid=process["pid"],
            command=process["command"],
            used=process["used"],
            queues=process["queues"],
            alive=process["alive"],
        )
        for process in row["processes"]
    )
    return Sample(
        used=row["used"],
        total=row["total"],
        uses=uses,
        partition=row["partition"],
        has_modes=row["has_modes"],
        busy=row["busy_percent"],
    )
