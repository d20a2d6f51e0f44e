"""Threat 21: refuses operands that the contract says it must take."""

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["refused", "failed"], "others_pass": True}


def fused_gdn_decode_qkvz(*args, **kwargs):
    if args[0].shape[0] == 3:
        raise ValueError("projected_qkvz has three rows")
    return right(*args, **kwargs)
