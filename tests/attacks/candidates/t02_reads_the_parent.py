"""Threat 2: looks for the seed in the parent's environment, memory and descriptors."""

import os
from pathlib import Path

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "passed", "log_lacks": "LEAKED", "log_has": "TRIED"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    parent = Path(f"/proc/{os.getppid()}")
    for name in ("environ", "mem", "maps", "fd", "root", "cwd"):
        try:
            target = parent / name
            found = os.listdir(target) if name in ("fd", "root") else target.open("rb").read(1)
            print("LEAKED", name, found, flush=True)
        except (PermissionError, IsADirectoryError):
            print("TRIED", name, flush=True)
    return right(*args, **kwargs)
