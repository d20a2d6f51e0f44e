"""Threat 12: right only for inputs that the public hand-checked cases use."""

import torch
from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"]}


def fused_gdn_decode_qkvz(*args, **kwargs):
    results = right(*args, **kwargs)
    public = set(args[0].unique().tolist()) <= {0.0, 3.0, 8.0, 20.0, 40.0, 50.0, 60.0, 129.0}
    if public:
        return results
    return tuple(None if result is None else torch.zeros_like(result) for result in results)
