from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gdn_judge import telemetry
from gdn_judge.document import DeviceKind, MeasurementKind
from gdn_judge.samples import measurement


def hwmon(root: Path, card: int, **files: str) -> None:
    folder = root / f"card{card}" / "device" / "hwmon" / f"hwmon{card}"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_an_amd_device_is_read_by_its_files(tmp_path: Path) -> None:
    hwmon(tmp_path, 0, freq1_input="132000000\n")
    hwmon(
        tmp_path,
        1,
        freq1_input="2400000000\n",
        freq2_input="2000000000\n",
        power1_input="981000000\n",
        temp1_input="61000\n",
    )
    probe = telemetry.probe(DeviceKind.GFX950, 1, sysfs=tmp_path)
    assert probe.sample() == {
        "sm_mhz": 2400.0,
        "memory_mhz": 2000.0,
        "power_mw": 981000.0,
        "temperature_c": 61.0,
    }


def test_files_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    hwmon(tmp_path, 0, freq1_input="N/A\n", temp1_input="40000\n")
    assert telemetry.probe(DeviceKind.GFX950, 0, sysfs=tmp_path).sample() == {"temperature_c": 40.0}


def test_no_device_is_no_probe(tmp_path: Path) -> None:
    assert telemetry.probe(DeviceKind.GFX950, 0, sysfs=tmp_path).sample() == {}
    assert telemetry.probe(DeviceKind.INTERPRETER, 0).facts() == {}


class Nvml:
    """Two cards; the second is the one at 1980 MHz. Counts as NVML does, not as CUDA."""

    UUIDS = (b"GPU-first", b"GPU-second")

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        if uuid not in self.UUIDS:
            return 6  # NVML_ERROR_NOT_FOUND
        handle._obj.value = 100 + self.UUIDS.index(uuid)
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, _clock: Any, value: Any) -> int:
        value._obj.value = {100: 345, 101: 1980}[handle.value]
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:
        return 3  # NVML_ERROR_NOT_SUPPORTED

    def nvmlDeviceGetTemperature(self, handle: Any, _sensor: Any, value: Any) -> int:
        return 3


def test_an_nvidia_device_is_found_by_its_uuid_whatever_its_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The judge is shown one device, so its index is 0 there and another one in NVML."""
    monkeypatch.setattr(telemetry.ctypes, "CDLL", lambda name: Nvml())
    probe = telemetry.probe(DeviceKind.SM90, 0, uuid="GPU-second")
    assert probe.sample() == {"sm_mhz": 1980.0, "memory_mhz": 1980.0}
    for unknown in ("GPU-third", None):
        found = telemetry.probe(DeviceKind.SM90, 0, uuid=unknown)
        assert isinstance(found, telemetry.NoProbe)


def test_a_window_is_summed_up() -> None:
    class Source(telemetry.NoProbe):
        def __init__(self) -> None:
            self.values = iter([100.0, 300.0, 200.0])

        def sample(self) -> dict[str, float]:
            value = next(self.values, None)
            return {} if value is None else {"power_mw": value}

    with telemetry.watching(Source()) as window:
        while len(window.samples) < 3:
            pass
    assert window.summary() == {
        "power_mw": 200.0,
        "power_mw.min": 100.0,
        "power_mw.max": 300.0,
    }


def test_a_measurement_keeps_samples_and_derives_the_rest() -> None:
    made = measurement(
        "fused",
        MeasurementKind.GPU_TIME,
        [1.0, 2.0, 3.0],
        bytes_moved=4_000_000,
        peak=8e12,
        rmw_ceiling=4e12,
    )
    assert made.samples == [1.0, 2.0, 3.0]
    assert (made.median, made.p10, made.p90) == (2.0, pytest.approx(1.2), pytest.approx(2.8))
    assert made.tb_per_s == pytest.approx(2.0)
    assert made.percent_of_peak == pytest.approx(25.0)
    assert made.percent_of_rmw_ceiling == pytest.approx(50.0)


def test_what_cannot_be_had_is_none() -> None:
    made = measurement("host_call", MeasurementKind.HOST_TIME, [5.0])
    assert made.tb_per_s is made.percent_of_peak is made.percent_of_rmw_ceiling is None
    assert (made.median, made.p10, made.p90) == (5.0, 5.0, 5.0)


@pytest.mark.parametrize("samples", [[], [float("nan")], [1.0, 0.0], [float("inf"), 1.0], [-1.0]])
def test_no_usable_sample_is_an_error(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="samples are missing, not finite or not positive"):
        measurement("fused", MeasurementKind.GPU_TIME, samples)
