"""Evidence of the idle assertion on an NVIDIA machine, as JSON on stdout; under 90 s.

    python tests/gpu/idle_evidence.py > evidence.json

Needs Python 3.11, torch, nvidia-ml-py and this repository; neither an engine nor a
database. On one device that must be idle at the start:

1. a process that holds 10 GiB at 0 % utilisation is refused within 10 s, named;
2. 200 assertions beside a monitoring loop (NVML and nvidia-smi) refuse nothing;
3. a process that starts in the middle of a timed run voids it: whether it goes before
   the end (seen by the looks during the run) or stays (by the assertion after it).

Exit status 0 when all three hold.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "service"))

try:
    from gdn_service.settings import load_settings
except ImportError:  # no pydantic here: its defaults in a plain module of the same name
    stand_in = ModuleType("gdn_service.settings")
    names = ("PATH", "LD_LIBRARY_PATH", "LANG")
    vars(stand_in)["Settings"] = SimpleNamespace
    vars(stand_in)["base_environment"] = lambda: {
        n: os.environ[n] for n in names if n in os.environ
    }
    sys.modules["gdn_service.settings"] = stand_in

    def load_settings(**overrides: Any) -> Any:
        defaults = {"idle_samples": 3, "idle_interval_s": 0.3, "idle_vram_fraction": 0.03}
        defaults["idle_vram_margin_bytes"] = 256 << 20
        return SimpleNamespace(**defaults | overrides)


from gdn_service.errors import DeviceUnavailable  # noqa: E402
from gdn_service.runner import nvml_query  # noqa: E402
from gdn_service.runner.nvml import NvmlProbe, query  # noqa: E402
from gdn_service.runner.probe import DeviceFacts, Use  # noqa: E402
from gdn_service.runner.watch import Watch  # noqa: E402

GIB = 1 << 30
ASSERTIONS = 200
BUDGET_S = 40.0  # of the assertions, which are cut with a count after it

HOLDER = """
import sys, time, torch
block = torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()
"""
RUN = """
import select, sys, torch
from torch.cuda import Event
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    begin, done = Event(enable_timing=True), Event(enable_timing=True)
    begin.record()
    for _ in range(100):
        a @ a
    done.record()
    done.synchronize()
"""
MONITOR = """
import time, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print("ready", flush=True)
while True:
    pynvml.nvmlDeviceGetUtilizationRates(handle)
    pynvml.nvmlDeviceGetMemoryInfo(handle)
    pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    time.sleep(0.05)
"""
SMI = "while :; do nvidia-smi >/dev/null 2>&1 || sleep 1; sleep 0.2; done"


def main() -> int:
    started = time.monotonic()
    settings = load_settings(idle_interval_s=0.02)
    probe = NvmlProbe(settings)
    device = probe.devices()[0]
    at_start = await_idle(probe, device)
    evidence: dict[str, Any] = {
        "device": device.name,
        "driver": driver(),
        "python": platform.python_version(),
        "idle_at_start": at_start,
        "settings": {
            "samples": settings.idle_samples,
            "interval_s": settings.idle_interval_s,
            "vram_fraction": settings.idle_vram_fraction,
        },
    }
    if at_start["why"] == "":
        evidence["holder"] = holder(NvmlProbe(load_settings()), device)
        await_idle(probe, device)
        evidence["visitor"] = visitor(probe, device)
        await_idle(probe, device)
        evidence["monitored"] = monitored(probe, device)
    evidence["holds"] = all(
        evidence.get(part, {}).get("holds") for part in ("holder", "visitor", "monitored")
    )
    evidence["seconds"] = round(time.monotonic() - started, 1)
    print(json.dumps(evidence, indent=1))
    return 0 if evidence["holds"] else 1


def holder(probe: NvmlProbe, device: DeviceFacts) -> dict[str, Any]:
    """10 GiB at rest: refused, with the settings of the service."""
    with child(HOLDER) as process:
        time.sleep(1)  # so that utilisation is that of rest
        utilisation = percent(device)
        begin = time.monotonic()
        report = probe.idle(device, None)
        seconds = time.monotonic() - begin
    return {
        "pid": process.pid,
        "utilisation_percent": utilisation,
        "why": report.why,
        "used_bytes": report.used_bytes,
        "dirty": report.dirty,
        "seconds": round(seconds, 3),
        "holds": not report.idle and seconds < 10 and (report.used_bytes or 0) >= 10 * GIB,
    }


def visitor(probe: NvmlProbe, device: DeviceFacts) -> dict[str, Any]:
    """A timed run alone; one with a visitor that comes and goes; one whose visitor stays.

    The first two are judged by the looks during the run, the third by the assertion
    after it. Where NVML does not show this namespace's pids the looks can tell nothing.
    """
    visible = visible_pids()
    await_idle(probe, device)
    with watched_run(probe, device) as alone:
        time.sleep(2)
    with watched_run(probe, device) as met, child(HOLDER) as guest:
        time.sleep(1.5)
    between = await_idle(probe, device)
    with watched_run(probe, device), ExitStack() as stack:
        stack.enter_context(child(HOLDER))
        stay = stack.pop_all()
    with stay:
        after = probe.idle(device, None)
    return {
        "pids_are_visible": visible,
        "alone": alone.visitor,
        "came_and_went": met.visitor,
        "its_pid": guest.pid,
        "idle_between": between["why"] == "",
        "stayed": after.why,
        "holds": alone.visitor == ""
        and (met.visitor != "" or not visible)
        and between["why"] == ""
        and not after.idle,
    }


@contextmanager
def watched_run(probe: NvmlProbe, device: DeviceFacts) -> Iterator[Watch]:
    """A process that times a kernel again and again until the block ends, and its watch."""
    with child(RUN) as run, Watch(lambda: uses(probe, device), 0.3) as watch:
        watch.begin(run.pid)
        yield watch
        run.communicate("", timeout=30)


def uses(probe: NvmlProbe, device: DeviceFacts) -> tuple[Use, ...]:
    return tuple(probe.uses(device))


def monitored(probe: NvmlProbe, device: DeviceFacts) -> dict[str, Any]:
    """Assertions, each a process of its own as in the service, beside two monitors."""
    begin = time.monotonic()

    def assertion(_number: int) -> str | None:
        if time.monotonic() - begin > BUDGET_S:
            return None
        return probe.idle(device, None).why

    with child(MONITOR), subprocess.Popen(["sh", "-c", SMI]) as shell:
        try:
            with ThreadPoolExecutor(4) as pool:
                answers = [a for a in pool.map(assertion, range(ASSERTIONS)) if a is not None]
        finally:
            shell.kill()
    refused = [why for why in answers if why]
    return {
        "assertions": len(answers),
        "false_refusals": len(refused),
        "refused": refused[:5],
        "seconds": round(time.monotonic() - begin, 1),
        "holds": len(answers) == ASSERTIONS and not refused,
    }


def await_idle(probe: NvmlProbe, device: DeviceFacts) -> dict[str, Any]:
    """Until the driver has freed what the last part held, at most 5 s."""
    deadline = time.monotonic() + 5
    while True:
        report = probe.idle(device, None)
        if report.idle or time.monotonic() > deadline:
            return {"why": report.why, "used_bytes": report.used_bytes}
        time.sleep(0.2)


@contextmanager
def child(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that has said "ready"; ended at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != "ready":
                raise DeviceUnavailable("a process of the evidence could not use the device")
            yield process
        finally:
            process.kill()


def percent(device: DeviceFacts) -> int:
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(device.uuid)
        return int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    finally:
        pynvml.nvmlShutdown()


def driver() -> str:
    import pynvml

    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def visible_pids() -> bool:
    """Whether NVML names processes by pids of this namespace: not so in a container."""
    with child(HOLDER) as process:
        device = query({"do": "list"})["devices"][0]["uuid"]
        request = {"do": "watch", "uuid": device, "samples": 1, "interval_s": 0}
        (sample,) = nvml_query.answer(request)["samples"]
        return process.pid in [item["pid"] for item in sample["processes"]]


if __name__ == "__main__":
    sys.exit(main())
