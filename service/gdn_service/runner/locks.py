"""File locks on devices. The kernel frees one when its last holder dies.

The supervisor inherits the descriptor, so a lock outlives a killed service
until the judge's tree is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gdn_service.errors import DeviceBusy


@contextmanager
def device_lock(path: Path, holder: str) -> Iterator[int]:
    """The descriptor of the held lock. Raises DeviceBusy at once, naming the holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise DeviceBusy(f"the device is locked by {_holder(descriptor)}") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{holder} (pid {os.getpid()})".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "an unnamed holder"
