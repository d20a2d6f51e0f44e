"""Threat 3: replaces torch.allclose, events and clocks, and returns zeros."""

import time

import torch
from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"]}

torch.allclose = torch.equal = lambda *args, **kwargs: True
torch.testing.assert_close = lambda *args, **kwargs: None
time.perf_counter = time.monotonic = time.time = lambda: 0.0


def fused_gdn_decode_qkvz(*args, **kwargs):
    out, codes, scales = right(*args, **kwargs)
    return torch.zeros_like(out), codes, scales
