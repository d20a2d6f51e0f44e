"""Threat 22: leaves a daemon in its own session that holds the pipes and does not die."""

import os
import signal
import time

from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "passed", "gone": "DAEMON"}
_started = []


def fused_gdn_decode_qkvz(*args, **kwargs):
    if not _started:
        _started.append(True)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.write(1, f"DAEMON {os.getpid()}\n".encode())
                time.sleep(1e6)
            os._exit(0)
        os.wait()
    return right(*args, **kwargs)
