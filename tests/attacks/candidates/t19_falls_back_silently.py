"""Threat 19: answers by an unfused path; no kernel of its own runs."""

from plain_op import fused_gdn_decode_qkvz, fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "reason": "launches is 0"}
ARGS = ["--launches", "1"]
__all__ = ["fused_gdn_decode_qkvz", "fused_gdn_decode_qkvz_supported"]
