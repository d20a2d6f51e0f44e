"""The correctness tables: cases passed per batch with the check nearest its bound."""

from __future__ import annotations

from gdn_client.document import Case, Document
from gdn_client.report.cases import (
    BATCH_COLUMNS,
    check_cells,
    grouped,
    passed_cell,
    worst_by_check,
    worst_check,
)
from gdn_client.report.table import EMPTY, Cell, Column, Table, Tone

_COLUMNS = [
    *BATCH_COLUMNS,
    Column("passed"),
    Column("nearest its bound", left=True),
    Column("value"),
    Column("bound"),
]


def tables(document: Document) -> list[Table]:
    rows = [
        [*batch.cells(), passed_cell(cases), *_worst(cases)]
        for batch, cases in grouped(document.cases).items()
    ]
    return [Table(_COLUMNS, rows), *worst_by_check(document)]


def _worst(cases: list[Case]) -> list[Cell]:
    """The decisive check, or the outcome of a case that ended before any was judged."""
    worst = worst_check(cases)
    if worst is None or worst[1].passed:
        for case in cases:
            if not case.passed:
                return [Cell(case.outcome, Tone.BAD), EMPTY, EMPTY]
    if worst is not None and " " in worst[1].name and worst[1].passed:
        return [EMPTY, EMPTY, EMPTY]  # one of many predicate answers, all right
    return check_cells(worst[1] if worst else None)
