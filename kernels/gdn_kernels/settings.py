"""The environment variables of this package, each read here and nowhere else."""

from __future__ import annotations

import os

SGLANG_BACKEND = "SGLANG_QWEN3_NEXT_GDN_FUSED_BACKEND"


def gluon_allowed() -> bool:
    """GDN_KERNELS_GLUON=0 keeps the portable Triton kernel where Gluon could run."""
    return os.environ.get("GDN_KERNELS_GLUON", "1") != "0"


def sglang_backend() -> str | None:
    """The backend that SGLANG_BACKEND names, None where it is unset or empty."""
    return os.environ.get(SGLANG_BACKEND) or None
