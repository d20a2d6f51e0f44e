"""The kernel's lists of cores and memory nodes ("0-15,32"), and each device's share of them."""

from __future__ import annotations

import itertools
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


def divide(lists: Sequence[str]) -> list[str]:
    """Each device's own cores, as a kernel list; `lists` are those near to each device.

    Devices are told overlapping lists, mostly the same one of their NUMA node; their jobs
    would compete. A core that several are near to goes to one of them, so that all have as
    many as can be; the shares are disjoint wherever each list has at least as many cores
    as there are devices. Those near to the same cores, and fewer than they are, all get all.
    """
    near = [sorted({core for each in parse(text) for core in each}) for text in lists]
    own: list[list[int]] = [[] for _ in lists]
    for claimants, runs in _regions(near):
        quotas = _quotas([len(own[device]) for device in claimants], sum(map(len, runs)))
        for device, cores in zip(claimants, _cut(runs, quotas), strict=True):
            own[device] += cores
    left_out = [cores for cores, mine in zip(near, own, strict=True) if cores and not mine]
    shares = [
        cores if cores in left_out else sorted(mine) for cores, mine in zip(near, own, strict=True)
    ]
    return [
        text if share == cores else _text(share)
        for text, cores, share in zip(lists, near, shares, strict=True)
    ]


def _regions(near: Sequence[Sequence[int]]) -> list[tuple[tuple[int, ...], list[list[int]]]]:
    """Cores by the devices near to them, in runs without a gap; those of fewest devices first."""
    claims: dict[int, tuple[int, ...]] = {}
    for device, cores in enumerate(near):
        for core in cores:
            claims[core] = (*claims.get(core, ()), device)
    regions: dict[tuple[int, ...], list[list[int]]] = {}
    for core in sorted(claims):
        runs = regions.setdefault(claims[core], [])
        if runs and runs[-1][-1] == core - 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return sorted(regions.items(), key=lambda item: (len(item[0]), item[1][0]))


def _quotas(have: Sequence[int], count: int) -> list[int]:
    """How many of `count` cores go to each of those that `have` so many: to the poorest first."""
    quotas = [0] * len(have)
    for _ in range(count):
        totals = [mine + quota for mine, quota in zip(have, quotas, strict=True)]
        poorest = max(i for i, total in enumerate(totals) if total == min(totals))
        quotas[poorest] += 1
    return quotas


def _cut(runs: list[list[int]], quotas: Sequence[int]) -> list[list[int]]:
    """`runs` in parts of about the sizes `quotas`.

    Every run is cut at the same places: hyperthreads of one core stand at the same place of
    two ranges ("0-63,128-191"), so each core stays whole. Where that leaves one without any,
    they are cut as one list, exactly.
    """
    parts: list[list[int]] = [[] for _ in quotas]
    for run in runs:
        for part, piece in zip(parts, _pieces(run, quotas), strict=True):
            part += piece
    if all(part or not quota for part, quota in zip(parts, quotas, strict=True)):
        return parts
    return _pieces([core for run in runs for core in run], quotas)


def _pieces(cores: list[int], quotas: Sequence[int]) -> list[list[int]]:
    """`cores` in proportion to `quotas`."""
    total, ends = sum(quotas), [0]
    for quota in quotas:
        ends.append(ends[-1] + quota)
    cuts = [len(cores) * end // total for end in ends]
    return [cores[first:last] for first, last in itertools.pairwise(cuts)]


def _text(cores: Sequence[int]) -> str:
    """`0-3,8` of sorted cores."""
    runs: list[tuple[int, int]] = []
    for core in cores:
        if runs and runs[-1][1] == core - 1:
            runs[-1] = runs[-1][0], core
        else:
            runs.append((core, core))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
