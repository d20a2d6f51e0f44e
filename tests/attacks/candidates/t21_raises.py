"""Threat 21: raises in one case; the next cases pass."""

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {
    "verdict": "failed",
    "outcomes": ["raised", "failed"],
    "reason": "RuntimeError: no such luck",
    "others_pass": True,
}


def fused_gdn_decode_qkvz(*args, **kwargs):
    if args[0].shape[0] == 3:
        raise RuntimeError("no such luck")
    return right(*args, **kwargs)
