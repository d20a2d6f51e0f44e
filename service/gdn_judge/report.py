"""A run as plain text: one line per case, then what failed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TextIO

from gdn_judge.document import Case, Document, Outcome
from gdn_judge.run import Events

_WORST = ("ssm_state_worst_of_bound", "out_exact", "out_rel_l2", "distinct_results")


class JsonEvents(Events):
    """One JSON object per line, for the service."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream

    def _write(self, **event: object) -> None:
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()

    def planned(self, total: int) -> None:
        self._write(event="planned", total=total)

    def arm(self, name: str, moment: str) -> None:
        self._write(event="arm", arm=name, moment=moment)

    def case(self, case: Case, done: int, total: int) -> None:
        self._write(
            event="case",
            id=case.id,
            outcome=case.outcome.value,
            done=done,
            total=total,
            seconds=case.seconds,
            summary=summary(case),
        )

    def log(self, text: str) -> None:
        self._write(event="log", text=text)

    def finished(self, document: Document) -> None:
        self._write(event="finished", verdict=document.verdict.value, reason=document.reason)


class TextEvents(Events):
    """A line per case on stderr while it runs, the table on stdout at the end."""

    def __init__(self, out: TextIO = sys.stdout, err: TextIO = sys.stderr) -> None:
        self._out, self._err = out, err

    def case(self, case: Case, done: int, total: int) -> None:
        seconds = f"{case.seconds:6.1f} s" if case.seconds is not None else " " * 8
        mark = case.outcome.value
        self._say(f"[{done:>{len(str(total))}}/{total}] {mark:14} {seconds}  {case.id}")

    def log(self, text: str) -> None:
        self._say(text)

    def _say(self, text: str) -> None:
        print(text, file=self._err, flush=True)

    def finished(self, document: Document) -> None:
        print(table(document), file=self._out, flush=True)


def summary(case: Case) -> str:
    """What a case showed, in one line."""
    if case.outcome is not Outcome.PASSED:
        return case.reason
    parts = [_timing(case)] if case.measurements else []
    values = {check.name: check.value for check in case.checks}
    parts += [f"{name} {_number(values[name])}" for name in _WORST if name in values]
    return ", ".join(part for part in parts if part) or f"{len(case.checks)} checks"


def table(document: Document) -> str:
    """The whole run as text, one row per case."""
    rows = [(case.id, case.outcome.value, _seconds(case), summary(case)) for case in document.cases]
    lines = [
        f"{document.suite.value} of {document.import_path} on {document.device_kind.value}",
        "",
        *_columns(("case", "outcome", "s", "what it showed"), rows),
        "",
        f"{document.verdict.value}: {document.reason}",
    ]
    lines += [f"note: {note}" for note in document.notes]
    return "\n".join(lines)


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in [head, *rows]
    ]


def _timing(case: Case) -> str:
    fused = next((m for m in case.measurements if m.name == "fused"), None)
    if fused is None:
        return ""
    if fused.median is None:
        return f"{fused.measured_bytes} bytes moved, {fused.contract_bytes} by the contract"
    text = f"{fused.median:.2f} {fused.unit}"
    if fused.percent_of_rmw_ceiling is not None:
        text += f", {fused.percent_of_rmw_ceiling:.1f} % of the read-modify-write ceiling"
    if "chain_over_fused" in case.ratios:
        text += f", chain/fused {case.ratios['chain_over_fused']:.2f}"
    return text


def _seconds(case: Case) -> str:
    return f"{case.seconds:.1f}" if case.seconds is not None else ""


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
