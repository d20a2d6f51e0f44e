"""Threat 21: segfaults in one case; the next cases pass."""

import ctypes

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {
    "verdict": "failed",
    "outcomes": ["crashed", "failed"],
    "reason": "ended by SIGSEGV",
    "others_pass": True,
}


def fused_gdn_decode_qkvz(*args, **kwargs):
    if args[0].shape[0] == 3 and kwargs["quant_dtype"] is None:
        ctypes.string_at(0)
    return right(*args, **kwargs)
