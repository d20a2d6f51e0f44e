"""A judge for tests of the service: real process, real document, no kernel.

What it does comes from ``behaviour.json`` in the tree under test:
{"<suite>" or "all": "pass" | "fail" | "hang" | "stubborn" | "crash" | "silent" | "nan" |
"flood" | "torn" | "long" | "forged" | "other" | "partial" | "daemon" | "host" | "last look" |
"cannot" | "slow" | "paced",
 "canary": [us before, us after]}.
"""

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gdn_judge import JUDGE_VERSION
from gdn_judge.document import (
    Baseline,
    Case,
    Check,
    Document,
    FailureClass,
    Kernel,
    Measurement,
    MeasurementKind,
    Outcome,
    Verdict,
)

CASES = ["T1", "T8", "T64"]
pause_s = 0.0  # after each case


def main() -> int:
    arguments = _parse()
    path = Path(arguments.target, "behaviour.json")
    table = json.loads(path.read_text()) if path.exists() else {}
    behaviour = table.get(arguments.suite, table.get("all", "pass"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    emit(event="planned", total=len(CASES))
    action = globals().get(f"do_{behaviour}")
    if action is not None:
        code = action(arguments)
        if code is not None:
            return int(code)
    verdict = {"fail": Verdict.FAILED, "host": Verdict.ERROR}.get(behaviour, Verdict.PASSED)
    emit(event="arm", arm="candidate", moment="before")
    document = build(arguments, verdict)
    emit(event="arm", arm="candidate", moment="after")
    document = dataclasses.replace(document, ceilings=canary(table.get("canary", [])))
    if behaviour == "last look":
        verdict, lost = Verdict.ERROR, {"failure_class": FailureClass.HOST}
        document = dataclasses.replace(
            document, verdict=verdict, reason="the device is gone", **lost
        )
    if behaviour == "other":
        document = dataclasses.replace(document, commit="f" * 40)
    if behaviour == "partial":
        document = dataclasses.replace(document, verdict=Verdict.FAILED, partial=True)
    text = document.to_json()
    if behaviour == "nan":
        text = text.replace('"duration_s": 0.5', '"duration_s": NaN')
    deliver(arguments, text.encode())
    emit(event="finished", verdict=str(verdict), reason=document.reason)
    return 0 if verdict is Verdict.PASSED else 1


def deliver(arguments: argparse.Namespace, data: bytes) -> None:
    if arguments.out_fd is None:
        scratch = Path(arguments.out + ".tmp")
        scratch.write_bytes(data)
        scratch.rename(arguments.out)
        return
    with os.fdopen(arguments.out_fd, "wb") as stream:
        stream.write(b"%d\n" % len(data) + data)


def do_torn(arguments: argparse.Namespace) -> int:
    """Ends in the middle of its document."""
    os.write(arguments.out_fd, b"1000\n{")
    return 0


def do_long(arguments: argparse.Namespace) -> int:
    """Sends more than any document may have."""
    with os.fdopen(arguments.out_fd, "wb") as stream:
        stream.write(b"3000000\n" + b"x" * 3_000_000)
    return 0


def do_forged(arguments: argparse.Namespace) -> int:
    """Leaves a document where one used to be looked for, and sends none."""
    text = build(arguments, Verdict.PASSED).to_json()
    Path(arguments.work_dir, "verdict.json").write_text(text)
    return 0


def do_hang(_arguments: argparse.Namespace) -> None:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    emit(event="log", text="hanging")
    while True:
        time.sleep(1)


def do_stubborn(arguments: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    do_hang(arguments)


def do_slow(_arguments: argparse.Namespace) -> None:
    emit(event="log", text="slow")
    time.sleep(1.5)


def do_paced(_arguments: argparse.Namespace) -> None:
    global pause_s
    pause_s = 1.0


def do_crash(_arguments: argparse.Namespace) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def do_silent(_arguments: argparse.Namespace) -> int:
    return 0


def do_cannot(_arguments: argparse.Namespace) -> int:
    print("no such device here", file=sys.stderr)
    return 5


def do_flood(_arguments: argparse.Namespace) -> None:
    for _ in range(3000):
        print("x" * 1000)


def do_daemon(arguments: argparse.Namespace) -> None:
    """A grandchild in a session of its own, that keeps the pipes open."""
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
    subprocess.run([sys.executable, "-c", code], check=True)


def build(arguments: argparse.Namespace, verdict: Verdict) -> Document:
    timed = arguments.suite == "roofline"
    outcomes = [Outcome.PASSED] * len(CASES)
    if verdict is Verdict.FAILED:
        outcomes[1] = Outcome.FAILED
    if verdict is Verdict.ERROR:
        outcomes = [Outcome.NOT_RUN] * len(CASES)
    cases = []
    for number, (name, outcome) in enumerate(zip(CASES, outcomes, strict=True)):
        emit(
            event="case",
            id=name,
            outcome=str(outcome),
            done=number + 1,
            total=len(CASES),
            seconds=0.1,
            summary=f"{name} {outcome}",
        )
        time.sleep(pause_s)
        cases.append(_case(name, outcome, timed=timed))
    return Document(
        suite=arguments.suite,
        device_kind=arguments.device,
        verdict=verdict,
        reason={"failed": "T8: out differs", "error": "the driver is gone"}.get(verdict, ""),
        failure_class=FailureClass.HOST if verdict is Verdict.ERROR else None,
        planned=CASES,
        cases=cases,
        judge_version=JUDGE_VERSION,
        target=arguments.target_name,
        import_path=arguments.import_path,
        commit=arguments.commit,
        started_at="2026-01-31T12:00:00Z",
        duration_s=0.5,
        kernel_digest="ab" * 32,
        kernels=[Kernel(name="fused", digest="ab" * 32, arch="none")],
        baseline=_baseline(arguments),
        environment={"python": "3.11", "pinned.cpus": str(sorted(os.sched_getaffinity(0)))},
        log_tail="said \x00 and \ud800",
    )


def _baseline(arguments: argparse.Namespace) -> Baseline | None:
    if arguments.baseline is None:
        return None
    before = Document.from_json(arguments.baseline.read_text())
    return Baseline(
        commit=before.commit,
        started_at=before.started_at,
        judge_version=before.judge_version,
        kernel_digest=before.kernel_digest,
        commits_behind=arguments.commits_behind,
    )


def _case(name: str, outcome: Outcome, *, timed: bool) -> Case:
    measurement = Measurement(
        name="fused",
        kind=MeasurementKind.WALL_TIME,
        samples=[10.0, 11.0, 12.0],
        median=11.0,
        p10=10.0,
        p90=12.0,
        contract_bytes=1_081_378,
    )
    return Case(
        id=name,
        params={"T": int(name[1:]), "KH": 4, "VH": 8, "fp8": True},
        outcome=outcome,
        checks=[
            Check(name="out_rel_l2", passed=outcome is Outcome.PASSED, value=1.5e-5, bound=3e-4)
        ],
        measurements=[measurement] if timed else [],
        kernels=["fused"],
        seconds=0.1,
    )


def canary(medians: list[float]) -> list[Measurement]:
    """The copy's times before and after the candidate, or none."""
    return [
        Measurement(
            name=f"canary_copy {moment}",
            kind=MeasurementKind.GPU_TIME,
            samples=[median] * 3,
            median=median,
        )
        for moment, median in zip(("before", "after"), medians, strict=False)
    ]


def emit(**event: object) -> None:
    print(json.dumps(event), flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["run"])
    for name in ("target", "import-path", "chain", "target-name", "commit", "suite", "device"):
        parser.add_argument(f"--{name}")
    for name in ("batch-sizes", "heads", "candidate-user", "work-dir", "out", "progress",
                 "candidate-uids"):  # fmt: skip
        parser.add_argument(f"--{name}")
    parser.add_argument("--python-path", action="append")
    parser.add_argument("--device-index", type=int)
    parser.add_argument("--out-fd", type=int)
    parser.add_argument("--deadline", type=float)
    parser.add_argument("--call-timeout", type=float)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--commits-behind", type=int)
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
