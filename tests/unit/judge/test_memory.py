from __future__ import annotations

import os

import numpy as np
import pytest

from gdn_judge import memory


def test_arrays_come_back_bit_for_bit() -> None:
    arrays = {
        "a": np.arange(6, dtype=np.uint16).reshape(2, 3),
        "b": np.array([np.nan, -0.0], np.float32),
        "c": np.zeros((0, 4), np.int32),
    }
    forms = {"a": ("bfloat16", (2, 3)), "b": ("float32", (2,)), "c": ("int32", (0, 4))}
    layout = memory.Layout.of(forms)
    fd = memory.publish(layout, arrays)
    try:
        for name, array in arrays.items():
            back = memory.read(fd, layout.entries[name])
            assert back.tobytes() == array.tobytes()
            assert (back.dtype, back.shape) == (array.dtype, array.shape)
    finally:
        os.close(fd)


def test_entries_are_aligned_and_do_not_overlap() -> None:
    layout = memory.Layout.of({"a": ("uint8", (5,)), "b": ("float32", (3,))}, start=256)
    assert [entry.at for entry in layout.entries.values()] == [256, 512]
    assert layout.size == 768


def test_operands_cannot_be_written_by_the_candidate() -> None:
    layout = memory.Layout.of({"a": ("uint8", (5,))})
    fd = memory.publish(layout, {"a": np.zeros(5, np.uint8)})
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    os.close(fd)


@pytest.mark.parametrize("size", [0, 1, 4096])
def test_results_can_be_written_but_not_resized(size: int) -> None:
    fd = memory.blank(4096 if size != 4096 else 1)
    os.pwrite(fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, size)
    os.close(fd)
