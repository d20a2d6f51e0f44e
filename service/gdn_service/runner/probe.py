"""What a probe sees of devices. "Not available" is not idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gdn_judge.document import DeviceKind
from gdn_judge.wire import devices


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """One device of this host. `uuid` and `total_bytes` (device memory) are None on a CPU.

    `nodes`: its device files with their group ids (AMD); `cpus` and `memory_nodes`: the
    kernel's lists of the cores and NUMA nodes near it, "" where that is not known.
    """

    kind: DeviceKind
    index: int
    name: str
    measures: tuple[str, ...]  # kinds of measurement that it can make
    uuid: str | None = None
    total_bytes: int | None = None
    nodes: tuple[tuple[str, int], ...] = ()
    cpus: str = ""
    memory_nodes: str = ""


@dataclass(frozen=True, kw_only=True)
class Use:
    """A process on a device. `used` in bytes, None where the driver does not say; `alive`
    is False for one that the driver still lists though it has ended."""

    pid: int
    command: str
    used: int | None
    queues: int = 0
    alive: bool = True

    @property
    def counts(self) -> bool:
        """A monitor that only holds the device open does not."""
        return self.alive and (self.used != 0 or self.queues > 0)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One look at a device. `used` and `total` in bytes, `busy` in percent of the time; None
    where the driver says nothing or "N/A". `has_modes`: it has partition modes, so that
    `partition` None means not told."""

    used: int | None = None
    total: int | None = None
    uses: tuple[Use, ...] = ()
    partition: str | None = None
    has_modes: bool = True
    busy: int | None = None


@dataclass(frozen=True, kw_only=True)
class Offender:
    """A process on the device. `used_bytes` is None where the driver does not say."""

    pid: int
    command: str
    used_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class IdleReport:
    """`why` names what stands in the way, with pid, command and memory; "" when idle.

    `dirty`: memory is in use that no process owns. `notes`: what is odd but no reason, in words.
    """

    why: str = ""
    used_bytes: int | None = None
    offenders: tuple[Offender, ...] = ()
    dirty: bool = False
    notes: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        return not self.why


class Probe(Protocol):
    """Looks at the devices of one vendor."""

    def devices(self) -> Sequence[DeviceFacts]:
        """All devices seen. Raises DeviceUnavailable when the driver cannot be asked."""
        ...

    def idle(self, device: DeviceFacts, baseline: int | None) -> IdleReport:
        """`baseline`: bytes in use that the operator recorded for the idle device."""
        ...

    def look(self, device: DeviceFacts) -> Sample:
        """The device at this moment. Raises DeviceUnavailable."""
        ...


class CpuProbe:
    """The CPU devices: always there, idle whenever their lock is free."""

    def __init__(self, kinds: Sequence[DeviceKind], slots: int) -> None:
        self._kinds = kinds
        self._slots = slots

    def devices(self) -> Sequence[DeviceFacts]:
        return [
            DeviceFacts(kind=kind, index=index, name=row.title, measures=row.measures)
            for kind in self._kinds
            for row in (devices.spec(kind),)
            for index in range(self._slots)
        ]

    def idle(self, device: DeviceFacts, baseline: int | None) -> IdleReport:
        return IdleReport()

    def look(self, device: DeviceFacts) -> Sample:
        return Sample()


def node_list(node: int | None) -> str:
    """The kernel's number of a device's NUMA node, -1 where it has none, as a list."""
    return "" if node is None or node < 0 else str(node)


def bytes_text(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
