"""Threat 21: leaves by sys.exit(0) in one case; the next cases pass."""

import sys

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {
    "verdict": "failed",
    "outcomes": ["crashed", "failed"],
    "reason": "exited with 0",
    "others_pass": True,
}


def fused_gdn_decode_qkvz(*args, **kwargs):
    if args[0].shape[0] == 3 and kwargs["quant_dtype"] is None:
        sys.exit(0)
    return right(*args, **kwargs)
