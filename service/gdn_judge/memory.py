"""Shared memory files: operands to the candidate, bytes back.

Anonymous files (memfd), sealed against resizing, so that a candidate can
neither shrink one under the judge nor grow it; operands are sealed against
writing too. The judge reads with pread into its own memory, once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdn_judge.operands import STORAGE, Array

_ALIGN = 256
_F_ADD_SEALS = 1033
_SEAL, _SHRINK, _GROW, _WRITE = 1, 2, 4, 8


@dataclass(frozen=True)
class Entry:
    """Where one array lies in a file."""

    dtype: str  # torch dtype name
    shape: tuple[int, ...]
    at: int

    @property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * STORAGE[self.dtype].itemsize

    def to_dict(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), "at": self.at, "bytes": self.count}


@dataclass(frozen=True)
class Layout:
    """Arrays one after another, aligned, and the size of the whole."""

    entries: Mapping[str, Entry]
    size: int

    @classmethod
    def of(cls, forms: Mapping[str, tuple[str, tuple[int, ...]]], start: int = 0) -> Layout:
        """`forms`: name -> (torch dtype name, shape)."""
        entries, at = {}, start
        for name, (dtype, shape) in forms.items():
            entries[name] = Entry(dtype, shape, at)
            at += -(-entries[name].count // _ALIGN) * _ALIGN
        return cls(entries, at)

    def to_dict(self, *names: str) -> dict[str, Any]:
        return {name: self.entries[name].to_dict() for name in names or self.entries}


def publish(layout: Layout, arrays: Mapping[str, Array]) -> int:
    """A descriptor of a file with the arrays' bytes that nobody can change."""
    fd = os.memfd_create("operands", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, layout.size)
    for name, entry in layout.entries.items():
        _write(fd, np.ascontiguousarray(arrays[name]), entry.at)
    fcntl.fcntl(fd, _F_ADD_SEALS, _SEAL | _SHRINK | _GROW | _WRITE)
    return fd


def blank(size: int) -> int:
    """A descriptor of an empty file of fixed size for the candidate to write."""
    fd = os.memfd_create("results", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, _F_ADD_SEALS, _SEAL | _SHRINK | _GROW)
    return fd


def read(fd: int, entry: Entry) -> Array:
    """The array at `entry`, copied out."""
    array = np.empty(entry.shape, STORAGE[entry.dtype])
    if not array.size:
        return array
    target = _bytes(array)
    done = 0
    while done < len(target):
        got = os.preadv(fd, [target[done:]], entry.at + done)
        if not got:
            raise OSError(f"the file ends {len(target) - done} bytes too soon")
        done += got
    return array


def _write(fd: int, array: Array, at: int) -> None:
    if not array.size:
        return
    data, done = _bytes(array), 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], at + done)


def _bytes(array: Any) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8)).cast("B")
