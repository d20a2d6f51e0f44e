"""Tickets: zeroed counters that the last arriver of a group resets.

A kernel leaves its tickets zero, so they are zeroed once, not at every call.
Two launches that may run at the same time must not share tickets: eager calls
share them only within one stream, and every call captured into a graph gets
tickets of its own, because graphs may be replayed anywhere.
"""

from __future__ import annotations

import logging

import torch

_log = logging.getLogger(__name__)

ARENA_TICKETS = 1 << 18  # 1 MiB a device: 64 captured calls of T = 1024 at KH = 4

_eager: dict[tuple[int, int], torch.Tensor] = {}
_arenas: dict[int, tuple[torch.Tensor, int]] = {}
_kept: list[torch.Tensor] = []  # a captured graph holds addresses, not references


def tickets(count: int, device: torch.device, stream: int, capturing: bool) -> torch.Tensor:
    """At least `count` int32 zeros on `device`, for one launch on `stream`."""
    index = device.index or 0
    if capturing:
        return _captured(count, device, index)
    held = _eager.get((index, stream))
    if held is None or held.numel() < count:
        if held is not None:
            _kept.append(held)
        size = max(1024, 1 << (count - 1).bit_length())
        held = torch.zeros(size, dtype=torch.int32, device=device)
        _eager[index, stream] = held
        if index not in _arenas:
            _arenas[index] = (torch.zeros(ARENA_TICKETS, dtype=torch.int32, device=device), 0)
    return held


def _captured(count: int, device: torch.device, index: int) -> torch.Tensor:
    count = -(-count // 4) * 4  # keeps every slice at 16 bytes
    arena, used = _arenas.get(index, (None, 0))
    if arena is not None and used + count <= arena.numel():
        _arenas[index] = (arena, used + count)
        return arena[used : used + count]
    _log.warning("no prepared tickets left for a captured call: its graph zeroes them itself")
    fresh = torch.zeros(count, dtype=torch.int32, device=device)
    _kept.append(fresh)
    return fresh
