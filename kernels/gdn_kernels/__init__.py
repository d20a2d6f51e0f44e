"""The fused Gated DeltaNet decode op: one launch for what four kernels did.

op         fused_gdn_decode_qkvz, its predicate, explain
predicate  which operands the op takes, and the words of a refusal
launch     from checked operands to a launch
tuning     which configuration runs for which batch (data: tuning.json)
platform   architecture, Triton version, Gluon
scratch    tickets of programs that share a key head
fused_triton   the portable kernel
chain      the four launches that the op replaces
"""

from gdn_kernels.op import (
    GDN_DECLARATIONS,
    explain,
    fused_gdn_decode_qkvz,
    fused_gdn_decode_qkvz_supported,
)

__all__ = [
    "GDN_DECLARATIONS",
    "explain",
    "fused_gdn_decode_qkvz",
    "fused_gdn_decode_qkvz_supported",
]
