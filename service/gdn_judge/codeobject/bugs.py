"""Deliberate bugs: spoil a compiled kernel in one place each, and see what notices.

Each mutant changes one line of the assembly. It is caught when the emulator
names a fault, or when the judge's own comparison with the reference fails.

Lines before the entry are left alone: they serve loaders that do not preload
arguments. A mutant that is not caught is looked into: a wait that finds nothing in
flight in any execution (an earlier one covers what the compiler could not know to be
covered), and halves that are equal in all lanes wherever they are exchanged, are
equivalent, and so is a wait that a later one replaces before anything depends on it.
Any other is a hole in the checks.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gdn_judge import candidate, compare, generate, truth
from gdn_judge.capture import Captured, Launched
from gdn_judge.codeobject.compiler import Compiler
from gdn_judge.contract import Heads
from gdn_judge.emulator import launch
from gdn_judge.emulator.assembly import Program, parse
from gdn_judge.emulator.front import Front
from gdn_judge.errors import CandidateError
from gdn_judge.operands import CallOptions, CallResult, Operands

_CALL_S = 300.0
_SMALL_GATE = 0xC140  # -12 in bfloat16: its softplus is below 2**-12
_ORDERS = 3  # of workgroups in which an unspoiled kernel is looked at
WAIT, LAYOUT = "wait dropped", "layout swapped"
Change = Callable[[str], str | None]  # a line to its spoiled form; None: not this kind of line


def _removed(pattern: str) -> Change:
    expression = re.compile(pattern)
    return lambda line: "" if expression.match(line) else None


def _shrunk(line: str) -> str | None:
    """A descriptor that ends after 64 bytes."""
    spoiled = re.sub(r"^(s_mov_b32 s\d+, )0x7ffffffe$", r"\g<1>0x40", line)
    return spoiled if spoiled != line else None


def _moved(pattern: str, step: int) -> Change:
    """The access `step` bytes further on."""
    expression = re.compile(pattern)

    def change(line: str) -> str | None:
        if not expression.match(line):
            return None
        if match := re.search(r"offset:(\d+)", line):
            return line.replace(match[0], f"offset:{int(match[1]) + step}")
        return f"{line} offset:{step}"

    return change


_PATTERN = re.compile(r"(row_\w+:\d+|row_mirror|row_half_mirror|quad_perm:\[[\d,]+\])")


def _other_lane(line: str) -> str | None:
    """A cross-lane step that reads its own lane instead of the other."""
    if "_dpp" not in line:
        return _swapped(line)
    if "quad_perm:[3,2,1,0]" in line:  # undoes the reversal of a half mirror; sums do not need it
        return None
    return _PATTERN.sub("quad_perm:[0,1,2,3]", line, count=1)


def _swapped(line: str) -> str | None:
    if "v_permlane32_swap" in line:
        return line.replace("permlane32", "permlane16")
    return line.replace("permlane16", "permlane32") if "v_permlane16_swap" in line else None


def _swapped_words(line: str) -> str | None:
    """Two neighbours exchanged, as with a wrong register layout: the halves of one factor, or
    the two numbers that become one register of bfloat16."""
    if match := re.match(r"(v_pk_mul_f32 v\[\d+:\d+\], v\[\d+:\d+\], v\[\d+:\d+\])$", line):
        return f"{match[1]} op_sel:[1,0] op_sel_hi:[0,1]"
    if match := re.match(r"(v_cvt_pk_bf16_f32 v\d+), (v\d+), (v\d+)$", line):
        return f"{match[1]}, {match[3]}, {match[2]}"
    return None


KINDS: dict[str, Change] = {
    "barrier removed": _removed(r"s_barrier$"),
    WAIT: _removed(r"s_waitcnt (vmcnt|lgkmcnt)"),
    "release removed": _removed(r"buffer_wbl2"),
    "acquire removed": _removed(r"buffer_inv"),
    "descriptor shrunk": _shrunk,
    "store one element on": _moved(r"(buffer|global)_store", 16),
    "LDS read one word on": _moved(r"ds_read_(b|u)\d+ ", 4),
    "LDS write one word on": _moved(r"ds_write_b\d+ ", 4),
    "wrong lane in a reduction": _other_lane,
    LAYOUT: _swapped_words,
}


@dataclass(frozen=True)
class Mutant:
    """One spoiled line: its kind, its number and text, and the whole assembly."""

    kind: str
    line: int
    text: str
    assembly: str


@dataclass(frozen=True)
class Finding:
    """What became of a mutant, and why or by what.

    "caught"; "equivalent": shown to change nothing; "not executed"; or "no effect",
    which says that the checks have a hole.
    """

    mutant: Mutant
    outcome: str
    by: str


def mutants(assembly: str, per_kind: int | None = None, first: int = 1) -> Iterator[Mutant]:
    """One line from `first` on spoiled at a time; at most `per_kind` of each kind, spread out."""
    lines = assembly.splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith(".Lfunc_end0"))
    for kind, change in KINDS.items():
        places = []
        for i, line in enumerate(lines[:end]):
            code = line.split(";")[0].strip()
            spoiled = change(code) if code else None
            if spoiled is not None and spoiled != code and i + 1 >= first:
                places.append((i, code, spoiled))
        for i, code, spoiled in _spread(places, per_kind):
            text = "\n".join([*lines[:i], "\t" + spoiled, *lines[i + 1 :]])
            yield Mutant(kind, i + 1, code, text)


def _spread(
    places: Sequence[tuple[int, str, str]], count: int | None
) -> Iterable[tuple[int, str, str]]:
    if count is None or len(places) <= count:
        return places
    picks = np.linspace(0, len(places) - 1, count).round().astype(int)
    return [places[i] for i in dict.fromkeys(picks.tolist())]


class Bench:
    """Two captured calls of a target on fixed operands, run with spoiled kernels."""

    def __init__(
        self, process: candidate.Launch, heads: Heads, rows: int, *, processes: int = 1
    ) -> None:
        self.compiler = Compiler(process, processes=processes)
        self.options = CallOptions(fp8=True)
        rng = np.random.default_rng(20)
        # no spare slot: one slot too far is out of the pool, or another row's
        pads = "last" if rows > 1 else "none"
        self.operands: Operands = generate.operands(
            rng, heads, rows, slots=rows, pads=pads, guard=0
        )
        gates = self.operands.projected_ba.reshape(rows, heads.key, 2, heads.ratio)
        gates[::2, :, 1, 0] = _SMALL_GATE  # kernels have a branch of their own for it
        self.calls: list[Captured] = []

    def start(self) -> str:
        """Capture the call; the assembly of its kernel."""
        self.compiler.start()
        for _ in range(2):  # the second finds what the first left in memory that the op keeps
            self.calls.append(self.compiler.capture(self.operands, self.options, (), _CALL_S))
        (event,) = (e for e in self.calls[0].events if isinstance(e, Launched))
        self._code, self._program = self.compiler.programs[event.code]
        self._key = event.code
        return self._code.assembly

    def spoil(self, assembly: str) -> None:
        """From now on take `assembly` for the kernel as it was compiled."""
        self._code, self._program = replace(self._code, assembly=assembly), parse(assembly)

    def close(self) -> None:
        self.compiler.close()

    def judge(self, mutant: Mutant) -> Finding:
        """Run the spoiled kernel and say what noticed."""
        failed: list[str] = []
        try:
            for result in self._run(parse(mutant.assembly), mutant.assembly):
                failed = failed or self._wrong(result)
        except CandidateError as error:
            return Finding(mutant, "caught", str(error))
        if failed:
            return Finding(mutant, "caught", f"wrong values: {', '.join(failed)}")
        return self._without_effect(mutant)

    def _run(self, program: Program, assembly: str) -> Iterator[CallResult]:
        code = replace(self._code, assembly=assembly)
        self.compiler.programs[self._key] = (code, program)
        self.compiler.look_for_races_again()
        for call in self.calls:
            until = time.monotonic() + _CALL_S
            yield self.compiler.execute(call, self.operands, self.options, until)

    def _wrong(self, result: CallResult) -> list[str]:
        right = truth.of(self.operands, self.options)
        checks = compare.judge(right, result, compare.Rules())
        return [check.name for check in checks if not check.passed]

    @property
    def entry_line(self) -> int:
        """Of the first instruction that runs."""
        return self._program.instructions[self._program.entry].line

    def _without_effect(self, mutant: Mutant) -> Finding:
        """Whether the unspoiled kernel needs the line, over runs in several orders."""
        program = parse(self._code.assembly)
        (pc,) = (i.pc for i in program.instructions if i.line == mutant.line)
        differing = _watched(program, pc) if mutant.kind == LAYOUT else []
        executed = 0
        waited: set[int] | None = None
        for _ in range(_ORDERS):
            for _ in self._run(program, self._code.assembly):
                (report,) = self.compiler.reports
                executed += report.counts[pc]
                if pc in report.waited:
                    waited = (waited or set()) | report.waited[pc]
        if not executed:
            return Finding(mutant, "not executed", "")
        if mutant.kind == WAIT and waited is None:
            return Finding(mutant, "equivalent", f"nothing in flight in {executed} executions")
        if mutant.kind == WAIT and (line := covering(program, pc, waited or set())):
            return Finding(mutant, "equivalent", f"line {line} waits before anything depends on it")
        if mutant.kind == LAYOUT and not differing:
            return Finding(mutant, "equivalent", f"equal words in {executed} executions")
        return Finding(mutant, "no effect", "")


_ORDERING = (
    "s_barrier",
    "s_endpgm",
    "s_branch",
    "s_cbranch",
    "s_setpc",
    "buffer_wbl2",
    "buffer_inv",
)


def covering(program: Program, pc: int, registers: set[int]) -> int | None:
    """The line of a later wait that does what the wait at `pc` does, in time, or None.

    In time: before a branch, before anything that orders memory, and before an
    instruction that touches the `registers` which the wait found to be filled.
    """
    ops = launch.compiled(program).ops
    wanted = ops[pc].instruction.modifiers
    for op in ops[pc + 1 :]:
        ins = op.instruction
        if ins.name == "s_waitcnt":
            given = ins.modifiers
            if all(name in given and int(given[name]) <= int(n) for name, n in wanted.items()):
                return ins.line
        if ins.name.startswith(_ORDERING) or "atomic" in ins.name:
            return None
        if not op.touch.isdisjoint(registers):
            return None
    return None


def _watched(program: Program, pc: int) -> list[int]:
    """A list that grows when what a swapped layout exchanges at `pc` differs somewhere."""
    ops = launch.compiled(program).ops
    op, differing = ops[pc], []
    first, second = (operand.index for operand in op.instruction.operands[1:3])
    pair = (first, second) if "cvt" in op.instruction.name else (first, first + 1)

    def run(front: Front) -> Any:
        one, other = (front.lanes(front.regs[index]) for index in pair)
        if (one != other)[front.mask].any():
            differing.append(pc)
        return op.run(front)

    ops[pc] = replace(op, run=run)
    return differing


def hunt(
    process: candidate.Launch,
    heads: Heads,
    rows: int,
    per_kind: int | None = None,
    report: Callable[[Finding], None] = lambda finding: None,
) -> list[Finding]:
    """Judge every mutant of the kernel that serves `rows` rows."""
    bench = Bench(process, heads, rows)
    try:
        findings = []
        assembly = bench.start()
        for mutant in mutants(assembly, per_kind, bench.entry_line):
            findings.append(bench.judge(mutant))
            report(findings[-1])
        return findings
    finally:
        bench.close()


def summary(findings: Sequence[Finding]) -> str:
    """One line for each kind: how many mutants, what became of them."""
    kinds: dict[str, Counter[str]] = {}
    for finding in findings:
        kinds.setdefault(finding.mutant.kind, Counter())[finding.outcome] += 1
    outcomes = ("caught", "equivalent", "no effect", "not executed")
    lines = [f"{'kind':26}{'mutants':>9}" + "".join(f"{o:>{len(o) + 2}}" for o in outcomes)]
    for kind, counts in kinds.items():
        cells = "".join(f"{counts[o]:>{len(o) + 2}}" for o in outcomes)
        lines.append(f"{kind:26}{counts.total():>9}{cells}")
    return "\n".join(lines)
