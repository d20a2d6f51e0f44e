"""Identifiers: sortable by time of creation, short, safe in a URL."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case


def new_id(prefix: str) -> str:
    """`prefix` + 16 characters: 45 bits of milliseconds, 35 random bits."""
    number = ((time.time_ns() // 1_000_000) << 35) | secrets.randbits(35)
    digits = [_ALPHABET[(number >> shift) & 31] for shift in range(75, -1, -5)]
    return prefix + "".join(digits)
