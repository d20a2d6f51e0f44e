"""Threat 1: answers with a well-formed frame of its own, then exits 0."""

import contextlib
import json
import os
import struct

from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed", "crashed"]}


def fused_gdn_decode_qkvz(*args, **kwargs):
    for number in range(1, 40):
        body = json.dumps({"id": number, "status": "ok", "forms": {}, "form_error": ""}).encode()
        for fd in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(fd, struct.pack(">I", len(body)) + body)
    os._exit(0)
