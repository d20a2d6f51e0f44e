"""Where output goes: data to stdout, messages to stderr, colours only on a terminal."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 100  # of tables when stdout is a pipe or a file
_STYLES = {"error": "31;1", "warning": "33", "note": "2"}


@dataclass(frozen=True, kw_only=True)
class Screen:
    """`quiet` silences messages, never errors; `colour` False is NO_COLOR."""

    quiet: bool = False
    colour: bool = True

    def data(self, text: str) -> None:
        """What the command was asked for."""
        sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        if not self.quiet:
            self._message(text)

    def note(self, text: str) -> None:
        if not self.quiet:
            self._message(self._styled("note", text))

    def warn(self, text: str) -> None:
        if not self.quiet:
            self._message(self._styled("warning", "warning: ") + text)

    def error(self, text: str, remedy: str = "") -> None:
        self._message(self._styled("error", "error: ") + text)
        if remedy:
            self._message(remedy)

    def _message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _styled(self, style: str, text: str) -> str:
        if not (self.colour and sys.stderr.isatty()):
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    @property
    def interactive(self) -> bool:
        """Whether a live display on stderr makes sense."""
        return sys.stderr.isatty() and not self.quiet

    def console(self, *, stderr: bool = False, width: int | None = None) -> Console:
        """A rich console; on a pipe it has a fixed width and no colour."""
        from rich.console import Console

        stream = sys.stderr if stderr else sys.stdout
        if width is None and not stream.isatty() and "COLUMNS" not in os.environ:
            width = PLAIN_WIDTH
        return Console(
            file=stream,
            width=width,
            no_color=not self.colour,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
        )
