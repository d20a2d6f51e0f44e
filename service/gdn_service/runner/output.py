"""Turns the judge's output into log events: bounded, in batches, never trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gdn_service.errors import RunnerError
from gdn_service.runner.base import RunControl

MAX_LINE_BYTES = 64 << 10


class OutputReader:
    """Lines of stdout that are JSON objects with an ``event`` are progress; all else is text."""

    def __init__(self, control: RunControl, max_bytes: int) -> None:
        self._control = control
        self._left = max_bytes
        self._cut = False
        self._pending: list[dict[str, Any]] = []
        self._partial = {"stdout": b"", "stderr": b""}
        self.last_words = ""

    def stdout(self, data: bytes) -> None:
        self._feed("stdout", data)

    def stderr(self, data: bytes) -> None:
        self._feed("stderr", data)

    def flush(self) -> None:
        """Hand over what has come since the last call, as one batch."""
        if self._pending:
            batch, self._pending = self._pending, []
            self._control.events(batch)

    def close(self) -> None:
        for stream, rest in self._partial.items():
            if rest:
                self._line(stream, rest)
        self.flush()

    def _feed(self, stream: str, data: bytes) -> None:
        *lines, rest = (self._partial[stream] + data).split(b"\n")
        for line in lines:
            self._line(stream, line)
        if len(rest) > MAX_LINE_BYTES:
            self._line(stream, rest)
            rest = b""
        self._partial[stream] = rest

    def _line(self, stream: str, line: bytes) -> None:
        if self._left <= 0:
            self._note_cut()
            return
        self._left -= len(line) + 1
        text = line[:MAX_LINE_BYTES].decode("utf-8", "replace").replace("\x00", "\ufffd").rstrip()
        event = _progress(text) if stream == "stdout" else None
        if stream == "stderr" and text.strip():
            self.last_words = text.strip()[:300]
        if event is not None:
            self._pending.append(event)
        elif text:
            self._pending.append({"event": "log", "text": text})

    def _note_cut(self) -> None:
        if not self._cut:
            self._cut = True
            self._pending.append({"event": "log", "text": "[the log is cut here: too much output]"})


class SentDocument:
    """What the judge sends over its descriptor: the number of bytes on a line, then those."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()
        self._over = False

    def feed(self, data: bytes) -> None:
        self._over = self._over or len(self._data) + len(data) > self._max_bytes + 32
        if not self._over:
            self._data += data

    def text(self) -> str | None:
        """None where the judge ended before it had sent all. Raises RunnerError for too much."""
        length, newline, body = bytes(self._data).partition(b"\n")
        if self._over or len(body) > self._max_bytes:
            raise RunnerError(f"the verdict document has over {self._max_bytes} bytes")
        if not newline or length != b"%d" % len(body):
            return None
        return _as_text(body)


def left_document(path: Path, max_bytes: int) -> str | None:
    """The text of the document at `path`, or None where no plain file is there.

    Raises RunnerError for one that is too big or not text.
    """
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise RunnerError(f"the verdict document has over {max_bytes} bytes")
    return _as_text(data)


def _as_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RunnerError("the verdict document is not UTF-8") from error


def _progress(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        data = json.loads(text, parse_constant=lambda _name: None)
    except ValueError:
        return None
    if isinstance(data, dict) and isinstance(data.get("event"), str):
        return data
    return None
