"""The executor that runs gfx950 code objects in the judge, without a GPU.

The candidate process captures launches on blank operands of the same shapes
(see `agent.capture`); it sees no input of the judge. The judge executes the
code objects on the real operands (see `emulator`). Calls with the same inputs
run their workgroups in another order each time.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gdn_judge import capture
from gdn_judge.candidate import Launch as Process
from gdn_judge.capture import Captured, Code, Filled, Launched, PointerTo, Storage, View
from gdn_judge.codeobject import gfx950
from gdn_judge.contract import OPERANDS, POOLS, RESULTS
from gdn_judge.emulator import assembly, fidelity
from gdn_judge.emulator.assembly import Program
from gdn_judge.emulator.errors import (
    AssemblyError,
    EmulatorError,
    KernelFault,
    LaunchError,
    OutOfTime,
    UnsupportedInstruction,
    WorkerDied,
)
from gdn_judge.emulator.launch import Launch, Pointer, Report, Schedule, run, spread_over
from gdn_judge.emulator.memory import Buffer, make_buffer
from gdn_judge.errors import (
    CandidateFaulted,
    CandidateRaised,
    CandidateTimedOut,
    HostError,
    NotModelled,
    ProtocolViolation,
)
from gdn_judge.execution import Damage, Hello, PredicateAnswer
from gdn_judge.operands import (
    STORAGE,
    Array,
    CallOptions,
    CallResult,
    KernelRun,
    Operands,
    TensorForm,
)
from gdn_judge.remote import RemoteExecutor, answer, request


class EmulatedExecutor:
    """`execution.Executor` for device kind gfx950-emulated."""

    def __init__(self, process: Process, notes: Sequence[str] = (), *, processes: int = 1) -> None:
        self.workers = spread_over(processes) if processes > 1 else None
        self._remote = RemoteExecutor(process, notes)
        self._codes: dict[str, Code] = {}
        self.launched: list[Code] = []  # by the last captured call, whether they can be read or not
        self.programs: dict[str, tuple[Code, Program]] = {}
        self._kept: dict[int, Array] = {}
        self._times_seen: dict[str, int] = {}
        self._judged: set[tuple[object, ...]] = set()
        self.reports: list[Report] = []  # of the last call
        self.programs_run: list[Program] = []  # beside each report

    def start(self) -> Hello:
        hello = self._remote.start()
        return Hello(
            op=hello.op,
            has_predicate=hello.has_predicate,
            declarations=hello.declarations,
            device={**hello.device, **fidelity.FACTS},
            notes=(*hello.notes, *fidelity.NOTES),
        )

    def call(
        self, operands: Operands, options: CallOptions, *, deadline_s: float = 60.0
    ) -> CallResult:
        until = time.monotonic() + deadline_s
        captured = self.capture(operands, options, (), deadline_s)
        return self.execute(captured, operands, options, until)

    def predicate(
        self,
        operands: Operands,
        options: CallOptions,
        damages: tuple[Damage, ...] = (),
        *,
        deadline_s: float = 60.0,
    ) -> PredicateAnswer:
        until = time.monotonic() + deadline_s
        message = request("predicate", operands, options) | {
            "damages": [vars(damage) for damage in damages]
        }
        reply = self._remote.candidate.ask(message, deadline_s=deadline_s)
        if "recording" not in reply:
            return answer(reply, None)
        captured = self._learn(reply["recording"])
        if any(damage.how != "strided" for damage in damages):
            self.pass_over(captured, options)
            return answer(reply, None)
        return answer(reply, self.execute(captured, operands, options, until))

    def pass_over(self, captured: Captured, options: CallOptions) -> None:
        """Note what a call that is not executed leaves to later ones: memory as prepared."""
        self._keep(captured, self._scratch(captured, options))

    def look_for_races_again(self) -> None:
        """Forget which kernels and grids were already looked through."""
        self._judged.clear()

    def program_of(self, code: Code) -> Program:
        """The parsed program of a code object that this executor has seen."""
        return next(program for known, program in self.programs.values() if known is code)

    def log_tail(self) -> str:
        return self._remote.log_tail()

    def close(self) -> list[int]:
        left = self._remote.close()
        if self.workers is not None:
            self.workers.close()
        return left

    def capture(
        self,
        operands: Operands,
        options: CallOptions,
        damages: tuple[Damage, ...],
        deadline_s: float,
    ) -> Captured:
        """What the op launches for operands of these shapes; its code objects are kept."""
        message = request("capture", operands, options) | {
            "damages": [vars(damage) for damage in damages]
        }
        try:
            reply = self._remote.candidate.ask(message, deadline_s=deadline_s)
        except CandidateRaised as error:
            if error.kind == "CannotCapture":
                raise NotModelled(f"the call cannot be captured: {error.message}") from error
            raise
        return self._learn(reply)

    def _learn(self, recording: Mapping[str, Any]) -> Captured:
        captured = capture.read(recording)
        self._codes |= captured.codes
        keys = [event.code for event in captured.events if isinstance(event, Launched)]
        self.launched = [self._codes[key] for key in keys if key in self._codes]
        for key in (*captured.codes, *keys):  # one that cannot be read is refused each time
            if key in self._codes and key not in self.programs:
                self.programs[key] = (self._codes[key], _parse(self._codes[key]))
        return captured

    # execution

    def execute(
        self, captured: Captured, operands: Operands, options: CallOptions, until: float
    ) -> CallResult:
        """Run a captured call on these operands, until time.monotonic() is `until`."""
        if set(captured.operands) != set(OPERANDS):
            raise ProtocolViolation(f"the recording has the operands {sorted(captured.operands)}")
        memory = self._scratch(captured, options)
        _load_operands(captured, memory, operands)
        schedule = self._schedule(operands, options)
        self.reports, self.programs_run = [], []
        kernels = [KernelRun(name=f"{name} (torch)") for name in captured.prepared]
        try:
            for event in captured.events:
                if isinstance(event, Filled):
                    _fill(memory[event.storage], event)
                    kernels += [KernelRun(name="fill (torch)")] if event.count else []
                else:
                    races = self._unjudged(event, operands, options, schedule)
                    kernels.append(self._launch(event, memory, schedule, races, until))
        finally:
            self._keep(captured, memory)
        return self._result(captured, memory, operands, tuple(kernels))

    def _keep(self, captured: Captured, memory: Mapping[int, Buffer]) -> None:
        """Storages that the op holds on to have their contents in the next call."""
        self._kept |= {number: buffer.contents() for number, buffer in memory.items()}
        self._kept = {n: data for n, data in self._kept.items() if n in captured.alive}

    def _scratch(self, captured: Captured, options: CallOptions) -> dict[int, Buffer]:
        """A buffer for each storage; those of operands still hold poison."""
        memory = {}
        owners = {view.storage: name for name, view in captured.operands.items()}
        for number, storage in captured.storages.items():
            name = owners.get(number, _result_name(captured, number))
            contents = self._contents(storage, options.poison)
            memory[number] = make_buffer(name, contents, keep_defined=storage.init != "blank")
        return memory

    def _contents(self, storage: Storage, poison: int) -> Array:
        if storage.init == "kept":
            kept = self._kept.get(storage.number)
            if kept is None or len(kept) != storage.size:
                raise ProtocolViolation(f"storage {storage.number} was never seen before")
            return kept
        if storage.loaded:
            return np.frombuffer(storage.contents, np.uint8)
        byte = storage.contents[0] if storage.init == "contents" else poison
        return np.full(storage.size, byte, np.uint8)

    def _schedule(self, operands: Operands, options: CallOptions) -> Schedule:
        """In order at first; the same inputs again in another order each time."""
        hasher = hashlib.sha256(repr(options).encode())
        for array in operands.arrays().values():
            hasher.update(np.ascontiguousarray(array).tobytes())
        key = hasher.hexdigest()
        times = self._times_seen.get(key, 0)
        self._times_seen[key] = times + 1
        return Schedule(seed=times or None)

    def _unjudged(
        self, event: Launched, operands: Operands, options: CallOptions, schedule: Schedule
    ) -> bool:
        """Whether races of this kernel, grid and pattern of pads are still to be judged."""
        live = (operands.ssm_state_indices != options.pad_slot_id).tobytes()
        key = (event.code, event.grid, options.fp8, live, schedule.seed is None)
        fresh = key not in self._judged
        self._judged.add(key)
        return fresh

    def _launch(
        self,
        event: Launched,
        memory: Mapping[int, Buffer],
        schedule: Schedule,
        races: bool,
        until: float,
    ) -> KernelRun:
        if event.code not in self.programs:
            raise ProtocolViolation(f"the recording names an unknown code object {event.code[:16]}")
        code, program = self.programs[event.code]
        buffers = list(memory.values())
        arguments = tuple(
            Pointer(memory[a.storage].name, a.offset) if isinstance(a, PointerTo) else a
            for a in (*event.arguments, None, None)  # Triton's two scratch pointers
        )
        launch = Launch(program, event.grid, code.warps, arguments, code.shared)
        try:
            report = run(launch, buffers, schedule, races=races, until=until, workers=self.workers)
        except KernelFault as error:
            raise CandidateFaulted(str(error)) from error
        except (UnsupportedInstruction, LaunchError) as error:
            raise NotModelled(str(error)) from error
        except OutOfTime as error:
            raise CandidateTimedOut(str(error)) from error
        except WorkerDied as error:
            raise HostError(str(error)) from error
        self.reports.append(report)
        self.programs_run.append(program)
        return _kernel_run(code, program)

    def _result(
        self,
        captured: Captured,
        memory: Mapping[int, Buffer],
        operands: Operands,
        kernels: tuple[KernelRun, ...],
    ) -> CallResult:
        forms, results = {}, dict.fromkeys(RESULTS)
        for name in RESULTS:
            view = captured.results.get(name)
            forms[name] = TensorForm.of_none() if view is None else view.form
            if view is not None:
                results[name] = _array(view, memory)
        return CallResult(
            form_error=captured.form_error,
            forms=forms,
            results=results,
            after=_after(captured, memory, operands),
            kernels=kernels,
            notes=tuple(_in_one_process(report) for report in self.reports if report.entangled),
            counters=_counters(self.reports),
        )


def _in_one_process(report: Report) -> str:
    return (
        f"The workgroups of {report.kernel} were emulated in one process, in order: "
        f"{report.entangled}."
    )


@functools.lru_cache(maxsize=256)
def _kernel_run(code: Code, program: Program) -> KernelRun:
    used = gfx950.resources(program, code.warps, code.shared)
    return KernelRun(name=code.name, digest=program.digest, arch="gfx950", resources=used)


def _parse(code: Code) -> Program:
    try:
        return assembly.parse(code.assembly)
    except AssemblyError as error:
        raise NotModelled(f"kernel {code.name}: {error}") from error
    except EmulatorError as error:
        raise NotModelled(str(error)) from error


def _result_name(captured: Captured, number: int) -> str:
    for name, view in captured.results.items():
        if view is not None and view.storage == number:
            return name
    return f"scratch-{number}"


def _load_operands(captured: Captured, memory: Mapping[int, Buffer], operands: Operands) -> None:
    for name, view in captured.operands.items():
        if view.count:
            _want_form(name, view, _visible(operands, name))
            view.of(memory[view.storage].data)[...] = _visible(operands, name)


def _want_form(name: str, view: View, array: Array) -> None:
    if view.shape != array.shape or STORAGE[view.dtype] != array.dtype:
        raise ProtocolViolation(f"operand {name} came back as {view.dtype} {list(view.shape)}")


def _visible(operands: Operands, name: str) -> Array:
    """What the op sees of an operand: a pool without its guard slots."""
    array: Array = operands.pool(name) if name in POOLS else operands.arrays()[name]
    return array


def _fill(buffer: Buffer, event: Filled) -> None:
    end = event.offset + event.count * len(event.pattern)
    raw = np.frombuffer(event.pattern, np.uint8)
    buffer.data[event.offset : end] = np.tile(raw, event.count)
    buffer.define(event.offset, end)


def _array(view: View, memory: Mapping[int, Buffer]) -> Array:
    if not view.count:
        return np.zeros(view.shape, STORAGE[view.dtype])
    return view.of(memory[view.storage].data).copy()


def _after(
    captured: Captured, memory: Mapping[int, Buffer], operands: Operands
) -> dict[str, Array]:
    after = {name: array.copy() for name, array in operands.arrays().items()}
    for name in OPERANDS:
        view = captured.operands[name]
        if view.count:
            target = after[name]
            if name in POOLS:
                target = target[operands.guard : operands.guard + operands.slots]
            target[...] = view.of(memory[view.storage].data)
    return after


def _counters(reports: Sequence[Report]) -> dict[str, int]:
    """Instructions and exact bytes of the call: distinct ones in all, and by buffer."""
    counters = dict.fromkeys(("wave_instructions", "read_bytes", "written_bytes"), 0)
    for report in reports:
        counters["wave_instructions"] += report.wave_instructions
        for name, traffic in report.traffic.items():
            counters["read_bytes"] += traffic.distinct_read
            counters["written_bytes"] += traffic.distinct_written
            for key in ("distinct_read", "distinct_written", "read", "written"):
                label = f"{key}:{name}"
                counters[label] = counters.get(label, 0) + int(getattr(traffic, key))
    return counters
