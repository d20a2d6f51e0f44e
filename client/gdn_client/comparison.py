"""Two commits' stored medians, or two environments, beside each other.

No statistics and no verdict: medians of two separate runs cannot show a regression.
Where a comparison would mislead, none is made: another environment is incomparable,
equal kernel digests are the same binary.
"""

from __future__ import annotations

from dataclasses import dataclass

from gdn_client.document import Document, Scalar
from gdn_client.report.cases import BATCH_COLUMNS, Batch, batch_of
from gdn_client.report.figures import microseconds, scalar
from gdn_client.report.roofline import fused
from gdn_client.report.table import EMPTY, Cell, Column, Section, Table, without_constant
from gdn_client.text import one_line

CAUTION = "stored medians of two separate runs; no statistics, so no verdict"


@dataclass(frozen=True)
class Side:
    """One commit's run of a suite on one device kind."""

    name: str
    environment_id: str | None
    kernel_digest: str | None
    document: Document


def compare(a: Side, b: Side) -> Section:
    """The medians of `a` and `b`, batch by batch, with the change where it means anything."""
    same_binary = a.kernel_digest is not None and a.kernel_digest == b.kernel_digest
    comparable = a.environment_id is not None and a.environment_id == b.environment_id
    kinds = _times(a.document), _times(b.document)
    rows = []
    for batch in sorted(set(kinds[0]) | set(kinds[1]), key=lambda b: b.order):
        left, right = kinds[0].get(batch), kinds[1].get(batch)
        change = EMPTY
        if comparable and left and right:
            change = Cell(f"{(right - left) / left:+.1%}")
        rows.append([*batch.cells(), Cell(microseconds(left)), Cell(microseconds(right)), change])
    columns = [*BATCH_COLUMNS, Column(f"{a.name} us"), Column(f"{b.name} us"), Column("change")]
    table, heads = without_constant(Table(columns, rows), "heads")
    return Section(
        suite="roofline",
        device_kind=a.document.device_kind,
        verdict="no verdict",
        reason=CAUTION,
        facts=[*_facts(same_binary, comparable), *([f"heads {heads}"] if heads else [])],
        tables=[table] if rows else [],
        notes=[] if comparable else difference(a.document.environment, b.document.environment),
    )


def _facts(same_binary: bool, comparable: bool) -> list[str]:
    facts = []
    if same_binary:
        facts.append("same binary: the kernel digests are equal, any change is noise")
    if not comparable:
        facts.append("incomparable: measured in different environments, so no percentage")
    return facts


def _times(document: Document) -> dict[Batch, float]:
    times = {}
    for case in document.cases:
        m = fused(case)
        if m is not None and m.median is not None:
            times[batch_of(case)] = m.median
    return times


def difference(a: dict[str, Scalar], b: dict[str, Scalar]) -> list[str]:
    """Two environments' differences in words, one sentence each."""
    sentences = []
    for key in sorted(set(a) | set(b)):
        name = one_line(key.replace("_", " "), 60)
        if key not in b:
            sentences.append(f"{name} is {_value(a[key])} in A and not stated in B")
        elif key not in a:
            sentences.append(f"{name} is {_value(b[key])} in B and not stated in A")
        elif a[key] != b[key]:
            sentences.append(f"{name} is {_value(a[key])} in A and {_value(b[key])} in B")
    return sentences


def _value(value: Scalar) -> str:
    return one_line(scalar(value), 120) if value is not None else "unknown"
