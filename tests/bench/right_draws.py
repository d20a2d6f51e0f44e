"""Draw right kernels and count whom the judge accuses: `python tests/bench/right_draws.py N`.

Each draw has its own sizes, state, summation order and errors of elementary functions (see
`support.fp32_step`), and is judged as a case of the correctness suite is. Prints how many
were accused, the largest error as a part of its bound, the share of exact elements, and the
relative L2 of out beside the 3e-4 that was once the bound.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import platform
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gdn_judge.generate import Seed
from support import right_draws

Row = tuple[str, int, list[str], float, float, float]


def draw(task: tuple[bytes, int]) -> Row:
    warnings.simplefilter("ignore", RuntimeWarning)
    secret, number = task
    before, _ = right_draws.drawn(Seed(secret), number)
    checks = {check.name: check for check in right_draws.judged(Seed(secret), number)}
    values = [
        float(checks[name].value or 0) if name in checks else 0.0
        for name in ("ssm_state_worst_of_bound", "out_exact", "out_rel_l2")
    ]
    failed = [check.name for check in checks.values() if not check.passed]
    return str(before.heads), before.rows * before.heads.value, failed, *values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("draws", type=int)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--secret", default=os.urandom(8).hex())
    options = parser.parse_args()
    tasks = [(options.secret.encode(), number) for number in range(options.draws)]
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    with multiprocessing.Pool(options.processes) as pool:
        for row in pool.imap_unordered(draw, tasks, chunksize=32):
            groups[row[0]].append(row)
    print(f"{options.draws} draws, secret {options.secret}, numpy on {platform.machine()}")
    print("heads   draws  rows x heads  accused  state/bound  least exact  out rel L2  over 3e-4")
    for heads, rows in sorted(groups.items()):
        print(_line(heads, rows))
    accused = [row for rows in groups.values() for row in rows if row[2]]
    print(*[f"accused: {row[0]} {row[1]} {row[2]}" for row in accused[:20]], sep="\n")
    return 1 if accused else 0


def _line(heads: str, rows: list[Row]) -> str:
    return (
        f"{heads:6}  {len(rows):5}  {sum(row[1] for row in rows):12}  "
        f"{sum(bool(row[2]) for row in rows):7}  {max(row[3] for row in rows):11.3f}  "
        f"{min(row[4] for row in rows):11.4f}  {max(row[5] for row in rows):10.2e}  "
        f"{sum(row[5] > 3e-4 for row in rows):9}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
