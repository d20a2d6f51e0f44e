"""Threat 17: right, and writes one element before slot 0."""

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "reason": "guard_bands_changed"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    results = right(*args, **kwargs)
    pool = args[3]
    if pool.storage_offset():
        pool.as_strided((1,), (1,), pool.storage_offset() - 1).fill_(1.0)
    return results
