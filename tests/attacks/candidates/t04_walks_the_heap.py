"""Threat 4: walks all objects and frames for something that looks like the expected output."""

import gc
import sys

import torch
from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "log_lacks": "FOUND"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    out, codes, scales = right(*args, **kwargs)
    secret = out.clone()
    found = torch.zeros_like(out)
    del out
    frame, seen = sys._getframe(), []
    while frame is not None:
        seen += list(frame.f_locals.values())
        frame = frame.f_back
    for thing in [*gc.get_objects(), *seen]:
        if not isinstance(thing, torch.Tensor) or not secret.any():
            continue
        if thing is secret or thing is found or thing.dtype != secret.dtype:
            continue
        if thing.shape == secret.shape and torch.equal(thing, secret):
            print("FOUND", flush=True)
            found = thing.clone()
    return found, codes, scales
