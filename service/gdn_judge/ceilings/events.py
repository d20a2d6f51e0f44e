"""Times of single calls on a device, by its own events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_SLEEP_CYCLES = 400_000  # the queue fills meanwhile, so that no launch gap is timed


def times(call: Callable[[], Any], count: int, warm: int = 3) -> list[float]:
    """us of each of `count` calls after `warm` untimed ones, the queue full before each."""
    cuda: Any = torch.cuda
    for _ in range(warm):
        call()
    pairs = []
    for _ in range(count):
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda._sleep(_SLEEP_CYCLES)
        begin.record()
        call()
        end.record()
        pairs.append((begin, end))
    cuda.synchronize()
    return [begin.elapsed_time(end) * 1e3 for begin, end in pairs]
