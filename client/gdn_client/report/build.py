"""From a job or a commit's stored results to a Report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from gdn_client.document import Document
from gdn_client.models import Job, Run, StoredResult
from gdn_client.report import codeobject, correctness, determinism, generic, roofline
from gdn_client.report.cases import problems
from gdn_client.report.table import Report, Section, Table, without_constant
from gdn_client.text import duration, one_line

SUITE_ORDER = ("correctness", "determinism", "roofline", "compare", "codeobject")
_TABLES: dict[str, Callable[[Document], list[Table]]] = {
    "correctness": correctness.tables,
    "determinism": determinism.tables,
    "roofline": roofline.tables,
    "codeobject": codeobject.tables,
}


def section(document: Document) -> Section:
    built = _TABLES.get(document.suite, generic.tables)(document)
    facts = [
        document.device_name,
        *(f"{key}: {value}" for key, value in document.declarations.items()),
        *roofline.facts(document),
        f"kernel {document.kernel_digest[:12]}" if document.kernel_digest else "",
        *codeobject.facts(document),
        f"judge {document.judge_version}" if document.judge_version else "",
        duration(document.duration_s),
        "partial: some planned cases did not run" if document.partial else "",
    ]
    tables = []
    for table in built:
        if table.rows or table.note:
            table, heads = without_constant(table, "heads")
            tables.append(table)
            if heads:
                facts.append(f"heads {heads}")
    return Section(
        suite=document.suite,
        device_kind=document.device_kind,
        verdict=document.verdict,
        reason=one_line(document.reason),
        facts=list(dict.fromkeys(one_line(fact, 120) for fact in facts if fact)),
        tables=tables,
        problems=problems(document),
        cases=len(document.cases),
        notes=[one_line(note, 600) for note in document.notes],
        log_tail=document.log_tail if document.verdict != "passed" else "",
    )


def section_without_document(run: Run, device_kind: str) -> Section:
    """A run that left no document: its state and reason are all there is."""
    return Section(
        suite=run.suite,
        device_kind=device_kind,
        verdict=run.verdict or run.state,
        reason=one_line(run.reason),
        facts=[run.device] if run.device else [],
    )


def job_report(job: Job, documents: dict[str, Document]) -> Report:
    """`documents` by run id."""
    sections = [
        section(documents[run.id])
        if run.id in documents
        else section_without_document(run, job.device_kind)
        for run in job.runs
    ]
    facts = [
        f"commit {job.commit[:12]}" + (" (uncommitted changes)" if job.worktree else ""),
        f"target {job.target}",
        f"device {job.device_kind}",
        f"attempt {job.attempt}" if job.attempt > 1 else "",
        duration(job.duration_s) if job.duration_s is not None else "",
        f"queue position {job.queue_position}" if job.queue_position is not None else "",
        one_line(job.why_waiting),
        "answered from the store" if job.from_store else "",
        one_line(job.reason),
    ]
    report = Report(
        title=f"Job {job.id}",
        subject=one_line(job.subject, 120),
        verdict=str(job.state),
        facts=[fact for fact in facts if fact],
        sections=sections,
    )
    return _notes_once(report)


def commit_report(
    sha: str, subject: str, target: str, results: list[tuple[StoredResult, Document]]
) -> Report:
    ordered = sorted(results, key=lambda pair: (_place(pair[0].suite), pair[0].device_kind))
    verdicts = [result.verdict for result, _ in ordered]
    report = Report(
        title=f"Commit {sha[:12]}",
        subject=one_line(subject, 120),
        verdict=worst_verdict(verdicts),
        facts=[f"target {target}"],
        sections=[_of_plan(section(document), result.narrowed) for result, document in ordered],
    )
    return _notes_once(report)


def _of_plan(found: Section, narrowed: str) -> Section:
    said = f"only a part of the suite was asked for: {narrowed}"
    return replace(found, facts=[said, *found.facts]) if narrowed else found


def _notes_once(report: Report) -> Report:
    """Notes that several sections hold are said once, at the end."""
    counts = Counter(note for section in report.sections for note in set(section.notes))
    shared = [note for section in report.sections for note in section.notes if counts[note] > 1]
    sections = [
        replace(section, notes=[note for note in section.notes if counts[note] == 1])
        for section in report.sections
    ]
    return replace(report, sections=sections, notes=list(dict.fromkeys(shared)))


def worst_verdict(verdicts: list[str]) -> str:
    for verdict in ("failed", "suspect", "error", "unstable", "inconclusive"):
        if verdict in verdicts:
            return verdict
    return "passed" if verdicts else "no results"


def _place(suite: str) -> int:
    return SUITE_ORDER.index(suite) if suite in SUITE_ORDER else len(SUITE_ORDER)
