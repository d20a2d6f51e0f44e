"""The short-lived process behind `amd.py`: one AMD device as AMD's own library sees it.

    {"kfd_id", "samples", "interval_s"}
        ->  {"samples": [{uuid, used, total, partition, busy_percent, processes: [...], ...}]}
    no library on this host  ->  {"absent": "..."}
    anything wrong           ->  {"error": "..."}

`kfd_id` is the kernel's number of the GPU, the same in KFD's files. Fields and units as in
kfd_query; null where the library says "N/A" or that it is not supported. Run by path.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        import amdsmi
    except (ImportError, KeyError, OSError) as error:  # without its C library: a KeyError
        return {"absent": f"amdsmi cannot be imported: {error}"}
    try:
        amdsmi.amdsmi_init()
        try:
            return {"samples": _watch(amdsmi, request)}
        finally:
            amdsmi.amdsmi_shut_down()
    except amdsmi.AmdSmiException as error:
        return {"error": f"amdsmi: {' '.join(str(error).split())}"}


def _watch(smi: Any, request: dict[str, Any]) -> list[dict[str, Any]]:
    handle = _handle(smi, request["kfd_id"])
    samples = []
    for number in range(request["samples"]):
        if number:
            time.sleep(request["interval_s"])
        samples.append(_sample(smi, handle))
    return samples


def _handle(smi: Any, kfd_id: int) -> Any:
    for handle in smi.amdsmi_get_processor_handles():
        if smi.amdsmi_get_gpu_kfd_info(handle)["kfd_id"] == kfd_id:
            return handle
    raise smi.AmdSmiException(f"it shows no GPU that the kernel calls {kfd_id}")


def _sample(smi: Any, handle: Any) -> dict[str, Any]:
    def told(call: Callable[..., Any], *arguments: Any) -> Any:
        return _told(smi, call, handle, *arguments)

    vram = smi.AmdSmiMemoryType.VRAM
    serial = _field(told(smi.amdsmi_get_gpu_asic_info), "asic_serial")
    power = told(smi.amdsmi_get_power_info)
    cap = _field(told(smi.amdsmi_get_power_cap_info), "power_cap")
    heat = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
    return {
        "uuid": None if serial is None else f"GPU-{int(serial, 16):016x}",
        "used": told(smi.amdsmi_get_gpu_memory_usage, vram),
        "total": told(smi.amdsmi_get_gpu_memory_total, vram),
        "partition": told(smi.amdsmi_get_gpu_compute_partition) or None,
        "memory_partition": told(smi.amdsmi_get_gpu_memory_partition) or None,
        "busy_percent": _field(told(smi.amdsmi_get_gpu_activity), "gfx_activity"),
        "sclk_mhz": _field(told(smi.amdsmi_get_clock_info, smi.AmdSmiClkType.GFX), "clk"),
        "power_w": _first(power, "current_socket_power", "average_socket_power"),
        "power_cap_w": None if cap is None else cap / 1e6,
        "temperature_c": told(smi.amdsmi_get_temp_metric, *heat),
        "processes": [
            _process(process)
            for process in smi.amdsmi_get_gpu_process_list(handle)
            if process["pid"] != os.getpid()  # it lists the process that asks
        ],
    }


def _process(process: dict[str, Any]) -> dict[str, Any]:
    name = process["name"]
    return {
        "pid": process["pid"],
        "command": _command(process["pid"]) or (name if name != "N/A" else "unknown command"),
        "used": _field(process["memory_usage"], "vram_mem"),
    }


def _command(pid: int) -> str:
    """What the host shows for the pid: with its arguments, where the library has a name only."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().replace(b"\0", b" ").decode("utf-8", "replace").split()
    except OSError:
        return ""
    return " ".join(words)[:120]


def _told(smi: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer; None for "N/A" and for what this card or driver does not support."""
    try:
        found = call(*arguments)
    except smi.AmdSmiLibraryException:
        return None
    return None if found == "N/A" else found


def _field(values: dict[str, Any] | None, name: str) -> Any:
    found = None if values is None else values.get(name)
    return None if found == "N/A" else found


def _first(values: dict[str, Any] | None, *names: str) -> Any:
    """MI300 and later tell the power of the moment, older cards an average."""
    found = (_field(values, name) for name in names)
    return next((value for value in found if value is not None), None)


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # the library prints where it finds its parts
        found = answer(json.load(sys.stdin))
    print(json.dumps(found))
