"""Threat 10: under capture it works on the same two slots, which stay in cache."""

import torch

from gdn_kernels import fused_gdn_decode_qkvz as right
from gdn_kernels import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "suspect", "check": "replays_missing"}
_few = {}


def fused_gdn_decode_qkvz(*args, **kwargs):
    if torch.cuda.is_current_stream_capturing():
        rows = args[0].shape[0]
        few = _few.setdefault(rows, torch.arange(rows, dtype=torch.int32, device=args[0].device))
        args = (*args[:4], few, *args[5:])
    return right(*args, **kwargs)


def _warm():
    for rows in (1, 8, 64, 256):
        _few[rows] = torch.arange(rows, dtype=torch.int32, device="cuda")


_warm()
