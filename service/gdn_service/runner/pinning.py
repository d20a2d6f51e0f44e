"""Keeps a command on the cores and memory near its device, then becomes that command.

    python -I pinning.py CPUS NODES ARGV...

CPUS and NODES are kernel lists like "0-15,32"; an empty one leaves that as it is.
Standard library only, beside `cores`; run by path. What the kernel refuses is said on
stderr, once, and the command runs without it: the judge writes down what it finds.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gdn_service.runner import cores

_MPOL_BIND = 2  # linux/mempolicy.h
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}  # number of the system call; libc has none
_BITS = 1024  # of the mask; the kernel's most nodes


def main(argv: list[str]) -> None:
    cpus, nodes, *command = argv
    if cpus:
        wanted = {core for each in cores.parse(cpus) for core in each}
        _try(f"cores {cpus}", lambda: os.sched_setaffinity(0, wanted))
    if nodes:
        _try(f"memory nodes {nodes}", lambda: bind_memory(nodes))
    os.execvp(command[0], command)


def bind_memory(nodes: str) -> None:
    """Take this process's memory from `nodes` only; what it starts inherits that.

    Raises OSError where the kernel refuses, or knows no NUMA policy.
    """
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise OSError(f"no system call number is known for {platform.machine()}")
    mask = (ctypes.c_ulong * (_BITS // (8 * ctypes.sizeof(ctypes.c_ulong))))()
    width = 8 * ctypes.sizeof(ctypes.c_ulong)
    for each in cores.parse(nodes):
        for node in each:
            if node >= _BITS:
                raise OSError(f"there is no memory node {node}")
            mask[node // width] |= 1 << node % width
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than it is told.
    if libc.syscall(number, _MPOL_BIND, mask, ctypes.c_ulong(_BITS + 1)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _try(what: str, action: Callable[[], None]) -> None:
    try:
        action()
    except OSError as error:
        print(f"not kept on {what}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
