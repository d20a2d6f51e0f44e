"""What a capture remembers between calls; see also tests/integration/test_emulated.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gdn_judge.agent import capture, presented


def nothing() -> tuple[None, None, None]:
    return None, None, None


def test_a_thread_that_changes_kept_memory_between_calls_is_told_at_the_next() -> None:
    made, kept = capture.Capture("gfx950-emulated"), torch.zeros(4)
    made._kept[kept.data_ptr()] = capture._weak(kept.untyped_storage()), 1
    made._on_a_thread("zero_", [torch.zeros(4)])  # memory that no call knows
    assert made.record(nothing, {})["form_error"] == ""
    with pytest.raises(capture.CannotCapture):
        made._on_a_thread("zero_", [kept])
    with pytest.raises(capture.CannotCapture, match=r"torch\.zero_ on another Python thread"):
        made.record(nothing, {})
    assert made.record(nothing, {})["form_error"] == ""


def test_what_an_op_raises_after_a_refusal_does_not_hide_it() -> None:
    made, operand = capture.Capture("gfx950-emulated"), torch.zeros(4)

    def asserts() -> None:
        with pytest.raises(capture.CannotCapture):
            operand + 1
        raise AssertionError("of the op")

    with pytest.raises(capture.CannotCapture, match=r"aten\.add\S* on device data") as caught:
        made.record(asserts, {"A_log": operand})
    assert isinstance(caught.value.__cause__, AssertionError)
    with pytest.raises(ZeroDivisionError):
        made.record(lambda: 1 // 0, {})


def test_an_address_for_other_libraries_is_refused_by_name_not_missing() -> None:
    """A GPU's tensor has `__cuda_array_interface__`: an op that asks for it is not wrong."""
    made, operand = capture.Capture("gfx950-emulated"), torch.zeros(4)
    with pytest.raises(capture.CannotCapture, match=r"Tensor\.__cuda_array_interface__"):
        made.record(lambda: operand.__cuda_array_interface__, {"A_log": operand})
    on_the_cpu = torch.zeros(4)
    presented._put(on_the_cpu.untyped_storage(), torch.device("cpu"))
    seen: list[bool] = []
    made.record(lambda: seen.append(hasattr(on_the_cpu, "__cuda_array_interface__")), {})
    assert seen == [False]


def test_a_code_object_travels_with_the_first_call_that_is_answered() -> None:
    made = capture.Capture("gfx950-emulated")
    source = SimpleNamespace(signature={})
    launcher = capture._Launcher(made, source, SimpleNamespace(name="k", num_warps=4, shared=0))
    launcher.assembly = "s_endpgm"

    def launches(raised: type[Exception] | None = None) -> tuple[None, None, None]:
        made.launch(launcher, (1, 1, 1), ())
        if raised is not None:
            raise raised
        return None, None, None

    for error in (ValueError, capture.CannotCapture):
        with pytest.raises(error):
            made.record(lambda error=error: launches(error), {})
    sent = [[code["name"] for code in made.record(launches, {})["codes"].values()] for _ in "12"]
    assert sent == [["k"], []]
