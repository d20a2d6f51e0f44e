"""Reports of wrong kernels from public trackers, beyond the hand-checked cases.

The hand-checked cases hold: reversed taps, the K-major reading, decay, swapped b
and a, unrounded beta, a missing scale, softplus overflow, all-zero FP8 groups,
saturation, -1 as an index, as slot 0 and as the last slot, a pad id of 0, wide
offsets, strided pools, pads of NaN and T = 0.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gdn_judge.reference import fused_gdn_decode_qkvz, fused_gdn_decode_qkvz_supported
from support import hand_cases


def tensors(name: str = "G1") -> dict[str, Any]:
    case = next(case for case in hand_cases.CASES if case["id"] == name)
    return hand_cases.Case(case).build().values


def step(values: dict[str, Any], **more: Any) -> Any:
    return fused_gdn_decode_qkvz(**values, scale=128**-0.5, norm_eps=1e-6, **more)


def test_pads_replayed_100_times_leave_slot_0_to_its_row() -> None:
    """tokenspeed 700: -1 clamped to 0 makes three more steps on slot 0 each time."""
    batch, alone = tensors("pad-not-slot-0"), tensors("pad-not-slot-0")
    for name in ("projected_qkvz", "projected_ba", "ssm_state_indices"):
        alone[name] = alone[name][:1].clone()
    for _ in range(100):
        step(batch)
        step(alone)
    assert torch.equal(batch["ssm_state"], alone["ssm_state"])
    assert torch.equal(batch["conv_state"], alone["conv_state"])
    assert batch["ssm_state"][0].any()


def test_new_indices_use_the_new_slots() -> None:
    """Replay with changed indices: values count, not what was there at first."""
    values = tensors()
    step(values)
    values["ssm_state_indices"].fill_(1)
    before = values["ssm_state"][2].clone()
    step(values)
    assert torch.equal(values["ssm_state"][2], before)
    assert values["ssm_state"][1].any()


def test_pad_rows_are_zero_though_memory_was_not() -> None:
    """vllm 37442."""
    out, codes, scales = step(tensors("pad-nan"), quant_dtype=torch.float8_e4m3fn)
    assert not out[0].view(torch.int16).any()
    assert not codes[0].view(torch.uint8).any()
    assert scales[0].tolist() == [pytest.approx(2.2321428e-13, rel=1e-6)] * 2


def spoiled(name: str, value: Any) -> dict[str, Any]:
    return {**tensors(), name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("conv_bias", None),
        ("A_log", torch.zeros(2, dtype=torch.bfloat16)),
        ("norm_weight", torch.ones(128)),
        ("projected_qkvz", torch.zeros((1, 768), dtype=torch.float16)),
        ("ssm_state_indices", torch.zeros(1, dtype=torch.int64)),
        ("dt_bias", torch.zeros(2, dtype=torch.bfloat16, device="meta")),
        ("conv_bias", torch.zeros(511, dtype=torch.bfloat16)),
        ("projected_qkvz", torch.zeros((), dtype=torch.bfloat16)),
        ("ssm_state", torch.zeros((4, 0, 128, 128))),
        ("projected_ba", torch.zeros((1, 0), dtype=torch.bfloat16)),
        ("conv_weight", [[0.0]]),
    ],
)
def test_refused_by_name_without_raising_in_the_predicate(name: str, value: Any) -> None:
    values = spoiled(name, value)
    supported, reason = fused_gdn_decode_qkvz_supported(*values.values())
    assert not supported
    assert name in reason
    with pytest.raises(ValueError, match=name):
        step(values)


def test_quant_dtype_is_checked() -> None:
    values = tensors()
    supported, reason = fused_gdn_decode_qkvz_supported(
        *values.values(), quant_dtype=torch.float8_e5m2
    )
    assert not supported
    assert "quant_dtype" in reason


def test_duplicate_slots_are_refused_before_anything_changes() -> None:
    values = tensors("view-idx")
    values["ssm_state_indices"] = torch.tensor([3, 3], dtype=torch.int32)
    before = values["ssm_state"].clone()
    with pytest.raises(ValueError, match="slot 3 is named by more than one row"):
        step(values)
    assert torch.equal(values["ssm_state"], before)
