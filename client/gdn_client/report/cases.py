"""What the tables of all suites share: which row a case belongs to, and what went wrong."""

from __future__ import annotations

import math

from gdn_client.document import Case, Check, Document
from gdn_client.report.figures import scalar
from gdn_client.report.table import EMPTY, Cell, Column, Table, Tone
from gdn_client.text import one_line

BATCH_COLUMNS = [Column("T"), Column("heads", left=True), Column("fp8", left=True)]
SHOWN_BAD_CASES = 20

Batch = tuple[float, str, str]


def batch_of(case: Case) -> Batch:
    """(T, heads, fp8) of a case; the key by which rows are grouped and ordered."""
    tokens = case.params.get("T")
    heads = case.params.get("KH"), case.params.get("VH")
    fp8 = case.params.get("fp8")
    return (
        float(tokens) if isinstance(tokens, int | float) else math.inf,
        f"{heads[0]}x{heads[1]}" if None not in heads else "",
        "" if fp8 is None else scalar(fp8),
    )


def batch_cells(batch: Batch) -> list[Cell]:
    tokens, heads, fp8 = batch
    return [Cell("" if math.isinf(tokens) else f"{tokens:.0f}"), Cell(heads), Cell(fp8)]


def order_of(batch: Batch) -> tuple[int, str, float]:
    """Head counts ascending, FP8 off before on, T ascending."""
    keys = batch[1].partition("x")[0]
    return (int(keys) if keys.isdecimal() else 0, batch[2], batch[0])


def grouped(cases: list[Case]) -> dict[Batch, list[Case]]:
    """Cases by batch; batches with a bad case first, then in order."""
    groups: dict[Batch, list[Case]] = {}
    for case in cases:
        groups.setdefault(batch_of(case), []).append(case)

    def rank(item: tuple[Batch, list[Case]]) -> tuple[int, int, tuple[int, str, float]]:
        outcomes = [case.outcome for case in item[1]]
        wrong = sum(outcome not in ("passed", "not_run") for outcome in outcomes)
        return -wrong, -outcomes.count("not_run"), order_of(item[0])

    return dict(sorted(groups.items(), key=rank))


def strain(check: Check) -> float:
    """How much of its bound a check used: 1 at the bound, above 1 past it."""
    value, bound = check.value, check.bound
    if isinstance(value, bool | str | None) or isinstance(bound, bool | str | None):
        return 0.0 if check.passed else math.inf
    if check.relation in (">=", ">"):
        value, bound = (1 - value, 1 - bound) if 0 < bound <= 1 else (bound, value)
    if bound == 0:
        return 0.0 if value == 0 and check.passed else math.inf
    used = abs(value / bound)
    return used if check.passed else max(used, 1.0)


def worst_check(cases: list[Case]) -> tuple[Case, Check] | None:
    """The failed check furthest past its bound, else the one closest to it."""
    pairs = [(case, check) for case in cases for check in case.checks]
    return max(pairs, key=lambda p: (not p[1].passed, strain(p[1])), default=None)


def check_cells(check: Check | None) -> list[Cell]:
    """Name, value, bound with its relation."""
    if check is None:
        return [EMPTY, EMPTY, EMPTY]
    tone = Tone.PLAIN if check.passed else Tone.BAD
    bound = scalar(check.bound)
    value = scalar(check.value)
    if check.relation == "holds":
        value = "holds" if check.passed else "does not"
        return [Cell(one_line(check.name, 40), tone), Cell(value, tone), EMPTY]
    return [
        Cell(one_line(check.name, 40), tone),
        Cell(one_line(value, 24), tone),
        Cell(f"{check.relation} {one_line(bound, 24)}" if bound else ""),
    ]


def outcome_cell(case: Case) -> Cell:
    return Cell(case.outcome, Tone.GOOD if case.passed else Tone.BAD)


def bad_cases(document: Document) -> list[Table]:
    """One table of the cases that did not pass, worst first; none if all did."""
    bad = [case for case in document.cases if not case.passed]
    bad.sort(key=lambda case: case.outcome == "not_run")
    if not bad:
        return []
    rows = []
    for case in bad[:SHOWN_BAD_CASES]:
        worst = worst_check([case])
        check = worst[1] if worst is not None and not worst[1].passed else None
        why = one_line(case.reason or (check.detail if check else ""), 300)
        rows.append(
            [Cell(one_line(case.id, 60)), outcome_cell(case), *check_cells(check), Cell(why)]
        )
    more = len(bad) - len(rows)
    columns = [
        Column("case", left=True),
        Column("outcome", left=True),
        Column("check", left=True),
        Column("value"),
        Column("bound"),
        Column("why", left=True, flexible=True),
    ]
    note = f"and {more} more; --json has them all" if more > 0 else ""
    return [
        Table(columns, rows, title=f"Not passed: {len(bad)} of {len(document.cases)}", note=note)
    ]


def worst_by_check(document: Document) -> list[Table]:
    """For each check name: how often it was judged, and its worst value against its bound."""
    names: dict[str, list[tuple[Case, Check]]] = {}
    for case in document.cases:
        for check in case.checks:
            names.setdefault(check.name, []).append((case, check))
    if not names:
        return []
    rows = []
    for pairs in names.values():
        case, check = max(pairs, key=lambda p: (not p[1].passed, strain(p[1])))
        failed = sum(not c.passed for _, c in pairs)
        rows.append(
            (
                failed,
                [
                    *check_cells(check),
                    Cell(f"{len(pairs) - failed}/{len(pairs)}", Tone.BAD if failed else Tone.GOOD),
                    Cell(one_line(case.id, 60)),
                ],
            )
        )
    rows.sort(key=lambda item: -item[0])
    columns = [
        Column("check", left=True),
        Column("worst value"),
        Column("bound"),
        Column("passed"),
        Column("in case", rank=1, left=True),
    ]
    return [Table(columns, [row for _, row in rows], title="Worst value of each check")]
