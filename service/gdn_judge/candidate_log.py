"""What a candidate prints: kept at both ends, cut in the middle, never waited for."""

from __future__ import annotations

import os
import select
import threading


class Log:
    """Head and tail of a stream of any length, read in its own thread."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head, self._tail, self._cut = bytearray(), bytearray(), 0
        self._lock = threading.Lock()
        self._stop_reader, self._stop_writer = os.pipe()
        self._thread: threading.Thread | None = None

    def follow(self, fd: int) -> None:
        self._thread = threading.Thread(target=self._read, args=(fd,), daemon=True)
        self._thread.start()

    def _read(self, fd: int) -> None:
        with os.fdopen(fd, "rb", buffering=0) as stream:
            while True:
                ready, _, _ = select.select([stream.fileno(), self._stop_reader], [], [])
                if stream.fileno() not in ready:
                    return
                data = stream.read(1 << 16)
                if not data:
                    return
                self.add_bytes(data)

    def add(self, text: str) -> None:
        self.add_bytes(text.encode())

    def add_bytes(self, data: bytes) -> None:
        with self._lock:
            room = max(0, self._half - len(self._head))
            self._head += data[:room]
            self._tail += data[room:]
            excess = max(0, len(self._tail) - self._half)
            del self._tail[:excess]
            self._cut += excess

    def text(self) -> str:
        with self._lock:
            middle = f"\n[judge] {self._cut} bytes cut here\n".encode() if self._cut else b""
            whole = bytes(self._head) + middle + bytes(self._tail)
        return whole.decode("utf-8", "replace").replace("\0", "\\0")

    def stop(self) -> None:
        """Read what is there, then no more, though a daemon may still hold the pipe."""
        os.write(self._stop_writer, b"x")
        if self._thread is not None:
            self._thread.join(5)
        os.close(self._stop_writer)
        os.close(self._stop_reader)
