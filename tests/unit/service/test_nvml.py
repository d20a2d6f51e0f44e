from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gdn_service.errors import DeviceUnavailable
from gdn_service.runner import nvml_query
from gdn_service.runner.nvml import judge_samples, query
from gdn_service.runner.probe import node_list
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


def test_the_kernel_says_where_a_card_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML writes a PCI address with eight digits of the domain and in capitals."""
    card = tmp_path / "0000:1b:00.0"
    card.mkdir()
    (card / "local_cpulist").write_text("0-55,112-167\n")
    (card / "numa_node").write_text("1\n")
    monkeypatch.setattr(nvml_query, "PCI", tmp_path)
    found = nvml_query._card("00000000:1B:00.0")
    assert found == card
    assert nvml_query._read(found / "local_cpulist") == "0-55,112-167"
    assert nvml_query._number(found / "numa_node") == 1
    assert nvml_query._number(tmp_path / "missing") is None


@pytest.mark.parametrize(("node", "text"), [(0, "0"), (3, "3"), (-1, ""), (None, "")])
def test_a_card_without_a_node_is_near_no_memory(node: int | None, text: str) -> None:
    assert node_list(node) == text
