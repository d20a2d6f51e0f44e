"""stdout and stderr as they should be: any character goes, and so may the reader."""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Pipe(io.FileIO):
    """Once nobody reads any more, what is written is dropped.

    `show | head -1` has what it wants; the command still ends with the verdict's exit code.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def prepare() -> None:
    """Set the process's two streams up; what is no file of this process stays as it is."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a Latin-1 terminal still gets its table
            if _is_pipe(stream):
                setattr(sys, name, _outliving_its_reader(stream))


def _is_pipe(stream: io.TextIOWrapper) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:  # kept in memory, or closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _outliving_its_reader(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
    )
