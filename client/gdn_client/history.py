"""A branch's commits in first-parent order with what the service has stored of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gdn_client.api import Api
from gdn_client.document import Document, read_document
from gdn_client.errors import CommitUnavailable
from gdn_client.models import StoredResult
from gdn_client.report.build import SUITE_ORDER, worst_verdict
from gdn_client.report.cases import Batch, batch_of
from gdn_client.report.figures import microseconds
from gdn_client.report.roofline import fused
from gdn_client.report.table import EMPTY, Cell, Column, Table, tone_of, without_empty_columns
from gdn_client.repository import Commit

SHOWN_BATCHES = 6


@dataclass(frozen=True)
class Entry:
    """A commit with its results, and its roofline documents by device kind."""

    commit: Commit
    results: list[StoredResult]
    rooflines: dict[str, Document]


def collect(api: Api, commits: list[Commit], target: str, device_kind: str | None) -> list[Entry]:
    """Each commit with its results; none for a commit that the server does not know."""
    entries = []
    for commit in commits:
        results = _results(api, commit.sha, target, device_kind)
        rooflines = {
            result.device_kind: read_document(api.document(result.run_id))
            for result in reversed(results)  # the widest plan, which comes first, remains
            if result.suite == "roofline"
        }
        entries.append(Entry(commit, results, rooflines))
    return entries


def _results(api: Api, sha: str, target: str, device_kind: str | None) -> list[StoredResult]:
    try:
        return api.results(sha, target, device_kind)
    except CommitUnavailable:
        return []


def tables(entries: list[Entry]) -> list[Table]:
    """One table per device kind; commits newest first."""
    kinds = sorted({result.device_kind for entry in entries for result in entry.results})
    return [_table(entries, kind) for kind in kinds]


def _table(entries: list[Entry], kind: str) -> Table:
    documents = [entry.rooflines[kind] for entry in entries if kind in entry.rooflines]
    batches = _batches(documents)
    rows = []
    for entry in entries:
        here = [result for result in entry.results if result.device_kind == kind]
        verdicts = {
            suite: worst_verdict([r.verdict for r in here if r.suite == suite])
            for suite in {result.suite for result in here}
        }
        times = _times(entry.rooflines[kind]) if kind in entry.rooflines else {}
        rows.append(
            [
                Cell(entry.commit.sha[:12]),
                *(_verdict(verdicts.get(suite)) for suite in SUITE_ORDER),
                *(Cell(microseconds(times.get(batch))) for batch in batches),
                Cell(entry.commit.subject),
            ]
        )
    columns = [
        Column("commit", left=True),
        *(Column(suite, left=True) for suite in SUITE_ORDER),
        *(Column(_title(batch), rank=i + 1) for i, batch in enumerate(batches)),
        Column("subject", left=True, flexible=True, cut=True, rank=SHOWN_BATCHES + 1),
    ]
    note = "us per call by T and heads" if batches else ""
    return without_empty_columns(Table(columns, rows, title=f"On {kind}", note=note))


def _verdict(verdict: str | None) -> Cell:
    return EMPTY if verdict is None else Cell(verdict, tone_of(verdict))


def _times(document: Document) -> dict[Batch, float | None]:
    found = ((batch_of(case), fused(case)) for case in document.cases)
    return {batch: m.median for batch, m in found if m is not None}


def _batches(documents: list[Document]) -> list[Batch]:
    """At most SHOWN_BATCHES, spread over those without FP8, the smallest and largest included."""
    every = {batch for document in documents for batch in _times(document)}
    plain = sorted((b for b in every if b.fp8 != "yes"), key=lambda b: b.order) or sorted(
        every, key=lambda b: b.order
    )
    if len(plain) <= SHOWN_BATCHES:
        return plain
    step = (len(plain) - 1) / (SHOWN_BATCHES - 1)
    return [plain[round(i * step)] for i in range(SHOWN_BATCHES)]


def _title(batch: Batch) -> str:
    return f"T={batch.tokens} {batch.heads}".rstrip()


def as_json(entries: list[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "commit": entry.commit.sha,
            "subject": entry.commit.subject,
            "results": [result.raw for result in entry.results],
        }
        for entry in entries
    ]
