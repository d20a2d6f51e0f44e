"""Threat 10: every second call of a graph launches nothing."""

import torch

from gdn_kernels import fused_gdn_decode_qkvz as right
from gdn_kernels import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "suspect", "check": "state_after_replays"}
_calls = [0, None]


def fused_gdn_decode_qkvz(*args, **kwargs):
    if torch.cuda.is_current_stream_capturing():
        _calls[0] += 1
        if _calls[0] % 2 == 0 and _calls[1] is not None:
            return _calls[1]
    _calls[1] = right(*args, **kwargs)
    return _calls[1]
