"""Values of options, checked before anything is sent."""

from __future__ import annotations

import re

from gdn_client.errors import UsageError

LARGEST_BATCH = 65536


def parse_batch_sizes(text: str | None) -> list[int] | None:
    """`1,8,64` as [1, 8, 64]."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) <= LARGEST_BATCH for part in parts):
        raise UsageError(
            f"{text!r} is not a list of batch sizes",
            remedy=f"Give whole numbers from 0 to {LARGEST_BATCH}, as 1,8,64.",
        )
    return list(dict.fromkeys(int(part) for part in parts))


def parse_heads(text: str | None) -> str | None:
    """`4x8`: key heads by value heads, a multiple of them."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text.strip())
    if match is None or int(match[1]) == 0 or int(match[2]) % int(match[1]) or int(match[2]) == 0:
        raise UsageError(
            f"{text!r} is not a pair of head counts",
            remedy="Give key heads by value heads, the second a multiple of the first, as 4x8.",
        )
    return f"{int(match[1])}x{int(match[2])}"
