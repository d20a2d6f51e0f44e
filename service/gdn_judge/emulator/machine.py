"""Steps the waves of a batch of workgroups through a program.

Waves at one pc form a front and execute together; a branch that they do not
share splits the front, and fronts that meet again at one pc are merged. The
front that is furthest behind runs first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdn_judge.emulator import lds as lds_module
from gdn_judge.emulator import lds_special, scalar, vector_half, vector_special, vmem
from gdn_judge.emulator.assembly import EXEC, SCC, SGPR, VCC, Instruction, Program
from gdn_judge.emulator.errors import (
    DivergentBarrier,
    MissingWait,
    NoProgress,
    OutOfBounds,
    OutOfTime,
    Site,
    Uninitialised,
    UnsupportedInstruction,
)
from gdn_judge.emulator.front import Array, Front, InFlight, merge, mergeable
from gdn_judge.emulator.lds import Lds
from gdn_judge.emulator.memory import AddressSpace
from gdn_judge.emulator.operands import Op, check_modifiers, unsupported
from gdn_judge.emulator.races import Order

Builder = Callable[[Instruction, Program], Op]
BARRIER, END = "barrier", "end"
_NEVER = 1 << 60
_ALWAYS = (0, EXEC, EXEC + 1, VCC, VCC + 1, SCC, *range(SGPR, SGPR + 32))  # set at the start
_CHECK_EVERY = 20_000  # instructions between looks at the budget and the clock


def _waitcnt(ins: Instruction, program: Program) -> Op:
    vm = int(ins.modifiers.get("vmcnt", 63))
    lgkm = int(ins.modifiers.get("lgkmcnt", 15))

    def run(front: Front) -> None:
        if vm < 63:
            front.machine.order.wait(front, vm)
            _retire(front, ins, "vm", front.vm, front.vm[len(front.vm) - vm :] if vm else [])
        if lgkm < 15:
            front.machine.lds.wait(front.waves, lgkm)
            _retire(front, ins, "lgkm", front.lgkm, _still_due(front.lgkm, lgkm))

    return Op(ins, run, frozenset(), frozenset())


def _still_due(queue: list[InFlight], outstanding: int) -> list[InFlight]:
    """LDS operations finish in order; scalar loads in any order, so only a wait for 0 covers."""
    if outstanding == 0:
        return []
    lds = [i for i, entry in enumerate(queue) if entry.kind == "lds"]
    finished = set(lds[: max(0, len(lds) - outstanding)])
    return [entry for i, entry in enumerate(queue) if i not in finished]


def _retire(
    front: Front, ins: Instruction, name: str, queue: list[InFlight], remaining: list[InFlight]
) -> None:
    if len(remaining) == len(queue) or (name == "vm" and len(remaining) > len(queue)):
        return
    kept = {id(entry) for entry in remaining}
    found = front.machine.waited.setdefault(ins.pc, set())
    found.update(*(entry.registers for entry in queue if id(entry) not in kept))
    setattr(front, name, remaining)
    front.refresh_trouble()


def _barrier(ins: Instruction, program: Program) -> Op:
    check_modifiers(ins)
    return Op(ins, lambda front: BARRIER, frozenset(), frozenset())


def _end(ins: Instruction, program: Program) -> Op:
    return Op(ins, lambda front: END, frozenset(), frozenset())


def _tables() -> dict[str, Builder]:
    table = scalar.builders() | vector_special.builders()
    table |= vector_half.builders() | lds_module.builders() | lds_special.builders()
    table |= vmem.builders()
    table |= {"s_waitcnt": _waitcnt, "s_barrier": _barrier, "s_endpgm": _end}
    return table


BUILDERS = _tables()


@dataclass(frozen=True)
class Compiled:
    """A program ready to run: an `Op` per instruction, the registers that it touches."""

    program: Program
    ops: list[Op]
    registers: list[int]
    lds_granule: int


def compile_program(program: Program) -> Compiled:
    """Raises UnsupportedInstruction, naming the first unknown instruction."""
    ops = [_compile(ins, program) for ins in program.instructions]
    registers = sorted(frozenset(_ALWAYS).union(*(op.touch for op in ops)))
    return Compiled(program, ops, registers, lds_module.smallest_access(program))


def _compile(ins: Instruction, program: Program) -> Op:
    build = BUILDERS.get(ins.name)
    if build is None:
        what = "MFMA is not modelled" if "mfma" in ins.name else "the instruction is not modelled"
        raise unsupported(ins, what)
    try:
        return build(ins, program)
    except (ValueError, KeyError, IndexError) as error:
        raise UnsupportedInstruction(
            f"the operands of line {ins.line} are not understood: {ins.text}"
        ) from error


class Scratch:
    """Private memory: `size` bytes for each lane of each wave of a batch."""

    def __init__(self, waves: int, size: int) -> None:
        self.size = size
        self.data = np.zeros((waves * 64, -(-max(size, 4) // 4) * 4), np.uint8)
        self.written = np.zeros(self.data.shape, np.bool_)

    def _where(
        self, front: Front, ins: Instruction, address: Any, size: int
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        rows = front.waves[:, None] * 64 + np.arange(64)
        at = address[front.mask]
        wrong = (at < 0) | (at > self.size - size)
        if wrong.any():
            row = int(np.argwhere(front.mask)[int(np.argmax(wrong))][0])
            what = f"{size} bytes at scratch offset {int(at[wrong][0])} of {self.size} bytes"
            raise OutOfBounds(what, front.machine.site(front, ins, row))
        return rows[front.mask], at

    def load(self, front: Front, ins: Instruction, address: Any, size: int) -> list[Array]:
        rows, at = self._where(front, ins, address, size)
        words = [np.zeros((len(front), 64), np.uint32) for _ in range(max(1, size // 4))]
        for i in range(size):
            if not self.written[rows, at + i].all():
                what = "scratch memory is read that was never written"
                raise Uninitialised(what, front.machine.site(front, ins, 0))
            words[i // 4][front.mask] |= self.data[rows, at + i].astype(np.uint32) << np.uint32(
                8 * (i % 4)
            )
        return words

    def store(
        self, front: Front, ins: Instruction, address: Any, size: int, words: list[Array]
    ) -> None:
        rows, at = self._where(front, ins, address, size)
        for i in range(size):
            byte = np.broadcast_to(words[i // 4] >> np.uint32(8 * (i % 4)), front.mask.shape)
            self.data[rows, at + i] = byte[front.mask].astype(np.uint8)
            self.written[rows, at + i] = True


class Machine:
    """The workgroups `groups` (linear ids) of a launch, stepped together."""

    def __init__(
        self,
        compiled: Compiled,
        space: AddressSpace,
        order: Order,
        groups: NDArray[np.intp],
        waves_per_group: int,
        lds_bytes: int,
        first_wave: int,
        budget: int,
        until: float | None = None,
    ) -> None:
        self.until = until
        program, ops = compiled.program, compiled.ops
        self.program, self.ops, self.registers = program, ops, compiled.registers
        self.space, self.order = space, order
        self.group_of_row = groups
        self.waves_per_group = waves_per_group
        self.first_wave = first_wave
        self.lds = Lds(len(groups), lds_bytes, waves_per_group, compiled.lds_granule)
        waves = len(groups) * waves_per_group
        self.scratch = Scratch(waves, program.metadata.private_segment_size)
        self.counts = [0] * len(ops)
        self.invalid = False
        self.clips: dict[int, int] = {}
        self.first_pc: dict[str, int] = {}  # the instruction that touched a buffer first
        self.waited: dict[int, set[int]] = {}  # what each wait found in flight: registers to fill
        self.budget = budget
        self.fronts: list[Front] = []
        self.waiting: list[Front] = []
        self.ended = np.zeros(waves, np.bool_)

    # names and places

    def group_ids(self, front: Front) -> NDArray[np.intp]:
        """[W] linear workgroup ids of a front's waves."""
        return self.group_of_row[front.groups]

    def site(self, front: Front, ins: Instruction, row: int) -> Site:
        wave = int(front.waves[row])
        group = int(self.group_of_row[wave // self.waves_per_group])
        return Site(
            self.program.name,
            group,
            wave % self.waves_per_group,
            ins.pc,
            ins.text,
            ins.line,
            ins.source,
        )

    def clipped(self, front: Front, ins: Instruction, offsets: Any, lanes: Any) -> None:
        """Count lanes that a descriptor's bounds dropped (offsets below 2 GiB only)."""
        dropped = int((lanes & (offsets < 1 << 31)).sum())
        if dropped:
            self.clips[ins.pc] = self.clips.get(ins.pc, 0) + dropped

    # stepping

    def step(self, quantum: int) -> bool:
        """Execute about `quantum` instructions; True when every wave has ended."""
        self.order.first = self.first_wave
        left = quantum
        while left > 0:
            if not self.fronts:
                if self.waiting:
                    self._stuck()
                return True
            front = min(self.fronts, key=lambda f: f.pc)
            self.fronts.remove(front)
            left -= self._advance(front, left)
        return not self.fronts and not self.waiting

    def _advance(self, front: Front, quantum: int) -> int:
        """Run a front until it reaches the next one, splits, waits, ends, or spends `quantum`."""
        limit = min((f.pc for f in self.fronts), default=_NEVER)
        ops, counts, size = self.ops, self.counts, len(front)
        pc, done, last = front.pc, 0, len(self.ops)
        while True:
            if pc >= last:
                raise UnsupportedInstruction(f"{self.program.name}: the code runs past its end")
            op = ops[pc]
            counts[pc] += size
            done += 1
            if op.touch.isdisjoint(front.trouble):
                outcome = op.run(front)
            else:
                outcome = self._careful(front, op)
            if outcome is None:
                pc += 1
            elif type(outcome) is int:
                pc = outcome
            else:
                front.pc = pc
                self._event(front, outcome)
                break
            if pc >= limit or done >= quantum or done >= _CHECK_EVERY:
                front.pc = pc
                self._rejoin(front)
                break
        self.budget -= done
        if self.budget < 0:
            site = self.site(front, self.program.instructions[pc], 0)
            raise NoProgress("the instruction budget of the launch is spent", site)
        if self.until is not None and time.monotonic() > self.until:
            raise OutOfTime(f"{self.program.name}: the deadline passed during emulation")
        return done

    def _rejoin(self, front: Front) -> None:
        for other in self.fronts:
            if other.pc == front.pc and mergeable(front, other):
                self.fronts.remove(other)
                self.fronts.append(merge((front, other)))
                return
        self.fronts.append(front)

    def _event(self, front: Front, outcome: Any) -> None:
        if outcome is BARRIER:
            self._arrive(front)
        elif outcome is END:
            self.ended[front.waves] = True
        else:
            taken, target = outcome
            here = front.take(~taken)
            there = front.take(taken)
            here.pc, there.pc = front.pc + 1, target
            self.fronts.append(here)
            self._rejoin(there)

    # barriers

    def _arrive(self, front: Front) -> None:
        groups = front.groups
        present = np.bincount(groups, minlength=len(self.group_of_row))
        whole = (present == 0) | (present == self.waves_per_group)
        if whole.all():
            self._pass_barrier([front])
            return
        self.waiting.append(front)
        self._release_complete()

    def _pass_barrier(self, fronts: list[Front]) -> None:
        """Whole workgroups go on; waves with other waits due stay in other fronts."""
        waves = np.sort(np.concatenate([front.waves for front in fronts]))
        self.lds.barrier(waves, self.order.finished(waves))
        self.order.barrier(waves + self.first_wave, waves // self.waves_per_group)
        for front in fronts:
            front.pc += 1
            self._rejoin(front)

    def _release_complete(self) -> None:
        """Let go the workgroups whose waves all wait, if they wait at one barrier."""
        waves = np.concatenate([f.waves for f in self.waiting])
        present = np.bincount(waves // self.waves_per_group, minlength=len(self.group_of_row))
        complete = present == self.waves_per_group
        if not complete.any():
            return
        pcs: dict[int, list[Front]] = {}
        rest = []
        for front in self.waiting:
            go = complete[front.groups]
            if go.any():
                pcs.setdefault(front.pc, []).append(front.take(go))
            if not go.all():
                rest.append(front.take(~go))
        self._check_one_barrier(pcs)
        self.waiting = rest
        self._pass_barrier([joined for parts in pcs.values() for joined in _merge_all(parts)])

    def _check_one_barrier(self, pcs: dict[int, list[Front]]) -> None:
        owner: dict[int, int] = {}
        for pc, fronts in pcs.items():
            for front in fronts:
                for row, group in enumerate(front.groups):
                    if owner.setdefault(int(group), pc) != pc:
                        site = self.site(front, self.program.instructions[pc], row)
                        what = (
                            "waves of a workgroup wait at different barriers "
                            f"(instructions {owner[int(group)]} and {pc})"
                        )
                        raise DivergentBarrier(what, site)

    def _stuck(self) -> None:
        front = self.waiting[0]
        group = int(front.groups[0])
        first = group * self.waves_per_group
        ended = int(self.ended[first : first + self.waves_per_group].sum())
        site = self.site(front, self.program.instructions[front.pc], 0)
        raise DivergentBarrier(
            f"a wave waits at a barrier that {ended} waves of its workgroup never reach", site
        )

    # registers that need care

    def _careful(self, front: Front, op: Op) -> Any:
        self._check_waits(front, op)
        unknown = front.undefined
        if op.touch.isdisjoint(unknown):
            return op.run(front)
        self._check_strict(front, op)
        reads = not op.reads.isdisjoint(unknown)
        taints = self._taints(front, op) if reads and op.writes else {}
        outcome = op.run(front)
        for register in op.writes:
            self._settle(front, op, register, taints.get(register))
        return outcome

    def _check_waits(self, front: Front, op: Op) -> None:
        name = op.instruction.name
        kind = "lds" if name.startswith("ds_") else "vm" if _is_vector_memory(name) else ""
        for entry in (*front.vm, *front.lgkm):
            clash = entry.registers & op.reads
            if entry.kind != kind:
                clash = clash | (entry.registers & op.writes)
            if clash:
                what = (
                    f"{register_name(min(clash))} is used while {entry.text!r} is in flight: "
                    "no s_waitcnt covers it"
                )
                raise MissingWait(what, self.site(front, op.instruction, 0))

    def _check_strict(self, front: Front, op: Op) -> None:
        for register, bits in op.strict.items():
            unknown = front.undefined.get(register)
            if unknown is None:
                continue
            wrong = np.broadcast_to(unknown & np.uint32(bits) != 0, (len(front), 64))
            if register < SGPR:
                wrong = wrong & front.mask
            if wrong.any():
                row = int(np.argwhere(wrong)[0][0])
                what = f"{register_name(register)} decides an address, a branch or EXEC unwritten"
                raise Uninitialised(what, self.site(front, op.instruction, row))

    def _taints(self, front: Front, op: Op) -> dict[int, Array]:
        unknown = front.undefined

        def bits(register: int) -> Array:
            return unknown.get(register, _CLEAN)

        if op.taint is not None:
            return op.taint(front, bits)
        hit = np.zeros((1, 1), np.bool_)
        for register in op.reads:
            part = bits(register) != 0
            if not op.lanewise and register < SGPR:
                part = (np.broadcast_to(part, front.mask.shape) & front.mask).any(
                    axis=1, keepdims=True
                )
            hit = hit | part
        result = np.where(hit, np.uint32(0xFFFFFFFF), np.uint32(0))
        column = result.any(axis=1, keepdims=True)
        narrow = np.where(column, np.uint32(0xFFFFFFFF), np.uint32(0))
        return {r: result if r < SGPR else narrow for r in op.writes}

    def _settle(self, front: Front, op: Op, register: int, taint: Array | None) -> None:
        old = front.undefined.get(register)
        value = _CLEAN if taint is None else taint
        if register < SGPR and op.lanewise and not front.full:
            value = np.where(front.mask, value, _CLEAN if old is None else old)
        if value.any():
            front.undefined[register] = value
            front.trouble.add(register)
        elif old is not None:
            del front.undefined[register]
            if not any(register in e.registers for e in (*front.vm, *front.lgkm)):
                front.trouble.discard(register)


_CLEAN = np.zeros((1, 1), np.uint32)


def _is_vector_memory(name: str) -> bool:
    return name.startswith(("global_", "buffer_", "flat_", "scratch_"))


def _merge_all(parts: list[Front]) -> list[Front]:
    """As few fronts as their outstanding waits allow."""
    done: list[Front] = []
    for part in parts:
        for i, other in enumerate(done):
            if mergeable(other, part):
                done[i] = merge((other, part))
                break
        else:
            done.append(part)
    return done


def register_name(index: int) -> str:
    """The assembly name of a position in the register file."""
    special = {106: "vcc_lo", 107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi", 128: "scc"}
    if index >= SGPR:
        return special.get(index - SGPR, f"s{index - SGPR}")
    return f"v{index}" if index < 256 else f"a{index - 256}"
