"""This repository's op with its portable kernel, where Gluon's would be chosen."""

import os

os.environ["GDN_KERNELS_GLUON"] = "0"

from gdn_kernels import fused_gdn_decode_qkvz

__all__ = ["fused_gdn_decode_qkvz"]
