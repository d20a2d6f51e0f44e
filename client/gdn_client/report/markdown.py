"""A Report as GitHub-flavoured Markdown in which text from elsewhere is inert.

A commit's author chooses subjects, reasons and log lines. They may not mention
anyone, link, break a table, open a fence or bring HTML.
"""

from __future__ import annotations

import re

from gdn_client.report.table import Report, Section, Table
from gdn_client.text import last_lines, one_line

_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
_LINE_START = re.compile(r"^([-+=#]|\d+(?=[.)](?:\s|$)))")
_BREAK = "\u200b"  # a zero-width space: keeps "@name" readable and no mention
_MARKS = {"passed": "✅", "failed": "❌", "suspect": "❌", "error": "❌"}
LOG_LINES = 40
SHOWN_PROBLEMS = 50
SHOWN_CHECKS = 5


def render(report: Report) -> str:
    lines = [f"## {_mark(report.verdict)} {inert(report.title)}: {inert(report.verdict)}", ""]
    if report.subject:
        lines += [inert(report.subject), ""]
    lines += [" · ".join(inert(fact) for fact in report.facts), ""]
    for section in report.sections:
        lines += _section(section)
    lines += [f"- {inert(note)}" for note in report.notes]
    return "\n".join(lines).rstrip() + "\n"


def inert(text: str) -> str:
    """`text` on one line, showing as itself wherever Markdown is rendered."""
    text = one_line(text, 2000)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _LINE_START.sub(_escaped_start, _SPECIAL.sub(r"\\\1", text))
    text = re.sub(r"@(?=\w)", f"@{_BREAK}", text).replace("://", f":{_BREAK}//")
    text = re.sub(r"#(?=\d)", f"#{_BREAK}", text)
    return re.sub(r"(?i)\b(www(?=\.)|GH(?=-\d))", rf"\1{_BREAK}", text)


def _escaped_start(match: re.Match[str]) -> str:
    """What would begin a list, a heading or an underline, made plain."""
    start = match[1]
    return f"{start}{_BREAK}" if start[0].isdigit() else f"\\{start}"


def table(table: Table) -> list[str]:
    """All columns; nothing is left out for width."""
    head = [inert(column.title) for column in table.columns]
    rule = [":--" if column.left else "--:" for column in table.columns]
    rows = [[inert(cell.text) for cell in row] for row in table.rows]
    return [_row(head), _row(rule), *(_row(row) for row in rows)]


def _section(section: Section) -> list[str]:
    head = f"### {_mark(section.verdict)} {inert(section.suite)} on {inert(section.device_kind)}: "
    lines = [head + inert(section.verdict), ""]
    for paragraph in (section.reason, " · ".join(section.facts)):
        if paragraph:
            lines += [inert(paragraph), ""]
    for number, each in enumerate(section.tables):
        if each.rows:
            lines += [f"**{inert(each.title)}**", ""] if each.title else []
            lines += [*table(each), ""]
        if each.note:
            lines += [inert(each.note), ""]
        if number == 0:
            lines += _problems(section)
    if not section.tables:
        lines += _problems(section)
    lines += [f"- {inert(note)}" for note in section.notes]
    if section.notes:
        lines.append("")
    if section.log_tail:
        lines += _log(section.log_tail)
    return lines


def _problems(section: Section) -> list[str]:
    if not section.problems:
        return []
    lines = [f"**Not passed: {len(section.problems)} of {section.cases}**", ""]
    lines += [_row(["case", "outcome", "checks", "why"]), _row([":--"] * 4)]
    for problem in section.problems[:SHOWN_PROBLEMS]:
        checks = "; ".join(problem.checks[:SHOWN_CHECKS])
        more = len(problem.checks) - SHOWN_CHECKS
        checks += f"; and {more} more" if more > 0 else ""
        lines.append(_row([inert(x) for x in (problem.case, problem.outcome, checks, problem.why)]))
    more = len(section.problems) - SHOWN_PROBLEMS
    return [*lines, "", *([f"and {more} more", ""] if more > 0 else [])]


def _log(tail: str) -> list[str]:
    """Indented code: no fence that the text could close."""
    shown = last_lines(tail, LOG_LINES)
    return ["Last lines of the candidate's output:", "", *(f"    {line}" for line in shown), ""]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _mark(verdict: str) -> str:
    return _MARKS.get(verdict, "⚠️")
