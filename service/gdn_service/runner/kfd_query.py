"""The short-lived process behind `kfd.py`: AMD devices by the kernel's own files.

    {"do": "list", "root": "/"}
        ->  {"devices": [{index, gpu_id, name, gfx, uuid, render, pci, ...}]}
    {"do": "watch", "root", "gpu_id", "samples", "interval_s"}
        ->  {"samples": [{used, total, partition, has_modes, busy_percent, processes: [...]}]}
    anything wrong  ->  {"error": "..."}

Read are KFD's topology (which GPUs, their render node), KFD's processes (who has
memory or queues on which GPU, by pids of the host) and the card's own folder.
amd-smi reads the same files. Sizes in bytes; null where a file is missing or "N/A".
Standard library only; run by path. `root` is where /sys, /proc and /dev are.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_HOST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of Linux
_NODES = "sys/class/kfd/kfd/topology/nodes"


class Absent(Exception):
    """There is no such device here, or no driver."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    root = Path(request["root"])
    try:
        if request["do"] == "list":
            return {"devices": devices(root)}
        return {"samples": _watch(root, request)}
    except (Absent, OSError) as error:
        return {"error": f"KFD: {error}"}


def devices(root: Path) -> list[dict[str, Any]]:
    """Every GPU of KFD's topology, in its order; a partition is one of them."""
    nodes = root / _NODES
    if not nodes.is_dir():
        raise Absent("the amdgpu driver's /sys/class/kfd is not there")
    rows: list[dict[str, Any]] = []
    for node in sorted(nodes.iterdir(), key=lambda path: int(path.name)):
        facts = _properties(node / "properties")
        if facts.get("simd_count", 0) > 0:
            rows.append(_device(root, node, facts, len(rows)))
    return rows


def _device(root: Path, node: Path, facts: dict[str, int], index: int) -> dict[str, Any]:
    card = _card(root, facts)
    minor = facts.get("drm_render_minor", 0)
    unique = facts.get("unique_id", 0)
    return {
        "index": index,
        "gpu_id": int(_text(node / "gpu_id") or 0),
        "name": _text(card / "product_name") or _text(node / "name") or "AMD GPU",
        "gfx": _gfx(facts.get("gfx_target_version", 0)),
        "uuid": f"GPU-{unique:016x}" if unique else None,
        "render": f"/dev/dri/renderD{minor}" if minor else None,
        "groups": [_group(root / f"dev/dri/renderD{minor}"), _group(root / "dev/kfd")],
        "pci": card.name,
        "total": _number(card / "mem_info_vram_total"),
        "cpus": _text(card / "local_cpulist") or "",
        "numa_node": _number(card / "numa_node"),
        "partition": _partition(card),
    }


def _gfx(version: int) -> str:
    """KFD's 90500 is gfx950, 90402 is gfx942: major, minor, stepping, the last in hex."""
    return f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"


def _card(root: Path, facts: dict[str, int]) -> Path:
    """The PCI folder. Partitions of one card differ in the function bits only."""
    location = facts.get("location_id", 0)
    bus, slot = location >> 8 & 0xFF, location >> 3 & 0x1F
    return root / f"sys/bus/pci/devices/{facts.get('domain', 0):04x}:{bus:02x}:{slot:02x}.0"


def _watch(root: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    samples = []
    for number in range(request["samples"]):
        if number:
            time.sleep(request["interval_s"])
        samples.append(sample(root, request["gpu_id"]))
    return samples


def sample(root: Path, gpu_id: int) -> dict[str, Any]:
    """One look at the GPU that KFD calls `gpu_id`."""
    for node in (root / _NODES).iterdir():
        if _text(node / "gpu_id") == str(gpu_id):
            facts = _properties(node / "properties")
            card = _card(root, facts)
            break
    else:
        raise Absent(f"there is no GPU {gpu_id} any more")
    return {
        "used": _number(card / "mem_info_vram_used"),
        "total": _number(card / "mem_info_vram_total"),
        "partition": _partition(card),
        "has_modes": _has_modes(card, facts),
        "memory_partition": _text(card / "current_memory_partition"),
        "busy_percent": _number(card / "gpu_busy_percent"),
        "sclk_mhz": _clock(card / "pp_dpm_sclk"),
        **_hwmon(card),
        "processes": _processes(root, gpu_id),
    }


def _hwmon(card: Path) -> dict[str, float | None]:
    found = sorted((card / "hwmon").glob("hwmon*"))
    folder = found[0] if found else card
    power = _number(folder / "power1_average") or _number(folder / "power1_input")
    cap, heat = _number(folder / "power1_cap"), _number(folder / "temp1_input")
    return {
        "power_w": None if power is None else power / 1e6,
        "power_cap_w": None if cap is None else cap / 1e6,
        "temperature_c": None if heat is None else heat / 1e3,
    }


def _processes(root: Path, gpu_id: int) -> list[dict[str, Any]]:
    """Who KFD lists. Whether one lives can be told only among the host's own pids."""
    folder = root / "sys/class/kfd/kfd/proc"
    host = _link(root / "proc/self/ns/pid") == _HOST_PID_NAMESPACE
    rows = []
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not entry.name.isdigit() or not entry.is_dir():
            continue
        process = root / "proc" / entry.name
        rows.append(
            {
                "pid": int(entry.name),
                "command": _command(process) if host else "unknown command",
                "used": _number(entry / f"vram_{gpu_id}") or 0,
                "queues": _queues(entry / "queues", gpu_id),
                "alive": process.exists() or not host,
            }
        )
    return rows


def _queues(folder: Path, gpu_id: int) -> int:
    """How many of its queues are on that GPU."""
    if not folder.is_dir():
        return 0
    return sum(_number(queue / "gpuid") == gpu_id for queue in folder.iterdir())


def _command(process: Path) -> str:
    words = " ".join((_text(process / "cmdline") or "").replace("\0", " ").split())
    return words[:120] or _text(process / "comm") or "unknown command"


def _partition(card: Path) -> str | None:
    text = _text(card / "current_compute_partition")
    return None if text in (None, "", "N/A") else text


def _has_modes(card: Path, facts: dict[str, int]) -> bool:
    """A card of several XCCs can be split; amdgpu makes the file on every card that can."""
    return facts.get("num_xcc", 0) > 1 or (card / "current_compute_partition").exists()


def _clock(path: Path) -> int | None:
    """The line of the level in use ends with a star: "1: 2400Mhz *"."""
    for line in (_text(path) or "").splitlines():
        if line.rstrip().endswith("*"):
            digits = line.partition(":")[2].lower().partition("mhz")[0].strip()
            return int(digits) if digits.isdigit() else None
    return None


def _properties(path: Path) -> dict[str, int]:
    found = {}
    for line in (_text(path) or "").splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[name] = int(value)
    return found


def _number(path: Path) -> int | None:
    try:
        return int(_text(path) or "")
    except ValueError:  # missing, empty or "N/A"
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\n\0 ")
    except OSError:  # the file, or the process, is not there
        return None


def _link(path: Path) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _group(path: Path) -> int | None:
    try:
        return path.stat().st_gid
    except OSError:
        return None


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
