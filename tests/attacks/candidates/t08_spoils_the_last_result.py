"""Threat 8's kin: writes over what the call before returned."""

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {
    "verdict": "failed",
    "outcomes": ["failed"],
    "reason": "out of an earlier call was changed by a later one",
}
_last = []


def fused_gdn_decode_qkvz(*args, **kwargs):
    results = right(*args, **kwargs)
    for out in _last:
        out.zero_()
    _last[:] = [results[0]]
    return results
