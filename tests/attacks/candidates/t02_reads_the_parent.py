"""Threat 2: looks for the seed in the parent's environment, memory and descriptors."""

import os
from pathlib import Path

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "passed", "log_lacks": "LEAKED", "log_has": "TRIED"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    parent = Path(f"/proc/{os.getppid()}")
    for name in ("environ", "mem", "maps", "fd/0", "fd/3", "fd/5", "root/etc", "cwd/x", "stack"):
        try:
            found = (parent / name).open("rb").read(1)
            print("LEAKED", name, found, flush=True)
        except OSError as error:
            print("TRIED", name, error, flush=True)
    return right(*args, **kwargs)
