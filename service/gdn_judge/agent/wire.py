"""Frames between judge and candidate: four bytes of length, then JSON. Never pickle.

File descriptors of shared memory travel beside a frame from the judge to the
candidate, never back. Standard library only.
"""

from __future__ import annotations

import array
import json
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

MAX_FRAME = 8 << 20
_HEADER = struct.Struct(">I")
_MAX_FDS = 4


class WireError(Exception):
    """The peer sent something that is no frame."""


class Closed(WireError):
    """The peer closed the connection."""


class Late(WireError):
    """The deadline passed before a whole frame arrived."""


def send(connection: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one frame, with `fds` if any. Raises WireError where it is too long."""
    body = json.dumps(message).encode()
    if len(body) > MAX_FRAME:
        raise WireError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME}")
    header = _HEADER.pack(len(body))
    if fds:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        connection.sendmsg([header], [rights])
    else:
        connection.sendall(header)
    connection.sendall(body)


def receive(connection: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """Receive one frame before `deadline` (time.monotonic()); descriptors are refused."""
    header = _exactly(connection, _HEADER.size, deadline)
    return _body(connection, header, deadline)


def receive_with_fds(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive one frame and the descriptors sent with it; waits for ever."""
    space = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
    try:
        header, ancillary, _, _ = connection.recvmsg(_HEADER.size, space)
    except ConnectionError as error:
        raise Closed(str(error)) from error
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if not header:
        raise Closed("the judge closed the connection")
    header += _exactly(connection, _HEADER.size - len(header), None)
    return _body(connection, header, None), list(fds)


def _body(connection: socket.socket, header: bytes, deadline: float | None) -> dict[str, Any]:
    (length,) = _HEADER.unpack(header)
    if length > MAX_FRAME:
        raise WireError(f"a frame of {length} bytes is announced, the limit is {MAX_FRAME}")
    body = _exactly(connection, length, deadline)
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the frame is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise WireError(f"the frame is a {type(message).__name__}, not an object")
    return message


def _exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    missing = count
    while missing:
        connection.settimeout(_remaining(deadline))
        try:
            part = connection.recv(min(missing, 1 << 20))
        except TimeoutError as error:
            raise Late("no whole frame before the deadline") from error
        except ConnectionError as error:
            raise Closed(str(error)) from error
        if not part:
            raise Closed("the connection was closed" + (" inside a frame" if parts else ""))
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _remaining(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise Late("no whole frame before the deadline")
    return left
