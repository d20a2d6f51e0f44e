"""Jobs and stored results, in the format asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gdn_client.api import Api
from gdn_client.document import Document, read_document
from gdn_client.errors import CommitUnavailable, UnknownName
from gdn_client.exit_codes import ExitCode, of_verdicts
from gdn_client.exit_codes import of_job as of_job_state
from gdn_client.models import Job, StoredResult
from gdn_client.report.build import commit_report, job_report
from gdn_client.report.junit import Outcome
from gdn_client.report.table import Report
from gdn_client.screen import Screen


@dataclass(frozen=True, kw_only=True)
class Result:
    """A report with what the machine-readable formats need beside it."""

    report: Report
    outcomes: list[Outcome]
    properties: dict[str, str]
    raw: dict[str, Any]
    verdicts: list[str]
    job: Job | None = None

    def exit_code(self, *, strict: bool) -> ExitCode:
        if self.job is not None:
            return of_job_state(self.job, strict=strict)
        return of_verdicts(self.verdicts, strict=strict)


def of_job(api: Api, job: Job, suites: list[str] | None = None) -> Result:
    """A job with the documents that its runs left, of `suites` only if given."""
    runs = [run for run in job.runs if not suites or run.suite in suites]
    documents: dict[str, Document] = {}
    for run in runs:
        document = _stored_document(api, run.id)
        if document is not None:
            documents[run.id] = document
    outcomes = [
        Outcome(
            run.suite, job.device_kind, run.verdict or run.state, run.reason, documents.get(run.id)
        )
        for run in runs
    ]
    if not outcomes:
        outcomes = [Outcome("job", job.device_kind, str(job.state), job.reason, None)]
    shown = Job(**{**job.__dict__, "runs": runs})
    return Result(
        report=job_report(shown, documents),
        outcomes=outcomes,
        properties={"job": job.id, "commit": job.commit, "target": job.target},
        raw={"job": job.raw, "documents": [d.raw for d in documents.values()]},
        verdicts=[outcome.verdict for outcome in outcomes],
        job=job,
    )


def _stored_document(api: Api, run_id: str) -> Document | None:
    """None when the run left no document, as one that is queued, or whose host failed."""
    try:
        return read_document(api.document(run_id))
    except UnknownName:
        return None


def of_commit(
    api: Api,
    sha: str,
    subject: str,
    target: str,
    *,
    device_kind: str | None = None,
    suites: list[str] | None = None,
) -> Result:
    """The latest stored result of each suite and device kind. CommitUnavailable if none."""
    stored = [
        result
        for result in api.results(sha, target, device_kind)
        if not suites or result.suite in suites
    ]
    if not stored:
        raise CommitUnavailable(
            f"there is no stored result for {sha[:12]} of target {target}"
            + (f" on {device_kind}" if device_kind else ""),
            remedy=f"Run `gdn-client submit --commit {sha[:12]}`; "
            "`gdn-client status` lists jobs under way.",
        )
    pairs = [(result, read_document(api.document(result.run_id))) for result in stored]
    return Result(
        report=commit_report(sha, subject, target, pairs),
        outcomes=[_outcome(result, document) for result, document in pairs],
        properties={"commit": sha, "target": target},
        raw={
            "commit": sha,
            "target": target,
            "results": [{**result.raw, "document": document.raw} for result, document in pairs],
        },
        verdicts=[result.verdict for result in stored],
    )


def _outcome(result: StoredResult, document: Document) -> Outcome:
    return Outcome(result.suite, result.device_kind, result.verdict, result.reason, document)


def rendered(result: Result, form: str) -> str:
    """`result` as json, markdown or junit."""
    if form == "json":
        return json.dumps(result.raw, indent=2)
    if form == "markdown":
        from gdn_client.report import markdown

        return markdown.render(result.report)
    from gdn_client.report import junit

    return junit.render(result.report.title, result.properties, result.outcomes)


def present(result: Result, form: str, screen: Screen) -> None:
    """Print `result` on stdout."""
    if form != "table":
        screen.data(rendered(result, form))
        return
    from gdn_client.report.terminal import print_report

    print_report(result.report, screen.console())
