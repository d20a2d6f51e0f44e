"""Evidence of the idle assertion on an NVIDIA machine: JSON on stdout, a table on stderr.

    python tests/gpu/idle_evidence.py > evidence.json

Takes under 120 s. Needs an idle GPU that is served (H200, H100), root or an account that
sees other users' processes, git, and this Python with torch, triton and the extra
`service` in its own site-packages: NVML is asked by `python -I`, which reads no
PYTHONPATH. Neither a database server nor an engine nor a network.

Everything is asked of the service: its inventory, its idle decision with its default
settings, its worker and queue, its judge on this checkout's op.

- holder      a process with 10 GiB at 0 % utilisation is refused within 10 s, named
- freed       once it has died the device is idle again within 5 s
- monitored   200 assertions beside monitors (NVML in a loop, nvidia-smi) refuse nothing
- canary      two fixed kernels keep their usual times, and leave them when someone computes
- intruder    a process that starts in the middle of a roofline run voids it, is named,
              and the run is repeated
- devices     with several GPUs: two jobs at once, a device each, the other's load seen

Exit status: 0 all expectations hold, 1 one does not, 77 this machine cannot run it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "service"))
CANNOT_RUN = 77

try:
    import structlog

    from gdn_judge.document import DeviceKind
    from gdn_judge.yardsticks import look
    from gdn_service import auth, targets
    from gdn_service.errors import DeviceBusy, DeviceError
    from gdn_service.jobs.canary import CanaryRule, Earlier, judge
    from gdn_service.jobs.queue import JobQueue, migrate_queue
    from gdn_service.jobs.requests import JobRequests
    from gdn_service.jobs.rows import Submission
    from gdn_service.jobs.states import JobState, RunState
    from gdn_service.jobs.worker import Worker
    from gdn_service.runner.checkouts import Checkouts
    from gdn_service.runner.inventory import Inventory, LocalDevice
    from gdn_service.runner.nvml import NvmlProbe
    from gdn_service.settings import Settings, load_settings
    from gdn_service.store.models import Job, Run, Token
    from gdn_service.store.store import Store
except ModuleNotFoundError as missing:
    print(f"cannot run here: {missing}; pip install '.[service]'", file=sys.stderr)
    sys.exit(CANNOT_RUN)

Evidence = dict[str, Any]

GIB = 1 << 30
HELD = 10 * GIB
REFUSED_WITHIN_S, FREE_WITHIN_S = 10.0, 5.0
ASSERTIONS = 200
CANARY = ("canary_copy", "canary_compute")
HOLDS = 2  # times that a holder comes and goes
ASSERTING_S = 35.0  # of the assertions; those not made by then are missing, which fails
CANARIES = 4  # that make the baseline here; the service waits for more
TOTAL_S = 115.0  # after which a job that is not done is not waited for
TARGET = "evidence"
VOID = ("someone else used the device during the run", "the device did not stay idle")

JUDGE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from gdn_judge.cli import main; sys.exit(main())"
)
SPINNER = """
import select, sys, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
a @ a
torch.cuda.synchronize()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""
HOLDER = """
import sys, torch
block = torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()
"""
MONITOR = """
import sys, time, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
print("ready", flush=True)
while True:
    pynvml.nvmlDeviceGetUtilizationRates(handle)
    pynvml.nvmlDeviceGetMemoryInfo(handle)
    pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    time.sleep(0.05)
"""
SMI = "while nvidia-smi >/dev/null 2>&1; do sleep 0.2; done"


STARTED = time.monotonic()


def left() -> float:
    """Seconds of the whole time that are left, at least 1."""
    return max(1.0, TOTAL_S - (time.monotonic() - STARTED))


def main() -> int:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    why = cannot_run()
    if why:
        print(f"cannot run here: {why}", file=sys.stderr)
        return CANNOT_RUN
    with bench() as made:
        evidence = take(made)
    evidence["seconds"] = round(time.monotonic() - STARTED, 1)
    json.dump(evidence, sys.stdout, indent=1)
    print()
    print(table(evidence), file=sys.stderr)
    return 0 if evidence["holds"] else 1


def cannot_run() -> str:
    """Why this machine cannot, or ""."""
    try:
        devices = NvmlProbe(load_settings()).devices()
    except DeviceError as error:
        return str(error)
    if not devices:
        return "NVML shows no device of a kind that is served (sm90)"
    return "" if shutil.which("git") else "git is not installed"


class Bench:
    """The service's parts on this machine, with a store of their own."""

    def __init__(self, folder: Path) -> None:
        self.settings = settings(folder)
        self.store = Store(self.settings.store_url)
        self.store.migrate()
        self.inventory = Inventory(self.settings, self.store, [NvmlProbe(self.settings)])
        self.devices = self.inventory.refresh()
        self.sha = make_repository(folder / "repository")
        self.token = self._prepare(folder / "repository")

    def _prepare(self, repository: Path) -> Token:
        """The token of a submitter; the target is this checkout's op."""
        text = auth.create_token(self.store, TARGET, auth.Scope.SUBMIT)
        with self.store.write() as tx:
            tx.targets.put(
                targets.new_target(
                    name=TARGET,
                    repository=str(repository),
                    import_path="gdn_kernels:fused_gdn_decode_qkvz",
                    python_path=["kernels"],
                    chain_import_path="gdn_kernels.chain:unfused_gdn_decode_qkvz",
                )
            )
        return auth.authenticate(self.store, text)

    @contextmanager
    def worker(self) -> Iterator[Callable[..., Job]]:
        """A worker that serves the devices; gives what submits a job to it."""
        migrate_queue(self.settings)
        queue = JobQueue(self.settings)
        worker = Worker(self.settings, self.store, queue)
        checkouts = Checkouts(self.settings, lambda _bundle: None)
        requests = JobRequests(self.settings, self.store, checkouts)

        def submit(**wanted: Any) -> Job:
            asked = Submission(target=TARGET, commit=self.sha, quick=True, **wanted)
            return requests.submit(asked, self.token, None).job

        worker.start()
        try:
            yield submit
        finally:
            worker.stop(patience_s=10)
            queue.close()

    def job(self, job_id: str) -> Job:
        with self.store.read() as tx:
            job = tx.jobs.get(job_id)
        assert job is not None, job_id
        return job

    def log(self, job_id: str) -> list[dict[str, Any]]:
        with self.store.read() as tx:
            return [{"kind": event.kind} | event.data for event in tx.log.after(job_id, 0, 10_000)]

    def readings(self, run_id: str) -> list[Evidence]:
        """How idle the device was at each border of each attempt, as the service keeps it."""
        names = ("attempt", "arm", "moment", "why", "used_bytes", "canary", "others")
        with self.store.read() as tx:
            rows = tx.readings.of_run(run_id)
        return [{name: getattr(row, name) for name in names} for row in rows]

    def environment(self, run: Run) -> Evidence | None:
        if run.environment_id is None:
            return None
        with self.store.read() as tx:
            return tx.results.environment(run.environment_id)


@contextmanager
def bench() -> Iterator[Bench]:
    """In a folder through which the candidate's account may pass."""
    folder = Path(tempfile.mkdtemp(prefix="gdn-evidence-"))
    folder.chmod(0o711)
    try:
        made = Bench(folder)
        yield made
        made.store.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settings(folder: Path) -> Settings:
    """The service's defaults but for the waits, which are cut to fit into the time."""
    return load_settings(
        data_dir=folder,
        database_url="",
        worker_name="evidence",
        device_kinds=("sm90",),
        judge_command=(sys.executable, "-I", "-c", JUDGE, str(ROOT / "service")),
        busy_wait_s=20,
        host_retry_s=2,
    )


def make_repository(path: Path) -> str:
    """This checkout's kernels as the one commit of a new repository; its SHA."""
    shutil.copytree(
        ROOT / "kernels" / "gdn_kernels",
        path / "kernels" / "gdn_kernels",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    identity = ("-c", "user.name=evidence", "-c", "user.email=evidence@localhost")
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "kernels"]):
        subprocess.run(["git", *identity, *words], cwd=path, check=True)
    head = ["git", "rev-parse", "HEAD"]
    return subprocess.run(head, cwd=path, check=True, capture_output=True, text=True).stdout.strip()


def take(made: Bench) -> Evidence:
    """All parts, or only why the device is not idle at the start."""
    device = made.devices[0]
    at_start = await_idle(made, device)
    parts: dict[str, Evidence] = {"idle_at_start": at_start}
    if at_start["holds"]:
        parts |= holder_and_freed(made)
        parts["monitored"] = monitored(made, device)
        parts["canary"] = canary(made, device)
        with made.worker() as submit:
            parts["intruder"] = intruder(made, submit)
            parts["devices"] = several_devices(made, submit)
    return {
        "machine": machine(made),
        "settings": {
            name: getattr(made.settings, name)
            for name in (
                "idle_samples",
                "idle_interval_s",
                "idle_vram_fraction",
                "idle_vram_margin_bytes",
                "idle_watch_s",
                "busy_wait_s",
                "host_tries",
                "host_retry_s",
            )
        },
        "parts": parts,
        "holds": all(part["holds"] for part in parts.values()),
    }


def machine(made: Bench) -> Evidence:
    versions = ("torch", "triton", "nvidia-ml-py")
    return {
        "devices": [f"{d.id} {d.facts.name} {d.facts.uuid}" for d in made.devices],
        "driver": nvml(lambda n: _text(n.nvmlSystemGetDriverVersion())),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: installed(name) for name in versions},
        "user": os.geteuid(),
    }


def holder_and_freed(made: Bench) -> dict[str, Evidence]:
    """10 GiB at rest on every device, several times: what a job is told, and the end of it."""
    refusals: list[Evidence] = []
    releases: list[Evidence] = []
    for _ in range(HOLDS):
        with ExitStack() as stack:
            pids = {d.id: stack.enter_context(child(HOLDER, d)).pid for d in made.devices}
            time.sleep(1.2)  # so that utilisation, a mean over up to a second, is that of rest
            refusals.append(refusal(made, pids))
        releases += [await_idle(made, device) for device in made.devices]
    return {
        "holder": {
            "expected": f"refused within {REFUSED_WITHIN_S:g} s, naming pid, command and memory",
            "samples": refusals,
            "holds": all(sample["holds"] for sample in refusals),
        },
        "freed": {
            "expected": f"idle within {FREE_WITHIN_S:g} s of the holder's death",
            "samples": releases,
            "holds": all(sample["holds"] for sample in releases),
        },
    }


def refusal(made: Bench, pids: dict[str, int]) -> Evidence:
    """What a job that wants a device is told while each is held by one of `pids`."""
    told: list[str] = []

    def give_up() -> None:
        if told:
            raise DeviceBusy(told[0])

    why, begin = "", time.monotonic()
    try:
        kind = made.devices[0].facts.kind
        with made.inventory.hold_idle(kind, TARGET, give_up, told.append):
            pass
    except DeviceBusy as error:
        why = str(error)
    seconds = time.monotonic() - begin
    held = [held_device(made, device, pids[device.id]) for device in made.devices]
    return {
        "seconds": round(seconds, 3),
        "why": why,
        "devices": held,
        "holds": seconds < REFUSED_WITHIN_S
        and all(item["holds"] and f"pid {item['pid']} (" in why for item in held),
    }


def held_device(made: Bench, device: LocalDevice, pid: int) -> Evidence:
    """The service's report on a device on which `pid` holds memory and computes nothing."""
    utilisation = load(device)["utilisation_percent"]
    report = made.inventory.idle(device)
    named = next((o for o in report.offenders if o.pid == pid), None)
    return {
        "device": device.id,
        "pid": pid,
        "utilisation_percent": utilisation,
        "used_bytes": report.used_bytes,
        "offenders": [vars(o) for o in report.offenders],
        "dirty": report.dirty,
        "holds": utilisation == 0
        and named is not None
        and "python" in named.command
        and (named.used_bytes or 0) >= HELD,
    }


def await_idle(made: Bench, device: LocalDevice) -> Evidence:
    """Ask until the answer is yes; every answer is kept."""
    begin = time.monotonic()
    looks: list[Evidence] = []
    while not looks or (looks[-1]["why"] and looks[-1]["at_s"] < FREE_WITHIN_S):
        report = made.inventory.idle(device)
        at = round(time.monotonic() - begin, 3)
        looks.append({"at_s": at, "used_bytes": report.used_bytes, "why": report.why})
        time.sleep(0.1 if report.why else 0)
    last = looks[-1]
    return {"seconds": last["at_s"], "looks": looks, "holds": last["why"] == ""}


def monitored(made: Bench, device: LocalDevice) -> Evidence:
    """Assertions as the service makes them, beside two monitors that hold no context."""
    begin = time.monotonic()

    def assertion(_number: int) -> tuple[float, str] | None:
        start = time.monotonic()
        if start - begin > ASSERTING_S:
            return None
        why = made.inventory.idle(device).why
        return round(time.monotonic() - start, 3), why

    with child(MONITOR, device, str(device.facts.uuid)) as monitor, smi() as beside:
        with ThreadPoolExecutor(min(12, 2 * (os.cpu_count() or 1))) as pool:
            answers = [a for a in pool.map(assertion, range(ASSERTIONS)) if a is not None]
        alive = monitor.poll() is None
    refused = [why for _, why in answers if why]
    took = sorted(seconds for seconds, _ in answers)
    return {
        "expected": f"{ASSERTIONS} assertions, none refused",
        "monitors": ["NVML loop (50 ms)"] * alive + ["nvidia-smi loop (200 ms)"] * beside,
        "assertions": len(answers),
        "false_refusals": len(refused),
        "refused": refused[:5],
        "assertion_seconds": {"least": took[0], "median": took[len(took) // 2], "most": took[-1]},
        "seconds": round(time.monotonic() - begin, 1),
        "holds": len(answers) == ASSERTIONS and not refused and alive,
    }


def canary(made: Bench, device: LocalDevice) -> Evidence:
    """Alone on the device its times are usual; beside someone who computes they are not."""
    begin = time.monotonic()
    rule = dataclasses.replace(CanaryRule.of(made.settings), readings=CANARIES, runs=CANARIES)
    alone = [canary_times() for _ in range(CANARIES + 1)]
    history = {
        name: [Earlier(str(number), alone[number][name]) for number in range(CANARIES)]
        for name in CANARY
    }
    usual = judge({name: alone[-1][name] for name in CANARY}, history, rule)
    with child(SPINNER, device):
        beside = canary_times()
    disturbed = judge({name: beside[name] for name in CANARY}, history, rule)
    return {
        "expected": "in its usual range alone, slower beside someone who computes",
        "alone": alone,
        "beside": beside,
        "usual": usual.words,
        "disturbed": disturbed.words,
        "seconds": round(time.monotonic() - begin, 1),
        "holds": usual.why == ""
        and disturbed.why != ""
        and {taken["uuid"] for taken in alone} == {device.facts.uuid},
    }


def canary_times() -> dict[str, Any]:
    """us by kernel, the median of one process of the judge, and the device it was on."""
    found = look("cuda:0")
    medians = {item.name.partition(" ")[0]: item.median for item in found.measurements("now")}
    return medians | {"uuid": found.facts.get("device.uuid")}


def intruder(made: Bench, submit: Callable[..., Job]) -> Evidence:
    """A roofline job; after its first case someone comes, for two looks of the watch."""
    begin = time.monotonic()
    job_id = submit(device_kind=str(DeviceKind.SM90), suites=["roofline"]).id

    def first_case() -> bool:
        return any(event.get("event") == "case" for event in made.log(job_id))

    def voided() -> bool:
        return any(str(event.get("text", "")).startswith(VOID) for event in made.log(job_id))

    await_true(lambda: first_case() or final(made, job_id), left())
    arrived, stayed, pid = time.monotonic() - begin, 0.0, 0
    if first_case() and not final(made, job_id):
        with child(HOLDER, device_of(made, job_id)) as process:
            pid = process.pid
            await_true(voided, 2.4 * made.settings.idle_watch_s)
            stayed = time.monotonic() - begin - arrived
    await_true(lambda: final(made, job_id), left())
    job, run = made.job(job_id), run_of(made, job_id)
    lines = [event["text"] for event in made.log(job_id) if event["kind"] == "log"]
    reason = next((line for line in lines if f"pid {pid} (" in line), "")
    return {
        "expected": "the run is void and names the intruder; it runs again and ends",
        "arrived_s": round(arrived, 1),
        "stayed_s": round(stayed, 1),
        "pid": pid,
        "reason": reason,
        "runs_on_the_device": sum(line.startswith("roofline on ") for line in lines),
        "host_tries": run.host_tries,
        "state": str(job.state),
        "state_reason": job.reason,
        "verdict": run.verdict,
        "readings": made.readings(run.id),
        "environment": made.environment(run),
        "log": lines,
        "seconds": round(time.monotonic() - begin, 1),
        "holds": run.host_tries == 1 and reason.startswith(VOID) and job.state == JobState.PASSED,
    }


def several_devices(made: Bench, submit: Callable[..., Job]) -> Evidence:
    """Two jobs at once, each on a device of its own, while the load of all is sampled."""
    if len(made.devices) < 2:
        return {"expected": "one job per device", "holds": True, "why": "this machine has one GPU"}
    begin = time.monotonic()
    jobs = [submit(suites=["correctness"], batch_sizes=[size], force=True).id for size in (1, 2)]
    loads: list[Evidence] = []
    together: set[str] = set()
    while not all(final(made, job_id) for job_id in jobs) and left() > 1:
        runs = [run_of(made, job_id) for job_id in jobs]
        if all(run.state == RunState.RUNNING for run in runs):
            together |= {str(run.device_id) for run in runs}
        loads.append(
            {"at_s": round(time.monotonic() - begin, 1)}
            | {device.id: load(device) for device in made.devices}
        )
        time.sleep(1)
    ended = [made.job(job_id) for job_id in jobs]
    return {
        "expected": "two jobs run at the same time, each on a device of its own",
        "jobs": [{"state": str(job.state), "device": job.runs[0].device_id} for job in ended],
        "at_the_same_time_on": sorted(together),
        "load": loads,
        "holds": len(together) == 2 and all(job.state == JobState.PASSED for job in ended),
    }


def final(made: Bench, job_id: str) -> bool:
    return JobState(made.job(job_id).state).final


def run_of(made: Bench, job_id: str) -> Run:
    (run,) = made.job(job_id).runs
    return run


def device_of(made: Bench, job_id: str) -> LocalDevice:
    wanted = run_of(made, job_id).device_id
    return next(device for device in made.devices if device.id == wanted)


def await_true(test: Callable[[], bool], seconds: float) -> None:
    """Until it is true, at most so long."""
    deadline = time.monotonic() + seconds
    while not test() and time.monotonic() < deadline:
        time.sleep(0.1)


@contextmanager
def child(script: str, device: LocalDevice, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process on one device that has said "ready"; ended at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": str(device.facts.uuid)},
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != "ready":
                raise SystemExit("a process of the evidence could not use the device")
            yield process
        finally:
            process.kill()


@contextmanager
def smi() -> Iterator[bool]:
    """nvidia-smi again and again, where there is one; whether there is."""
    if shutil.which("nvidia-smi") is None:
        yield False
        return
    with ExitStack() as stack:
        shell = stack.enter_context(subprocess.Popen(["sh", "-c", SMI]))
        stack.callback(shell.kill)
        yield True


def load(device: LocalDevice) -> Evidence:
    """Utilisation and memory of one device, found by its UUID."""

    def ask(n: Any) -> Evidence:
        handle = n.nvmlDeviceGetHandleByUUID(device.facts.uuid)
        return {
            "utilisation_percent": n.nvmlDeviceGetUtilizationRates(handle).gpu,
            "used_bytes": n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2).used,
        }

    found: Evidence = nvml(ask)
    return found


def nvml(ask: Callable[[Any], Any]) -> Any:
    import pynvml

    pynvml.nvmlInit()
    try:
        return ask(pynvml)
    finally:
        pynvml.nvmlShutdown()


def installed(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def table(evidence: Evidence) -> str:
    """One line per part: whether it holds, and the figure that says so."""
    parts = evidence["parts"]
    lines = [
        f"{'holds' if part['holds'] else 'FAILS':6} {name:14} {_figure(name, part)}"
        for name, part in parts.items()
    ]
    return "\n".join([*lines, "all hold" if evidence["holds"] else "not all hold"])


def _figure(name: str, part: Evidence) -> str:
    if name == "idle_at_start":
        return str(part["looks"][-1]["why"] or f"idle after {part['seconds']} s")
    if name == "holder":
        return f"refused in {_seconds(part['samples'])}: {part['samples'][-1]['why'][-110:]}"
    if name == "freed":
        return f"idle again in {_seconds(part['samples'])}"
    if name == "monitored":
        wrong, made = part["false_refusals"], part["assertions"]
        return f"{wrong} of {made} refused, in {part['seconds']} s beside {part['monitors']}"
    if name == "canary":
        return f"alone {part['usual']}; beside {part['disturbed']}"
    if name == "intruder":
        seen = part["reason"] or "not seen"
        return f"{seen}; tries {part['host_tries']}, then {part['state']}"
    return str(part.get("why") or f"at the same time on {part['at_the_same_time_on']}")


def _seconds(samples: Sequence[Evidence]) -> str:
    return ", ".join(f"{sample['seconds']:.2f} s" for sample in samples)


if __name__ == "__main__":
    sys.exit(main())
