"""Threat 19: passes the four launches off as the fused op."""

from gdn_kernels import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported
from gdn_kernels.chain import unfused_gdn_decode_qkvz as fused_gdn_decode_qkvz

EXPECT = {"verdict": "failed", "check": "launches"}
__all__ = ["fused_gdn_decode_qkvz", "fused_gdn_decode_qkvz_supported"]
