"""Read-modify-write and copy bandwidth, the cost of an empty launch, device facts.

Bandwidths are over buffers many times the last-level cache. An empty launch is
timed inside a graph, as the op's launches are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from gdn_judge.ceilings import canary
from gdn_judge.ceilings.events import times

_BYTES = 2 << 30
_SAMPLES = 30
_LAUNCHES = 500
_BLOCKS = ((1024, 4), (4096, 4), (8192, 8), (16384, 16))  # elements per program, warps


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def read_modify_write(pool, factor, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(pool + at, tl.load(pool + at) * factor)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def nothing(pool):  # type: ignore[no-untyped-def]
    pass


def main(device: str, brief: bool) -> None:
    """Print what was found as JSON; `brief`: without the ceilings."""
    if not torch.cuda.is_available():
        sys.exit("torch sees no CUDA or HIP device on this machine")
    if torch.device(device).index >= torch.cuda.device_count():
        sys.exit(f"torch sees {torch.cuda.device_count()} devices, there is no {device}")
    torch.cuda.set_device(device)
    found = {"facts": facts(device), "canary": canary.measure(device)}
    json.dump(found if brief else found | measure(device), sys.stdout)


def measure(device: str) -> dict[str, Any]:
    """{"rmw": [us...], "rmw_config", "copy": [us...], "launch": [us...], "bytes": n}."""
    elements = _BYTES // 4
    source = torch.rand(elements, device=device)
    target = torch.zeros(elements, device=device)
    configs = {f"{block}x{warps}": _rmw(source, block, warps) for block, warps in _BLOCKS}
    tuned = {name: times(call, 5) for name, call in configs.items()}
    best = min(tuned, key=lambda name: sorted(tuned[name])[len(tuned[name]) // 2])
    return {
        "bytes": 2 * _BYTES,
        "rmw_config": best,
        "rmw": times(configs[best], _SAMPLES),
        "copy": times(lambda: target.copy_(source), _SAMPLES),
        "launch": _launch(source),
    }


def facts(device: str) -> dict[str, Any]:
    """What the device and its software are. Its UUID is NVML's; AMD's is not torch's to say."""
    properties: Any = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    named = (
        {}
        if torch.version.hip or uuid is None
        else {"device.uuid": f"GPU-{str(uuid).removeprefix('GPU-')}"}
    )
    return named | {
        "device": properties.name,
        "device.arch": properties.gcnArchName
        if torch.version.hip
        else f"sm{properties.major}{properties.minor}",
        "device.memory": properties.total_memory,
        "device.l2": getattr(properties, "L2_cache_size", 0),
        "device.multiprocessors": properties.multi_processor_count,
        "device.runtime": torch.version.hip or torch.version.cuda,
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def _rmw(pool: torch.Tensor, block: int, warps: int) -> Callable[[], Any]:
    grid = (pool.numel() // block,)
    return lambda: read_modify_write[grid](pool, 1.0, BLOCK=block, num_warps=warps)


def _launch(pool: torch.Tensor) -> list[float]:
    """us of one empty launch inside a graph of many."""
    nothing[(1,)](pool)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_LAUNCHES):
            nothing[(1,)](pool)
    return [us / _LAUNCHES for us in times(graph.replay, _SAMPLES)]
