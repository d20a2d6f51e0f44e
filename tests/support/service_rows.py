"""Rows for tests of the store."""

from __future__ import annotations

from typing import Any

from gdn_judge.document import (
    Case,
    Check,
    DeviceKind,
    Document,
    Kernel,
    Measurement,
    MeasurementKind,
    Outcome,
    Suite,
    Verdict,
)
from gdn_service.clock import now
from gdn_service.ids import new_id
from gdn_service.jobs.states import JobState, RunState
from gdn_service.store.models import Job, Run
from gdn_service.store.store import Store
from gdn_service.targets import new_target

SHA = "0123456789abcdef0123456789abcdef01234567"
DEVICE = "bench/interpreter/0"


def add_target(store: Store, name: str = "demo") -> None:
    with store.write() as tx:
        tx.targets.put(new_target(name=name, repository="/nowhere", import_path="m:f"))


def add_device(store: Store, host: str = "bench", index: int = 0) -> None:
    """An idle interpreter; `DEVICE` unless told otherwise."""
    with store.write() as tx:
        tx.devices.seen(
            f"{host}/interpreter/{index}",
            host=host,
            kind="interpreter",
            index=index,
            name="interpreter",
            uuid=None,
            measures=[],
            present=True,
            idle=True,
            why_not_idle="",
            seen_at=now(),
        )


def add_worker(store: Store, host: str = "bench", *, ttl_s: float = 600) -> None:
    """A living worker, or with a negative `ttl_s` a dead one."""
    with store.write() as tx:
        tx.leases.acquire(f"worker:{host}", host, host=host, ttl_s=ttl_s)


def add_job(store: Store, *, suites: tuple[str, ...] = ("correctness",), **values: Any) -> Job:
    defaults: dict[str, Any] = {
        "id": new_id("j"),
        "target": "demo",
        "commit_sha": SHA,
        "subject": "a subject",
        "worktree": False,
        "device_kind": "interpreter",
        "suites": list(suites),
        "quick": False,
        "judge_version": "1",
        "fingerprint": "f" * 64,
        "state": JobState.QUEUED,
        "created_at": now(),
    }
    job = Job(**defaults | values)
    runs = [
        Run(id=new_id("r"), job_id=job.id, suite=suite, ordinal=n, state=RunState.QUEUED)
        for n, suite in enumerate(suites)
    ]
    with store.write() as tx:
        tx.jobs.add(job, runs)
    return job


def document(**values: Any) -> Document:
    """A passed correctness document with one measured case."""
    measurement = Measurement(
        name="fused",
        kind=MeasurementKind.GPU_TIME,
        samples=[9.5, 10.0, 10.5],
        median=10.0,
        contract_bytes=1_081_378,
    )
    case = Case(
        id="T8",
        params={"T": 8, "KH": 4, "VH": 8, "fp8": True},
        outcome=Outcome.PASSED,
        checks=[Check(name="state_rel_l2", passed=True, value=1.25e-5, bound=4e-5)],
        measurements=[measurement],
        ratios={"chain_over_fused": 2.5},
        kernels=["fused"],
    )
    defaults: dict[str, Any] = {
        "suite": Suite.CORRECTNESS,
        "device_kind": DeviceKind.INTERPRETER,
        "verdict": Verdict.PASSED,
        "reason": "",
        "planned": ["T8"],
        "cases": [case],
        "judge_version": "1",
        "target": "demo",
        "import_path": "m:f",
        "commit": SHA,
        "started_at": "2026-01-31T12:00:00Z",
        "duration_s": 1.5,
        "kernel_digest": "cd" * 32,
        "kernels": [Kernel(name="fused", digest="ab" * 32, arch="sm90", resources={"regs": 64})],
        "environment": {"driver": "1.2"},
    }
    return Document(**defaults | values)
