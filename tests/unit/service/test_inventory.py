from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from gdn_judge.document import DeviceKind
from gdn_service.errors import DeviceBusy, DeviceUnavailable, WorkerStopping
from gdn_service.runner.inventory import Inventory, build_probes
from gdn_service.runner.locks import device_lock
from gdn_service.runner.probe import CpuProbe, DeviceFacts, IdleReport, Sample
from gdn_service.store.store import Store
from support.service_bench import bench_settings

GPU = DeviceFacts(kind=DeviceKind.SM90, index=0, name="GPU", measures=(), uuid=None)


class ScriptedProbe:
    """Answers from a list, the last one for ever."""

    def __init__(self, *answers: IdleReport | DeviceUnavailable) -> None:
        self.answers = list(answers)
        self.baselines: list[int | None] = []

    def devices(self) -> Sequence[DeviceFacts]:
        return [GPU]

    def idle(self, device: DeviceFacts, baseline: int | None) -> IdleReport:
        self.baselines.append(baseline)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, DeviceUnavailable):
            raise answer
        return answer

    def look(self, device: DeviceFacts) -> Sample:
        return Sample()


class BrokenProbe(ScriptedProbe):
    def devices(self) -> Sequence[DeviceFacts]:
        raise DeviceUnavailable("the driver is gone")


def make(store: Store, folder: Path, *probes: ScriptedProbe, wait_s: float = 0) -> Inventory:
    settings = bench_settings(folder, "", device_kinds=("sm90",), busy_wait_s=wait_s)
    inventory = Inventory(settings, store, probes)
    inventory.refresh()
    return inventory


def hold(inventory: Inventory, said: list[str] | None = None) -> str:
    heard = [] if said is None else said
    with inventory.hold_idle(DeviceKind.SM90, "run 1", lambda: None, heard.append) as held:
        return held.device.id


def test_an_idle_device_is_held_and_recorded(store: Store, tmp_path: Path) -> None:
    inventory = make(store, tmp_path, ScriptedProbe(IdleReport()))
    assert hold(inventory) == "bench/sm90/0"
    with store.read() as tx:
        (device,) = tx.devices.all()
    assert (device.idle, device.why_not_idle, device.kind) == (True, "", "sm90")


def test_a_busy_device_is_refused_with_the_offender(store: Store, tmp_path: Path) -> None:
    inventory = make(store, tmp_path, ScriptedProbe(IdleReport(why="in use by pid 4242")))
    with pytest.raises(DeviceBusy, match="no idle sm90 device: bench/sm90/0: in use by pid 4242"):
        hold(inventory)
    with store.read() as tx:
        assert tx.devices.all()[0].why_not_idle == "in use by pid 4242"


def test_not_available_is_not_idle(store: Store, tmp_path: Path) -> None:
    inventory = make(store, tmp_path, ScriptedProbe(DeviceUnavailable("NVML: unknown error")))
    with pytest.raises(DeviceBusy, match="its state is not available: NVML: unknown error"):
        hold(inventory)


def test_waiting_ends_when_the_device_becomes_idle(store: Store, tmp_path: Path) -> None:
    busy = IdleReport(why="in use by pid 1")
    probe = ScriptedProbe(busy, busy, busy, IdleReport())
    said: list[str] = []
    inventory = make(store, tmp_path, probe, wait_s=30)
    assert hold(inventory, said) == "bench/sm90/0"
    assert said == ["waiting for an idle sm90 device: bench/sm90/0: in use by pid 1"]


def test_waiting_can_be_given_up(store: Store, tmp_path: Path) -> None:
    inventory = make(store, tmp_path, ScriptedProbe(IdleReport(why="busy")), wait_s=30)

    def give_up() -> None:
        raise WorkerStopping

    with (
        pytest.raises(WorkerStopping),
        inventory.hold_idle(DeviceKind.SM90, "run 1", give_up, lambda _: None),
    ):
        pass
    with device_lock(inventory.of_kind(DeviceKind.SM90)[0].lock, "free again"):
        pass


def test_a_quarantined_device_is_not_used(store: Store, tmp_path: Path) -> None:
    inventory = make(store, tmp_path, ScriptedProbe(IdleReport()))
    with store.write() as tx:
        tx.devices.quarantine("bench/sm90/0", "fan")
    with pytest.raises(DeviceBusy, match="quarantined: fan"):
        hold(inventory)


def test_the_recorded_baseline_reaches_the_probe(store: Store, tmp_path: Path) -> None:
    probe = ScriptedProbe(IdleReport())
    inventory = make(store, tmp_path, probe)
    with store.write() as tx:
        tx.devices.set_baseline("bench/sm90/0", 123)
    hold(inventory)
    assert probe.baselines == [None, 123]


def test_a_locked_device_is_not_probed_by_a_look(store: Store, tmp_path: Path) -> None:
    probe = ScriptedProbe(IdleReport())
    inventory = make(store, tmp_path, probe)
    with inventory.hold_idle(DeviceKind.SM90, "run 7", lambda: None, lambda _: None):
        looks = len(probe.baselines)
        inventory.refresh()
        assert len(probe.baselines) == looks
        with store.read() as tx:
            assert "locked by run 7" in tx.devices.all()[0].why_not_idle


def test_a_driver_that_is_gone_leaves_no_device(store: Store, tmp_path: Path) -> None:
    inventory = make(store, tmp_path, ScriptedProbe(IdleReport()))
    gone = make(store, tmp_path, BrokenProbe(IdleReport()))
    assert gone.kinds() == []
    with store.read() as tx:
        assert tx.devices.served_kinds() == []
    with pytest.raises(DeviceUnavailable, match="no sm90 device"):
        hold(gone)
    inventory.refresh()
    with store.read() as tx:
        assert tx.devices.served_kinds() == ["sm90"]


def test_a_lock_left_behind_by_another_job_is_named(store: Store, tmp_path: Path) -> None:
    inventory = make(store, tmp_path, ScriptedProbe(IdleReport()))
    with (
        device_lock(inventory.of_kind(DeviceKind.SM90)[0].lock, "run 2"),
        pytest.raises(DeviceBusy, match="locked by run 2"),
    ):
        hold(inventory)


def test_devices_that_are_near_to_some_of_the_same_cores_share_none(
    store: Store, tmp_path: Path
) -> None:
    """Also those of two probes: all may be judged on at one time."""

    class Near(ScriptedProbe):
        def __init__(self, *devices: tuple[int, str]) -> None:
            super().__init__(IdleReport())
            self.near = devices

        def devices(self) -> Sequence[DeviceFacts]:
            return [dataclasses.replace(GPU, index=n, cpus=cpus) for n, cpus in self.near]

    inventory = make(store, tmp_path, Near((0, "0-15"), (1, "0-31")), Near((2, "24-39")))
    assert {device.id: device.facts.cpus for device in inventory.of_kind(DeviceKind.SM90)} == {
        "bench/sm90/0": "0-11",
        "bench/sm90/1": "12-25",
        "bench/sm90/2": "26-39",
    }


def test_cpu_devices_have_slots(tmp_path: Path) -> None:
    settings = bench_settings(tmp_path, "", device_kinds=("interpreter",), cpu_slots=2)
    (probe,) = build_probes(settings)
    assert isinstance(probe, CpuProbe)
    assert [(d.kind, d.index) for d in probe.devices()] == [
        (DeviceKind.INTERPRETER, 0),
        (DeviceKind.INTERPRETER, 1),
    ]
