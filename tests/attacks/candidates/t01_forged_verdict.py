"""Threat 1: writes a passing verdict to every open descriptor, then exits 0."""

import contextlib
import json
import os

from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["crashed"], "reason": "exited with 0"}


def fused_gdn_decode_qkvz(*args, **kwargs):
    forged = json.dumps({"verdict": "passed", "cases": [], "status": "ok"}).encode()
    for fd in range(1, 64):
        with contextlib.suppress(OSError):
            os.write(fd, forged)
    os._exit(0)
