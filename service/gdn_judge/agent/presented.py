"""Has CPU tensors look like tensors of one GPU while a call is captured.

Wrappers of kernels ask `tensor.is_cuda` and `tensor.device`, allocate on that device
and ask `torch.cuda` for its current stream. Here they get the answers that the GPU
gives; what they allocate lies in CPU memory. A tensor that an op makes on the CPU looks
like one of the device too. What needs a real device is refused by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

DEVICE = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_PINNED = "pin_memory"


class Presented(TorchFunctionMode):
    """While it is entered every tensor is one of `DEVICE`."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        answer = _ANSWERS.get(func)
        if answer is not None:
            return answer(*args, **(kwargs or {}))
        if func is torch.device:  # naming the device is not using it
            return func(*args, **(kwargs or {}))
        kwargs = {key: value for key, value in (kwargs or {}).items() if key != _PINNED}
        return func(*_on_cpu(args), **_on_cpu(kwargs))


def _on_cpu(tree: Any) -> Any:
    return tree_map(_elsewhere, tree)


def _elsewhere(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == DEVICE.type:
        return _CPU
    if isinstance(value, str) and value.partition(":")[0] == DEVICE.type:
        return "cpu"
    return value


def _same(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


_TENSOR: Any = torch.Tensor
_ANSWERS: dict[Any, Callable[..., Any]] = {
    _TENSOR.is_cuda.__get__: lambda tensor: True,
    _TENSOR.is_cpu.__get__: lambda tensor: False,
    _TENSOR.device.__get__: lambda tensor: DEVICE,
    torch.Tensor.get_device: lambda tensor: DEVICE.index,
    torch.Tensor.cuda: _same,
}


class Stream:
    """The device's only stream."""

    cuda_stream = 0
    stream_id = 0
    device = DEVICE
    device_index = DEVICE.index

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...


@contextlib.contextmanager
def _entered(*_: Any) -> Iterator[None]:
    yield


def _refusal(name: str, error: type[Exception]) -> Callable[..., Any]:
    def refuse(*arguments: Any, **keywords: Any) -> Any:
        raise error(f"torch.cuda.{name}: there is no device behind a capture")

    return refuse


_NEED_A_DEVICE = ("Stream", "Event", "CUDAGraph", "graph", "memory_allocated", "mem_get_info")


def install(
    *,
    backend: str,
    capability: tuple[int, int],
    arch: str,
    processors: int,
    warp_size: int,
    shared_bytes: int,
    refused: type[Exception],
) -> None:
    """Give this process a `torch.cuda` that answers for the GPU of a capture.

    `backend` is "hip" or "cuda"; what needs a device raises `refused`.
    """
    stream = Stream()
    facts = SimpleNamespace(
        name=f"{arch}, captured",
        gcnArchName=arch,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=processors,
        warp_size=warp_size,
        shared_memory_per_block=shared_bytes,
        shared_memory_per_block_optin=shared_bytes,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: DEVICE.index,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: facts.name,
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": lambda device=None: facts,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "is_current_stream_capturing": lambda: False,
        "synchronize": lambda device=None: None,
        "device": _entered,
        "device_of": _entered,
        "stream": _entered,
        **{name: _refusal(name, refused) for name in _NEED_A_DEVICE},
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    version: Any = torch.version
    if backend == "hip":
        version.hip, version.cuda = version.hip or "7.0", None
    else:
        version.hip, version.cuda = None, version.cuda or "12.8"
