"""A candidate's replies are taken only in the form they should have."""

from __future__ import annotations

import pytest

from gdn_judge import replies
from gdn_judge.errors import ProtocolViolation
from gdn_judge.operands import TensorForm


def test_text_holds_nothing_that_a_database_refuses() -> None:
    assert replies.text("a\0b\ud800c", 100) == "a\\0b?c"
    assert replies.text("x" * 500, 10) == "x" * 10
    assert replies.text({"a": 1}, 100) == "{'a': 1}"


def test_kernels_are_cut_and_typed() -> None:
    given = [{"name": "k" * 999, "digest": 7, "resources": {"regs": 10**40, "warps": 4}}, "junk"]
    (kernel,) = replies.kernel_runs(given)
    assert len(kernel.name) == 200
    assert kernel.digest == "7"
    assert kernel.resources == {"regs": str(10**40), "warps": 4}
    assert replies.kernel_runs({"not": "a list"}) == ()
    assert len(replies.kernel_runs([{}] * 5000)) == 512


def test_forms() -> None:
    assert replies.form({"dtype": "bfloat16", "shape": [1, 2]}) == TensorForm(
        dtype="bfloat16", shape=(1, 2)
    )
    assert replies.form(None) == TensorForm.of_none()
    for shape in ("ab", [float("inf")], [float("nan")]):
        with pytest.raises(ProtocolViolation, match="form reads"):
            replies.form({"dtype": "bfloat16", "shape": shape})


@pytest.mark.parametrize(("value", "seconds"), [(0.5, 0.5), (-1, None), ("1", None), (1e9, None)])
def test_seconds(value: object, seconds: float | None) -> None:
    assert replies.seconds(value) == seconds
