"""Asks a short-lived process for the state of devices.

A process of its own: a driver call that hangs cannot hang the worker, and no
library handle stays open on a device.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gdn_service.errors import DeviceUnavailable
from gdn_service.settings import base_environment

_TIMEOUT_S = 20.0


def ask(script: str, request: dict[str, Any], vendor: str) -> dict[str, Any]:
    """The answer of `script`, a file. Raises DeviceUnavailable with the driver's words."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", script],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=base_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceUnavailable(f"{vendor} did not answer within {_TIMEOUT_S:g} s") from error
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        words = done.stderr.strip()[-300:] or f"exit status {done.returncode}"
        raise DeviceUnavailable(f"{Path(script).stem} failed: {words}") from error
    if "error" in answer:
        raise DeviceUnavailable(answer["error"])
    return answer
