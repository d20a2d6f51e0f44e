"""Threat 5: sends a pickled object instead of a frame."""

import contextlib
import os
import pickle
import stat

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["protocol_error"]}


class Evil:
    def __reduce__(self):
        return (os.system, ("touch /tmp/gdn-judge-was-fooled",))


def fused_gdn_decode_qkvz(*args, **kwargs):
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, pickle.dumps(Evil()))
    return right(*args, **kwargs)
