"""Threat 7: overwrites every tensor that it did not make."""

import gc

import torch
from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"]}


def fused_gdn_decode_qkvz(*args, **kwargs):
    results = right(*args, **kwargs)
    mine = {id(result) for result in results}
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor and id(thing) not in mine and not thing.is_meta:
            thing.zero_()
    return results
