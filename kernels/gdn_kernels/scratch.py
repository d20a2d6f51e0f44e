"""Scratch of a launch: tickets of programs that share a key head, and what passes through memory.

Tickets are zeroed counters that the last arriver of a group resets. A kernel
leaves its tickets zero, so they are zeroed once, not at every call. Two
launches that may run at the same time must not share tickets: eager calls share
them only within one stream, captured calls only within one capture on one
stream, because graphs may be replayed anywhere. Eager calls of one stream share
the other memory too; a captured call takes it from its graph's pool.
"""

from __future__ import annotations

import logging

import torch

from gdn_kernels.capture import capture_id

_log = logging.getLogger(__name__)

ARENA_TICKETS = 1 << 18  # 1 MiB a device, for captures: sixteen of T = 1024 at KH = 16


class Tickets:
    """The tickets of one process, for all its devices and streams."""

    def __init__(self) -> None:
        self._eager: dict[tuple[int, int], torch.Tensor] = {}
        self._memory: dict[tuple[int, int], torch.Tensor] = {}
        self._captured: dict[tuple[int, int, int], torch.Tensor] = {}
        self._arenas: dict[int, tuple[torch.Tensor, int]] = {}
        self._kept: list[torch.Tensor] = []  # a graph holds addresses, not references

    def take(
        self, count: int, elements: int, out: torch.Tensor, stream: int, backend: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(at least `count` tickets, memory for at least `elements` of `out`'s type), for one
        launch on `stream`; no tickets but `out`, which is not touched, where `count` is 0."""
        device = out.device
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            tickets = self.captured(count, device, stream, backend) if count else out
            return tickets, out.new_empty(elements)
        tickets = self.eager(count, device, stream) if count else out
        return tickets, self._memory_of(elements, out, stream)

    def _memory_of(self, elements: int, out: torch.Tensor, stream: int) -> torch.Tensor:
        key = (out.device.index or 0, stream)
        held = self._memory.get(key)
        if held is None or held.numel() < elements:
            # the old memory's last use is earlier on the same stream
            held = out.new_empty(_round_up(elements))
            if _lasts(held):
                self._memory[key] = held
        return held

    def eager(self, count: int, device: torch.device, stream: int) -> torch.Tensor:
        """At least `count` int32 zeros on `device`, for launches in order on `stream`."""
        index = device.index or 0
        held = self._eager.get((index, stream))
        if held is None or held.numel() < count:
            if held is not None:
                self._kept.append(held)
            held = torch.zeros(_round_up(count), dtype=torch.int32, device=device)
            if not _lasts(held):
                return held
            self._eager[index, stream] = held
        arena, used = self._arenas.get(index, (None, 0))
        if arena is None or used > arena.numel() // 2:
            fresh = torch.zeros(ARENA_TICKETS, dtype=torch.int32, device=device)
            self._arenas[index] = (fresh, 0)
            if arena is not None:
                self._kept.append(arena)
        return held

    def captured(self, count: int, device: torch.device, stream: int, backend: str) -> torch.Tensor:
        """As `eager`, for a call that a graph capture on `stream` records."""
        index = device.index or 0
        capture = capture_id(backend, stream)
        if capture is None:
            return self._slice(count, device, index)
        held = self._captured.get((index, stream, capture))
        if held is None or held.numel() < count:
            held = self._slice(_round_up(count), device, index)
            self._captured[index, stream, capture] = held
        return held

    def _slice(self, count: int, device: torch.device, index: int) -> torch.Tensor:
        count = -(-count // 4) * 4
        arena, used = self._arenas.get(index, (None, 0))
        if arena is not None and used + count <= arena.numel():
            self._arenas[index] = (arena, used + count)
            return arena[used : used + count]
        _log.warning("no prepared tickets left for this capture: its graph zeroes them itself")
        fresh = torch.zeros(count, dtype=torch.int32, device=device)
        self._kept.append(fresh)
        return fresh


def _lasts(tensor: torch.Tensor) -> bool:
    """Whether it is memory; under a mode of torch's it may be a stand-in, not to be kept."""
    return type(tensor) is torch.Tensor


def _round_up(count: int) -> int:
    return max(1024, 1 << (count - 1).bit_length())


tickets = Tickets()
