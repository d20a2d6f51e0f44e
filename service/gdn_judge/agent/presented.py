"""Has CPU tensors look like tensors of one GPU while a call is captured.

Wrappers of kernels ask `tensor.is_cuda` and `tensor.device`, allocate on that device
and ask `torch.cuda` for its current stream. Here they get the answers that the GPU
gives; what they allocate lies in CPU memory. What an op makes on the CPU, or on another
GPU, is remembered: `place` tells it apart. What needs a real device is refused by name.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch.multiprocessing import reductions
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from gdn_judge.agent import bodies

DEVICE = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_PINNED = "pin_memory"
_weak: Any = reductions.StorageWeakRef
_elsewhere: dict[int, tuple[Any, torch.device]] = {}  # address -> weak storage, where it lies


def place(storage: torch.UntypedStorage) -> torch.device:
    """Where memory of this process would lie if there were the GPU: `DEVICE` or elsewhere."""
    if storage.device.type != _CPU.type:
        return storage.device
    ref, device = _elsewhere.get(storage.data_ptr(), (None, DEVICE))
    return DEVICE if ref is None or ref.expired() else device


def _put(storage: torch.UntypedStorage, device: torch.device) -> None:
    if storage.device.type != _CPU.type or not storage.nbytes():
        return
    _elsewhere.pop(storage.data_ptr(), None)
    if device != DEVICE:
        _elsewhere[storage.data_ptr()] = _weak(storage), device


class Reading(Protocol):
    def __call__(self, way: str, tensor: torch.Tensor, *, lasting: bool = False) -> None: ...


class Presented(TorchFunctionMode):
    """While it is entered tensors are of `DEVICE` unless they are made elsewhere.

    `reading` is asked before the host reads a tensor in a way that no torch operator
    shows, with the name of that way, and whether what it gets would show later changes
    (`lasting`); it may raise. A lasting view of the GPU's memory there cannot be.
    """

    def __init__(self, reading: Reading | None = None) -> None:
        super().__init__()
        self._reading = reading

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = {key: value for key, value in (kwargs or {}).items() if key != _PINNED}
        answer = _ANSWERS.get(func)
        if answer is not None:
            return answer(*args, **kwargs)
        if func is torch.device:  # naming the device is not using it
            return func(*args, **kwargs)
        if func in _HOST_VIEWS and _place(args[0]) == DEVICE:
            way = _HOST_VIEWS[func]
            if self._reading is not None:
                self._reading(way, args[0], lasting=True)
            raise TypeError(f"Tensor.{way} of memory on {DEVICE}; copy it with Tensor.cpu() first")
        if func is torch.Tensor.tolist and self._reading is not None:
            self._reading("tolist", args[0])
        if func in _MOVES:
            return _moved(func, args, kwargs)
        if self._reading is not None and bodies.has_any(func):
            return func(*args, **kwargs)  # the capture runs the body, under this mode again
        inputs = _tensors((args, kwargs))
        result = func(*_on_cpu(args), **_on_cpu(kwargs))
        _settle(result, inputs, _device(kwargs.get("device")) or _common(inputs))
        return result


def _settle(result: Any, inputs: list[torch.Tensor], device: torch.device) -> None:
    """Memory that `result` has and `inputs` have not is new, and lies on `device`."""
    made = _tensors(result)
    known = {tensor.untyped_storage().data_ptr() for tensor in inputs} if made else set()
    for tensor in made:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            _put(storage, device)


def _common(inputs: list[torch.Tensor]) -> torch.device:
    """Where an operator's result lies: on the GPU if an input does, on the CPU without inputs."""
    places = [_place(tensor) for tensor in inputs]
    return DEVICE if DEVICE in places else next(iter(places), _CPU)


def _moved(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Tensor.to, .cpu or .cuda: a copy where the tensor would lie elsewhere before."""
    tensor, *rest = args
    if func is torch.Tensor.to:
        asked = next(
            (
                _place(value) if isinstance(value, torch.Tensor) else _device(value)
                for value in (*rest, *kwargs.values())
                if isinstance(value, str | torch.device | torch.Tensor)
            ),
            None,
        )
    else:
        asked = _CPU if func is torch.Tensor.cpu else _device(rest[0] if rest else DEVICE)
        rest, kwargs = [_CPU], {}
    target = asked or _place(tensor)
    result: torch.Tensor = torch.Tensor.to(tensor, *_on_cpu(rest), **_on_cpu(kwargs))
    if result.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
        if target == _place(tensor):
            return result
        result = result.clone()
    _put(result.untyped_storage(), target)
    return result


def _place(tensor: torch.Tensor) -> torch.device:
    return place(tensor.untyped_storage())


def on_gpu(arguments: Any) -> bool:
    """Whether an operator with these arguments runs on the GPU."""
    leaves = tree_leaves(arguments)
    places = [_place(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    places = places or [leaf for leaf in leaves if isinstance(leaf, torch.device)]
    return any(device.type == DEVICE.type for device in places)


def _device(named: Any) -> torch.device | None:
    """The device that an argument names; a GPU without a number is `DEVICE`."""
    if named is None:
        return None
    device = torch.device(DEVICE.type, named) if isinstance(named, int) else torch.device(named)
    return DEVICE if device == torch.device(DEVICE.type) else device


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _on_cpu(tree: Any) -> Any:
    if isinstance(tree, dict) and isinstance(tree.get("device"), int):
        tree = {**tree, "device": _CPU}
    return tree_map(_here, tree)


def _here(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == DEVICE.type:
        return _CPU
    if isinstance(value, str) and value.partition(":")[0] == DEVICE.type:
        return "cpu"
    return value


_TENSOR: Any = torch.Tensor
_ANSWERS: dict[Any, Callable[..., Any]] = {
    _TENSOR.is_cuda.__get__: lambda tensor: _place(tensor).type == DEVICE.type,
    _TENSOR.is_cpu.__get__: lambda tensor: _place(tensor).type == _CPU.type,
    _TENSOR.device.__get__: lambda tensor: _place(tensor),
    torch.Tensor.get_device: lambda tensor: -1 if (i := _place(tensor).index) is None else i,
}
_MOVES = (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda)
_HOST_VIEWS: dict[Any, str] = {
    torch.Tensor.numpy: "numpy",
    torch.Tensor.__array__: "__array__",
    torch.Tensor.__dlpack__: "__dlpack__",
    _TENSOR.__cuda_array_interface__.__get__: "__cuda_array_interface__",
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


# what makes a tensor of the host's memory, and is no torch function that a mode sees
_OF_THE_HOST: tuple[tuple[Any, str], ...] = (
    (torch, "from_numpy"),
    (torch, "frombuffer"),
    (torch, "from_dlpack"),
    (torch.utils.dlpack, "from_dlpack"),
)


def _of_the_host(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = make(*args, **kwargs)
        if _place(tensor) == DEVICE:  # not where it shares the memory of a tensor that is known
            _put(tensor.untyped_storage(), _CPU)
        return tensor

    return made


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
    # of itself no torch function: this way it is one that a mode sees
    for module in (torch, torch.utils.dlpack):
        setattr(module, "to_dlpack", torch.Tensor.__dlpack__)  # noqa: B010
    for module, name in _OF_THE_HOST:
        setattr(module, name, _of_the_host(getattr(module, name)))
    version: Any = torch.version
    if backend == "hip":
        version.hip, version.cuda = version.hip or "7.0", None
    else:
        version.hip, version.cuda = None, version.cuda or "12.8"
