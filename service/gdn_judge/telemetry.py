"""Clocks, power and temperature of a device while something runs on it.

NVML through its C library, so that nothing needs to be installed; AMD through
the kernel's hwmon files. Settings are read, never changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from gdn_judge import host, settings
from gdn_judge.document import DeviceKind, Scalar
from gdn_judge.wire import devices
from gdn_judge.wire.devices import Vendor

_NVML = "libnvidia-ml.so.1"
_PERIOD_S = 0.02
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0


class Probe(Protocol):
    """Reads a device's state of the moment."""

    def sample(self) -> dict[str, float]: ...

    def facts(self) -> dict[str, Scalar]: ...


class NoProbe:
    """Where nothing can be read; windows then carry no clocks."""

    def sample(self) -> dict[str, float]:
        return {}

    def facts(self) -> dict[str, Scalar]:
        return {}


class NvmlProbe:
    """One NVIDIA device by its UUID. Raises OSError where library or device is missing.

    Never by an index: NVML counts all devices, CUDA those that are shown to the process.
    """

    def __init__(self, uuid: str) -> None:
        self._nvml = ctypes.CDLL(_NVML)
        self._check(self._nvml.nvmlInit_v2())
        self._device = ctypes.c_void_p()
        self._check(self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._device)))

    def sample(self) -> dict[str, float]:
        values = {
            "sm_mhz": self._read(self._nvml.nvmlDeviceGetClockInfo, ctypes.c_uint(_CLOCK_SM)),
            "memory_mhz": self._read(
                self._nvml.nvmlDeviceGetClockInfo, ctypes.c_uint(_CLOCK_MEMORY)
            ),
            "power_mw": self._read(self._nvml.nvmlDeviceGetPowerUsage),
            "temperature_c": self._read(
                self._nvml.nvmlDeviceGetTemperature, ctypes.c_uint(_TEMPERATURE_GPU)
            ),
        }
        return {name: float(value) for name, value in values.items() if value is not None}

    def facts(self) -> dict[str, Scalar]:
        return {
            "device.driver": self._text(self._nvml.nvmlSystemGetDriverVersion, whole_system=True),
            "device.uuid": self._text(self._nvml.nvmlDeviceGetUUID),
            "device.vbios": self._text(self._nvml.nvmlDeviceGetVbiosVersion),
            "device.persistence": self._read(self._nvml.nvmlDeviceGetPersistenceMode),
            "device.power_limit_mw": self._read(self._nvml.nvmlDeviceGetPowerManagementLimit),
        }

    def _read(self, function: ctypes._NamedFuncPointer, *arguments: ctypes.c_uint) -> int | None:
        value = ctypes.c_uint()
        failed = function(self._device, *arguments, ctypes.byref(value))
        return None if failed else int(value.value)

    def _text(self, function: ctypes._NamedFuncPointer, whole_system: bool = False) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        first = () if whole_system else (self._device,)
        failed = function(*first, buffer, ctypes.c_uint(len(buffer)))
        return None if failed else buffer.value.decode(errors="replace")

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise OSError(f"NVML answers {code}")


class HwmonProbe:
    """One AMD device by its hwmon files. `root` is /sys/class/drm/cardN/device/hwmon/hwmonM."""

    _FILES = (
        ("sm_mhz", "freq1_input", 1e-6),
        ("memory_mhz", "freq2_input", 1e-6),
        ("power_mw", "power1_average", 1e-3),
        ("power_mw", "power1_input", 1e-3),
        ("temperature_c", "temp1_input", 1e-3),
    )

    def __init__(self, root: Path) -> None:
        self.root = root

    def sample(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, file, factor in self._FILES:
            with contextlib.suppress(OSError, ValueError):
                found.setdefault(name, float((self.root / file).read_text()) * factor)
        return found

    def facts(self) -> dict[str, Scalar]:
        """What stays the same between runs; None where the driver does not say."""
        card = self.root.parent.parent
        cap = host.text(self.root / "power1_cap")
        return {
            "device.uuid": host.text(card / "unique_id"),
            "device.driver": host.text(Path("/sys/module/amdgpu/version")),
            "device.vbios": host.text(card / "vbios_version"),
            "device.compute_partition": host.text(card / "current_compute_partition"),
            "device.memory_partition": host.text(card / "current_memory_partition"),
            "device.performance_level": host.text(card / "power_dpm_force_performance_level"),
            "device.power_limit_mw": int(cap) // 1000 if cap and cap.isdigit() else None,
        }


def probe(
    kind: DeviceKind, index: int, sysfs: Path = Path("/sys/class/drm"), *, uuid: Scalar = None
) -> Probe:
    """The probe of a device, or NoProbe where it cannot be read.

    An NVIDIA device is found by `uuid`, as CUDA gives it; an AMD device by `index`
    among those that are shown.
    """
    vendor = devices.spec(kind).vendor
    if vendor is Vendor.NVIDIA and isinstance(uuid, str):
        with contextlib.suppress(OSError):
            return NvmlProbe(uuid)
    if vendor is Vendor.AMD:
        roots = sorted(sysfs.glob("card*/device/hwmon/hwmon*"), key=_card_number)
        shown = settings.shown_amd_device()
        if shown is not None:  # then the index counts what is shown, not what is there
            roots = [r for r in roots if host.text(r.parent.parent / "unique_id") == shown]
        if index < len(roots):
            return HwmonProbe(roots[index])
    return NoProbe()


def _card_number(root: Path) -> int:
    digits = root.parents[2].name.removeprefix("card")
    return int(digits) if digits.isdigit() else -1


class Window:
    """What a probe saw while a block ran."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []

    def summary(self) -> dict[str, Scalar]:
        """Median, lowest and highest of each quantity."""
        names = {name for sample in self.samples for name in sample}
        found: dict[str, Scalar] = {}
        for name in sorted(names):
            values = [sample[name] for sample in self.samples if name in sample]
            found |= {
                name: statistics.median(values),
                f"{name}.min": min(values),
                f"{name}.max": max(values),
            }
        return found


@contextlib.contextmanager
def watching(source: Probe) -> Iterator[Window]:
    """Sample `source` in a thread while the block runs."""
    window, stop = Window(), threading.Event()

    def loop() -> None:
        while True:
            if values := source.sample():
                window.samples.append(values)
            if stop.wait(_PERIOD_S):
                return

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield window
    finally:
        stop.set()
        thread.join(2)
