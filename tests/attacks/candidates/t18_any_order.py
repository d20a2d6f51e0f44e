"""Threat 18: sums in a different order each time."""

import random

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "reason": "distinct_results"}
SUITE = "determinism"


def fused_gdn_decode_qkvz(*args, **kwargs):
    results = right(*args, **kwargs)
    args[3][args[4].long()] *= 1 + random.choice((0.0, 2e-7))
    return results
