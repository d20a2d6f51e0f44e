from __future__ import annotations

from pathlib import Path

import pytest

from gdn_judge import host, prepare, telemetry
from gdn_judge.document import DeviceKind


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_a_hosts_settings_are_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
            "sys/devices/system/cpu/smt/control": "on\n",
            "proc/sys/kernel/numa_balancing": "0\n",
            "sys/devices/system/node/online": "0-1\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz iommu=pt pci=realloc=off\n",
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9575F\n",
            "proc/self/status": "Name:\tpython3\nCpus_allowed_list:\t0-15,128-143\n"
            "Mems_allowed_list:\t0-1\n",
            "proc/self/numa_maps": "55d0 bind:0 file=/usr/bin/python3 mapped=1 N0=1\n",
        },
    )
    assert host.facts(tmp_path) == {
        "cpu.governor": "performance",
        "cpu.boost": None,
        "cpu.no_turbo": None,
        "cpu.smt": "on",
        "cpu.model": "AMD EPYC 9575F",
        "numa.balancing": "0",
        "numa.nodes": "0-1",
        "memory.huge_pages": "madvise",
        "kernel.command_line": "BOOT_IMAGE=/vmlinuz iommu=pt pci=realloc=off",
        "pinned.cpus": "0-15,128-143",
        "pinned.memory_nodes": "0-1",
        "pinned.memory_policy": "bind:0",
    }


def test_what_a_host_does_not_say_is_none(tmp_path: Path) -> None:
    assert set(host.facts(tmp_path).values()) == {None}


def test_the_environment_names_image_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDN_IMAGE_DIGEST", "sha256:ab")
    found = prepare.environment()
    assert found["image"] == "sha256:ab"
    assert found["kernel.command_line"] == Path("/proc/cmdline").read_text().strip("\n\0 ")
    assert prepare.environment() == found  # nothing of the moment is in a fingerprint


def test_the_amd_card_that_is_shown_is_the_one_that_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for card in (2, 10):
        folder = f"card{card}/device"
        write(
            tmp_path,
            {
                f"{folder}/unique_id": f"{card:016x}\n",
                f"{folder}/vbios_version": "113-M355\n",
                f"{folder}/current_compute_partition": "SPX\n",
                f"{folder}/hwmon/hwmon5/power1_cap": "1400000000\n",
                f"{folder}/hwmon/hwmon5/power1_input": f"{card}000000\n",
            },
        )
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", f"GPU-{10:016x}")
    shown = telemetry.probe(DeviceKind.GFX950, 0, tmp_path)
    assert shown.sample() == {"power_mw": 10_000.0}
    found = shown.facts()
    assert found["device.uuid"] == f"{10:016x}"
    assert found["device.power_limit_mw"] == 1_400_000
    assert (found["device.compute_partition"], found["device.vbios"]) == ("SPX", "113-M355")
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES")
    assert telemetry.probe(DeviceKind.GFX950, 0, tmp_path).sample() == {"power_mw": 2_000.0}
