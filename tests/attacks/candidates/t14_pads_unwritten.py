"""Threat 14: leaves pad rows as the allocator gave them."""

import torch
from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "reason": "pad_rows_wrong"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    out, codes, scales = right(*args, **kwargs)
    live = args[4] != kwargs["pad_slot_id"]
    fresh = torch.empty_like(out)
    fresh[live] = out[live]
    return fresh, codes, scales
