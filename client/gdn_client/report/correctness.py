"""The correctness tables: cases passed per batch with the check nearest its bound."""

from __future__ import annotations

from gdn_client.document import Document
from gdn_client.report.cases import (
    BATCH_COLUMNS,
    bad_cases,
    batch_cells,
    check_cells,
    grouped,
    worst_by_check,
    worst_check,
)
from gdn_client.report.table import Cell, Column, Table, Tone

_COLUMNS = [
    *BATCH_COLUMNS,
    Column("passed"),
    Column("nearest its bound", left=True),
    Column("value"),
    Column("bound"),
]


def tables(document: Document) -> list[Table]:
    rows = []
    for batch, cases in grouped(document.cases).items():
        passed = sum(case.passed for case in cases)
        worst = worst_check(cases)
        tone = Tone.GOOD if passed == len(cases) else Tone.BAD
        rows.append(
            [
                *batch_cells(batch),
                Cell(f"{passed}/{len(cases)}", tone),
                *check_cells(worst[1] if worst else None),
            ]
        )
    return [Table(_COLUMNS, rows), *bad_cases(document), *worst_by_check(document)]
