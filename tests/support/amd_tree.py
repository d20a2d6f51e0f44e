"""Builds the kernel's files of an AMD host, in the shapes that amdgpu gives them.

MI300X and MI355X hosts have eight cards; KFD's first topology nodes are the CPUs.
A partitioned card appears in the topology once for each partition, under one PCI
address; only the first has the card's own render node with memory figures.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
MIB = 1 << 20
IDLE_BYTES = 283 * MIB  # what an idle MI300X shows
HOST_PIDS = "pid:[4026531836]"


@dataclass(frozen=True, kw_only=True)
class Model:
    name: str
    version: int  # KFD's gfx_target_version
    total: int
    power_cap_w: int
    xccs: int = 8


MI300X = Model(name="AMD Instinct MI300X", version=90402, total=192 * GIB, power_cap_w=750)
MI355X = Model(name="AMD Instinct MI355X", version=90500, total=288 * GIB, power_cap_w=1400)


class AmdTree:
    """`root` holds sys, proc and dev."""

    def __init__(self, root: Path, model: Model, cards: int = 8, mode: str = "SPX") -> None:
        self.root = root
        self.model = model
        self._nodes = 0
        self.write("proc/self/.keep", "")
        os.makedirs(root / "proc/self/ns")
        os.symlink(HOST_PIDS, root / "proc/self/ns/pid")
        (root / "sys/class/kfd/kfd/proc").mkdir(parents=True)
        self.write("dev/kfd", "")
        for _socket in range(2):
            self._node("cpu_cores_count 64\nsimd_count 0\n", gpu_id=0, name="")
        for card in range(cards):
            self._card(card, mode)
            for part in range(model.xccs if mode == "CPX" else 1):
                self._gpu(card, part, mode)

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def card(self, card: int) -> str:
        return f"sys/bus/pci/devices/0000:{5 + 16 * card:02x}:00.0"

    def gpu_id(self, card: int, part: int = 0) -> int:
        return 10_000 + 100 * card + part

    def minor(self, card: int, part: int) -> int:
        return 128 + 8 * card + part

    def use(self, card: int, used: int) -> None:
        self.write(f"{self.card(card)}/mem_info_vram_used", f"{used}\n")

    def process(
        self, pid: int, command: str, vram: dict[int, int], *, alive: bool = True, queues: int = 0
    ) -> None:
        """`vram`: bytes by KFD's id of the GPU; KFD lists a process on every GPU."""
        folder = f"sys/class/kfd/kfd/proc/{pid}"
        self.write(f"{folder}/pasid", "32770\n")
        for gpu_id, used in vram.items():
            self.write(f"{folder}/vram_{gpu_id}", f"{used}\n")
            self.write(f"{folder}/sdma_{gpu_id}", "0\n")
        for number in range(queues):
            self.write(f"{folder}/queues/{number}/gpuid", f"{next(iter(vram))}\n")
        if alive:
            self.write(f"proc/{pid}/cmdline", command.replace(" ", "\0") + "\0")
            self.write(f"proc/{pid}/comm", command.split()[0] + "\n")

    def _node(self, properties: str, *, gpu_id: int, name: str) -> None:
        folder = f"sys/class/kfd/kfd/topology/nodes/{self._nodes}"
        self.write(f"{folder}/properties", properties)
        self.write(f"{folder}/gpu_id", f"{gpu_id}\n")
        self.write(f"{folder}/name", f"{name}\n")
        self._nodes += 1

    def _gpu(self, card: int, part: int, mode: str) -> None:
        minor = self.minor(card, part)
        self.write(f"dev/dri/renderD{minor}", "")
        properties = {
            "cpu_cores_count": 0,
            "simd_count": 1024 if mode == "SPX" else 128,
            "gfx_target_version": self.model.version,
            "vendor_id": 4098,
            "location_id": (5 + 16 * card) << 8 | part,
            "domain": 0,
            "drm_render_minor": minor,
            "unique_id": 0x9246AB0C1D2E3F00 + card,
            "num_xcc": self.model.xccs if mode == "SPX" else 1,
        }
        text = "".join(f"{name} {value}\n" for name, value in properties.items())
        self._node(text, gpu_id=self.gpu_id(card, part), name="gfx942")

    def _card(self, card: int, mode: str) -> None:
        folder = self.card(card)
        values = {
            "product_name": self.model.name,
            "mem_info_vram_total": self.model.total,
            "mem_info_vram_used": IDLE_BYTES,
            "gpu_busy_percent": 0,
            "current_compute_partition": mode,
            "current_memory_partition": "NPS1",
            "available_compute_partition": "SPX, DPX, QPX, CPX",
            "pp_dpm_sclk": "0: 500Mhz *\n1: 2400Mhz",
            "unique_id": f"{0x9246AB0C1D2E3F00 + card:016x}",
            "numa_node": card // 4,
            "local_cpulist": "0-63,128-191" if card < 4 else "64-127,192-255",
            "hwmon/hwmon3/power1_average": "N/A" if self.model is MI355X else 141_000_000,
            "hwmon/hwmon3/power1_input": 152_000_000,
            "hwmon/hwmon3/power1_cap": self.model.power_cap_w * 1_000_000,
            "hwmon/hwmon3/temp1_input": 41_000,
        }
        for name, value in values.items():
            self.write(f"{folder}/{name}", f"{value}\n")
