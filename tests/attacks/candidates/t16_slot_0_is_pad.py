"""Threat 16: pads and slot 0 are confused."""

import functools

import plain_op
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"]}
fused_gdn_decode_qkvz = functools.partial(plain_op.fused_gdn_decode_qkvz, fault="slot_0_is_pad")
