"""The short-lived process behind `nvml.py`: one JSON request on stdin, one answer on stdout.

    {"do": "list"}  ->  {"devices": [{index, uuid, name, total, capability, ...}]}
    {"do": "watch", "uuid", "samples", "interval_s"}
        ->  {"samples": [{used, total, busy, processes: [{pid, command, used}]}]}
    anything wrong  ->  {"error": "..."}

Sizes in bytes, `busy` in percent of the last moment; `used` of a process and `busy` are
null where the driver does not say.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

PCI = Path("/sys/bus/pci/devices")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        import pynvml
    except ImportError:
        return {"error": "the package nvidia-ml-py is not installed"}
    try:
        pynvml.nvmlInit()
        if request["do"] == "list":
            return {"devices": _list(pynvml)}
        return {"samples": _watch(pynvml, request)}
    except pynvml.NVMLError as error:
        return {"error": f"NVML: {error}"}


def _list(nvml: Any) -> list[dict[str, Any]]:
    rows = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        card = _card(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        rows.append(
            {
                "index": index,
                "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
                "name": _text(nvml.nvmlDeviceGetName(handle)),
                "total": nvml.nvmlDeviceGetMemoryInfo(handle).total,
                "capability": list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
                "cpus": _read(card / "local_cpulist") or "",
                "numa_node": _number(card / "numa_node"),
            }
        )
    return rows


def _card(bus_id: str) -> Path:
    """The kernel's folder of a PCI device; NVML has eight digits of the domain, the kernel four."""
    return PCI / bus_id.lower()[-12:]


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    try:
        return int(_read(path) or "")
    except ValueError:  # not there, or empty
        return None


def _watch(nvml: Any, request: dict[str, Any]) -> list[dict[str, Any]]:
    handle = nvml.nvmlDeviceGetHandleByUUID(request["uuid"])
    samples = []
    for number in range(request["samples"]):
        if number:
            time.sleep(request["interval_s"])
        samples.append(_sample(nvml, handle))
    return samples


def _sample(nvml: Any, handle: Any) -> dict[str, Any]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    running = [
        *nvml.nvmlDeviceGetComputeRunningProcesses(handle),
        *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
    ]
    return {
        "used": memory.used,
        "total": memory.total,
        "busy": _busy(nvml, handle),
        "processes": [
            {"pid": p.pid, "command": _command(p.pid), "used": p.usedGpuMemory}
            for p in {p.pid: p for p in running}.values()
        ],
    }


def _busy(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except nvml.NVMLError:  # not supported, for instance under MIG
        return None


def _command(pid: int) -> str:
    """What the host shows for the pid; one from another pid namespace may be invisible."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = " ".join(file.read().replace(b"\0", b" ").decode("utf-8", "replace").split())
    except OSError:
        words = ""
    return words[:120] or "unknown command"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
