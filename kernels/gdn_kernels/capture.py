"""The id of the graph capture that a stream is in, asked of the driver itself.

PyTorch does not say which capture is under way; CUDA's and HIP's drivers do
(cuStreamGetCaptureInfo_v2, hipStreamGetCaptureInfo_v2).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE, hipStreamCaptureStatusActive
_QUESTIONS = {
    "cuda": ("libcuda.so.1", "cuStreamGetCaptureInfo_v2"),
    "hip": ("libamdhip64.so", "hipStreamGetCaptureInfo_v2"),
}


def capture_id(backend: str, stream: int) -> int | None:
    """The id of the capture on `stream` (a raw stream handle), or None where nobody tells."""
    ask = _question(backend)
    if ask is None:
        return None
    status, identity = ctypes.c_int(0), ctypes.c_uint64(0)
    failed = ask(
        ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(identity), None, None, None
    )
    if failed or status.value != _ACTIVE:
        return None
    return identity.value


@functools.lru_cache(maxsize=2)
def _question(backend: str) -> Callable[..., int] | None:
    library, symbol = _QUESTIONS.get(backend, ("", ""))
    if not library:
        return None
    try:
        return ctypes.CDLL(library)[symbol]
    except (OSError, AttributeError):
        return None
