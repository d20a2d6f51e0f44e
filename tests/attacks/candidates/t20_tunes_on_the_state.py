"""Threat 20: its first call runs twice on the in-place state, as a tuner would."""

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"]}
_tuned = set()


def fused_gdn_decode_qkvz(*args, **kwargs):
    if args[0].shape not in _tuned:
        _tuned.add(args[0].shape)
        right(*args, **kwargs)
    return right(*args, **kwargs)
