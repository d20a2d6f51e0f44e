"""Threat 21: hangs in one case; the next cases pass."""

import time

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["timed_out", "failed"], "others_pass": True}


def fused_gdn_decode_qkvz(*args, **kwargs):
    if args[0].shape[0] == 3 and kwargs["quant_dtype"] is None:
        time.sleep(1e6)
    return right(*args, **kwargs)
