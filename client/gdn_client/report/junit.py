"""Verdict documents as JUnit XML: a test suite per run, a test case per case."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from gdn_client.document import Case, Document
from gdn_client.report.figures import scalar
from gdn_client.text import one_line, printable

FAILURES = frozenset({"failed", "refused", "raised", "suspect"})


@dataclass(frozen=True)
class Outcome:
    """One run for the report; `document` is None when it left none."""

    suite: str
    device_kind: str
    verdict: str
    reason: str
    document: Document | None


def render(name: str, properties: dict[str, str], outcomes: list[Outcome]) -> str:
    """Well-formed XML, declaration included."""
    root = ET.Element("testsuites", name=_clean(name))
    for outcome in outcomes:
        root.append(_suite(outcome, properties))
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(outcome: Outcome, properties: dict[str, str]) -> ET.Element:
    label = f"{outcome.suite} on {outcome.device_kind}"
    suite = ET.Element("testsuite", name=_clean(label))
    document = outcome.document
    facts = {**properties, "verdict": outcome.verdict, "reason": outcome.reason}
    if document is not None:
        facts["judge_version"] = document.judge_version
        facts["kernel_digest"] = document.kernel_digest or ""
        suite.set("timestamp", _clean(document.started_at))
        suite.set("time", f"{document.duration_s or 0:.3f}")
    listed = ET.SubElement(suite, "properties")
    for key, value in facts.items():
        if value:
            ET.SubElement(listed, "property", name=_clean(key), value=_clean(one_line(value)))
    classname = f"gdn.{outcome.suite}.{outcome.device_kind}"
    for case in document.cases if document else []:
        suite.append(_case(case, classname))
    if document is None or (outcome.verdict != "passed" and not _has_problem(suite)):
        suite.append(_run_problem(outcome, classname))
    if document is not None and document.log_tail:
        ET.SubElement(suite, "system-out").text = _clean(document.log_tail)
    _count(suite)
    return suite


def _case(case: Case, classname: str) -> ET.Element:
    element = ET.Element("testcase", classname=_clean(classname), name=_clean(case.id))
    element.set("time", f"{case.seconds or 0:.3f}")
    if case.passed:
        return element
    if case.outcome == "not_run":
        ET.SubElement(element, "skipped", message=_clean(one_line(case.reason or "not run")))
        return element
    problem = ET.SubElement(element, "failure" if case.outcome in FAILURES else "error")
    problem.set("type", _clean(case.outcome))
    problem.set("message", _clean(one_line(case.reason or case.outcome)))
    problem.text = _clean("\n".join(_check_lines(case)))
    return element


def _check_lines(case: Case) -> list[str]:
    return [
        f"{check.name}: {scalar(check.value)}, should be {check.relation} {scalar(check.bound)}"
        + (f" ({check.detail})" if check.detail else "")
        for check in case.checks
        if not check.passed
    ]


def _run_problem(outcome: Outcome, classname: str) -> ET.Element:
    """A run that did not pass though no single case says why."""
    element = ET.Element("testcase", classname=_clean(classname), name="run", time="0.000")
    tag = "failure" if outcome.verdict in FAILURES else "error"
    if outcome.verdict in ("cancelled", "inconclusive", "unstable"):
        tag = "skipped"
    problem = ET.SubElement(element, tag)
    if tag != "skipped":
        problem.set("type", _clean(outcome.verdict))
    problem.set("message", _clean(one_line(outcome.reason or outcome.verdict)))
    return element


def _has_problem(suite: ET.Element) -> bool:
    return any(suite.find(f"testcase/{tag}") is not None for tag in ("failure", "error"))


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite.findall("testcase"))))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{tag}"))))


def _clean(text: str) -> str:
    """Characters that XML 1.0 allows."""
    return printable(text)
