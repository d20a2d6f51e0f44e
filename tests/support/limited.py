"""Runs code that may go wrong in a child with limits of its own, so that only the child dies."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
MIB = 1 << 20


def result_of(code: str, *arguments: object, memory: int, seconds: int = 60) -> dict[str, Any]:
    """What `code` leaves in `found`, and the child's `peak` in bytes.

    `memory` bounds the address space of the child and of each process that it starts.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    whole = (
        "import json, re, sys\nfound = {}\n"
        + textwrap.dedent(code)
        # Not ru_maxrss, which counts the process that this one was forked from.
        + "\npeak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())"
        + "\nfound['peak'] = int(peak[1]) * 1024"
        + "\nprint(json.dumps(found))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", whole, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(TESTS), "MALLOC_ARENA_MAX": "2"},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer
