from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from gdn_judge.agent import wire

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def soon(seconds: float = 2.0) -> float:
    return time.monotonic() + seconds


def test_a_frame_arrives_as_it_was_sent(pair: Pair) -> None:
    wire.send(pair[0], {"id": 1, "text": "ü" * 10})
    assert wire.receive(pair[1], soon()) == {"id": 1, "text": "ü" * 10}


def test_descriptors_travel_beside_a_frame(pair: Pair) -> None:
    reader, writer = os.pipe()
    wire.send(pair[0], {"id": 2}, [writer])
    message, fds = wire.receive_with_fds(pair[1])
    os.write(fds[0], b"through")
    assert (message, os.read(reader, 7)) == ({"id": 2}, b"through")
    for fd in (reader, writer, *fds):
        os.close(fd)


def test_the_judge_takes_no_descriptor(pair: Pair) -> None:
    before = len(os.listdir("/proc/self/fd"))
    wire.send(pair[0], {"id": 3}, [0])
    assert wire.receive(pair[1], soon()) == {"id": 3}
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"verdict": "passed"}', "bytes is announced|announced"),
        (struct.pack(">I", 4) + b"\x80\x04K\x01", "no JSON"),
        (struct.pack(">I", 2) + b"[]", "a list, not an object"),
        (struct.pack(">I", 40000) + b"[" * 40000, "no JSON"),
    ],
)
def test_what_is_no_frame(pair: Pair, data: bytes, message: str) -> None:
    pair[0].sendall(data)
    with pytest.raises(wire.WireError, match=message):
        wire.receive(pair[1], soon())


def test_a_closed_connection(pair: Pair) -> None:
    pair[0].sendall(struct.pack(">I", 10) + b"half")
    pair[0].close()
    with pytest.raises(wire.Closed, match="inside a frame"):
        wire.receive(pair[1], soon())


@pytest.mark.parametrize("sent", [b"", b"\0\0", struct.pack(">I", 10) + b"half"])
def test_every_read_has_the_deadline(pair: Pair, sent: bytes) -> None:
    pair[0].sendall(sent)
    with pytest.raises(wire.Late):
        wire.receive(pair[1], soon(0.05))


def test_too_long_a_frame_is_not_sent(pair: Pair) -> None:
    with pytest.raises(wire.WireError, match="over the limit"):
        wire.send(pair[0], {"text": "x" * wire.MAX_FRAME})


def test_frames_are_strictly_json(pair: Pair) -> None:
    body = json.dumps({"id": 1}).encode()
    pair[0].sendall(struct.pack(">I", len(body)) + body)
    assert wire.receive(pair[1], soon()) == {"id": 1}
