"""Tickets are shared only where launches are in order."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gdn_kernels import scratch
from gdn_kernels.scratch import Tickets

CPU = torch.device("cpu")


def test_one_stream_keeps_its_tickets() -> None:
    tickets = Tickets()
    first = tickets.eager(16, CPU, stream=1)
    assert first.numel() >= 16
    assert int(first.abs().sum()) == 0
    assert tickets.eager(8, CPU, stream=1).data_ptr() == first.data_ptr()


def test_streams_do_not_share() -> None:
    tickets = Tickets()
    one, two = tickets.eager(16, CPU, stream=1), tickets.eager(16, CPU, stream=2)
    assert one.data_ptr() != two.data_ptr()


def test_growth_keeps_the_old_memory_alive() -> None:
    tickets = Tickets()
    small = tickets.eager(16, CPU, stream=1)
    large = tickets.eager(5000, CPU, stream=1)
    assert large.numel() >= 5000
    assert any(kept is small for kept in tickets._kept)


def test_captures_do_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = Tickets()
    tickets.eager(1, CPU, stream=7)
    captures = iter([11, 11, 12, None, None])
    monkeypatch.setattr(scratch, "capture_id", lambda backend, stream: next(captures))
    one = tickets.captured(64, CPU, 7, "cuda")
    again = tickets.captured(64, CPU, 7, "cuda")
    other = tickets.captured(64, CPU, 7, "cuda")
    unknown = tickets.captured(64, CPU, 7, "cuda")
    unknown_too = tickets.captured(64, CPU, 7, "cuda")
    assert one.data_ptr() == again.data_ptr()
    places = {t.data_ptr() for t in (one, other, unknown, unknown_too)}
    assert len(places) == 4


def test_an_exhausted_arena_still_gives_zeros(caplog: pytest.LogCaptureFixture) -> None:
    tickets = Tickets()
    given = tickets.captured(32, CPU, 7, "nothing")
    assert given.numel() >= 32
    assert int(given.abs().sum()) == 0
    assert "its graph zeroes them itself" in caplog.text


def test_memory_of_one_stream_is_kept_and_grows() -> None:
    tickets, out = Tickets(), torch.empty(2, 8, 128, dtype=torch.bfloat16)
    given, memory = tickets.take(8, 4000, out, 1, "cuda")
    assert (given.dtype, int(given.abs().sum())) == (torch.int32, 0)
    assert (memory.dtype, memory.numel() >= 4000) == (torch.bfloat16, True)
    again, smaller = tickets.take(8, 100, out, 1, "cuda")
    assert (again.data_ptr(), smaller.data_ptr()) == (given.data_ptr(), memory.data_ptr())
    assert tickets.take(8, 100, out, 2, "cuda")[1].data_ptr() != memory.data_ptr()
    assert tickets.take(8, 9000, out, 1, "cuda")[1].numel() >= 9000


def test_a_program_that_shares_with_none_takes_no_tickets() -> None:
    tickets, out = Tickets(), torch.empty(2, 8, 128, dtype=torch.bfloat16)
    given, memory = tickets.take(0, 4000, out, 1, "cuda")
    assert given is out
    assert memory.numel() >= 4000
    assert tickets._eager == {}


def test_what_a_mode_makes_is_not_kept() -> None:
    tickets, out = Tickets(), torch.empty(2, 8, 128, dtype=torch.bfloat16)
    with FakeTensorMode(allow_non_fake_inputs=True):
        made = tickets.take(8, 4000, out, 1, "cuda")
    assert all(type(tensor) is not torch.Tensor for tensor in made)
    after = tickets.take(8, 4000, out, 1, "cuda")
    assert all(type(tensor) is torch.Tensor for tensor in after)
