"""The devices of this host: which there are, whether they are idle, and who holds them."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdn_judge.document import DeviceKind
from gdn_judge.wire import devices
from gdn_judge.wire.devices import Vendor
from gdn_service.clock import now
from gdn_service.errors import DeviceBusy, DeviceError, DeviceUnavailable
from gdn_service.runner import cores
from gdn_service.runner.amd import AmdProbe
from gdn_service.runner.idle import describe
from gdn_service.runner.locks import device_lock
from gdn_service.runner.nvml import NvmlProbe
from gdn_service.runner.probe import CpuProbe, DeviceFacts, IdleReport, Probe
from gdn_service.settings import Settings
from gdn_service.store.store import Store

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
_POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class LocalDevice:
    """`id` is the store's key: host/kind/index."""

    id: str
    facts: DeviceFacts
    probe: Probe
    lock: Path


@dataclass(frozen=True, kw_only=True)
class HeldDevice:
    """`idle` is the assertion on which it was taken."""

    device: LocalDevice
    lock_fd: int
    idle: IdleReport


class Inventory:
    def __init__(self, settings: Settings, store: Store, probes: Sequence[Probe]) -> None:
        self._settings = settings
        self._store = store
        self._probes = probes
        self._known: list[LocalDevice] = []

    def refresh(self) -> list[LocalDevice]:
        """Look again, and write down what is there. A probe that fails adds no device."""
        found = [(probe, facts) for probe in self._probes for facts in seen(probe)]
        served = [(probe, facts) for probe, facts in found if self._served(facts.kind)]
        shared = share_cores([facts for _, facts in served])
        self._known = [
            self._local(probe, facts) for (probe, _), facts in zip(served, shared, strict=True)
        ]
        for device in self._known:
            self._record(device)
        with self._store.write() as tx:
            tx.devices.retain(self._settings.worker_name, [d.id for d in self._known])
        return self._known

    def kinds(self) -> list[DeviceKind]:
        return list(dict.fromkeys(device.facts.kind for device in self._known))

    def of_kind(self, kind: DeviceKind) -> list[LocalDevice]:
        return [device for device in self._known if device.facts.kind == kind]

    def load(self, but: LocalDevice) -> list[dict[str, Any]]:
        """What the other GPUs of this host are doing at this moment, beside `but`.

        One {device, used_bytes, busy_percent, uses or unknown} each: a neighbour shares power,
        cooling and the way to memory, so a timing is told with it.
        """
        others = [d for d in self._known if d.facts.uuid is not None and d.id != but.id]
        return [_load(device) for device in others if but.facts.uuid is not None]

    def idle(self, device: LocalDevice) -> IdleReport:
        """What stands against using it now. A probe that cannot say is not a yes."""
        with self._store.read() as tx:
            row = tx.devices.get(device.id)
        if row is not None and row.quarantined:
            return IdleReport(why=f"quarantined: {row.quarantined}")
        try:
            return device.probe.idle(device.facts, None if row is None else row.vram_baseline)
        except DeviceUnavailable as error:
            return IdleReport(why=f"its state is not available: {error}")

    @contextmanager
    def hold_idle(
        self,
        kind: DeviceKind,
        holder: str,
        give_up: Callable[[], None],
        say: Callable[[str], None],
        last: str | None = None,
    ) -> Iterator[HeldDevice]:
        """Lock an idle device of `kind`, waiting with a growing pause.

        `last` is taken only where no other is idle. `give_up` is called while waiting
        and may raise. Raises DeviceBusy naming the offenders after the set time,
        DeviceUnavailable if there is none at all.
        """
        with ExitStack() as stack:
            yield self._wait(kind, holder, give_up, say, stack, last)

    def _wait(
        self,
        kind: DeviceKind,
        holder: str,
        give_up: Callable[[], None],
        say: Callable[[str], None],
        stack: ExitStack,
        last: str | None,
    ) -> HeldDevice:
        deadline = time.monotonic() + self._settings.busy_wait_s
        pause, told = _FIRST_PAUSE_S, ""
        while True:
            faults: list[str] = []
            for device in sorted(self.of_kind(kind), key=lambda device: device.id == last):
                held = self._try(device, holder, stack, faults)
                if held is not None:
                    return held
            why = "; ".join(faults)
            if not faults:
                raise DeviceUnavailable(f"this worker has no {kind} device")
            if time.monotonic() >= deadline:
                raise DeviceBusy(f"no idle {kind} device: {why}")
            if why != told:
                say(f"waiting for an idle {kind} device: {why}")
                told = why
            _sleep(min(pause, max(0.0, deadline - time.monotonic())), give_up)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    def _try(
        self, device: LocalDevice, holder: str, stack: ExitStack, faults: list[str]
    ) -> HeldDevice | None:
        with ExitStack() as attempt:
            try:
                descriptor = attempt.enter_context(device_lock(device.lock, holder))
            except DeviceBusy as error:
                faults.append(f"{device.id}: {error}")
                return None
            report = self.idle(device)
            if not report.idle:
                faults.append(f"{device.id}: {report.why}")
                return None
            stack.push(attempt.pop_all())
            return HeldDevice(device=device, lock_fd=descriptor, idle=report)

    def _served(self, kind: DeviceKind) -> bool:
        return "auto" in self._settings.device_kinds or kind in self._settings.device_kinds

    def _local(self, probe: Probe, facts: DeviceFacts) -> LocalDevice:
        """A GPU's lock is the machine's, a CPU device's the data folder's."""
        if facts.uuid is None:
            lock = self._settings.locks_dir / f"{facts.kind}-{facts.index}.lock"
        else:
            name = re.sub(r"[^A-Za-z0-9-]", "_", facts.uuid)
            lock = self._settings.gpu_locks_dir / f"{name}.lock"
        return LocalDevice(
            id=f"{self._settings.worker_name}/{facts.kind}/{facts.index}",
            facts=facts,
            probe=probe,
            lock=lock,
        )

    def _look(self, device: LocalDevice) -> IdleReport:
        """A device that is locked is not probed: that could disturb what is timed on it."""
        try:
            with device_lock(device.lock, "a look at the device"):
                return self.idle(device)
        except DeviceBusy as error:
            return IdleReport(why=str(error))

    def _record(self, device: LocalDevice) -> None:
        report = self._look(device)
        facts = device.facts
        with self._store.write() as tx:
            tx.devices.seen(
                device.id,
                host=self._settings.worker_name,
                kind=facts.kind,
                index=facts.index,
                name=facts.name,
                uuid=facts.uuid,
                measures=list(facts.measures),
                idle=report.idle,
                why_not_idle=report.why,
                present=True,
                seen_at=now(),
            )


def _load(device: LocalDevice) -> dict[str, Any]:
    try:
        sample = device.probe.look(device.facts)
    except DeviceUnavailable as error:
        return {"device": device.id, "unknown": str(error)}
    return {
        "device": device.id,
        "used_bytes": sample.used,
        "busy_percent": sample.busy,
        "uses": [describe(use) for use in sample.uses if use.counts],
    }


def share_cores(devices: Sequence[DeviceFacts]) -> list[DeviceFacts]:
    """Cores that several devices are near to, divided among them: one job per device."""
    shares = cores.divide([device.cpus for device in devices])
    return [
        dataclasses.replace(device, cpus=own) for device, own in zip(devices, shares, strict=True)
    ]


def seen(probe: Probe) -> Sequence[DeviceFacts]:
    """The probe's devices; none where the driver cannot be asked."""
    try:
        return probe.devices()
    except DeviceError:
        return ()


def _sleep(seconds: float, give_up: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    while True:
        give_up()
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, _POLL_S))


_PROBES: dict[Vendor, Callable[[Settings], Probe]] = {
    Vendor.NVIDIA: NvmlProbe,
    Vendor.AMD: AmdProbe,
}


def build_probes(settings: Settings) -> list[Probe]:
    """The probes that the settings ask for."""
    wanted = settings.device_kinds
    kinds = [kind for kind in devices.on_cpu() if "auto" in wanted or kind in wanted]
    probes: list[Probe] = [CpuProbe(kinds, settings.cpu_slots)] if kinds else []
    for vendor, probe in _PROBES.items():
        if "auto" in wanted or any(row.kind in wanted for row in devices.of_vendor(vendor)):
            probes.append(probe(settings))
    return probes
