"""Threat 13: zeroes inputs and outputs together."""

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "reason": "inputs_changed"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    args[0].zero_()
    return right(*args, **kwargs)
