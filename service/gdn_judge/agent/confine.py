"""What the candidate's process gives up before the op is imported."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Mapping

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def confine(limits: Mapping[str, int]) -> None:
    """Die with the judge, gain no privilege, keep no capability, stay within `limits`.

    Without capabilities even root may not read a non-dumpable judge through /proc.
    Raises OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    for name, value in limits.items():
        _limit(getattr(resource, name), value)
    if os.geteuid() == 0:
        for capability in range(_LAST_CAPABILITY + 1):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL past the kernel's last
    header = _Header(_CAPABILITY_VERSION_3, 0)
    _check(libc.capset(ctypes.byref(header), ctypes.byref((_Data * 2)())))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
