"""A Report on a terminal, or as plain text in a pipe."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from gdn_client.report.table import GAP, Report, Section, Table, Tone, fitted, tone_of
from gdn_client.text import last_lines, listed

_STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.BAD: "bold red",
    Tone.WARN: "yellow",
    Tone.FAINT: "dim",
}
_MARKS = {Tone.GOOD: "✓", Tone.BAD: "✗", Tone.WARN: "!", Tone.PLAIN: "·"}
LOG_LINES = 15
SHOWN_PROBLEMS = 20
SHOWN_CHECKS = 5


def print_report(report: Report, console: Console) -> None:
    tone = tone_of(report.verdict)
    head = Text(report.title, style="bold")
    head.append(f"  {report.verdict}", style=_STYLES[tone])
    _line(console, head)
    if report.subject:
        _line(console, Text(report.subject))
    _facts(console, report.facts)
    for section in report.sections:
        print_section(section, console)
    if report.notes:
        console.print()
    for note in report.notes:
        _note(console, note)


def print_section(section: Section, console: Console) -> None:
    tone = tone_of(section.verdict)
    console.print()
    head = Text(f"{_MARKS.get(tone, '·')} ", style=_STYLES[tone])
    head.append(section.suite, style="bold")
    head.append(f" on {section.device_kind}: ")
    head.append(section.verdict, style=_STYLES[tone])
    if section.reason:
        head.append(f"  {section.reason}")
    _line(console, head)
    _facts(console, section.facts)
    for number, table in enumerate(section.tables):
        print_table(table, console)
        if number == 0:
            _print_problems(section, console)
    if not section.tables:
        _print_problems(section, console)
    for note in section.notes:
        _note(console, note)
    if section.log_tail:
        _print_log(section.log_tail, console)


def print_table(table: Table, console: Console, *, spaced: bool = True) -> None:
    """The table within the console's width; columns given up for that are named."""
    table, dropped = fitted(table, console.width)
    rich = RichTable(
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        show_edge=False,
        header_style="bold",
        collapse_padding=False,
    )
    for column in table.columns:
        rich.add_column(
            column.title,
            justify="left" if column.left else "right",
            no_wrap=column.cut or not column.flexible,
            overflow="fold" if column.flexible and not column.cut else "ellipsis",
        )
    for row in table.rows:
        rich.add_row(*(Text(cell.text, style=_STYLES[cell.tone]) for cell in row))
    if spaced:
        console.print()
    if table.rows:
        if table.title:
            _line(console, Text(table.title, style="bold"))
        console.print(rich)
    notes = [table.note] if table.note else []
    if dropped:
        notes.append(f"not shown for lack of width: {listed(dropped)}")
    for note in notes:
        _line(console, Text(note, style="dim"))


def _print_problems(section: Section, console: Console) -> None:
    """Each with what its checks say; those not reached in one line."""
    wrong = [problem for problem in section.problems if problem.outcome != "not_run"]
    missed = len(section.problems) - len(wrong)
    if wrong:
        console.print()
        _line(console, Text(f"Not passed: {len(wrong)} of {section.cases}", style="bold"))
    for problem in wrong[:SHOWN_PROBLEMS]:
        head = Text(problem.case)
        head.append(f"  {problem.outcome}", style=_STYLES[Tone.BAD])
        _line(console, head)
        for text in (*problem.checks[:SHOWN_CHECKS], problem.why):
            if text:
                _indented(console, "    ", Text(text))
        if len(problem.checks) > SHOWN_CHECKS:
            _line(console, Text(f"    and {len(problem.checks) - SHOWN_CHECKS} more checks"))
    if len(wrong) > SHOWN_PROBLEMS:
        _line(console, Text(f"and {len(wrong) - SHOWN_PROBLEMS} more; --json has them all"))
    if missed:
        console.print()
        _line(console, Text(f"Not reached: {missed} of {section.cases} cases", style="yellow"))


def _print_log(tail: str, console: Console) -> None:
    lines = last_lines(tail, LOG_LINES)
    _line(console, Text(f"last lines of the candidate's output ({len(lines)}):", style="dim"))
    for line in lines:
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2)))


def _facts(console: Console, facts: list[str]) -> None:
    """As many to a line as fit, none broken unless longer than a line."""
    lines: list[str] = []
    for fact in facts:
        if lines and len(lines[-1]) + len(fact) + 3 <= console.width:
            lines[-1] += f" · {fact}"
        else:
            lines.append(fact)
    for line in lines:
        _line(console, Text(line, style="dim"))


def _note(console: Console, note: str) -> None:
    _indented(console, "note: ", Text(note, style="dim"))


def _indented(console: Console, prefix: str, text: Text) -> None:
    """`text` behind `prefix`, its further lines below its first."""
    room = max(20, console.width - len(prefix))
    for number, line in enumerate(text.wrap(console, room)):
        line.rstrip()
        start = prefix if number == 0 else " " * len(prefix)
        _line(console, Text(start, style=text.style).append_text(line))


def _line(console: Console, text: Text) -> None:
    console.print(text, overflow="fold")
