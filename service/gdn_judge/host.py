"""The settings of this host that move timings. Read, never changed.

Only what stays the same between two runs on one untouched host: figures of the
moment (clocks, power, load) belong to the timed windows, not to the fingerprint.
"""

from __future__ import annotations

from pathlib import Path

from gdn_judge.document import Scalar

_CPU = "sys/devices/system/cpu"
_FILES = {
    "cpu.governor": f"{_CPU}/cpu0/cpufreq/scaling_governor",
    "cpu.boost": f"{_CPU}/cpufreq/boost",
    "cpu.no_turbo": f"{_CPU}/intel_pstate/no_turbo",
    "cpu.smt": f"{_CPU}/smt/control",
    "numa.balancing": "proc/sys/kernel/numa_balancing",
    "numa.nodes": "sys/devices/system/node/online",
    "memory.huge_pages": "sys/kernel/mm/transparent_hugepage/enabled",
    "kernel.command_line": "proc/cmdline",
}
_LONGEST = 1000


def facts(root: Path = Path("/")) -> dict[str, Scalar]:
    """Flat facts; None where the kernel of this host does not say."""
    found: dict[str, Scalar] = {name: text(root / path) for name, path in _FILES.items()}
    huge = found["memory.huge_pages"]
    if isinstance(huge, str):  # "always [madvise] never"
        found["memory.huge_pages"] = huge.partition("[")[2].partition("]")[0] or huge
    found["cpu.model"] = _cpu_model(root)
    found["pinned.cpus"] = _line(root / "proc/self/status", "Cpus_allowed_list")
    found["pinned.memory_nodes"] = _line(root / "proc/self/status", "Mems_allowed_list")
    found["pinned.memory_policy"] = _memory_policy(root)
    return found


def _cpu_model(root: Path) -> str | None:
    return _line(root / "proc/cpuinfo", "model name")


def _memory_policy(root: Path) -> str | None:
    """ "bind:0" or "default": what the first mapping of this process is told of NUMA nodes."""
    words = (text(root / "proc/self/numa_maps", limit=200) or "").split()
    return words[1] if len(words) > 1 else None


def _line(path: Path, wanted: str) -> str | None:
    """The value of a line "name : value"."""
    for line in (text(path, limit=4000) or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == wanted:
            return value.strip()
    return None


def text(path: Path, limit: int = _LONGEST) -> str | None:
    """What the file says, stripped; None where it cannot be read or says nothing."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(limit).strip("\n\0 ") or None
    except OSError:
        return None
