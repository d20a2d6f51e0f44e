"""The table of device kinds: all that a kind is, in one row.

A new kind is a row here, a probe where its vendor has none yet, and a test. What else asks
about devices reads it from the row; nothing outside names a kind to decide by it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from gdn_judge.wire.names import Name


class Vendor(enum.StrEnum):
    NVIDIA = "NVIDIA"
    AMD = "AMD"


class Runs(enum.StrEnum):
    """How a kind runs an op."""

    ON_A_GPU = "on a GPU, through torch"
    EMULATED = "by executing the GPU's code object on the CPU"
    INTERPRETED = "by Triton's interpreter on the CPU"


class DeviceKind(Name):
    """What a job asks for; a row of DEVICES."""


@dataclass(frozen=True, kw_only=True)
class DeviceSpec:
    """One kind of device.

    architecture: what compilers call it ("sm90"); archs: those whose code the codeobject suite
    compiles for it. cache: bytes of the last level where the device does not tell; peak:
    datasheet bandwidth in bytes per second; both 0 on a CPU. driver_name: the architecture as
    the vendor's probe reports it. measures: what its figures of speed are, where there is no
    time. title: what a CPU kind is called; note: what its results do not show. Rows stand
    best first: that is the order in which a job that names no kind gets one.
    """

    kind: DeviceKind
    runs: Runs
    architecture: str
    archs: tuple[str, ...]
    vendor: Vendor | None = None
    driver_name: str = ""
    cache: int = 0
    peak: float = 0.0
    title: str = ""
    measures: tuple[str, ...] = ()
    note: str = ""

    @property
    def on_cpu(self) -> bool:
        return self.runs is not Runs.ON_A_GPU

    @property
    def event_timers(self) -> bool:
        """Whether it has a clock of its own, so that it can be timed."""
        return self.runs is Runs.ON_A_GPU

    @property
    def emulated(self) -> bool:
        return self.runs is Runs.EMULATED

    @property
    def interpreted(self) -> bool:
        return self.runs is Runs.INTERPRETED

    def torch_device(self, index: int) -> str:
        """What the candidate's process takes for its device."""
        if self.emulated:
            return str(self.kind)
        return "cpu" if self.on_cpu else f"cuda:{index}"


DEVICES: dict[DeviceKind, DeviceSpec] = {}


def add(row: DeviceSpec) -> DeviceKind:
    """Add a row, at the end: `add(DeviceSpec(kind=DeviceKind.add("gfx942"), ...))`."""
    DEVICES[row.kind] = row
    return row.kind


def remove(kind: DeviceKind) -> None:
    """Take a row out again, for tests."""
    del DEVICES[kind]
    DeviceKind.remove(kind)


def spec(kind: DeviceKind) -> DeviceSpec:
    return DEVICES[kind]


def of_vendor(vendor: Vendor) -> list[DeviceSpec]:
    return [row for row in DEVICES.values() if row.vendor is vendor]


def on_cpu() -> list[DeviceKind]:
    return [kind for kind, row in DEVICES.items() if row.on_cpu]


def named_by_driver(vendor: Vendor, name: str) -> DeviceKind | None:
    """The kind whose architecture the vendor's driver reports as `name`, or None."""
    return next((row.kind for row in of_vendor(vendor) if row.driver_name == name), None)


def best(kinds: Iterable[DeviceKind]) -> list[DeviceKind]:
    """`kinds`, best first."""
    wanted = set(kinds)
    return [kind for kind in DEVICES if kind in wanted]


add(
    DeviceSpec(
        kind=DeviceKind.add("gfx950"),
        runs=Runs.ON_A_GPU,
        architecture="gfx950",
        archs=("gfx950",),
        vendor=Vendor.AMD,
        driver_name="gfx950",
        cache=256 << 20,  # Infinity Cache of the MI355X, its CDNA4 white paper
        peak=8.0e12,
    )
)
add(
    DeviceSpec(
        kind=DeviceKind.add("sm90"),
        runs=Runs.ON_A_GPU,
        architecture="sm90",
        archs=("sm90",),
        vendor=Vendor.NVIDIA,
        driver_name="9.0",
        cache=50 << 20,  # L2 of the H200, its datasheet
        peak=4.8e12,
    )
)
add(
    DeviceSpec(
        kind=DeviceKind.add("gfx950-emulated"),
        runs=Runs.EMULATED,
        architecture="gfx950",
        archs=("gfx950", "sm90"),  # compiling needs no device
        title="gfx950 emulated on the CPU",
        measures=("emulated_traffic",),
    )
)
add(
    DeviceSpec(
        kind=DeviceKind.add("interpreter"),
        runs=Runs.INTERPRETED,
        architecture="interpreter",
        archs=("gfx950", "sm90"),
        title="Triton interpreter on the CPU",
        measures=("wall_time",),
        note=(
            "Triton's interpreter on a CPU: a smoke test of the kernel's logic. It shows nothing "
            "about compiled code, races between programs, or speed."
        ),
    )
)
