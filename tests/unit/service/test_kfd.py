"""AMD devices from the kernel's files, in the shapes of MI300X and MI355X hosts."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from gdn_judge.document import DeviceKind
from gdn_service.errors import DeviceUnavailable
from gdn_service.runner import kfd_query
from gdn_service.runner.idle import IdleRule, decide
from gdn_service.runner.inventory import Inventory
from gdn_service.runner.kfd import KfdProbe
from gdn_service.runner.probe import IdleReport, Sample, Use
from gdn_service.settings import load_settings
from gdn_service.store.store import Store
from support.amd_tree import GIB, IDLE_BYTES, MI300X, MI355X, MIB, AmdTree
from support.service_bench import bench_settings

SETTINGS = load_settings(idle_interval_s=0)
RULE = IdleRule(fraction=0.03, margin=256 * MIB, partition="SPX")


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    return AmdTree(tmp_path / "host", MI355X)


def report(tree: AmdTree, card: int = 0, baseline: int | None = None) -> IdleReport:
    probe = KfdProbe(SETTINGS, tree.root)
    return probe.idle(probe.devices()[card], baseline)


def test_eight_cards_with_their_nodes_groups_and_cores(tree: AmdTree) -> None:
    devices = KfdProbe(SETTINGS, tree.root).devices()
    assert [device.index for device in devices] == list(range(8))
    last = devices[7]
    assert (last.kind, last.name) == (DeviceKind.GFX950, "AMD Instinct MI355X")
    assert last.uuid == "GPU-9246ab0c1d2e3f07"
    assert last.total_bytes == 288 * GIB
    assert (last.cpus, last.memory_nodes) == ("64-127,192-255", "1")
    assert last.nodes == (("/dev/kfd", os.getgid()), ("/dev/dri/renderD184", os.getgid()))


def test_cards_on_one_node_share_its_cores(store: Store, tree: AmdTree, tmp_path: Path) -> None:
    settings = bench_settings(tmp_path, "", device_kinds=("gfx950",), idle_interval_s=0)
    known = Inventory(settings, store, [KfdProbe(settings, tree.root)]).refresh()
    assert [device.facts.cpus for device in known[:4]] == [
        "0-15,128-143",
        "16-31,144-159",
        "32-47,160-175",
        "48-63,176-191",
    ]
    assert known[7].facts.cpus == "112-127,240-255"


def test_a_card_that_no_device_kind_covers_is_seen_but_not_served(tmp_path: Path) -> None:
    probe = KfdProbe(SETTINGS, AmdTree(tmp_path, MI300X).root)
    assert probe.devices() == []
    assert [row["gfx"] for row in probe.rows()] == ["gfx942"] * 8


def test_an_idle_card_with_283_mib_in_use_is_idle(tree: AmdTree) -> None:
    assert report(tree) == IdleReport(used_bytes=IDLE_BYTES)


def test_a_monitor_that_holds_the_driver_open_is_no_offender(tree: AmdTree) -> None:
    ids = [tree.gpu_id(card) for card in range(8)]
    tree.process(4411, "amd-smi monitor", dict.fromkeys(ids, 0))
    assert report(tree).idle


def test_a_holder_at_no_utilisation_is_named_on_its_card_only(tree: AmdTree) -> None:
    vram = {tree.gpu_id(0): 0, tree.gpu_id(1): 10 * GIB}
    tree.process(4242, "python serve.py", vram)
    tree.use(1, 10 * GIB + IDLE_BYTES)
    assert report(tree, 0).idle
    found = report(tree, 1)
    assert found.why == "in use by pid 4242 (python serve.py, 10.0 GiB)"
    assert [(o.pid, o.used_bytes) for o in found.offenders] == [(4242, 10 * GIB)]
    assert not found.dirty


def test_queues_without_memory_are_use(tree: AmdTree) -> None:
    tree.process(77, "python spin.py", {tree.gpu_id(0): 0}, queues=2)
    assert report(tree).why == "in use by pid 77 (python spin.py, 0 MiB, 2 queues)"


def test_a_dead_pid_is_no_offender(tree: AmdTree) -> None:
    tree.process(99, "python", {tree.gpu_id(0): 0}, alive=False)
    assert report(tree).idle


def test_memory_of_a_dead_pid_is_stranded(tree: AmdTree) -> None:
    tree.process(99, "python", {tree.gpu_id(0): 20 * GIB}, alive=False)
    tree.use(0, 20 * GIB)
    found = report(tree)
    assert found.dirty
    assert found.why == "20.0 GiB in use that no process owns (limit 8.6 GiB)"


def test_stranded_memory_without_any_process_is_dirty(tree: AmdTree) -> None:
    tree.use(0, 9 * GIB)
    assert report(tree).dirty
    assert report(tree, baseline=9 * GIB).idle


def test_from_another_pid_namespace_no_process_is_taken_for_dead(tree: AmdTree) -> None:
    link = tree.root / "proc/self/ns/pid"
    link.unlink()
    link.symlink_to("pid:[4026532999]")
    tree.process(99, "python", {tree.gpu_id(0): GIB}, alive=False)
    assert report(tree).why == "in use by pid 99 (unknown command, 1.0 GiB)"


def test_partitions_are_seen_and_refused(tmp_path: Path) -> None:
    tree = AmdTree(tmp_path, MI355X, cards=1, mode="CPX")
    devices = KfdProbe(SETTINGS, tree.root).devices()
    assert len(devices) == 8
    assert len({device.nodes[1][0] for device in devices}) == 8
    for number in range(8):
        assert report(tree, number).why == "its partition mode is CPX, expected SPX"


def test_not_available_is_not_idle(tree: AmdTree) -> None:
    tree.write(f"{tree.card(0)}/mem_info_vram_used", "N/A\n")
    tree.write(f"{tree.card(0)}/current_compute_partition", "N/A\n")
    assert report(tree).why == "its memory use is not available"


@pytest.mark.parametrize("text", ["N/A\n", "\n", None])
def test_a_mode_that_is_not_told_is_not_idle(tree: AmdTree, text: str | None) -> None:
    """Without the file as well: eight XCCs are a card that can be split."""
    path = tree.root / tree.card(0) / "current_compute_partition"
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert report(tree).why == "its partition mode is not available, expected SPX"


def test_a_card_that_cannot_be_split_has_no_mode_to_tell(tmp_path: Path) -> None:
    whole = AmdTree(tmp_path, dataclasses.replace(MI355X, xccs=1), cards=1)
    path = whole.root / whole.card(0) / "current_compute_partition"
    path.unlink()
    assert report(whole).idle
    path.write_text("N/A\n")
    assert report(whole).why == "its partition mode is not available, expected SPX"


def test_a_card_that_is_gone_is_not_available(tree: AmdTree) -> None:
    probe = KfdProbe(SETTINGS, tree.root)
    device = probe.devices()[7]
    for path in (tree.root / "sys/class/kfd/kfd/topology/nodes/9").iterdir():
        path.unlink()
    with pytest.raises(DeviceUnavailable, match="shows no GPU 7"):
        probe.idle(device, None)


def test_a_host_without_the_driver_says_so(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnavailable, match="/sys/class/kfd is not there"):
        KfdProbe(SETTINGS, tmp_path).devices()


def test_a_sample_has_clock_power_heat_and_modes(tree: AmdTree, tmp_path: Path) -> None:
    tree.write(f"{tree.card(0)}/pp_dpm_sclk", "0: 500Mhz\n1: 2400Mhz *\n")
    found = kfd_query.sample(tree.root, tree.gpu_id(0))
    assert found["sclk_mhz"] == 2400
    assert found["power_w"] == 152.0  # the MI355X gives no average
    assert (found["power_cap_w"], found["temperature_c"]) == (1400.0, 41.0)
    assert (found["partition"], found["memory_partition"]) == ("SPX", "NPS1")
    older = AmdTree(tmp_path / "older", MI300X, cards=1)
    assert kfd_query.sample(older.root, older.gpu_id(0))["power_w"] == 141.0


def test_no_sample_is_not_idle() -> None:
    assert decide([], RULE, None).why == "no sample of its state could be taken"


def test_the_runs_own_processes_are_no_offenders() -> None:
    mine = Use(pid=5, command="judge", used=20 * GIB)
    theirs = Use(pid=6, command="train.py", used=GIB)
    sample = Sample(used=21 * GIB, total=288 * GIB, uses=(mine, theirs), partition="SPX")
    assert decide([sample], RULE, None, own={5}).why == "in use by pid 6 (train.py, 1.0 GiB)"
    assert decide([sample], RULE, None, own={5, 6}).idle


def test_many_offenders_are_counted() -> None:
    uses = tuple(Use(pid=n, command="x", used=1) for n in range(1, 12))
    why = decide([Sample(used=0, total=GIB, uses=uses)], RULE, None).why
    assert why.endswith("pid 8 (x, 0 MiB) and 3 more")


def test_the_inventory_lists_amd_devices_with_the_reason(
    store: Store, tree: AmdTree, tmp_path: Path
) -> None:
    tree.process(4242, "python serve.py", {tree.gpu_id(2): 10 * GIB})
    settings = bench_settings(tmp_path, "", device_kinds=("gfx950",), idle_interval_s=0)
    Inventory(settings, store, [KfdProbe(settings, tree.root)]).refresh()
    with store.read() as tx:
        rows = {row.id: (row.idle, row.why_not_idle) for row in tx.devices.all()}
    assert len(rows) == 8
    assert rows["bench/gfx950/2"][1] == "in use by pid 4242 (python serve.py, 10.0 GiB)"
    assert rows["bench/gfx950/3"] == (True, "")
