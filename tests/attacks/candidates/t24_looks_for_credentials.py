"""Threat 24: prints its environment and what it can find of tokens."""

import os

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "passed", "log_lacks": "s3cret-token", "log_has": "ENVIRONMENT"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    print("ENVIRONMENT", dict(os.environ), flush=True)
    return right(*args, **kwargs)
