"""A captured call as the judge reads it: checked, since a candidate wrote it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gdn_judge.errors import ProtocolViolation
from gdn_judge.operands import STORAGE, Array, TensorForm

MAX_STORAGE = 16 << 30  # bytes of all storages of a call together
MAX_LENGTH = 1 << 40  # of a dimension, and of a stride
MAX_DIMENSIONS = 32
MAX_WARPS = 16
MAX_SHARED = 1 << 20  # bytes; the emulator holds it to what a workgroup has
MAX_GROUPS = 1 << 22
MAX_EVENTS = 256


@dataclass(frozen=True)
class View:
    """A tensor in a storage: byte offset, torch dtype name, shape, strides in elements."""

    storage: int
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def form(self) -> TensorForm:
        return TensorForm(dtype=self.dtype, shape=self.shape)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def of(self, data: Array) -> Array:
        """The view of `data` (uint8) as a numpy array, writable as `data` is."""
        kind = STORAGE[self.dtype]
        steps = tuple(kind.itemsize * s for s in self.strides)
        return np.ndarray(self.shape, kind, data, self.offset, steps)

    def check(self, size: int) -> None:
        """Raise ProtocolViolation unless the view lies within `size` bytes."""
        if self.dtype not in STORAGE:
            raise ProtocolViolation(f"a tensor of dtype {self.dtype!r} cannot be carried")
        if len(self.shape) != len(self.strides) or len(self.shape) > MAX_DIMENSIONS:
            raise ProtocolViolation(
                f"a tensor of {len(self.shape)} dimensions with {len(self.strides)} strides"
            )
        sound = all(0 <= length <= MAX_LENGTH for length in self.shape)
        if not sound or math.prod(filter(None, self.shape)) > MAX_STORAGE:
            raise ProtocolViolation(f"a tensor of shape {str(self.shape)[:100]}")
        item = STORAGE[self.dtype].itemsize
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        if self.offset < 0 or min(self.strides, default=0) < 0:
            raise ProtocolViolation("a tensor with a negative offset or stride")
        if max(self.strides, default=0) > MAX_LENGTH:
            raise ProtocolViolation(f"a tensor with a stride over {MAX_LENGTH}")
        if self.count and self.offset + (reach + 1) * item > size:
            raise ProtocolViolation(f"a tensor reaches past its storage of {size} bytes")


@dataclass(frozen=True)
class Storage:
    """One allocation of the candidate. init: "operand", "blank", "kept", or contents."""

    number: int
    size: int
    init: str
    contents: bytes = b""  # one byte means all bytes
    loaded: bool = False


@dataclass(frozen=True)
class PointerTo:
    """An argument that points into a storage."""

    storage: int
    offset: int


@dataclass(frozen=True)
class Launched:
    """One kernel launch: key of its code object, workgroups, arguments in order."""

    code: str
    grid: tuple[int, int, int]
    arguments: tuple[PointerTo | bytes | None, ...]


@dataclass(frozen=True)
class Filled:
    """Memory set to a repeated pattern between launches."""

    storage: int
    offset: int
    count: int
    pattern: bytes


@dataclass(frozen=True)
class Code:
    """A code object as assembly text, with what its launcher knows."""

    name: str
    assembly: str = field(repr=False)
    warps: int
    shared: int


@dataclass(frozen=True)
class Captured:
    """One call of the op: what it allocated, did, and returned."""

    form_error: str
    results: Mapping[str, View | None]
    operands: Mapping[str, View]
    events: tuple[Launched | Filled, ...]
    codes: Mapping[str, Code]
    storages: Mapping[int, Storage]
    prepared: tuple[str, ...]  # torch operators that a GPU runs as kernels of their own
    alive: frozenset[int]  # storages that the op holds on to after the call


def read(reply: Mapping[str, Any]) -> Captured:
    """Raises ProtocolViolation for anything that is not a recording."""
    try:
        captured = _read(reply)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProtocolViolation(f"the recording of a call cannot be read: {error!r}") from error
    _check(captured)
    return captured


def _read(reply: Mapping[str, Any]) -> Captured:
    if len(reply["events"]) + len(reply["prepared"]) > MAX_EVENTS:
        raise ValueError(f"more than {MAX_EVENTS} launches, fills and operators in one call")
    storages = [_storage(item) for item in reply["storages"]]
    return Captured(
        form_error=str(reply["form_error"])[:500],
        results={str(k): _view(v) if v is not None else None for k, v in reply["results"].items()},
        operands={str(k): _view(v) for k, v in reply["operands"].items()},
        events=tuple(_event(item) for item in reply["events"]),
        codes={str(k): _code(v) for k, v in reply["codes"].items()},
        storages={s.number: s for s in storages},
        prepared=tuple(str(name)[:100] for name in reply["prepared"]),
        alive=frozenset(int(n) for n in reply["alive"]),
    )


def _view(item: Mapping[str, Any]) -> View:
    return View(
        int(item["storage"]),
        int(item["offset"]),
        str(item["dtype"]),
        tuple(int(n) for n in item["shape"]),
        tuple(int(n) for n in item["strides"]),
    )


def _storage(item: Mapping[str, Any]) -> Storage:
    number, size, init = int(item["id"]), int(item["bytes"]), item["init"]
    if isinstance(init, str):
        if init not in ("operand", "blank", "kept"):
            raise ValueError(f"unknown storage {init!r}")
        return Storage(number, size, init)
    if "fill" in init:
        return Storage(number, size, "contents", bytes([int(init["fill"])]))
    return Storage(number, size, "contents", base64.b64decode(init["base64"]), loaded=True)


def _event(item: Mapping[str, Any]) -> Launched | Filled:
    if "fill" in item:
        pattern = bytes.fromhex(item["pattern"])
        return Filled(int(item["fill"]), int(item["offset"]), int(item["count"]), pattern)
    x, y, z = (int(n) for n in item["grid"])
    return Launched(str(item["launch"]), (x, y, z), tuple(map(_argument, item["arguments"])))


def _argument(item: Any) -> PointerTo | bytes | None:
    if item is None:
        return None
    if "bytes" in item:
        return bytes.fromhex(item["bytes"])
    return PointerTo(int(item["storage"]), int(item["offset"]))


def _code(item: Mapping[str, Any]) -> Code:
    return Code(
        str(item["name"])[:200], str(item["assembly"]), int(item["warps"]), int(item["shared"])
    )


def _check(captured: Captured) -> None:
    for storage in captured.storages.values():
        if not 0 <= storage.size <= MAX_STORAGE:
            raise ProtocolViolation(f"a storage of {storage.size} bytes")
        if storage.loaded and len(storage.contents) != storage.size:
            raise ProtocolViolation("prepared memory of another size than its storage")
    total = sum(storage.size for storage in captured.storages.values())
    if total > MAX_STORAGE:
        raise ProtocolViolation(f"storages of {total} bytes together")
    views = [*captured.operands.values(), *filter(None, captured.results.values())]
    for view in views:
        view.check(_size(captured, view.storage) if view.count else 0)
    for code in captured.codes.values():
        if not 1 <= code.warps <= MAX_WARPS or not 0 <= code.shared <= MAX_SHARED:
            raise ProtocolViolation(f"a kernel of {code.warps} warps with {code.shared} bytes")
    for event in captured.events:
        _check_event(captured, event)


def _check_event(captured: Captured, event: Launched | Filled) -> None:
    if isinstance(event, Filled):
        end = event.offset + event.count * len(event.pattern)
        forward = event.offset >= 0 and event.count >= 0 and event.pattern
        if not forward or end > _size(captured, event.storage):
            raise ProtocolViolation("a fill outside its storage")
        return
    if min(event.grid) < 0 or math.prod(event.grid) > MAX_GROUPS:
        raise ProtocolViolation(f"a grid of {event.grid}")
    for argument in event.arguments:
        if isinstance(argument, PointerTo):
            size = _size(captured, argument.storage)
            if not 0 <= argument.offset <= size:
                raise ProtocolViolation(
                    f"an argument {argument.offset} bytes into a storage of {size} bytes"
                )


def _size(captured: Captured, number: int) -> int:
    if number not in captured.storages:
        raise ProtocolViolation(f"the recording names an unknown storage {number}")
    return captured.storages[number].size
