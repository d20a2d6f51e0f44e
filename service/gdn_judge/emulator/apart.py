"""Runs the batches of a launch in several processes, with the results of a serial run.

Each batch sees memory as it was when the launch began. Where no batch touched what
another wrote, that is what it would have seen in any order, and the parts are put
together: memory, traffic, who touched what. Otherwise, or where a batch ends with an
error, nothing is kept and the caller runs the launch in one process. Which of the two
happens does not depend on how many processes there are, nor on which is faster.

The workers are forks of this process. They share an arena with it: the memory of the
launch as it was, and beside it what batches wrote, which is disjoint.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge import processes
from gdn_judge.emulator.assembly import Program
from gdn_judge.emulator.errors import EmulatorError, NoProgress, WorkerDied
from gdn_judge.emulator.machine import Machine
from gdn_judge.emulator.memory import ATOMIC, READ, SHARED, WRITTEN, Buffer, Traffic

PATIENCE = 1_000_000  # instructions of fronts: a batch that takes more may wait for another
ARENA = 16 << 30  # bytes of address space; memory only where it is touched
_WRITES = WRITTEN | ATOMIC
_FORK = multiprocessing.get_context("fork")
_NORESERVE = 0x4000  # Linux: MAP_NORESERVE

Bytes = NDArray[np.uint8]
Build = Callable[[Program, Any, list[Buffer]], list[Machine]]


class Entangled(Exception):
    """The batches cannot be told apart; the message says why."""


class Spoiled(Exception):
    """A batch ended with an error, which a run in one process will name."""


@dataclass(frozen=True)
class Done:
    """What one batch did, beside memory; as in `Machine`."""

    counts: list[int]
    clips: dict[int, int]
    first_pc: dict[str, int]
    waited: dict[int, set[int]]


@dataclass(frozen=True)
class Touched:
    """What one batch did to one buffer: its granules [n] of `granule` bytes, with flags, owners."""

    granule: int
    index: NDArray[np.int32]
    flags: NDArray[np.uint8]
    owner: NDArray[np.int32]
    traffic: Traffic

    @property
    def written(self) -> NDArray[np.int32]:
        written: NDArray[np.int32] = self.index[self.flags & _WRITES != 0]
        return written


Part = tuple[Done, list[Touched]]


def done(machine: Machine) -> Done:
    return Done(machine.counts, machine.clips, machine.first_pc, machine.waited)


def cores() -> int:
    """Cores that this process may use: its affinity, which a container's cpuset sets."""
    return len(os.sched_getaffinity(0))


class Workers:
    """`count` processes, started when they are first needed. Used by one thread.

    build gives the machines of a launch from its program, what else describes it (both
    are pickled), and its buffers; step runs one machine to its end.
    """

    def __init__(self, count: int, build: Build, step: Callable[[Machine], None]) -> None:
        self.count = count
        self._build, self._step = build, step
        self._arena: Arena | None = None
        self._live: dict[connection.Connection, tuple[BaseProcess, set[int]]] = {}

    def run(
        self, program: Program, launch: Any, buffers: list[Buffer], machines: Sequence[Machine]
    ) -> list[Done]:
        """Run what `build` makes of these; `machines` are the same, only asked for their names.

        Raises Entangled or Spoiled with the contents of `buffers` as they were, and WorkerDied.
        """
        if self._arena is None:
            self._arena = _arena(ARENA)
        places = self._arena.place(buffers)
        whole = False
        try:
            self._start()
            self._begin(program, launch, places, buffers)
            replies = self._all(machines)
            whole = True
        finally:
            if not whole:  # some may still be at work
                self.close()
        found = []
        for reply in replies:  # in order: chance does not decide what is raised
            if isinstance(reply, Exception):
                raise reply
            found.append(reply)
        _mark(buffers, [touched for _, touched in found])
        self._arena.collect(buffers, places, [touched for _, touched in found])
        return [did for did, _ in found]

    def close(self) -> None:
        """End the processes. Safe to call twice."""
        for link, (process, _) in self._live.items():
            process.kill()
            _collect(link, process)
        self._live.clear()

    def _start(self) -> None:
        while len(self._live) < self.count:
            ours, theirs = _FORK.Pipe()
            # a fork inherits the earlier links too: each worker closes them
            arguments = (self._arena, self._build, self._step, theirs, [*self._live, ours])
            process = _FORK.Process(target=_work, args=arguments, daemon=True)
            try:
                processes.start_own(process)
            except OSError as error:
                ours.close()
                raise Entangled(f"a process cannot be started: {error}") from error
            finally:
                theirs.close()
            self._live[ours] = process, set()

    def _begin(
        self, program: Program, launch: Any, places: list[Place], buffers: list[Buffer]
    ) -> None:
        key = id(program)  # the compiled program, which is never let go, holds it
        shapes = [_bare(buffer) for buffer in buffers]
        for link, (_, known) in self._live.items():
            link.send((key, None if key in known else program, launch, places, shapes))
            known.add(key)

    def _all(self, machines: Sequence[Machine]) -> list[Part | Exception]:
        parts: dict[int, Part | Exception] = {}
        idle = list(self._live)
        busy: dict[connection.Connection, int] = {}
        for number in range(len(machines)):
            if not idle:
                self._gather(busy, idle, parts, machines)
            link = idle.pop(0)
            link.send(number)
            busy[link] = number
        while busy:
            self._gather(busy, idle, parts, machines)
        return [parts[number] for number in range(len(machines))]

    def _gather(
        self,
        busy: dict[connection.Connection, int],
        idle: list[connection.Connection],
        parts: dict[int, Part | Exception],
        machines: Sequence[Machine],
    ) -> None:
        for link in connection.wait(list(busy)):
            assert isinstance(link, connection.Connection)
            number = busy.pop(link)
            try:
                parts[number] = link.recv()  # from a fork of this process
            except (EOFError, ConnectionResetError) as error:
                raise self._died(link, machines[number]) from error
            idle.append(link)

    def _died(self, link: connection.Connection, machine: Machine) -> WorkerDied:
        process, _ = self._live.pop(link)
        _collect(link, process)
        code = process.exitcode or 0
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit status {code}"
        groups = machine.group_of_row
        return WorkerDied(
            f"the process that emulated {len(groups)} workgroups of {machine.program.name} "
            f"({int(groups.min())} to {int(groups.max())}) ended {how}"
        )


def _collect(link: connection.Connection, process: BaseProcess) -> None:
    link.close()
    process.join()
    assert process.pid is not None
    processes.forget_own(process.pid)


# memory that all processes see


@dataclass(frozen=True)
class Place:
    """Where a buffer lies in each half of the arena: its bytes, and which of them are defined."""

    data: slice
    defined: slice | None


class Arena:
    """Two halves: the memory of a launch as it was, and what its batches wrote."""

    def __init__(self, size: int) -> None:
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE
        self._map = mmap.mmap(-1, size, flags=flags)
        whole: Bytes = np.frombuffer(self._map, np.uint8)
        self.before, self.after = whole[: size // 2], whole[size // 2 :]

    def place(self, buffers: Sequence[Buffer]) -> list[Place]:
        """Copy the buffers in. Raises Entangled where they do not fit."""
        at, places = 0, []

        def take(source: NDArray[Any]) -> slice:
            nonlocal at
            where = slice(at, at + len(source))
            if where.stop > len(self.before):
                raise Entangled(f"the buffers take more than {len(self.before)} bytes")
            self.before[where] = source.view(np.uint8)
            at = -(-where.stop // 64) * 64
            return where

        for buffer in buffers:
            defined = None if buffer.defined is None else take(buffer.defined)
            places.append(Place(take(buffer.data), defined))
        return places

    def collect(
        self, buffers: Sequence[Buffer], places: Sequence[Place], parts: Sequence[list[Touched]]
    ) -> None:
        """Bring to the buffers what batches wrote, and their traffic."""
        for part in parts:
            for buffer, place, touched in zip(buffers, places, part, strict=True):
                for where in _runs(touched.written, touched.granule):
                    buffer.data[where] = self.after[place.data][where]
                    buffer.define(where.start, where.stop)
                buffer.traffic.read += touched.traffic.read
                buffer.traffic.written += touched.traffic.written
                buffer.traffic.atomics += touched.traffic.atomics


def _runs(index: NDArray[np.int32], granule: int) -> list[slice]:
    """The bytes of ascending granules, as few slices as they make."""
    if not len(index):
        return []
    breaks = np.flatnonzero(np.diff(index) != 1)
    starts = index[np.concatenate(([0], breaks + 1))].astype(np.int64) * granule
    stops = (index[np.concatenate((breaks, [len(index) - 1]))].astype(np.int64) + 1) * granule
    return [slice(a, b) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]


def _arena(size: int) -> Arena:
    """Raises Entangled where the host gives no such address space (vm.overcommit_memory = 2)."""
    try:
        return Arena(size)
    except OSError as error:
        raise Entangled(f"{size} bytes of address space cannot be shared: {error}") from error


def _bare(buffer: Buffer) -> Buffer:
    """The buffer without its contents, which lie in the arena."""
    none = np.zeros(0, np.uint8)
    return replace(buffer, data=none, defined=None, owner=none.view(np.int32), flags=none)


def _mark(buffers: Sequence[Buffer], parts: Sequence[list[Touched]]) -> None:
    """Who touched what, over all batches in order. Raises Entangled where two meet."""
    for buffer in buffers:
        buffer.reset()
    for part in parts:
        for buffer, touched in zip(buffers, part, strict=True):
            buffer.refine(touched.granule)
            factor = touched.granule // buffer.granule
            index = (touched.index[:, None] * factor + np.arange(factor)).reshape(-1)
            flags, owner = np.repeat(touched.flags, factor), np.repeat(touched.owner, factor)
            before = buffer.flags[index]
            met = before != 0
            shared = (before | flags) & _WRITES != 0
            if shared[met].any():
                at = int(index[met & shared][0]) * buffer.granule
                raise Entangled(
                    f"workgroups of different batches share offset {at} of the buffer "
                    f"{buffer.name!r}, and one writes it"
                )
            later = before | flags & np.uint8(READ) | np.uint8(SHARED)
            buffer.flags[index] = np.where(met, later, flags)
            buffer.owner[index] = np.where(met, buffer.owner[index], owner)


# in a worker


def _work(
    arena: Arena,
    build: Build,
    step: Callable[[Machine], None],
    link: connection.Connection,
    foreign: list[connection.Connection],
) -> None:
    """Do batches until the link is closed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers itself
    processes.die_with_parent()
    for other in foreign:
        other.close()
    programs: dict[int, Program] = {}
    own = np.zeros(0, np.uint8)  # this worker's memory, laid out as the arena
    batches: list[Machine] = []
    buffers: list[Buffer] = []
    places: list[Place] = []
    while True:
        try:
            message = link.recv()
        except EOFError:
            return
        if isinstance(message, int):
            link.send(_one(batches[message], step, arena, buffers, places))
            continue
        key, program, launch, places, shapes = message
        program = programs.setdefault(key, program)
        end = max(place.data.stop for place in places)
        own = own if len(own) >= end else np.empty(end, np.uint8)
        buffers = [
            _image(arena, own, shape, place) for shape, place in zip(shapes, places, strict=True)
        ]
        batches = build(program, launch, buffers)


def _image(arena: Arena, own: Bytes, shape: Buffer, place: Place) -> Buffer:
    """The buffer as this worker may change it."""
    data = arena.before[place.data]
    if shape.writable:
        own[place.data] = data
        data = own[place.data]
    defined = None if place.defined is None else arena.before[place.defined].view(np.bool_).copy()
    return replace(shape, data=data, defined=defined)


def _one(
    machine: Machine,
    step: Callable[[Machine], None],
    arena: Arena,
    buffers: Sequence[Buffer],
    places: Sequence[Place],
) -> Part | Exception:
    """Run one batch; its part, or the name of what went wrong. Memory is then as before."""
    machine.budget = min(machine.budget, PATIENCE)
    failed: Exception | None = None
    try:
        step(machine)
    except NoProgress:
        failed = Entangled("a batch may wait for another one")
    except Exception as error:  # noqa: BLE001 - one process meets it again, and raises it
        failed = Spoiled(f"alone, a batch ends with: {_named(error)}")
    touched = [_touched(buffer) for buffer in buffers]
    for buffer, place, part in zip(buffers, places, touched, strict=True):
        _put_back(arena, buffer, place, part)
    return failed or (done(machine), touched)


def _named(error: Exception) -> str:
    return str(error) if isinstance(error, EmulatorError) else f"{type(error).__name__}: {error}"


def _touched(buffer: Buffer) -> Touched:
    index = np.flatnonzero(buffer.flags).astype(np.int32)
    return Touched(buffer.granule, index, buffer.flags[index], buffer.owner[index], buffer.traffic)


def _put_back(arena: Arena, buffer: Buffer, place: Place, part: Touched) -> None:
    before, after = arena.before[place.data], arena.after[place.data]
    for where in _runs(part.written, part.granule):
        after[where] = buffer.data[where]
        buffer.data[where] = before[where]
    if buffer.defined is not None and place.defined is not None:
        buffer.defined[:] = arena.before[place.defined].view(np.bool_)
    buffer.flags[part.index] = 0
    buffer.owner[part.index] = 0
    buffer.traffic = Traffic()
