"""Two commits' compiled kernels beside each other: old -> new, by architecture and batch size.

Kernels of one batch size are paired as the judge does: the same binary, then the same name,
then what is left, since a new name hides nothing. No verdict: the codeobject suite gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gdn_client.comparison import Side
from gdn_client.document import Case, Document, Kernel, Scalar
from gdn_client.report.cases import batch_of
from gdn_client.report.codeobject import batches_of, kernel_order
from gdn_client.report.figures import scalar
from gdn_client.report.table import EMPTY, Cell, Column, Section, Table, without_empty_columns
from gdn_client.text import counted, one_line

NO_VERDICT = "what each compiled kernel uses, old -> new; the suite's own verdicts stand"
_JUDGED = "against the baseline: "  # checks that hold a run against another one, not a count
_Size = tuple[str, str, int | None]  # architecture, head counts, rows; None where not stated


@dataclass(frozen=True)
class KernelPair:
    """A kernel of each commit for `batches`; None where one of them has none."""

    arch: str
    batches: list[int]
    old: Kernel | None
    new: Kernel | None

    @property
    def binary(self) -> str:
        if self.old is None or self.new is None:
            return "new" if self.old is None else "gone"
        return "same" if self.old.digest == self.new.digest else "changed"

    @property
    def resources(self) -> dict[str, tuple[Scalar, Scalar]]:
        """What either states of itself but the batch sizes, old and new."""
        old, new = (k.resources if k is not None else {} for k in (self.old, self.new))
        return {
            name: (old.get(name), new.get(name)) for name in {**old, **new} if name != "batches"
        }


@dataclass(frozen=True)
class Count:
    """A quantity that the suite counted in a case of both commits."""

    case: str
    name: str
    old: Scalar
    new: Scalar


@dataclass(frozen=True)
class KernelComparison:
    """Of two commits on one device kind. `facts`: their names, and what limits it."""

    device_kind: str
    facts: list[str]
    pairs: list[KernelPair]
    counts: list[Count]

    def section(self) -> Section:
        archs = dict.fromkeys(pair.arch for pair in self.pairs)
        tables = [_table([p for p in self.pairs if p.arch == arch]) for arch in archs]
        return Section(
            suite="codeobject",
            device_kind=self.device_kind,
            verdict="no verdict",
            reason=NO_VERDICT,
            facts=self.facts,
            tables=[*tables, *_counted(self.counts)],
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "suite": "codeobject",
            "device_kind": self.device_kind,
            "facts": self.facts,
            "rows": [
                {
                    "arch": pair.arch,
                    "batches": pair.batches,
                    "binary": pair.binary,
                    "kernel": _both(*(k.name if k else None for k in (pair.old, pair.new))),
                    "digest": _both(*(k.digest if k else None for k in (pair.old, pair.new))),
                    "resources": {name: _both(*value) for name, value in pair.resources.items()},
                }
                for pair in self.pairs
            ],
            "counts": [
                {"case": count.case, "name": count.name, **_both(count.old, count.new)}
                for count in self.counts
            ],
        }


def compare_kernels(old_side: Side, new_side: Side) -> KernelComparison:
    """Only the batch sizes and head counts that both judged."""
    a, b = old_side.document, new_side.document
    common = [size for size in _judged(a) if size in _judged(b)]
    names = f"old is {old_side.name}, new is {new_side.name}"
    facts = [names, *_compilers(a, b), *_left_out(old_side, new_side, common)]
    old, new = ({case.id: case for case in document.cases} for document in (a, b))
    counts = [count for name in old if name in new for count in _counts(name, old[name], new[name])]
    return KernelComparison(b.device_kind, facts, _pairs(a, b, common), counts)


def _judged(document: Document) -> list[_Size]:
    """In the order of the plan, and last those kernels that state no batch size."""
    cases = [case for case in document.cases if case.outcome != "not_run"]
    sizes = [_size(case) for case in cases if batch_of(case).tokens is not None]
    rest = [(kernel.arch, "", None) for kernel in document.kernels if not batches_of(kernel)]
    return list(dict.fromkeys([*sizes, *rest]))


def _size(case: Case) -> _Size:
    batch = batch_of(case)
    return scalar(case.params.get("arch")), batch.heads, batch.tokens


def _pairs(a: Document, b: Document, sizes: list[_Size]) -> list[KernelPair]:
    """Batch sizes with the same two kernels share one pair."""
    found: dict[tuple[object, ...], KernelPair] = {}
    for arch, _, rows in sizes:
        for old, new in _paired(_of(a, arch, rows), _of(b, arch, rows)):
            pair = found.setdefault(
                (arch, *(k and (k.name, k.digest) for k in (old, new))),
                KernelPair(arch, [], old, new),
            )
            if rows is not None:
                pair.batches.append(rows)
    return list(found.values())


def _of(document: Document, arch: str, rows: int | None) -> list[Kernel]:
    kernels = [kernel for kernel in document.kernels if kernel.arch == arch]
    if rows is None:
        return [kernel for kernel in kernels if not batches_of(kernel)]
    return sorted((k for k in kernels if rows in batches_of(k)), key=kernel_order)


def _paired(old: list[Kernel], new: list[Kernel]) -> list[tuple[Kernel | None, Kernel | None]]:
    pairs: list[tuple[Kernel | None, Kernel | None]] = []
    alike: tuple[Callable[[Kernel, Kernel], bool], ...] = (
        lambda x, y: (x.name, x.digest) == (y.name, y.digest),
        lambda x, y: x.name == y.name,
        lambda x, y: True,
    )
    for same in alike:
        for kernel in list(new):
            before = next((entry for entry in old if same(entry, kernel)), None)
            if before is not None:
                pairs.append((before, kernel))
                old, new = [k for k in old if k is not before], [k for k in new if k is not kernel]
    return [*pairs, *((None, kernel) for kernel in new), *((kernel, None) for kernel in old)]


def _compilers(a: Document, b: Document) -> list[str]:
    old, new = (scalar(document.environment.get("triton")) for document in (a, b))
    if old == new:
        return []
    said = f"compiled by Triton {old or 'unknown'} and {new or 'unknown'}"
    return [one_line(f"{said}: a change need not be the commit's", 120)]


def _left_out(old: Side, new: Side, common: list[_Size]) -> list[str]:
    """Cases that only one of the two commits was judged in."""
    facts = []
    for side in (old, new):
        alone = [s for s in _judged(side.document) if s[2] is not None and s not in common]
        if alone:
            facts.append(f"{counted(len(alone), 'case')} of {side.name} alone not shown")
    return facts


def _counts(case: str, old: Case, new: Case) -> list[Count]:
    then = {check.name: check.value for check in old.checks if check.relation == "measured"}
    return [
        Count(case, check.name, then[check.name], check.value)
        for check in new.checks
        if check.relation == "measured"
        and check.name in then
        and not check.name.startswith(_JUDGED)
    ]


def _table(pairs: list[KernelPair]) -> Table:
    """What changed is given up last where width is short."""
    names = list(dict.fromkeys(name for pair in pairs for name in pair.resources))
    changed = {
        name
        for pair in pairs
        for name, (old, new) in pair.resources.items()
        if old != new and pair.old is not None and pair.new is not None
    }
    ranks = {name: i + (0 if name in changed else len(names)) for i, name in enumerate(names, 1)}
    columns = [
        Column("kernel", left=True),
        Column("T", left=True),
        Column("binary", left=True),
        *(Column(one_line(name.replace("_", " "), 24), rank=ranks[name]) for name in names),
    ]
    rows = [
        [
            Cell(_change(*(one_line(k.name, 48) if k else "" for k in (pair.old, pair.new)))),
            Cell(",".join(map(str, pair.batches))),
            Cell(pair.binary),
            *(_cell(pair.resources.get(name)) for name in names),
        ]
        for pair in pairs
    ]
    arch = one_line(pairs[0].arch, 16)
    title = f"Kernels for {arch}, old -> new" if arch else "Kernels, old -> new"
    return without_empty_columns(Table(columns, rows, title=title))


def _cell(values: tuple[Scalar, Scalar] | None) -> Cell:
    return EMPTY if values is None else Cell(_change(*(one_line(scalar(v), 40) for v in values)))


def _change(old: str, new: str) -> str:
    """`96 -> 104`, `96` where nothing changed; one that is not there is left out."""
    return f"{old} -> {new}" if old and new and old != new else new or old


def _counted(counts: list[Count]) -> list[Table]:
    if not counts:
        return []
    changed = [count for count in counts if count.old != count.new]
    rows = [
        [
            Cell(one_line(count.case, 60)),
            Cell(one_line(count.name, 60)),
            Cell(_change(*(one_line(scalar(value), 60) for value in (count.old, count.new)))),
        ]
        for count in changed
    ]
    columns = [
        Column("case", left=True),
        Column("counted", left=True, flexible=True),
        Column("old -> new", left=True, flexible=True),
    ]
    note = f"{counted(len(counts) - len(changed), 'count')} of cases did not change"
    return [Table(columns, rows, title="Counts of cases that changed", note=note)]


def _both(old: Scalar, new: Scalar) -> dict[str, Scalar]:
    return {"old": old, "new": new}
