"""Threat 13: right, but leaves one bit of a weight changed."""

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "reason": "inputs_changed"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    results = right(*args, **kwargs)
    args[9].view(-1)[0] += 1
    return results
