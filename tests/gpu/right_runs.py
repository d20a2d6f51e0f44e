"""Full correctness runs of a right op with fresh secrets: whom does the judge accuse?

    python tests/gpu/right_runs.py --runs 24 --at-once 6 --device sm90 --out summary.json

Each run is `gdn-judge run --suite correctness` of this checkout's op with a secret of its
own. Prints a line a run and, over all cases, the largest error as a part of its bound and
the relative L2 of out beside the 3e-4 that was once the bound.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_PATH = f"{ROOT / 'service'}:{os.environ.get('PYTHONPATH', '')}"


def run(number: int, device: str, folder: Path) -> dict[str, Any]:
    out = folder / f"run-{number}.json"
    argv = [sys.executable, "-m", "gdn_judge", "run", "--target", str(ROOT)]
    argv += ["--python-path", "kernels", "--import-path", "gdn_kernels:fused_gdn_decode_qkvz"]
    argv += ["--suite", "correctness", "--device", device, "--out", str(out)]
    done = subprocess.run(
        argv, env={**os.environ, "PYTHONPATH": _PATH}, capture_output=True, text=True, check=False
    )
    if not out.exists():
        raise RuntimeError(f"no document, exit {done.returncode}: {done.stderr[-2000:]}")
    document = json.loads(out.read_text())
    found = {"run": number, **_told(document)}
    print(
        f"{number:3} {found['verdict']:13} {found['passed']}/{found['cases']} cases, "
        f"state/bound {found['state_of_bound']:.3f}, least exact {found['least_exact']:.4f}, "
        f"out rel L2 {found['out_rel_l2']:.2e}, {found['over_3e-4']} over 3e-4; {found['reason']}",
        flush=True,
    )
    return found


def _told(document: dict[str, Any]) -> dict[str, Any]:
    values = {name: list(_values(document, name)) for name in _NAMES}
    return {
        "verdict": document["verdict"],
        "reason": document["reason"],
        "cases": len(document["cases"]),
        "passed": sum(case["outcome"] == "passed" for case in document["cases"]),
        "not_passed": [_short(case) for case in document["cases"] if case["outcome"] != "passed"],
        "state_of_bound": max(values["ssm_state_worst_of_bound"], default=0.0),
        "least_exact": min(values["out_exact"], default=1.0),
        "out_rel_l2": max(values["out_rel_l2"], default=0.0),
        "over_3e-4": sum(value > 3e-4 for value in values["out_rel_l2"]),
        "kernels": sorted({kernel["name"] for kernel in document["kernels"]}),
        "environment": document["environment"],
    }


_NAMES = ("ssm_state_worst_of_bound", "out_exact", "out_rel_l2")


def _values(document: dict[str, Any], name: str) -> Iterator[float]:
    for case in document["cases"]:
        for check in case["checks"]:
            if check["name"] == name and isinstance(check["value"], int | float):
                yield check["value"]


def _short(case: dict[str, Any]) -> dict[str, Any]:
    failed = [check for check in case["checks"] if not check["passed"]]
    return {
        "id": case["id"],
        "outcome": case["outcome"],
        "reason": case["reason"],
        "checks": failed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--device", default="sm90")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool:
        numbers = range(1, options.runs + 1)
        found = list(pool.map(lambda n: run(n, options.device, Path(folder)), numbers))
    accused = sum(each["passed"] != each["cases"] for each in found)
    ran = sorted({name for each in found for name in each["kernels"]})
    print(f"kernels: {', '.join(ran)}; Triton {found[0]['environment'].get('candidate.triton')}")
    print(f"{len(found)} runs, {sum(each['cases'] for each in found)} cases, {accused} accused")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if accused else 0


if __name__ == "__main__":
    raise SystemExit(main())
