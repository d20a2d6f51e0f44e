"""The engine's attach stream: frames of an 8-byte header (stream, 3 zeros, length) and data."""

from __future__ import annotations

import struct
from collections.abc import Iterator

STDOUT, STDERR = 1, 2
_HEADER = struct.Struct(">BxxxI")


class FrameParser:
    """Give it bytes as they come; it gives (stream, data) of what is complete or partly there."""

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        while data:
            if self._left:
                piece, data = data[: self._left], data[self._left :]
                self._left -= len(piece)
                yield self._stream, piece
                continue
            missing = _HEADER.size - len(self._header)
            self._header, data = self._header + data[:missing], data[missing:]
            if len(self._header) == _HEADER.size:
                self._stream, self._left = _HEADER.unpack(self._header)
                self._header = b""
