"""Threat 23: floods the log; it is cut with a note."""

import os

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "passed", "log_has": "bytes cut here", "log_below": 80_000}


def fused_gdn_decode_qkvz(*args, **kwargs):
    for _ in range(64):
        os.write(1, b"x" * 65536)
    return right(*args, **kwargs)
