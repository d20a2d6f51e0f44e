"""The canary: two fixed kernels whose times say whether a device is as it usually is.

Never tuned and never changed: only its times on one device over the weeks mean
something. `copy` is bound by memory, `compute` by the clock of the cores: every
multiprocessor runs a chain of dependent multiplications and additions in registers.
Someone else's kernels, a lower clock or a failing memory stack move one of them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from gdn_judge.ceilings.events import times

COPIED = 256 << 20  # bytes of each buffer; its traffic is past every last-level cache
_ROUNDS = 4096  # dependent fused multiply-adds of each element
_BLOCK, _WARPS, _WAVES = 256, 4, 8  # programs of one block each, so many a multiprocessor
_SAMPLES, _WARM = 40, 60  # the untimed calls bring an idle card's clock up


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def spin(out, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(out + at)
    for _ in range(ROUNDS):
        value = value * 0.999 + 0.001
    tl.store(out + at, value)


def measure(device: str) -> dict[str, Any]:
    """{"copy": [us...], "compute": [us...], "bytes": moved by one copy}."""
    source = torch.ones(COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    programs = processors * _WAVES
    values = torch.ones(programs * _BLOCK, device=device)

    def compute() -> None:
        spin[(programs,)](values, ROUNDS=_ROUNDS, BLOCK=_BLOCK, num_warps=_WARPS)

    return {
        "copy": times(lambda: target.copy_(source), _SAMPLES, _WARM),
        "compute": times(compute, _SAMPLES, _WARM),
        "bytes": 2 * COPIED,
    }
