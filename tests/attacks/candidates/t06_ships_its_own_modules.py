"""Threat 6: the checkout holds a torch.py, a conftest.py and a gdn_judge package."""

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "passed", "log_lacks": "IMPORTED"}
FILES = {
    "torch.py": "print('IMPORTED torch', flush=True)",
    "numpy.py": "print('IMPORTED numpy', flush=True)",
    "conftest.py": "print('IMPORTED conftest', flush=True)",
    "sitecustomize.py": "print('IMPORTED sitecustomize', flush=True)",
    "gdn_judge/__init__.py": "print('IMPORTED gdn_judge', flush=True)",
    "gdn_judge/reference.py": "print('IMPORTED reference', flush=True)",
}


def fused_gdn_decode_qkvz(*args, **kwargs):
    return right(*args, **kwargs)
