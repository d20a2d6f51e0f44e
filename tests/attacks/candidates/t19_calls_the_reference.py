"""Threat 19: answers by the judge's own reference."""

from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {
    "verdict": "failed",
    "outcomes": ["raised", "failed"],
    "reason": "not available to a candidate",
}


def fused_gdn_decode_qkvz(*args, **kwargs):
    from gdn_judge import reference

    return reference.fused_gdn_decode_qkvz(*args, **kwargs)
