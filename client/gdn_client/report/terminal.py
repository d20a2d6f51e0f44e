"""A Report on a terminal, or as plain text in a pipe."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from gdn_client.report.table import GAP, Report, Section, Table, Tone, fitted, tone_of
from gdn_client.text import listed, printable

_STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.BAD: "bold red",
    Tone.WARN: "yellow",
    Tone.FAINT: "dim",
}
_MARKS = {Tone.GOOD: "✓", Tone.BAD: "✗", Tone.WARN: "!", Tone.PLAIN: "·"}
LOG_LINES = 15


def print_report(report: Report, console: Console) -> None:
    tone = tone_of(report.verdict)
    head = Text(report.title, style="bold")
    head.append(f"  {report.verdict}", style=_STYLES[tone])
    _line(console, head)
    if report.subject:
        _line(console, Text(report.subject))
    _line(console, Text(" · ".join(report.facts), style="dim"))
    for section in report.sections:
        print_section(section, console)


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
    if section.facts:
        _line(console, Text(" · ".join(section.facts), style="dim"))
    for table in section.tables:
        print_table(table, console)
    for note in section.notes:
        _line(console, Text(f"note: {note}", style="dim"))
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
            no_wrap=not column.flexible,
            overflow="ellipsis" if not column.flexible else "fold",
        )
    for row in table.rows:
        rich.add_row(*(Text(cell.text, style=_STYLES[cell.tone]) for cell in row))
    if spaced:
        console.print()
    if table.title:
        _line(console, Text(table.title, style="bold"))
    console.print(rich)
    notes = [table.note] if table.note else []
    if dropped:
        notes.append(f"not shown for lack of width: {listed(dropped)}")
    for note in notes:
        _line(console, Text(note, style="dim"))


def _print_log(tail: str, console: Console) -> None:
    lines = printable(tail).rstrip().splitlines()
    _line(console, Text(f"last lines of the candidate's output ({len(lines)}):", style="dim"))
    for line in lines[-LOG_LINES:]:
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2)))


def _line(console: Console, text: Text) -> None:
    console.print(text, overflow="fold")
