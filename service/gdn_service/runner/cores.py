"""The kernel's lists of cores and memory nodes ("0-15,32"), and each device's share of them."""

from __future__ import annotations

from collections.abc import Sequence


def parse(text: str) -> list[range]:
    """The ranges of a kernel list, in its order. Raises ValueError saying what is wrong."""
    ranges = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{text!r} should be a list like 0-15,32")
        ranges.append(range(int(first), int(last or first) + 1))
        if not ranges[-1]:
            raise ValueError(f"{text!r} has a range that ends before it begins: {part}")
    return ranges


def share(cpus: str, part: int, parts: int) -> str:
    """The `part`th of `parts` equal shares of the cores `cpus`, as a kernel list.

    Devices on one NUMA node are told the same cores; their jobs would compete for
    them. Every range is divided: hyperthreads of one core stand at the same place of
    two ranges ("0-63,128-191"), so each core stays whole. Where a range is too short
    the list is divided as a whole; with fewer cores than parts all get all.
    """
    ranges = parse(cpus)
    if parts < 2:
        return cpus
    if all(len(cores) >= parts for cores in ranges):
        return ",".join(_text(_slice(cores, part, parts)) for cores in ranges)
    cores = [core for each in ranges for core in each]
    if len(cores) < parts:
        return cpus
    return ",".join(str(core) for core in _slice(cores, part, parts))


def _slice(cores: Sequence[int], part: int, parts: int) -> Sequence[int]:
    return cores[part * len(cores) // parts : (part + 1) * len(cores) // parts]


def _text(cores: Sequence[int]) -> str:
    return str(cores[0]) if len(cores) == 1 else f"{cores[0]}-{cores[-1]}"
