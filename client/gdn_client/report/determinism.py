"""The determinism table: one row per batch, one column per kind of repetition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gdn_client.document import Case, Check, Document, Scalar
from gdn_client.report.cases import BATCH_COLUMNS, grouped, passed_cell, worst_by_check
from gdn_client.report.figures import scalar
from gdn_client.report.table import EMPTY, Cell, Column, Table, Tone, without_empty_columns
from gdn_client.text import one_line


def _count(what: str) -> Callable[[Scalar], str]:
    return lambda value: "none" if value == 0 else f"{scalar(value)} {what}"


def _distinct(value: Scalar) -> str:
    return "all equal" if value == 1 else f"{scalar(value)} distinct"


def _either(yes: str, no: str) -> Callable[[Scalar], str]:
    return lambda value: yes if value == 0 else no


@dataclass(frozen=True)
class Kind:
    """A check of this suite, under a title that says what was repeated."""

    check: str
    title: str
    text: Callable[[Scalar], str]


KINDS = (
    Kind("distinct_results", "repeats", _distinct),
    Kind("fresh_process_differs", "fresh process", _either("equal", "differs")),
    Kind("rows_changed_by_permutation", "changed by row order", _count("rows")),
    Kind("row_changed_when_alone", "row alone", _either("equal", "differs")),
)


def tables(document: Document) -> list[Table]:
    columns = [
        *BATCH_COLUMNS,
        Column("passed"),
        *(Column(kind.title, left=True) for kind in KINDS),
    ]
    rows = [
        [*batch.cells(), passed_cell(cases), *(_cell(cases, kind) for kind in KINDS)]
        for batch, cases in grouped(document.cases).items()
    ]
    checks = worst_by_check(document) if document.verdict != "passed" else []
    return [without_empty_columns(Table(columns, rows)), *checks]


def _cell(cases: list[Case], kind: Kind) -> Cell:
    checks = [check for case in cases for check in case.checks if check.name == kind.check]
    if not checks:
        return EMPTY
    worst = max(checks, key=lambda check: (not check.passed, _size(check)))
    return Cell(one_line(kind.text(worst.value), 24), _tone(worst))


def _size(check: Check) -> float:
    return float(check.value) if isinstance(check.value, int | float) else 0.0


def _tone(check: Check) -> Tone:
    """What is only measured fails nothing, but a change is worth seeing."""
    if not check.passed:
        return Tone.BAD
    if check.relation == "measured":
        return Tone.WARN if check.value else Tone.PLAIN
    return Tone.GOOD
