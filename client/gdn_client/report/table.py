"""Tables before they have a medium: cells with a tone, columns with a rank.

Report
  └─ Section (one run of one suite)
       ├─ Table
       │    └─ rows of Cells under Columns
       └─ Problem (one case that did not pass)
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

GAP = 2  # columns of space between table columns


class Tone(enum.StrEnum):
    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    FAINT = "faint"


@dataclass(frozen=True)
class Cell:
    """`short` stands in where the table is too wide."""

    text: str
    tone: Tone = Tone.PLAIN
    short: str | None = None


EMPTY = Cell("")


@dataclass(frozen=True)
class Column:
    """Columns of high `rank` go first when space is short; rank 0 stays.

    A flexible one shrinks: its text is folded, or with `cut` ended by an ellipsis.
    """

    title: str
    rank: int = 0
    left: bool = False
    flexible: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Table:
    columns: list[Column]
    rows: list[list[Cell]]
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Problem:
    """A case that did not pass: what its failed checks say, and the judge's reason."""

    case: str
    outcome: str
    checks: list[str]
    why: str


@dataclass(frozen=True)
class Section:
    """One run. `facts` are short phrases about how it ran; `notes` are the judge's own words."""

    suite: str
    device_kind: str
    verdict: str
    reason: str
    facts: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    cases: int = 0
    notes: list[str] = field(default_factory=list)
    log_tail: str = ""


@dataclass(frozen=True)
class Report:
    """What `submit`, `show` and `report` print."""

    title: str
    subject: str
    verdict: str
    facts: list[str]
    sections: list[Section]
    notes: list[str] = field(default_factory=list)  # those that several sections share


def tone_of(verdict: str) -> Tone:
    if verdict == "passed":
        return Tone.GOOD
    if verdict in ("failed", "suspect", "error"):
        return Tone.BAD
    if verdict in ("unstable", "inconclusive", "cancelled"):
        return Tone.WARN
    return Tone.PLAIN


def without_empty_columns(table: Table) -> Table:
    """Columns in which no row says anything are left out."""
    kept = [
        i
        for i in range(len(table.columns))
        if not table.rows or any(row[i].text for row in table.rows)
    ]
    return _select(table, kept)


def without_constant(table: Table, title: str) -> tuple[Table, str | None]:
    """Take a column that says the same in every row out of the table; returns what it said."""
    index = next((i for i, column in enumerate(table.columns) if column.title == title), None)
    if index is None:
        return table, None
    values = {row[index].text for row in table.rows if row[index].text}
    if len(values) != 1:
        return table, None
    kept = [i for i in range(len(table.columns)) if i != index]
    return _select(table, kept), values.pop()


def fitted(table: Table, width: int) -> tuple[Table, list[str]]:
    """`table` within `width` characters, and the titles of columns given up for that.

    First titles are stacked word over word and cells take their short forms, then
    columns go by rank.
    """
    if _width(table) <= width:
        return _cut(table, width), []
    table = replace(table, columns=[_stacked(column) for column in table.columns])
    if _width(table) > width:
        table = replace(table, rows=[[_shortened(cell) for cell in row] for row in table.rows])
    dropped: list[str] = []
    while _width(table) > width and any(column.rank for column in table.columns):
        worst = max(range(len(table.columns)), key=lambda i: table.columns[i].rank)
        dropped.append(table.columns[worst].title.replace("\n", " "))
        table = _select(table, [i for i in range(len(table.columns)) if i != worst])
    return _cut(table, width), dropped


def _cut(table: Table, width: int) -> Table:
    """End the text of a `cut` column where the other columns leave no more room."""
    for i, column in enumerate(table.columns):
        if column.cut:
            sizes = widths(table)
            room = max(8, width - sum(sizes) - GAP * (len(sizes) - 1) + sizes[i])
            table = replace(table, rows=[_with_cell_cut(row, i, room) for row in table.rows])
    return table


def _with_cell_cut(row: list[Cell], index: int, room: int) -> list[Cell]:
    cell = row[index]
    if len(cell.text) <= room:
        return row
    return [*row[:index], Cell(cell.text[: room - 1] + "…", cell.tone), *row[index + 1 :]]


def widths(table: Table) -> list[int]:
    """The natural width of each column."""
    return [
        max([*map(len, column.title.split("\n")), *(len(row[i].text) for row in table.rows)])
        for i, column in enumerate(table.columns)
    ]


_FLEXIBLE_MINIMUM = 24


def _width(table: Table) -> int:
    natural = widths(table)
    least = [
        min(size, _FLEXIBLE_MINIMUM) if column.flexible else size
        for size, column in zip(natural, table.columns, strict=True)
    ]
    return sum(least) + GAP * max(0, len(least) - 1)


def _stacked(column: Column) -> Column:
    if column.flexible:
        return column
    return replace(column, title=column.title.replace(" ", "\n"))


def _shortened(cell: Cell) -> Cell:
    return cell if cell.short is None else Cell(cell.short, cell.tone)


def _select(table: Table, kept: list[int]) -> Table:
    return replace(
        table,
        columns=[table.columns[i] for i in kept],
        rows=[[row[i] for i in kept] for row in table.rows],
    )
