"""What the tables of all suites share: which row a case belongs to, and what went wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gdn_client.document import Case, Check, Document
from gdn_client.report.figures import scalar
from gdn_client.report.table import EMPTY, Cell, Column, Problem, Table, Tone
from gdn_client.text import one_line

BATCH_COLUMNS = [Column("T"), Column("heads", left=True), Column("fp8", left=True)]


@dataclass(frozen=True)
class Batch:
    """The row that a case belongs to. Cases of the support predicate share one row."""

    tokens: int | None
    heads: str
    fp8: str
    label: str = ""

    def cells(self) -> list[Cell]:
        return [
            Cell(self.label if self.tokens is None else str(self.tokens)),
            Cell(self.heads),
            Cell(self.fp8),
        ]

    @property
    def order(self) -> tuple[bool, int, str, int]:
        """Head counts ascending, FP8 off before on, T ascending, what has no T last."""
        keys = self.heads.partition("x")[0]
        return (
            self.tokens is None,
            int(keys) if keys.isdecimal() else 0,
            self.fp8,
            self.tokens or 0,
        )


def batch_of(case: Case) -> Batch:
    kind = case.params.get("kind")
    tokens = case.params.get("T")
    if kind == "predicate" or not isinstance(tokens, int):
        return Batch(None, "", "", label=scalar(kind) if kind is not None else "other")
    heads = case.params.get("KH"), case.params.get("VH")
    fp8 = case.params.get("fp8")
    return Batch(
        tokens,
        f"{heads[0]}x{heads[1]}" if None not in heads else "",
        "" if fp8 is None else scalar(fp8),
    )


def grouped(cases: list[Case]) -> dict[Batch, list[Case]]:
    """Cases by batch; batches with a wrong case first, then those not reached, then in order."""
    groups: dict[Batch, list[Case]] = {}
    for case in cases:
        groups.setdefault(batch_of(case), []).append(case)

    def rank(item: tuple[Batch, list[Case]]) -> tuple[int, int, tuple[bool, int, str, int]]:
        outcomes = [case.outcome for case in item[1]]
        wrong = sum(outcome not in ("passed", "not_run") for outcome in outcomes)
        return -wrong, -outcomes.count("not_run"), item[0].order

    return dict(sorted(groups.items(), key=rank))


def passed_cell(cases: list[Case]) -> Cell:
    passed = sum(case.passed for case in cases)
    return Cell(f"{passed}/{len(cases)}", Tone.GOOD if passed == len(cases) else Tone.BAD)


def strain(check: Check) -> float:
    """How much of its bound a check used: 1 at the bound, above 1 past it.

    Counts that are as they should be, and what is only measured, use nothing of it.
    """
    value, bound = check.value, check.bound
    if isinstance(value, bool | str | None) or isinstance(bound, bool | str | None):
        return 0.0 if check.passed else math.inf
    if check.passed and isinstance(value, int):
        return 0.0
    if check.relation in (">=", ">"):
        value, bound = (1 - value, 1 - bound) if 0 < bound < 1 else (bound, value)
    used = abs(value / bound) if bound else (0.0 if value == 0 else math.inf)
    return used if check.passed else max(used, 1.0)


def worst_check(cases: list[Case]) -> tuple[Case, Check] | None:
    """The failed check furthest past its bound, else the one closest to it."""
    pairs = [(case, check) for case in cases for check in case.checks]
    return max(pairs, key=lambda p: (not p[1].passed, strain(p[1])), default=None)


def check_cells(check: Check | None, name: str | None = None) -> list[Cell]:
    """Name, value, bound with its relation."""
    if check is None:
        return [EMPTY, EMPTY, EMPTY]
    tone = Tone.PLAIN if check.passed else Tone.BAD
    label = Cell(one_line(name or check.name, 40), tone)
    if check.relation == "holds":
        return [label, Cell("holds" if check.passed else "does not", tone), EMPTY]
    bound = one_line(scalar(check.bound), 24)
    relation = f"{check.relation} {bound}" if bound else check.relation
    return [label, Cell(one_line(scalar(check.value), 24), tone), Cell(relation)]


def outcome_cell(case: Case) -> Cell:
    return Cell(case.outcome, Tone.GOOD if case.passed else Tone.BAD)


def problems(document: Document) -> list[Problem]:
    """The cases that did not pass, wrong ones before those not reached."""
    bad = [case for case in document.cases if not case.passed]
    bad.sort(key=lambda case: case.outcome == "not_run")
    return [_problem(case) for case in bad]


def _problem(case: Case) -> Problem:
    """The judge's reason stands unless it only repeats the first failed check."""
    failed = [check for check in case.checks if not check.passed]
    said = [_said(check) for check in failed]
    repeated = bool(failed) and case.reason.startswith(f"{failed[0].name} is ")
    why = "" if repeated else one_line(case.reason, 300)
    return Problem(one_line(case.id, 80), case.outcome, said, why)


def _said(check: Check) -> str:
    """`out_exact is 0.944, should be >= 0.98`, with the judge's detail."""
    name, _, bound = (cell.text for cell in check_cells(check))
    value = one_line(scalar(check.value), 24)
    text = f"{name} does not hold" if check.relation == "holds" else f"{name} is {value}"
    text += f", should be {bound}" if bound else ""
    return f"{text} ({one_line(check.detail, 200)})" if check.detail else text


def worst_by_check(document: Document) -> list[Table]:
    """For each check: how often it was judged, and its worst value against its bound.

    Counts that are right everywhere are only named. Checks named by a verb and an
    object ("refuses conv_bias:none") share a row per verb.
    """
    families: dict[str, list[tuple[Case, Check]]] = {}
    for case in document.cases:
        for check in case.checks:
            families.setdefault(check.name.partition(" ")[0], []).append((case, check))
    told = [pairs for pairs in families.values() if _worth_a_row(pairs)]
    rows = sorted((_family_row(pairs) for pairs in told), key=lambda row: -row[0])
    plain = [one_line(name, 40) for name, pairs in families.items() if not _worth_a_row(pairs)]
    columns = [
        Column("check", left=True),
        Column("worst value"),
        Column("bound"),
        Column("passed"),
        Column("in case", rank=1, left=True),
    ]
    note = f"right in every case: {', '.join(plain)}" if plain else ""
    return [Table(columns, [row for _, row in rows], "Worst value of each check", note)]


def _worth_a_row(pairs: list[tuple[Case, Check]]) -> bool:
    """Whether a check came anywhere near its bound."""
    return any(not check.passed or strain(check) > 0 for _, check in pairs)


def _family_row(pairs: list[tuple[Case, Check]]) -> tuple[int, list[Cell]]:
    """How many failed, and the row of the worst of them."""
    case, check = max(pairs, key=lambda p: (not p[1].passed, strain(p[1])))
    failed = sum(not other.passed for _, other in pairs)
    verb, _, rest = check.name.partition(" ")
    name = f"{verb} ..." if rest and check.passed else check.name
    return failed, [
        *check_cells(check, name),
        Cell(f"{len(pairs) - failed}/{len(pairs)}", Tone.BAD if failed else Tone.GOOD),
        Cell(one_line(case.id, 60)),
    ]
