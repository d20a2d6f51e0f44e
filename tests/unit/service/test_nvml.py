from __future__ import annotations

from typing import Any

import pytest

from gdn_service.errors import DeviceUnavailable
from gdn_service.runner import nvml_query
from gdn_service.runner.nvml import judge_samples, query
from gdn_service.settings import Settings

GIB = 2**30
TOTAL = 141 * GIB
SETTINGS = Settings()


def sample(used: int, *processes: tuple[int, str, int | None]) -> dict[str, Any]:
    return {
        "used": used,
        "total": TOTAL,
        "busy": 0,
        "processes": [{"pid": p, "command": c, "used": u} for p, c, u in processes],
    }


def test_an_idle_card_with_little_memory_in_use_is_idle() -> None:
    report = judge_samples([sample(283 * 2**20)] * 3, SETTINGS, None)
    assert report.idle
    assert report.used_bytes == 283 * 2**20


def test_a_holder_at_zero_utilisation_is_named() -> None:
    samples = [sample(10 * GIB, (4242, "python serve.py", 10 * GIB))] * 3
    report = judge_samples(samples, SETTINGS, None)
    assert report.why == "in use by pid 4242 (python serve.py, 10.0 GiB)"
    assert not report.dirty


def test_one_sample_of_three_is_enough() -> None:
    samples = [sample(0), sample(GIB, (7, "late", 500 * 2**20)), sample(0)]
    assert "pid 7 (late, 500 MiB)" in judge_samples(samples, SETTINGS, None).why


def test_memory_that_the_driver_does_not_tell_is_not_idle() -> None:
    report = judge_samples([sample(0, (9, "unknown command", None))], SETTINGS, None)
    assert report.why == "in use by pid 9 (unknown command, unknown memory)"


def test_a_monitor_without_memory_is_no_offender() -> None:
    assert judge_samples([sample(0, (9, "nvidia-smi", 0))], SETTINGS, None).idle


def test_memory_without_a_process_is_dirty() -> None:
    report = judge_samples([sample(6 * GIB)], SETTINGS, None)
    assert report.why == "6.0 GiB in use that no process owns (limit 4.2 GiB)"
    assert report.dirty


def test_a_recorded_baseline_raises_the_limit() -> None:
    assert judge_samples([sample(6 * GIB)], SETTINGS, 6 * GIB).idle
    assert not judge_samples([sample(7 * GIB)], SETTINGS, 6 * GIB).idle


def test_no_driver_is_said_in_words() -> None:
    answer = nvml_query.answer({"do": "list"})
    if "devices" in answer:
        pytest.skip("this machine has an NVIDIA driver")
    assert answer["error"].startswith("NVML: ")
    with pytest.raises(DeviceUnavailable, match="NVML: "):
        query({"do": "list"})
