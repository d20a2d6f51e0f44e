"""One launch of a kernel: arguments, grid, order of the workgroups, and what came of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.emulator import apart
from gdn_judge.emulator.apart import Done, Workers
from gdn_judge.emulator.assembly import EXEC, SCC, SGPR, VCC, Program
from gdn_judge.emulator.errors import LaunchError
from gdn_judge.emulator.front import MODE_FP16_OVERFLOW, Front
from gdn_judge.emulator.machine import Compiled, Machine, compile_program
from gdn_judge.emulator.memory import AddressSpace, Buffer, Traffic, make_buffer
from gdn_judge.emulator.metadata import USER_SGPR_WIDTH
from gdn_judge.emulator.races import Contest, HappensBefore, Order

LDS_BYTES = 160 * 1024  # of a compute unit: CDNA4 ISA document, "LDS"
WAVES_AT_ONCE = 512
INTERLEAVED = 2
DIVIDED_FROM = 512  # waves
NEIGHBOURS = 32  # workgroups in a row that stay in one batch: they may share tickets
BUDGET = 200_000_000


@dataclass(frozen=True)
class Pointer:
    """An address argument: a byte offset into a buffer of the launch."""

    buffer: str
    offset: int = 0


Argument = Pointer | bytes | None


@dataclass(frozen=True)
class _Limits:
    """Instructions of fronts that a batch may execute, and a time.monotonic() to stop at."""

    budget: int
    until: float | None


@dataclass(frozen=True)
class Schedule:
    """In which order workgroups run.

    Without a seed: by id, in the largest batches, but two where there is work for two
    processes. With one: in a random order, and at least two batches interleaved at
    random points.
    """

    seed: int | None = None
    waves_at_once: int = WAVES_AT_ONCE


@dataclass(frozen=True)
class Launch:
    """A kernel and how it is started.

    grid counts workgroups; arguments follow the metadata (a `Pointer`, the bytes
    of a value, or None for a null pointer); shared_bytes is the dynamic LDS.
    """

    program: Program
    grid: tuple[int, int, int]
    waves: int
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Report:
    """What a launch did. Instructions are counted per wave; traffic per buffer name.

    counts: how often each instruction of the program was executed, summed over
    waves. first_pc: the instruction that touched each buffer first. waited: the
    waits that found something in flight, and the registers it was to fill.
    entangled: why the batches were not spread over processes though they were meant
    to be, or "".
    """

    kernel: str
    wave_instructions: int
    mnemonics: dict[str, int]
    traffic: dict[str, Traffic]
    clipped_lanes: dict[int, int]
    seconds: float
    counts: list[int] = field(repr=False, default_factory=list)
    first_pc: dict[str, int] = field(default_factory=dict)
    waited: dict[int, set[int]] = field(default_factory=dict)
    entangled: str = ""


_compiled: dict[int, Compiled] = {}  # each holds its program, so the key stays its own


def compiled(program: Program) -> Compiled:
    """The program ready to run, built once for each program object."""
    key = id(program)
    if key not in _compiled:
        _compiled[key] = compile_program(program)
    return _compiled[key]


def run(
    launch: Launch,
    buffers: list[Buffer],
    schedule: Schedule | None = None,
    *,
    races: bool = True,
    until: float | None = None,
    budget: int = BUDGET,
    workers: Workers | None = None,
) -> Report:
    """Execute a launch on `buffers`, in place; `until` is a time.monotonic().

    With `races`, bytes that several waves touched are judged in a second run. Batches are
    spread over `workers` where that cannot be seen (`apart`).
    Raises LaunchError, UnsupportedInstruction, OutOfTime, WorkerDied, or a KernelFault.
    """
    schedule = schedule or Schedule()
    limits = _Limits(budget, until)
    _check(launch)
    before = [b.data.copy() if b.writable and races else b.data for b in buffers]
    started = time.perf_counter()
    order = Order(_groups(launch) * launch.waves)
    parts, entangled = _spread(launch, buffers, schedule, order, limits, workers)
    seconds = time.perf_counter() - started
    traffic = {b.name: b.settle() for b in buffers}
    if races:
        _judge_races(launch, buffers, before, schedule, limits)
    return _report(launch, parts, traffic, seconds, entangled)


_entangled: dict[tuple[int, tuple[int, int, int], bool], str] = {}  # launches found to be so


def _spread(
    launch: Launch,
    buffers: list[Buffer],
    schedule: Schedule,
    order: Order,
    limits: _Limits,
    workers: Workers | None,
) -> tuple[list[Done], str]:
    """What each batch did, and why the batches ran in one process, where that was not meant."""
    key = (id(compiled(launch.program)), launch.grid, schedule.seed is None)
    audited = all(b.audited for b in buffers if b.writable)
    why = ""
    if workers is not None and audited and key not in _entangled:
        machines = _machines(launch, buffers, schedule, order, None, limits)
        if len(machines) > 1:
            try:
                rest = {**vars(launch), "program": None}, schedule, limits
                return workers.run(launch.program, rest, buffers, machines), ""
            except (apart.Entangled, apart.Spoiled) as error:
                why = str(error)
    why = _entangled.get(key, why)
    machines = _execute(launch, buffers, schedule, order, None, limits)
    if why:  # and not the kernel's own fault, which would have ended this run too
        _entangled[key] = why
    return [apart.done(machine) for machine in machines], why


def _judge_races(
    launch: Launch, buffers: list[Buffer], before: list[Any], schedule: Schedule, limits: _Limits
) -> None:
    """Run again with clocks when waves shared bytes that one of them wrote."""
    contests = {}
    for buffer in buffers:
        granules = buffer.conflicts()
        if len(granules):
            contests[buffer.name] = Contest(buffer.granule, granules)
    if contests:
        _replay(launch, buffers, before, schedule, limits, contests)


def _replay(
    launch: Launch,
    buffers: list[Buffer],
    before: list[Any],
    schedule: Schedule,
    limits: _Limits,
    contests: dict[str, Contest],
) -> None:
    copies = [
        Buffer(
            b.name,
            b.size,
            data.copy() if b.writable else data,
            b.writable,
            b.audited,
            alignment=b.alignment,
        )
        for b, data in zip(buffers, before, strict=True)
    ]
    clocks = HappensBefore(_groups(launch) * launch.waves, contests)
    _execute(launch, copies, schedule, clocks, clocks, limits)
    clocks.judge()


def _groups(launch: Launch) -> int:
    x, y, z = launch.grid
    return x * y * z


def _check(launch: Launch) -> None:
    meta = launch.program.metadata
    if "gfx950" not in meta.target:
        raise LaunchError(f"the code object is for {meta.target!r}, not for gfx950")
    if meta.wavefront_size != 64:
        raise LaunchError(f"wavefront size {meta.wavefront_size}; gfx950 has 64")
    if min(launch.grid) < 1:
        raise LaunchError(f"an empty grid {launch.grid}")
    if launch.waves * 64 > meta.max_workgroup_size:
        raise LaunchError(f"{launch.waves} waves exceed {meta.max_workgroup_size} work-items")
    total = meta.group_segment_size + launch.shared_bytes
    if total > LDS_BYTES:
        raise LaunchError(f"{total} bytes of LDS; a compute unit has {LDS_BYTES}")


def spread_over(count: int) -> Workers:
    """Processes for `run`."""
    return Workers(count, _rebuilt, _run_to_end)


def _rebuilt(program: Program, rest: Any, buffers: list[Buffer]) -> list[Machine]:
    launch, schedule, limits = rest
    launch = Launch(**{**launch, "program": program})
    order = Order(_groups(launch) * launch.waves)
    return _machines(launch, buffers, schedule, order, None, limits)


def _execute(
    launch: Launch,
    buffers: list[Buffer],
    schedule: Schedule,
    order: Order,
    log: Any,
    limits: _Limits,
) -> list[Machine]:
    machines = _machines(launch, buffers, schedule, order, log, limits)
    with np.errstate(all="ignore"):
        _run_all(machines, schedule)
    return machines


def _machines(
    launch: Launch,
    buffers: list[Buffer],
    schedule: Schedule,
    order: Order,
    log: Any,
    limits: _Limits,
) -> list[Machine]:
    """A machine for each batch, at its start; forgets what earlier launches touched."""
    kernarg = make_buffer(
        "kernarg",
        np.zeros(launch.program.metadata.kernarg_size, np.uint8),
        writable=False,
        audited=False,
    )
    space = AddressSpace([*buffers, kernarg])
    space.log = log
    _fill_kernarg(launch, kernarg, {b.name: b for b in buffers})
    machines = []
    first = 0
    for groups in _batches(launch, schedule):
        machines.append(_machine(launch, space, order, groups, first, kernarg, limits))
        first += len(groups) * launch.waves
    return machines


def _batches(launch: Launch, schedule: Schedule) -> list[NDArray[np.intp]]:
    count = _groups(launch)
    at_once = max(1, schedule.waves_at_once // launch.waves)
    ids = np.arange(count)
    if schedule.seed is None:
        if count <= at_once and count * launch.waves >= DIVIDED_FROM:
            at_once = -(-count // 2 // NEIGHBOURS) * NEIGHBOURS
        return [ids[i : i + at_once] for i in range(0, count, at_once)]
    rng = random.Random(schedule.seed)
    rng.shuffle(ids)  # type: ignore[arg-type]
    parts = max(-(-count // at_once), min(count, INTERLEAVED))
    return [np.asarray(part) for part in np.array_split(ids, parts)]


def _run_all(machines: list[Machine], schedule: Schedule) -> None:
    if schedule.seed is None:
        for machine in machines:
            _run_machine(machine, 1 << 62)
        return
    rng = random.Random(schedule.seed ^ 0x5EED)
    live = list(machines)
    while live:
        machine = rng.choice(live)
        if _run_machine(machine, rng.randint(1, 400)):
            live.remove(machine)


def _run_to_end(machine: Machine) -> None:
    with np.errstate(all="ignore"):
        _run_machine(machine, 1 << 62)


def _run_machine(machine: Machine, quantum: int) -> bool:
    def note(kind: str, flag: int) -> None:
        machine.invalid = True

    with np.errstate(invalid="call", call=note):
        return machine.step(quantum)


def _fill_kernarg(launch: Launch, kernarg: Buffer, buffers: dict[str, Buffer]) -> None:
    visible = [a for a in launch.program.metadata.arguments if not a.kind.startswith("hidden")]
    if len(visible) != len(launch.arguments):
        raise LaunchError(f"{len(launch.arguments)} arguments for {len(visible)} parameters")
    for i, (parameter, value) in enumerate(zip(visible, launch.arguments, strict=True)):
        raw = _argument_bytes(i, value, parameter.size, buffers)
        kernarg.data[parameter.offset : parameter.offset + parameter.size] = np.frombuffer(
            raw, np.uint8
        )


def _argument_bytes(i: int, value: Argument, size: int, buffers: dict[str, Buffer]) -> bytes:
    if value is None:
        return bytes(size)
    if isinstance(value, Pointer):
        if value.buffer not in buffers:
            raise LaunchError(f"argument {i} points into an unknown buffer {value.buffer!r}")
        return (buffers[value.buffer].base + value.offset).to_bytes(8, "little")
    if len(value) != size:
        raise LaunchError(f"argument {i} has {len(value)} bytes, the kernel wants {size}")
    return value


def _machine(
    launch: Launch,
    space: AddressSpace,
    order: Order,
    groups: NDArray[np.intp],
    first: int,
    kernarg: Buffer,
    limits: _Limits,
) -> Machine:
    meta = launch.program.metadata
    lds_bytes = meta.group_segment_size + launch.shared_bytes
    machine = Machine(
        compiled(launch.program),
        space,
        order,
        groups,
        launch.waves,
        lds_bytes,
        first,
        limits.budget,
        limits.until,
    )
    front = Front(machine, np.arange(len(groups) * launch.waves), launch.program.entry)
    _initial_registers(front, launch, kernarg)
    machine.fronts.append(front)
    return machine


def _initial_registers(front: Front, launch: Launch, kernarg: Buffer) -> None:
    meta = launch.program.metadata
    front.mode = MODE_FP16_OVERFLOW if meta.fp16_overflow else 0

    def define(register: int, value: Any) -> None:
        front.regs[register] = np.asarray(value, np.uint32)
        front.undefined.pop(register, None)

    def constant(register: int, value: int) -> None:
        define(register, np.full((1, 1), value, np.uint32))

    for register in (EXEC, EXEC + 1):
        constant(register, 0xFFFFFFFF)
    for register in (VCC, VCC + 1, SCC):
        front.regs[register] = np.zeros((1, 1), np.uint32)
    index = SGPR
    for feature in meta.user_sgpr_features:
        if feature == "kernarg_segment_ptr":
            constant(index, kernarg.base & 0xFFFFFFFF)
            constant(index + 1, kernarg.base >> 32)
        index += USER_SGPR_WIDTH[feature]
    preload = kernarg.data.view(np.uint32)
    for i in range(meta.kernarg_preload_length):
        constant(index + i, int(preload[i]))
    index = SGPR + meta.user_sgprs
    x, y, _ = launch.grid
    ids = front.machine.group_ids(front)
    for enabled, value in zip(
        meta.workgroup_ids, (ids % x, ids // x % y, ids // (x * y)), strict=True
    ):
        if enabled:
            define(index, value[:, None].astype(np.uint32))
            index += 1
    lane = np.arange(64)[None, :] + 64 * (front.waves % launch.waves)[:, None]
    define(0, lane.astype(np.uint32))
    front.refresh_exec()
    front.refresh_trouble()


def _report(
    launch: Launch,
    parts: list[Done],
    traffic: dict[str, Traffic],
    seconds: float,
    entangled: str,
) -> Report:
    mnemonics: Counter[str] = Counter()
    clips: Counter[int] = Counter()
    first_pc: dict[str, int] = {}
    waited: dict[int, set[int]] = {}
    for part in parts:
        for pc, registers in part.waited.items():
            waited.setdefault(pc, set()).update(registers)
        clips.update(part.clips)
        first_pc = part.first_pc | first_pc
        for ins, count in zip(launch.program.instructions, part.counts, strict=True):
            if count:
                mnemonics[ins.name] += count
    return Report(
        launch.program.name,
        sum(mnemonics.values()),
        dict(mnemonics.most_common()),
        traffic,
        dict(clips),
        seconds,
        counts=[sum(column) for column in zip(*(part.counts for part in parts), strict=True)],
        first_pc=first_pc,
        waited=waited,
        entangled=entangled,
    )
