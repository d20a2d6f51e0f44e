"""How fast the emulator runs the op's kernels: wave instructions per second.

    .venv/bin/python tests/bench/emulator_speed.py [--rows 1,8,32] [--heads 4x8] [--processes 2]

The design asks for a million on one core: CPU time in one process, so that other work
on the machine does not count. Beside it wall time in one process and in several, by turns.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from gdn_judge import generate, prepare
from gdn_judge.codeobject.compiler import Compiler
from gdn_judge.contract import Heads
from gdn_judge.emulated import EmulatedExecutor
from gdn_judge.operands import CallOptions

ROOT = Path(__file__).parents[2]
GOAL = 1e6
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="1,8,32")
    parser.add_argument("--heads", default="4x8")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    process = prepare.process(ROOT, "gdn_kernels:fused_gdn_decode_qkvz", ["kernels"])
    executor = Compiler(process, processes=options.processes)
    executor.start()
    try:
        for rows in map(int, options.rows.split(",")):
            measure(executor, Heads.parse(options.heads), rows, options.processes)
    finally:
        executor.close()


def measure(executor: EmulatedExecutor, heads: Heads, rows: int, processes: int) -> None:
    rng = np.random.default_rng(rows)
    call = CallOptions(fp8=True)
    captured = executor.capture(
        generate.operands(rng, heads, rows, slots=rows + 1), call, (), 600.0
    )

    workers = executor.workers

    def run(count: int) -> tuple[float, float]:
        """Wall and CPU seconds of one call."""
        executor.workers = workers if count > 1 else None
        operands = generate.operands(rng, heads, rows, slots=rows + 1)
        begin, used = time.perf_counter(), cpu_seconds()
        executor.execute(captured, operands, call, time.monotonic() + 600)
        return time.perf_counter() - begin, cpu_seconds() - used

    run(1)  # compiles, judges races
    run(processes)  # starts the processes
    times = [(*run(1), run(processes)[0]) for _ in range(ROUNDS)]
    wall, cpu, spread = (min(column) for column in zip(*times, strict=True))
    count = sum(report.wave_instructions for report in executor.reports)
    best = count / cpu
    verdict = "" if best >= GOAL else "  below the goal of 1.00"
    print(
        f"{heads} T = {rows:3}: {count:9} wave instructions, {best / 1e6:.2f} M/s of CPU{verdict}; "
        f"wall {wall:.2f} s in 1 process, {spread:.2f} s in {processes}: {wall / spread:.2f} times"
    )
    for report in executor.reports:
        if report.entangled:
            print(f"  one process: {report.entangled}")


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
