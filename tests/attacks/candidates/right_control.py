"""The right control: plain torch operations, no tricks."""

from plain_op import fused_gdn_decode_qkvz, fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "passed"}
__all__ = ["fused_gdn_decode_qkvz", "fused_gdn_decode_qkvz_supported"]
