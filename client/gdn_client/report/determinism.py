"""The determinism table: one row per batch, one column per kind of repetition."""

from __future__ import annotations

from gdn_client.document import Case, Document
from gdn_client.report.cases import (
    BATCH_COLUMNS,
    bad_cases,
    batch_cells,
    grouped,
    strain,
)
from gdn_client.report.figures import scalar
from gdn_client.report.table import EMPTY, Cell, Column, Table, Tone
from gdn_client.text import one_line


def tables(document: Document) -> list[Table]:
    names = list(dict.fromkeys(check.name for case in document.cases for check in case.checks))
    columns = [
        *BATCH_COLUMNS,
        Column("passed"),
        *(Column(_title(name), rank=i, left=True) for i, name in enumerate(names)),
    ]
    rows = []
    for batch, cases in grouped(document.cases).items():
        passed = sum(case.passed for case in cases)
        tone = Tone.GOOD if passed == len(cases) else Tone.BAD
        rows.append(
            [
                *batch_cells(batch),
                Cell(f"{passed}/{len(cases)}", tone),
                *(_cell(cases, name) for name in names),
            ]
        )
    return [Table(columns, rows), *bad_cases(document)]


def _title(name: str) -> str:
    return one_line(name.replace("_", " "), 24)


def _cell(cases: list[Case], name: str) -> Cell:
    """The worst check of that name among `cases`, as its value."""
    checks = [check for case in cases for check in case.checks if check.name == name]
    if not checks:
        return EMPTY
    worst = max(checks, key=lambda check: (not check.passed, strain(check)))
    text = scalar(worst.value) or ("yes" if worst.passed else "no")
    return Cell(one_line(text, 24), Tone.GOOD if worst.passed else Tone.BAD)
