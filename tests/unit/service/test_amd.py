"""AMD devices by both witnesses: files in the kernel's shapes, a library in amdsmi's."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gdn_service.runner import amdsmi_query
from gdn_service.runner.amd import AmdProbe, ask_amdsmi, disagreements
from gdn_service.runner.inventory import build_probes
from gdn_service.runner.probe import IdleReport, Sample, Use
from gdn_service.settings import load_settings
from support.amd_tree import GIB, IDLE_BYTES, MI355X, AmdTree

SETTINGS = load_settings(idle_interval_s=0)
FAKE = Path(__file__).parents[2] / "support" / "fake_amdsmi" / "amdsmi.py"
Card = dict[str, Any]


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    return AmdTree(tmp_path, MI355X, cards=1)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("amdsmi", FAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    return module


@pytest.fixture
def card(library: ModuleType, tree: AmdTree) -> Card:
    """What the library says of the tree's card; the same as the kernel's files at first."""
    made: Card = library.CARD
    made |= {
        "kfd_id": tree.gpu_id(0),
        "serial": "0x9246AB0C1D2E3F00",
        "used": IDLE_BYTES,
        "total": 288 * GIB,
        "partition": "SPX",
        "power": 152,
        "clock": 500,
        "temperature": 41,
    }
    return made


def report(tree: AmdTree) -> IdleReport:
    probe = AmdProbe(SETTINGS, tree.root, amdsmi_query.answer)
    return probe.idle(probe.devices()[0], None)


def sample(kfd_id: int) -> dict[str, Any]:
    answer = amdsmi_query.answer({"kfd_id": kfd_id, "samples": 1, "interval_s": 0})
    (row,) = answer["samples"]
    assert isinstance(row, dict)
    return row


def test_the_fields_of_a_card_with_their_units(card: Card) -> None:
    assert sample(card["kfd_id"]) == {
        "uuid": "GPU-9246ab0c1d2e3f00",
        "used": IDLE_BYTES,
        "total": 288 * GIB,
        "partition": "SPX",
        "memory_partition": "NPS1",
        "busy_percent": 0,
        "sclk_mhz": 500,
        "power_w": 152,
        "power_cap_w": 1400.0,
        "temperature_c": 41,
        "processes": [],
    }
    assert card["shut_down"] == 1


def test_not_available_and_not_supported_are_both_unknown(card: Card) -> None:
    card |= {"serial": "N/A", "partition": "N/A", "busy": "N/A"}
    for name in ("power", "clock", "temperature", "used"):
        del card[name]
    found = sample(card["kfd_id"])
    unknown = ("uuid", "partition", "busy_percent", "power_w", "sclk_mhz", "temperature_c", "used")
    assert [found[name] for name in unknown] == [None] * len(unknown)
    card["average_power"] = 141  # as MI200 and older say it
    assert sample(card["kfd_id"])["power_w"] == 141


def test_both_agree_on_an_idle_card(tree: AmdTree, card: Card) -> None:
    assert report(tree) == IdleReport(used_bytes=IDLE_BYTES)


def test_a_process_that_only_amdsmi_sees_is_refused_and_the_contradiction_told(
    tree: AmdTree, card: Card
) -> None:
    card["processes"] = [(4194303, "serve", 10 * GIB), (4194302, "N/A", 0)]
    found = report(tree)
    assert found.why == "in use by pid 4194303 (serve, 10.0 GiB)"
    assert found.notes == ("only amdsmi sees pid 4194303",)


def test_a_process_that_only_the_kernel_shows_is_refused_and_told(
    tree: AmdTree, card: Card
) -> None:
    tree.process(4242, "python serve.py", {tree.gpu_id(0): 10 * GIB})
    found = report(tree)
    assert found.why == "in use by pid 4242 (python serve.py, 10.0 GiB)"
    assert found.notes == ("only the kernel's files show pid 4242",)


def test_a_process_that_the_kernel_shows_as_dead_does_not_count(tree: AmdTree, card: Card) -> None:
    tree.process(99, "python", {tree.gpu_id(0): 5 << 20}, alive=False)
    card["processes"] = [(99, "python", 5 << 20)]
    assert report(tree) == IdleReport(used_bytes=IDLE_BYTES)
    card["used"] = 20 * GIB
    assert report(tree).dirty


def test_memory_that_amdsmi_does_not_tell_of_a_process_the_kernel_does(
    tree: AmdTree, card: Card
) -> None:
    tree.process(4194301, "exporter", {tree.gpu_id(0): 0})
    card["processes"] = [(4194301, "exporter", "N/A"), (4194302, "monitor", "N/A")]
    found = report(tree)
    assert found.idle
    assert found.notes == tuple(
        f"amdsmi does not tell the memory of pid {who}, the kernel's files show none"
        for who in ("4194301 (exporter)", "4194302 (monitor)")
    )
    tree.process(4194301, "exporter", {tree.gpu_id(0): GIB})
    used = report(tree)
    assert used.why == "in use by pid 4194301 (exporter, 1.0 GiB)"
    assert used.notes == found.notes[1:]


def test_a_mode_that_only_amdsmi_does_not_tell_the_kernel_does(tree: AmdTree, card: Card) -> None:
    card["partition"] = "N/A"
    assert report(tree) == IdleReport(used_bytes=IDLE_BYTES)
    tree.write(f"{tree.card(0)}/current_compute_partition", "N/A\n")
    assert report(tree).why == "its partition mode is not available, expected SPX"


def test_the_process_that_asks_is_left_out(tree: AmdTree, card: Card) -> None:
    card["processes"] = [(os.getpid(), "python3", GIB)]
    assert report(tree) == IdleReport(used_bytes=IDLE_BYTES)


def test_memory_that_only_amdsmi_sees_is_dirty(tree: AmdTree, card: Card) -> None:
    card["used"] = 20 * GIB
    found = report(tree)
    assert found.dirty
    assert found.notes == ("amdsmi sees 20.0 GiB in use, the kernel's files show 283 MiB",)


def test_modes_and_names_that_differ_are_told(tree: AmdTree, card: Card) -> None:
    card |= {"partition": "CPX", "serial": "0xABC"}
    found = report(tree)
    assert found.why == "its partition mode is CPX, expected SPX"
    assert found.notes == (
        "amdsmi calls it GPU-0000000000000abc, the kernel GPU-9246ab0c1d2e3f00",
        "amdsmi says partition mode CPX, the kernel's files SPX",
    )


def test_what_amdsmi_does_not_tell_the_kernel_does(tree: AmdTree, card: Card) -> None:
    del card["used"]
    del card["total"]
    assert report(tree) == IdleReport(used_bytes=IDLE_BYTES)


def test_a_library_that_fails_is_told_and_the_kernels_files_decide(
    tree: AmdTree, card: Card
) -> None:
    card["broken"] = "34 | AMDSMI_STATUS_DRIVER_NOT_LOADED"
    found = report(tree)
    assert found.idle
    assert found.notes == (
        "amdsmi cannot tell: amdsmi: Error code: 34 | AMDSMI_STATUS_DRIVER_NOT_LOADED",
    )


def test_a_card_that_the_library_does_not_show_is_told(tree: AmdTree, card: Card) -> None:
    card["kfd_id"] = 1
    assert "it shows no GPU that the kernel calls 10000" in report(tree).notes[0]


def test_small_differences_of_two_moments_are_none() -> None:
    user = Use(pid=7, command="x", used=GIB)
    monitor = Use(pid=8, command="amd-smi", used=0)
    kernel = Sample(used=GIB, total=288 * GIB, uses=(user, monitor), partition="SPX")
    smi = Sample(used=GIB + (60 << 20), uses=(user,), partition=None)
    assert disagreements(kernel, smi) == ()
    assert disagreements(Sample(used=None), Sample(used=9 * GIB)) == ()


def test_without_the_library_the_kernels_files_are_the_only_witness(tree: AmdTree) -> None:
    """By the helper process itself, as on a host where nobody has installed it."""
    if importlib.util.find_spec("amdsmi") is not None:
        pytest.skip("amdsmi is installed here")
    answer = ask_amdsmi({"kfd_id": tree.gpu_id(0), "samples": 1, "interval_s": 0})
    assert answer["absent"] == "amdsmi cannot be imported: No module named 'amdsmi'"
    probe = AmdProbe(SETTINGS, tree.root)
    assert probe.idle(probe.devices()[0], None) == IdleReport(used_bytes=IDLE_BYTES)


def test_the_inventory_asks_both() -> None:
    (probe,) = build_probes(load_settings(device_kinds=("gfx950",)))
    assert isinstance(probe, AmdProbe)
