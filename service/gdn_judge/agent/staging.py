"""From shared memory to tensors and back.

The judge's memory file holds the operands at given offsets; results are written
to another file at offsets the judge chose. Fresh output memory is filled with a
poison byte, so that what an op leaves unwritten shows.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gdn_judge.contract import POOLS

Layout = Mapping[str, Mapping[str, Any]]  # name -> {dtype, shape, at}


def pull(fd: int, layout: Layout, device: str) -> dict[str, torch.Tensor]:
    """Fresh tensors on `device` with the bytes of `layout`."""
    size = os.fstat(fd).st_size
    memory = mmap.mmap(fd, size, access=mmap.ACCESS_COPY) if size else b""
    return {name: _tensor(memory, entry, device) for name, entry in layout.items()}


def _tensor(memory: Any, entry: Mapping[str, Any], device: str) -> torch.Tensor:
    dtype, shape = getattr(torch, entry["dtype"]), tuple(entry["shape"])
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype, device=device)
    bytes_ = count * torch.empty((), dtype=dtype).element_size()
    flat = torch.frombuffer(memory, dtype=torch.uint8, count=bytes_, offset=entry["at"])
    return flat.to(device, copy=True).view(dtype).view(shape)


def push(fd: int, tensor: torch.Tensor, at: int, limit: int) -> None:
    """Write the tensor's bytes at `at`. Raises ValueError where they are not `limit` bytes."""
    flat = tensor.detach().contiguous().view(-1)
    if flat.numel() == 0:
        return
    array: Any = flat.view(torch.uint8).cpu().numpy()
    data = memoryview(array).cast("B")
    if len(data) != limit:
        raise ValueError(f"{len(data)} bytes where {limit} belong")
    done = 0
    while done < limit:
        done += os.pwrite(fd, data[done:], at + done)


def cut(pool: torch.Tensor, guard: int) -> torch.Tensor:
    """The slots between the guards: a view into the bigger allocation."""
    return pool[guard : pool.shape[0] - guard]


class Poison:
    """Fills what torch.empty and its relatives give with one byte while switched on."""

    _NAMES = ("empty", "empty_like", "empty_strided")
    _METHODS = ("new_empty", "new_empty_strided")

    def __init__(self) -> None:
        self.byte: int | None = None
        self._originals: list[tuple[Any, str, Callable[..., torch.Tensor]]] = []

    def install(self) -> None:
        places: list[tuple[Any, str]] = [(torch, name) for name in self._NAMES]
        places += [(torch.Tensor, name) for name in self._METHODS]
        for owner, name in places:
            original = getattr(owner, name)
            self._originals.append((owner, name, original))
            setattr(owner, name, self._wrapped(original))

    def remove(self) -> None:
        """Give the originals back, so that nothing stands in the way of a timed call."""
        for owner, name, original in self._originals:
            setattr(owner, name, original)
        self._originals.clear()

    def _wrapped(self, make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
            tensor = make(*args, **kwargs)
            if self.byte is not None:
                fill(tensor, self.byte)
            return tensor

        return poisoned


def fill(tensor: torch.Tensor, byte: int) -> None:
    """Set every byte; tensors without memory of their own are left alone."""
    if tensor.device.type == "meta" or not tensor.numel() or not tensor.is_contiguous():
        return
    tensor.detach().view(-1).view(torch.uint8).fill_(byte)


def spoil_free_memory(device: str, sizes: list[int], byte: int) -> None:
    """Leave poison in freed blocks of the given sizes, for allocations by other means."""
    blocks = [torch.full((size,), byte, dtype=torch.uint8, device=device) for size in sizes]
    del blocks


class Spread:
    """Pools of many slots, zero but for those given; see `operands.Spread`."""

    def __init__(self, values: Mapping[str, Any], spec: Mapping[str, Any], pad: int) -> None:
        device = values["ssm_state"].device
        self._places = torch.tensor(spec["places"], device=device)
        self.values = dict(values)
        for name in POOLS:
            small = values[name]
            big = torch.zeros((spec["slots"], *small.shape[1:]), dtype=small.dtype, device=device)
            big[self._places] = small
            self.values[name] = big
        indices = values["ssm_state_indices"]
        moved = self._places[indices.clamp(min=0).long()].to(torch.int32)
        self.values["ssm_state_indices"] = torch.where(indices == pad, indices, moved)

    def gather(self, values: Mapping[str, Any]) -> int:
        """Bring the given slots back; returns how many elements elsewhere are not zero."""
        strays = 0
        for name in POOLS:
            big = self.values[name]
            values[name].copy_(big[self._places])
            big[self._places] = 0
            strays += sum(int(part.count_nonzero()) for part in big.split(1024))
        return strays
