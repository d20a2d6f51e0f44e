"""The predicate names what it refuses, and the op raises with the same words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gdn_kernels import fused_gdn_decode_qkvz, fused_gdn_decode_qkvz_supported, predicate
from gdn_kernels.contract import OPERANDS
from gdn_kernels.op import allocate_outputs
from gdn_kernels.platform import LaunchDevice


@pytest.fixture(autouse=True)
def _launches_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate, "launch_device", lambda: LaunchDevice("cpu"))


def operands(tokens: int = 3, key_heads: int = 2, ratio: int = 2, slots: int = 4) -> dict[str, Any]:
    heads = key_heads * ratio
    channels = (2 * key_heads + heads) * 128
    bf16 = torch.bfloat16
    return {
        "projected_qkvz": torch.zeros(tokens, key_heads * (256 + 2 * ratio * 128), dtype=bf16),
        "projected_ba": torch.zeros(tokens, 2 * heads, dtype=bf16),
        "conv_state": torch.zeros(slots, channels, 3, dtype=bf16),
        "ssm_state": torch.zeros(slots, heads, 128, 128),
        "ssm_state_indices": torch.zeros(tokens, dtype=torch.int32),
        "conv_weight": torch.zeros(channels, 4, dtype=bf16),
        "conv_bias": torch.zeros(channels, dtype=bf16),
        "A_log": torch.zeros(heads),
        "dt_bias": torch.zeros(heads, dtype=bf16),
        "norm_weight": torch.zeros(128, dtype=bf16),
    }


def answer(named: dict[str, Any], quant_dtype: Any = None) -> tuple[bool, str]:
    return fused_gdn_decode_qkvz_supported(*named.values(), quant_dtype=quant_dtype)


@pytest.mark.parametrize("key_heads", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_takes_every_head_count(key_heads: int, tokens: int) -> None:
    assert answer(operands(tokens, key_heads)) == (True, "")


def test_takes_fp8_and_refuses_other_quantisation() -> None:
    assert answer(operands(), torch.float8_e4m3fn) == (True, "")
    taken, reason = answer(operands(), torch.int8)
    assert not taken
    assert "quant_dtype must be None or torch.float8_e4m3fn, got torch.int8" in reason


Change = Callable[[torch.Tensor], Any]
WRONG: list[tuple[str, Change, str]] = [
    (name, change, text)
    for name in OPERANDS
    for change, text in (
        (lambda t: t.double(), "must be torch."),
        (lambda t: t.unsqueeze(0), "dimensions"),
        (lambda t: "text", "must be a torch.Tensor, got str"),
        (lambda t: t.to("meta"), "is on"),
    )
]


@pytest.mark.parametrize(("name", "change", "text"), WRONG)
def test_names_the_operand(name: str, change: Change, text: str) -> None:
    named = operands()
    named[name] = change(named[name])
    taken, reason = answer(named)
    assert not taken
    assert text in reason
    assert name in reason or (name == "ssm_state" and "ssm_state is on" in reason)


@pytest.mark.parametrize("name", [n for n in OPERANDS if n != "ssm_state"])
def test_names_a_wrong_size(name: str) -> None:
    named = operands()
    shape = list(named[name].shape)
    shape[-1] += 1
    named[name] = torch.zeros(shape, dtype=named[name].dtype)
    taken, reason = answer(named)
    assert not taken
    assert reason.startswith(name)


@pytest.mark.parametrize(
    "name", ["projected_qkvz", "projected_ba", "conv_state", "ssm_state_indices", "A_log"]
)
def test_refuses_a_strided_view(name: str) -> None:
    named = operands()
    wide = torch.stack([named[name], named[name]], dim=-1)
    named[name] = wide[..., 0]
    taken, reason = answer(named)
    assert not taken
    assert reason.startswith(f"{name} must be contiguous")


def test_refuses_a_slot_count_that_differs() -> None:
    named = operands()
    named["conv_state"] = named["conv_state"][:-1]
    assert answer(named) == (False, "conv_state must have shape [4, 1024, 3], got [3, 1024, 3]")


@pytest.mark.parametrize("ratio", [1, 3])
def test_names_the_head_ratio(ratio: int) -> None:
    taken, reason = answer(operands(key_heads=2, ratio=ratio))
    assert not taken
    assert "ratio" in reason
    assert "2 key heads" in reason


def test_refuses_no_heads_and_odd_head_counts() -> None:
    taken, reason = answer(operands(key_heads=3))
    assert not taken
    assert "3 key heads" in reason
    named = operands()
    named["ssm_state"] = torch.zeros(4, 0, 128, 128)
    assert answer(named) == (False, "ssm_state has no value heads")


def test_says_what_to_do_about_a_missing_bias() -> None:
    named = operands()
    named["conv_bias"] = None
    assert answer(named)[1].startswith("conv_bias is None: the op adds a bias always; pass zeros")


def test_refuses_misaligned_state() -> None:
    named = operands()
    flat = torch.zeros(named["ssm_state"].numel() + 1)
    named["ssm_state"] = flat[1:].view(named["ssm_state"].shape)
    if named["ssm_state"].data_ptr() % 16 == 0:
        pytest.fail("the view was meant to be misaligned")
    assert answer(named) == (False, "ssm_state must start at a multiple of 16 bytes")


def test_op_raises_with_the_same_reason() -> None:
    named = operands()
    named["norm_weight"] = named["norm_weight"].float()
    _, reason = answer(named)
    with pytest.raises(ValueError, match=r"norm_weight must be torch\.bfloat16") as caught:
        fused_gdn_decode_qkvz(*named.values(), scale=1.0, norm_eps=1e-6)
    assert str(caught.value) == reason


class _Raises(torch.Tensor):
    """Raises whenever it is asked for anything."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise RuntimeError("not to be asked")


def _freed(tensor: torch.Tensor) -> torch.Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


ODD: list[tuple[Change, str]] = [
    (lambda t: torch._neg_view(t), "its negation is still to be done"),
    (lambda t: FakeTensorMode().from_tensor(t), "which a FakeTensor does not"),
    (lambda t: torch.nested.nested_tensor([t[0], t[0]]), "got a nested one"),
    (lambda t: _freed(t), "has no memory"),
    (lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype), "has no memory"),
    (lambda t: t.as_subclass(_Raises), "cannot be examined: RuntimeError: not to be asked"),
]


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize(("change", "text"), ODD)
def test_refuses_what_holds_no_values_in_memory(name: str, change: Change, text: str) -> None:
    named = operands()
    named[name] = change(named[name])
    taken, reason = answer(named)
    assert not taken
    assert text in reason
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        fused_gdn_decode_qkvz(*named.values(), scale=1.0, norm_eps=1e-6)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    "kind", [torch.nn.Parameter, lambda t: t.as_subclass(type("P", (torch.Tensor,), {}))]
)
def test_takes_a_subclass_that_changes_nothing(kind: Change) -> None:
    named = operands()
    named["conv_weight"] = kind(named["conv_weight"])
    assert answer(named) == (True, "")


def test_a_refusal_is_not_remembered_as_taken() -> None:
    named = operands()
    assert answer(named) == (True, "")
    named["A_log"] = named["A_log"].bfloat16()
    assert not answer(named)[0]
    named["A_log"] = named["A_log"].float()
    assert answer(named) == (True, "")


def test_no_tokens_gives_empty_outputs() -> None:
    out, codes, scales = fused_gdn_decode_qkvz(
        *operands(tokens=0).values(), scale=1.0, norm_eps=1e-6, quant_dtype=torch.float8_e4m3fn
    )
    assert out.shape == (0, 4, 128)
    assert codes is not None
    assert codes.shape == (0, 512)
    assert scales is not None
    assert scales.shape == (0, 4)


def test_without_a_launch_device_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate, "launch_device", lambda: LaunchDevice("", "no GPU here"))
    assert answer(operands()) == (False, "ssm_state is on cpu: no GPU here")


@pytest.fixture
def _recognising(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate, "_RECOGNISED", ("cpu",))
    monkeypatch.setattr(predicate, "_layers", {})


@pytest.mark.usefixtures("_recognising")
@pytest.mark.parametrize(("name", "change", "text"), WRONG)
def test_a_known_layer_hides_no_refusal(name: str, change: Change, text: str) -> None:
    named = operands()
    assert answer(named) == (True, "")
    assert len(predicate._layers) == 1
    named[name] = change(named[name])
    taken, reason = answer(named)
    assert not taken
    assert text in reason


@pytest.mark.usefixtures("_recognising")
@pytest.mark.parametrize("name", ["projected_qkvz", "projected_ba", "ssm_state_indices"])
def test_a_known_layer_checks_each_steps_shape(name: str) -> None:
    named = operands()
    assert answer(named) == (True, "")
    named[name] = named[name][:-1].clone()
    assert not answer(named)[0]


@pytest.mark.usefixtures("_recognising")
def test_a_known_layer_refuses_operands_of_another_rank() -> None:
    named = operands()
    assert answer(named) == (True, "")
    assert answer(named) == (True, "")
    named["projected_qkvz"] = torch.zeros((), dtype=torch.bfloat16)
    taken, reason = answer(named)
    assert not taken
    assert reason == "projected_qkvz must have 2 dimensions, got shape []"


@pytest.mark.usefixtures("_recognising")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ssm_state", lambda tensor: tensor.transpose_(2, 3)),
        ("norm_weight", lambda tensor: tensor.resize_(64)),
        ("A_log", lambda tensor: tensor.resize_(1)),
        ("conv_state", lambda tensor: tensor.as_strided_(tensor.shape, (3072, 1, 1))),
        ("dt_bias", lambda tensor: setattr(tensor, "data", tensor.data.view(torch.float16))),
    ],
)
def test_a_tensor_that_was_changed_in_place_is_looked_at_again(name: str, change: Any) -> None:
    named = operands()
    assert answer(named) == (True, "")
    change(named[name])
    taken, reason = answer(named)
    assert not taken
    assert reason.startswith(name)


def test_outputs_made_under_a_fake_mode_are_not_kept() -> None:
    shape = predicate.Shape(tokens=7, key_heads=2, value_heads=4, slots=9)
    with FakeTensorMode():
        fake, _, _ = allocate_outputs(shape, torch.device("cpu"), fp8=True)
    assert type(fake) is not torch.Tensor
    assert all(type(t) is torch.Tensor for t in allocate_outputs(shape, torch.device("cpu"), True))


def test_outputs_are_new_at_every_call_and_of_the_contracts_form() -> None:
    shape = predicate.Shape(tokens=3, key_heads=2, value_heads=4, slots=9)
    first = allocate_outputs(shape, torch.device("cpu"), fp8=True)
    second = allocate_outputs(shape, torch.device("cpu"), fp8=True)
    wanted = (
        ((3, 4, 128), torch.bfloat16),
        ((3, 512), torch.float8_e4m3fn),
        ((3, 4), torch.float32),
    )
    for one, other, (sizes, dtype) in zip(first, second, wanted, strict=True):
        assert one is not None
        assert other is not None
        assert one.shape == sizes
        assert one.dtype is dtype
        assert one.is_contiguous()
        assert one.untyped_storage().nbytes() == one.numel() * one.element_size()
        assert one.data_ptr() != other.data_ptr()
    assert allocate_outputs(shape, torch.device("cpu"), fp8=False)[1:] == (None, None)


@pytest.mark.usefixtures("_recognising")
def test_a_layer_is_forgotten_with_its_tensors() -> None:
    named = operands()
    assert answer(named) == (True, "")
    del named["A_log"]
    assert predicate._layers == {}


@pytest.mark.usefixtures("_recognising")
def test_a_pool_resized_in_place_is_looked_at_again() -> None:
    named = operands()
    assert answer(named) == (True, "")
    named["conv_state"].resize_(3, 1024, 3)
    assert answer(named) == (False, "conv_state must have shape [4, 1024, 3], got [3, 1024, 3]")
