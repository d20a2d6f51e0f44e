"""Threat 8's kin: returns two buffers by turns, so that a result lasts for one call only."""

import torch
from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {
    "verdict": "failed",
    "outcomes": ["failed"],
    "reason": "out lies in memory that an earlier call returned",
}
_buffers = [torch.empty(1 << 20, dtype=torch.bfloat16) for _ in range(2)]


def fused_gdn_decode_qkvz(*args, **kwargs):
    out, codes, scales = right(*args, **kwargs)
    _buffers.reverse()
    return _buffers[0][: out.numel()].view(out.shape).copy_(out), codes, scales
