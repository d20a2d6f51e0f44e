"""AMD's Python library as of ROCm 7, for the seam where it is asked: one card in `CARD`.

Forms and units as its own: "N/A" where it knows nothing, bytes of memory, W of power,
millionths of a W of the cap, an exception for what is not supported.
"""

from __future__ import annotations

import enum
from typing import Any

CARD: dict[str, Any] = {}


class AmdSmiException(Exception): ...


class AmdSmiLibraryException(AmdSmiException): ...


class AmdSmiMemoryType(enum.IntEnum):
    VRAM = 0


class AmdSmiClkType(enum.IntEnum):
    GFX = 1


class AmdSmiTemperatureType(enum.IntEnum):
    HOTSPOT = 1


class AmdSmiTemperatureMetric(enum.IntEnum):
    CURRENT = 0


def amdsmi_init() -> None:
    if "broken" in CARD:
        raise AmdSmiLibraryException(f"Error code:\n\t{CARD['broken']}")


def amdsmi_shut_down() -> None:
    CARD["shut_down"] = CARD.get("shut_down", 0) + 1


def amdsmi_get_processor_handles() -> list[str]:
    return ["other", "card"]


def amdsmi_get_gpu_kfd_info(handle: str) -> dict[str, Any]:
    return {"kfd_id": CARD["kfd_id"] if handle == "card" else "N/A", "node_id": 2}


def amdsmi_get_gpu_asic_info(handle: str) -> dict[str, Any]:
    return {"asic_serial": CARD["serial"], "market_name": "AMD Instinct MI355X"}


def amdsmi_get_gpu_memory_usage(handle: str, kind: AmdSmiMemoryType) -> int:
    return int(_supported("used"))


def amdsmi_get_gpu_memory_total(handle: str, kind: AmdSmiMemoryType) -> int:
    return int(_supported("total"))


def amdsmi_get_gpu_compute_partition(handle: str) -> str:
    return str(_supported("partition"))


def amdsmi_get_gpu_memory_partition(handle: str) -> str:
    return "NPS1"


def amdsmi_get_gpu_activity(handle: str) -> dict[str, Any]:
    return {"gfx_activity": CARD.get("busy", 0), "umc_activity": "N/A", "mm_activity": "N/A"}


def amdsmi_get_clock_info(handle: str, kind: AmdSmiClkType) -> dict[str, Any]:
    return {"clk": CARD.get("clock", "N/A"), "min_clk": 500, "max_clk": 2400}


def amdsmi_get_power_info(handle: str) -> dict[str, Any]:
    return {
        "current_socket_power": CARD.get("power", "N/A"),
        "average_socket_power": CARD.get("average_power", "N/A"),
        "power_limit": 1400,
    }


def amdsmi_get_power_cap_info(handle: str) -> dict[str, Any]:
    return {"power_cap": 1_400_000_000}


def amdsmi_get_temp_metric(
    handle: str, kind: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric
) -> int:
    return int(_supported("temperature"))


def amdsmi_get_gpu_process_list(handle: str) -> list[dict[str, Any]]:
    return [
        {"pid": pid, "name": name, "mem": 0, "memory_usage": {"vram_mem": used, "gtt_mem": 0}}
        for pid, name, used in CARD.get("processes", ())
    ]


def _supported(name: str) -> Any:
    if name not in CARD:
        raise AmdSmiLibraryException("Error code:\n\t2 | AMDSMI_STATUS_NOT_SUPPORTED")
    return CARD[name]
