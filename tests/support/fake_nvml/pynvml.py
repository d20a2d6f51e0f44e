"""A driver with two cards, for the seam where NVML is asked. State lies beside this file.

    devices.json          [{uuid, name, total, capability}]
    processes/<pid>.json  {uuid, used}: a living process with `used` bytes on a card

As with the real one, a process is gone from the list when it has died.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

STATE = Path(__file__).parent
RESERVED = 600 << 20  # bytes that the driver itself has in use
nvmlMemory_v2 = 2


class NVMLError(Exception): ...


def nvmlInit() -> None: ...


def nvmlShutdown() -> None: ...


def nvmlSystemGetDriverVersion() -> str:
    return "fake"


def devices() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((STATE / "devices.json").read_text())
    return found


def nvmlDeviceGetCount() -> int:
    return len(devices())


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    return devices()[index] | {"index": index}


def nvmlDeviceGetHandleByUUID(uuid: str) -> dict[str, Any]:
    for device in devices():
        if device["uuid"] == uuid:
            return device
    raise NVMLError("Not Found")


def nvmlDeviceGetUUID(handle: dict[str, Any]) -> str:
    return str(handle["uuid"])


def nvmlDeviceGetName(handle: dict[str, Any]) -> str:
    return str(handle["name"])


def nvmlDeviceGetCudaComputeCapability(handle: dict[str, Any]) -> tuple[int, int]:
    major, minor = handle["capability"]
    return major, minor


def nvmlDeviceGetPciInfo(handle: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(busId=handle.get("bus", "00000000:00:00.0"))


def nvmlDeviceGetUtilizationRates(handle: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(gpu=0, memory=0)


def nvmlDeviceGetMemoryInfo(handle: dict[str, Any], version: int = 1) -> SimpleNamespace:
    used = RESERVED + sum(p.usedGpuMemory for p in _running(handle))
    return SimpleNamespace(used=used, total=handle["total"])


def nvmlDeviceGetComputeRunningProcesses(handle: dict[str, Any]) -> list[SimpleNamespace]:
    return _running(handle)


def nvmlDeviceGetGraphicsRunningProcesses(handle: dict[str, Any]) -> list[SimpleNamespace]:
    return []


def hold(uuid: str, used: int) -> None:
    """This process takes memory on a card, until it dies."""
    path = STATE / "processes" / f"{os.getpid()}.json"
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps({"uuid": uuid, "used": used}))
    partial.rename(path)


def _running(handle: dict[str, Any]) -> list[SimpleNamespace]:
    found = []
    for path in (STATE / "processes").glob("*.json"):
        process = json.loads(path.read_text())
        if process["uuid"] == handle["uuid"] and _alive(int(path.stem)):
            found.append(SimpleNamespace(pid=int(path.stem), usedGpuMemory=process["used"]))
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
