"""Threat 8: returns the first output again for pointers and shapes that it knows."""

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"]}
_known = {}


def fused_gdn_decode_qkvz(*args, **kwargs):
    results = right(*args, **kwargs)
    key = (args[0].shape, args[3].shape, kwargs["quant_dtype"])
    return _known.setdefault(key, results)
