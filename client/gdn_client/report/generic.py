"""Tables for a suite that this client has no layout of its own for."""

from __future__ import annotations

from gdn_client.document import Document
from gdn_client.report.cases import (
    check_cells,
    outcome_cell,
    worst_by_check,
    worst_check,
)
from gdn_client.report.table import Cell, Column, Table
from gdn_client.text import one_line

_COLUMNS = [
    Column("case", left=True),
    Column("outcome", left=True),
    Column("nearest its bound", left=True),
    Column("value"),
    Column("bound"),
]


def tables(document: Document) -> list[Table]:
    rows = []
    for case in sorted(document.cases, key=lambda case: case.passed):
        worst = worst_check([case])
        rows.append(
            [
                Cell(one_line(case.id, 60)),
                outcome_cell(case),
                *check_cells(worst[1] if worst else None),
            ]
        )
    return [Table(_COLUMNS, rows), *worst_by_check(document)]
