"""A recording comes from the candidate: anything that is none is a protocol error."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from gdn_judge import capture
from gdn_judge.codeobject.compiler import with_codes
from gdn_judge.errors import ProtocolViolation

VIEW = {"storage": 1, "offset": 4, "dtype": "bfloat16", "shape": [2, 3], "strides": [4, 1]}
FLAT = {**VIEW, "strides": [0, 0, 0]}
GOOD: dict[str, Any] = {
    "form_error": "",
    "results": {"out": VIEW, "quantized": None, "scales": None},
    "operands": {"A_log": {**VIEW, "offset": 0}},
    "events": [
        {"fill": 2, "offset": 0, "count": 4, "pattern": "0102"},
        {
            "launch": "k",
            "grid": [3, 2, 1],
            "arguments": [{"storage": 1, "offset": 8}, {"bytes": "01000000"}, None],
        },
    ],
    "codes": {"k": {"name": "kernel", "assembly": "s_endpgm", "warps": 4, "shared": 128}},
    "storages": [
        {"id": 1, "bytes": 18, "init": "operand"},
        {"id": 2, "bytes": 8, "init": {"fill": 7}},
        {"id": 3, "bytes": 2, "init": {"base64": "AQI="}},
        {"id": 4, "bytes": 9, "init": "blank"},
    ],
    "prepared": ["aten.zeros.default"],
    "alive": [2],
}


def test_a_good_recording() -> None:
    captured = capture.read(GOOD)
    fill, launch = captured.events
    assert isinstance(fill, capture.Filled)
    assert isinstance(launch, capture.Launched)
    assert (fill.pattern, launch.grid) == (b"\1\2", (3, 2, 1))
    assert launch.arguments == (capture.PointerTo(1, 8), b"\1\0\0\0", None)
    assert captured.storages[3].contents == b"\1\2"
    assert captured.alive == {2}
    assert captured.prepared == ("aten.zeros.default",)
    assert captured.results["quantized"] is None


def test_a_pointer_may_stand_at_the_end_of_its_memory() -> None:
    (argument, *_) = capture.read(spoil("events/1/arguments/0/offset", 18)).events[1].arguments  # type: ignore[union-attr]
    assert argument == capture.PointerTo(1, 18)


def test_a_launch_of_a_code_object_that_never_travelled_is_refused() -> None:
    captured = capture.read({**GOOD, "codes": {}})
    known = capture.read(GOOD).codes
    assert [code.name for _, code in with_codes(captured, known)] == ["kernel"]
    with pytest.raises(ProtocolViolation, match="unknown code object k"):
        with_codes(captured, {})


def test_a_view_reads_with_offset_and_strides() -> None:
    view = capture.read(GOOD).results["out"]
    assert view is not None
    data = np.zeros(18, np.uint8)
    data.view(np.uint16)[:] = range(9)
    assert view.of(data).tolist() == [[2, 3, 4], [6, 7, 8]]


def spoil(path: str, value: Any) -> dict[str, Any]:
    bad = copy.deepcopy(GOOD)
    *parents, last = path.split("/")
    place: Any = bad
    for key in parents:
        place = place[int(key) if key.isdecimal() else key]
    place[int(last) if last.isdecimal() else last] = value
    return bad


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("results/out/offset", 6, "reaches past its storage of 18 bytes"),
        ("results/out/strides", [4, -1], "negative"),
        ("results/out/dtype", "complex64", "cannot be carried"),
        ("results/out/storage", 9, "unknown storage 9"),
        ("operands/A_log/shape", [2, 300], "reaches past"),
        ("results/out/shape", [-1, -1], "a tensor of shape"),
        ("results/out/shape", [0, 1 << 70], "a tensor of shape"),
        ("results/out/shape", [2, float("inf")], "cannot be read"),
        ("events/0/count", 5, "a fill outside its storage"),
        ("events/0/offset", -2, "a fill outside its storage"),
        ("events/0/pattern", "", "a fill outside its storage"),
        ("events/1/grid", [1 << 20, 1 << 20, 1], "a grid of"),
        ("events/1/grid", [1, 1], "cannot be read"),
        ("events/1/arguments", [{"storage": 12, "offset": 0}], "unknown storage 12"),
        ("events/1/arguments", [{"bytes": "0g"}], "cannot be read"),
        ("events/1/arguments/0/offset", -8, "an argument -8 bytes into a storage of 18 bytes"),
        ("events/1/arguments/0/offset", 19, "an argument 19 bytes into a storage of 18 bytes"),
        ("events/1/arguments/0/offset", 1 << 70, "bytes into a storage of 18 bytes"),
        ("events/0/count", -1, "a fill outside its storage"),
        ("results/out/strides", [1], "2 dimensions with 1 strides"),
        ("results/out/shape", [0, 1 << 40, 1 << 40], "3 dimensions with 2 strides"),
        ("results/out", FLAT | {"shape": [0, 1 << 40, 1 << 40]}, "a tensor of shape"),
        ("results/out", FLAT | {"shape": [1, 1, 1], "strides": [1 << 70, 1, 1]}, "a stride over"),
        ("results/out", FLAT | {"shape": [1] * 65, "strides": [1] * 65}, "65 dimensions"),
        ("codes/k/warps", 0, "a kernel of 0 warps"),
        ("codes/k/shared", -1, "with -1 bytes"),
        ("storages/0/bytes", -1, "a storage of -1 bytes"),
        ("storages/2/bytes", 5, "another size"),
        ("storages/3/bytes", 16 << 30, "bytes together"),
        ("storages/3/init", "mine", "cannot be read"),
        ("storages", None, "cannot be read"),
        ("alive", ["x"], "cannot be read"),
        ("events", [GOOD["events"][0]] * 300, "more than 256"),
        ("prepared", ["aten.zeros.default"] * 300, "more than 256"),
        ("prepared", None, "cannot be read"),
    ],
)
def test_a_bad_recording_is_refused(path: str, value: Any, why: str) -> None:
    with pytest.raises(ProtocolViolation, match=why):
        capture.read(spoil(path, value))
