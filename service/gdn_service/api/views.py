"""Rows of the store as bodies of answers."""

from __future__ import annotations

from gdn_judge.document import DeviceKind, Suite
from gdn_judge.wire.devices import DEVICES
from gdn_judge.wire.suites import SUITES
from gdn_service.api import schemas
from gdn_service.clock import iso
from gdn_service.jobs.placement import Fleet, why_no_jobs, why_waiting
from gdn_service.jobs.states import JobState
from gdn_service.settings import Settings
from gdn_service.store.models import Device, HostFailure, IdleReading, Job, Run, Target
from gdn_service.store.store import Transaction

PREFIX = "/api/v1"


def vocabulary() -> schemas.Vocabulary:
    """Suites and device kinds as the tables have them."""
    return schemas.Vocabulary(
        suites=[
            schemas.SuiteOut(
                name=row.name,
                title=row.title,
                default=row.default,
                compares=row.compares,
                arms=list(row.arms),
            )
            for row in SUITES.values()
        ],
        device_kinds=[
            schemas.KindOut(
                name=row.kind,
                vendor=row.vendor,
                hardware=not row.on_cpu,
                event_timers=row.event_timers,
                peak_bytes_per_s=row.peak or None,
            )
            for row in DEVICES.values()
        ],
    )


def target_out(target: Target) -> schemas.TargetOut:
    kind = target.default_device_kind
    return schemas.TargetOut(
        name=target.name,
        import_path=target.import_path,
        chain_import_path=target.chain_import_path,
        default_device_kind=DeviceKind(kind) if kind else None,
        suites=[Suite(name) for name in target.suites],
    )


def device_out(device: Device, tx: Transaction, fleet: Fleet) -> schemas.DeviceOut:
    """What is kept of the device is as old as its worker's last word."""
    live = device.host in fleet.alive
    gone = f"worker {device.host} is not alive; last seen {iso(device.seen_at)}"
    return schemas.DeviceOut(
        id=device.id,
        kind=DeviceKind(device.kind),
        name=device.name,
        index=device.index,
        host=device.host,
        live=live,
        idle=live and device.idle and device.quarantined is None,
        why_not_idle=device.why_not_idle if live else gone,
        seen_at=device.seen_at,
        quarantined=device.quarantined is not None,
        quarantine_reason=device.quarantined,
        why_no_jobs=why_no_jobs(tx, device.host, device.kind),
        measures=device.measures,
    )


def job_out(
    job: Job,
    tx: Transaction,
    settings: Settings,
    *,
    fleet: Fleet | None = None,
    from_store: bool = False,
    joined: bool = False,
) -> schemas.JobOut:
    return schemas.JobOut.model_validate(
        {
            **{name: getattr(job, name) for name in _JOB_FIELDS},
            "commit": job.commit_sha,
            "state": JobState(job.state),
            "from_store": from_store,
            "joined": joined,
            "queue_position": tx.jobs.queue_position(job),
            "why_waiting": why_waiting(fleet or Fleet(tx), job),
            "client_wait_s": settings.client_wait_s,
            "runs": [run_fields(run) for run in job.runs],
            "links": {
                "self": f"{PREFIX}/jobs/{job.id}",
                "log": f"{PREFIX}/jobs/{job.id}/log",
                "results": f"{PREFIX}/commits/{job.commit_sha}/results?target={job.target}",
            },
        }
    )


_JOB_FIELDS = (
    "id",
    "target",
    "subject",
    "worktree",
    "device_kind",
    "suites",
    "batch_sizes",
    "heads",
    "quick",
    "failure_class",
    "reason",
    "cancel_requested",
    "attempt",
    "created_at",
    "started_at",
    "finished_at",
    "duration_s",
)


def run_fields(run: Run) -> dict[str, object]:
    return {
        "id": run.id,
        "suite": run.suite,
        "verdict": run.verdict,
        "state": run.state,
        "failure_class": run.failure_class,
        "reason": run.reason,
        "started_at": run.started_at,
        "duration_s": run.duration_s,
        "device": run.device_id,
        "partial": run.partial,
    }


def run_detail(run: Run, tx: Transaction) -> schemas.RunDetail:
    environment_id = run.environment_id
    return schemas.RunDetail.model_validate(
        run_fields(run)
        | {
            "job_id": run.job_id,
            "target": run.job.target,
            "commit": run.job.commit_sha,
            "device_kind": run.job.device_kind,
            "judge_version": run.judge_version,
            "kernel_digest": run.kernel_digest,
            "environment_id": environment_id,
            "environment": tx.results.environment(environment_id) if environment_id else None,
            "finished_at": run.finished_at,
            "cases": tx.results.counts(run.id),
            "document": document_link(run),
            "accepted": run.accepted,
            "host_failures": [_host_failure(found) for found in tx.jobs.failures_of(run.id)],
            "idle": [_reading(reading) for reading in tx.readings.of_run(run.id)],
        }
    )


def _reading(reading: IdleReading) -> dict[str, object]:
    fields = ("attempt", "arm", "moment", "at", "why", "used_bytes", "canary", "others")
    found = {name: getattr(reading, name) for name in fields}
    return found | {"device": reading.device_id, "idle": reading.why == ""}


def _host_failure(failure: HostFailure) -> dict[str, object]:
    fields = ("attempt", "host", "reason", "at")
    return {name: getattr(failure, name) for name in fields} | {"device": failure.device_id}


def document_link(run: Run) -> str | None:
    """Only a run whose document was found valid has an environment."""
    return f"{PREFIX}/runs/{run.id}/document" if run.environment_id else None


def result_out(run: Run) -> schemas.ResultOut:
    return schemas.ResultOut.model_validate(
        {
            "run_id": run.id,
            "suite": run.suite,
            "device_kind": run.job.device_kind,
            "verdict": run.verdict,
            "reason": run.reason,
            "judge_version": run.judge_version,
            "kernel_digest": run.kernel_digest,
            "environment_id": run.environment_id,
            "finished_at": run.finished_at,
            "document": document_link(run),
            "batch_sizes": run.job.batch_sizes,
            "heads": run.job.heads,
            "quick": run.job.quick,
        }
    )
