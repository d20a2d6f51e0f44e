"""Threat 14: leaves half of the output unwritten."""

import torch
from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "reason": "out_"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    out, codes, scales = right(*args, **kwargs)
    fresh = torch.empty_like(out)
    fresh[..., :64] = out[..., :64]
    return fresh, codes, scales
