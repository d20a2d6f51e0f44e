"""Threat 8's kin: returns the same memory at every call, so that a result does not last."""

import torch
from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {
    "verdict": "failed",
    "outcomes": ["failed"],
    "reason": "out lies in memory that an earlier call returned",
}
_buffer = torch.empty(1 << 20, dtype=torch.bfloat16)


def fused_gdn_decode_qkvz(*args, **kwargs):
    out, codes, scales = right(*args, **kwargs)
    return _buffer[: out.numel()].view(out.shape).copy_(out), codes, scales
