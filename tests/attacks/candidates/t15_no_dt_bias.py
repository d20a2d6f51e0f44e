"""Threat 15: one term of the step is wrong."""

import functools

import plain_op
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"]}
fused_gdn_decode_qkvz = functools.partial(plain_op.fused_gdn_decode_qkvz, fault="no_dt_bias")
