"""Deliberate bugs: spoil a compiled kernel in one place each, and see what notices.

Each mutant changes one line of the assembly. It is caught when the emulator
names a fault, or when the judge's own comparison with the reference fails. A
mutant whose line is never executed, or whose wait or barrier another one makes
redundant, changes nothing and is listed as such.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gdn_judge import candidate, compare, generate, reference
from gdn_judge.capture import Captured, Launched
from gdn_judge.codeobject.compiler import Compiler
from gdn_judge.contract import Heads
from gdn_judge.emulator.assembly import parse
from gdn_judge.errors import CandidateError
from gdn_judge.numerics import Rounding
from gdn_judge.operands import CallOptions, CallResult, Operands

_CALL_S = 300.0
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
    """The two halves of one factor exchanged, as with a wrong register layout."""
    if match := re.match(r"(v_pk_mul_f32 v\[\d+:\d+\], v\[\d+:\d+\], v\[\d+:\d+\])$", line):
        return f"{match[1]} op_sel:[1,0] op_sel_hi:[0,1]"
    return None


KINDS: dict[str, Change] = {
    "barrier removed": _removed(r"s_barrier$"),
    "wait dropped": _removed(r"s_waitcnt (vmcnt|lgkmcnt)"),
    "release removed": _removed(r"buffer_wbl2"),
    "acquire removed": _removed(r"buffer_inv"),
    "descriptor shrunk": _shrunk,
    "store one element on": _moved(r"(buffer|global)_store", 16),
    "LDS read one word on": _moved(r"ds_read_(b|u)\d+ ", 4),
    "LDS write one word on": _moved(r"ds_write_b\d+ ", 4),
    "wrong lane in a reduction": _other_lane,
    "layout swapped": _swapped_words,
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
    """What became of a mutant: "caught", "not executed" or "no effect", and by what."""

    mutant: Mutant
    outcome: str
    by: str


def mutants(assembly: str, per_kind: int | None = None) -> Iterator[Mutant]:
    """One line spoiled at a time; at most `per_kind` of each kind, spread over the kernel."""
    lines = assembly.splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith(".Lfunc_end0"))
    for kind, change in KINDS.items():
        places = []
        for i, line in enumerate(lines[:end]):
            code = line.split(";")[0].strip()
            spoiled = change(code) if code else None
            if spoiled is not None and spoiled != code:
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

    def close(self) -> None:
        self.compiler.close()

    def judge(self, mutant: Mutant) -> Finding:
        """Run the spoiled kernel and say what noticed."""
        failed: list[str] = []
        try:
            for result in self._run(mutant.assembly):
                failed = failed or self._wrong(result)
        except CandidateError as error:
            return Finding(mutant, "caught", str(error))
        if failed:
            return Finding(mutant, "caught", f"wrong values: {', '.join(failed)}")
        executed = self._executed(mutant.line)
        return Finding(mutant, "no effect" if executed else "not executed", "")

    def _run(self, assembly: str) -> Iterator[CallResult]:
        code = replace(self._code, assembly=assembly)
        self.compiler.programs[self._key] = (code, parse(assembly))
        self.compiler.look_for_races_again()
        for call in self.calls:
            until = time.monotonic() + _CALL_S
            yield self.compiler.execute(call, self.operands, self.options, until)

    def _wrong(self, result: CallResult) -> list[str]:
        after = self.operands.copy()
        expected = reference.step(after, self.options, Rounding.NEAREST)
        truth = compare.Truth(
            before=self.operands, after=after, expected=expected, options=self.options
        )
        checks = compare.judge(truth, result, compare.Rules())
        return [check.name for check in checks if not check.passed]

    def _executed(self, line: int) -> bool:
        """Whether the unspoiled kernel runs the instruction of an assembly line."""
        for _ in self._run(self._code.assembly):
            pass
        (report,) = self.compiler.reports
        program = self.compiler.programs_run[0]
        return any(ins.line == line and report.counts[ins.pc] for ins in program.instructions)


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
        for mutant in mutants(bench.start(), per_kind):
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
    lines = ["kind                        mutants  caught  no effect  not executed"]
    for kind, counts in kinds.items():
        cells = (counts.total(), counts["caught"], counts["no effect"], counts["not executed"])
        lines.append(
            f"{kind:26}" + "".join(f"{n:>{w}}" for n, w in zip(cells, (9, 8, 11, 14), strict=True))
        )
    return "\n".join(lines)
