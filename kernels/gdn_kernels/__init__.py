"""The fused Gated DeltaNet decode op: one launch for what four kernels did.

    op             fused_gdn_decode_qkvz, its predicate, explain
    predicate      which operands the op takes, and the words of a refusal
    launch         from checked operands to a launch
    tuning         which configuration runs for which batch (data: tuning.json)
    tune           measures configurations on a device and rewrites that table
    platform       architecture, Triton version, Gluon
    scratch        tickets of programs that share a key head
    steps_triton   the step's formulas, shared by all kernels
    fused_gluon    the kernel for Hopper and CDNA4
    fused_triton   the portable kernel
    chain          the four launches that the op replaces
    adapters       the op behind a serving framework's switch

Importing the package loads neither torch nor triton; its names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gdn_kernels.op import (
        GDN_DECLARATIONS,
        explain,
        fused_gdn_decode_qkvz,
        fused_gdn_decode_qkvz_supported,
        warm_up,
    )

__all__ = [
    "GDN_DECLARATIONS",
    "explain",
    "fused_gdn_decode_qkvz",
    "fused_gdn_decode_qkvz_supported",
    "warm_up",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gdn_kernels' has no attribute {name!r}")
    from gdn_kernels import op

    return getattr(op, name)
