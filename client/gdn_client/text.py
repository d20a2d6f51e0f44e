"""Text from elsewhere (logs, subjects, reasons), made safe to print.

A commit's author chooses this text, so control characters, terminal escapes and
direction overrides never reach a terminal.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    # One that is not ended takes the rest of its line alone: it must not hide what follows.
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[@-Z\\-_]?"
)
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)
_SURROGATES = re.compile("[\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """`text` without escapes and control characters; newline and tab stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", _ESCAPES.sub("", text)))


def one_line(text: str, limit: int = 400) -> str:
    """`text` on one line, cut with an ellipsis at `limit` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def last_lines(text: str, count: int, limit: int = 400) -> list[str]:
    """The last `count` lines of `text`, printable, each cut with an ellipsis at `limit`."""
    lines = printable(text).rstrip().splitlines()[-count:]
    return [line if len(line) <= limit else line[: limit - 1] + "…" for line in lines]


def listed(names: list[str], *, limit: int = 8) -> str:
    """`a, b, c`, and how many more."""
    shown = ", ".join(names[:limit])
    more = len(names) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float | None) -> str:
    """`0.4 s`, `12 s`, `3 min 05 s`, `1 h 02 min`, `2 d 07 h`."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"
