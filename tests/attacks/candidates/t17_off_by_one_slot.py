"""Threat 17: writes the state of the next slot."""

import functools

import plain_op
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "reason": "untouched_slots_changed"}
fused_gdn_decode_qkvz = functools.partial(plain_op.fused_gdn_decode_qkvz, fault="off_by_one_slot")
