"""The tables. One noun each, as everywhere else in the project.

    target ─< commit                      token ─< idempotency_key
       └────< job ─< run ─< case ─< check
                │     │       └──< measurement (raw samples kept)
                │     ├─ document (as the judge wrote it)
                │     ├─ environment, device
                │     ├─< idle_reading (of every attempt), host_failure
                │     └─< run_kernel >─ kernel
                └─< log_event             bundle      lease

What comes from a verdict document has no length limit: a long name must not lose a result.
Tables are plural because `case`, `check` and `commit` are SQL words.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes on both databases; SQLite alone would forget the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


BigId = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    type_annotation_map = {  # noqa: RUF012
        datetime: UtcDateTime(),
        dict[str, Any]: JSON(),
        list[str]: JSON(),
        list[int]: JSON(),
        list[float]: JSON(),
        list[dict[str, Any]]: JSON(),
    }


class Target(Base):
    """A repository and the import path of its op; set by the operator only."""

    __tablename__ = "targets"

    name: Mapped[str] = mapped_column(String(80), primary_key=True)
    repository: Mapped[str] = mapped_column(Text)
    import_path: Mapped[str] = mapped_column(String(200))
    python_path: Mapped[list[str]]
    chain_import_path: Mapped[str | None] = mapped_column(String(200))
    default_device_kind: Mapped[str | None] = mapped_column(String(40))
    suites: Mapped[list[str]]
    created_at: Mapped[datetime]


class Commit(Base):
    __tablename__ = "commits"
    __table_args__ = (UniqueConstraint("target", "sha"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    target: Mapped[str] = mapped_column(ForeignKey("targets.name"))
    sha: Mapped[str] = mapped_column(String(40), index=True)
    subject: Mapped[str] = mapped_column(Text)
    author_date: Mapped[str] = mapped_column(String(40))
    parents: Mapped[list[str]]


class Token(Base):
    """A bearer token; only the SHA-256 of its 256-bit secret is kept."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    name: Mapped[str] = mapped_column(String(80))
    scope: Mapped[str] = mapped_column(String(10))
    secret_hash: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class IdempotencyKey(Base):
    __tablename__ = "idempotency_keys"

    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id"), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    created_at: Mapped[datetime]


class Bundle(Base):
    """A git bundle that a client sent; kept here so that every worker can reach it."""

    __tablename__ = "bundles"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    target: Mapped[str] = mapped_column(ForeignKey("targets.name"))
    sha256: Mapped[str] = mapped_column(String(64))
    size: Mapped[int]
    heads: Mapped[list[dict[str, Any]]]
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    created_at: Mapped[datetime]


class Job(Base):
    """One commit, one device kind, some suites."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_state", "state", "id"),
        Index("ix_jobs_commit_sha", "commit_sha", "target"),
        Index("ix_jobs_fingerprint", "fingerprint", "state"),
    )

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    target: Mapped[str] = mapped_column(ForeignKey("targets.name"))
    commit_sha: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str | None] = mapped_column(Text)
    worktree: Mapped[bool] = mapped_column(Boolean)
    bundle_id: Mapped[str | None] = mapped_column(ForeignKey("bundles.id"))
    device_kind: Mapped[str] = mapped_column(String(40))
    suites: Mapped[list[str]]
    batch_sizes: Mapped[list[int] | None] = mapped_column(JSON(none_as_null=True))
    heads: Mapped[str | None] = mapped_column(String(20))
    quick: Mapped[bool] = mapped_column(Boolean)
    judge_version: Mapped[str] = mapped_column(String(40))
    fingerprint: Mapped[str] = mapped_column(String(64))  # over all that decides the answer
    state: Mapped[str] = mapped_column(String(20))
    failure_class: Mapped[str | None] = mapped_column(String(20))
    reason: Mapped[str] = mapped_column(Text, default="")
    attempt: Mapped[int] = mapped_column(default=1)
    retry_of: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    tries: Mapped[int] = mapped_column(default=0)  # starts, a crash of the worker included
    worker: Mapped[str | None] = mapped_column(String(200))  # null: no host has it
    claim: Mapped[int] = mapped_column(default=0)  # counts the claims; the last one is in force
    spent_s: Mapped[float] = mapped_column(Float, default=0.0)  # on hosts, as far as they told
    cancel_requested: Mapped[bool] = mapped_column(Boolean, default=False)
    log_seq: Mapped[int] = mapped_column(default=0)
    submitted_by: Mapped[str | None] = mapped_column(String(80))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    duration_s: Mapped[float | None]

    runs: Mapped[list[Run]] = relationship(order_by="Run.ordinal", back_populates="job")


class Run(Base):
    """One suite of one job, executed once on one device."""

    __tablename__ = "runs"
    __table_args__ = (UniqueConstraint("job_id", "suite"),)

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    suite: Mapped[str] = mapped_column(String(20))
    ordinal: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))
    verdict: Mapped[str | None] = mapped_column(String(20))
    failure_class: Mapped[str | None] = mapped_column(String(20))
    reason: Mapped[str] = mapped_column(Text, default="")
    partial: Mapped[bool] = mapped_column(Boolean, default=False)
    valid: Mapped[bool] = mapped_column(Boolean, default=True)
    accepted: Mapped[str | None] = mapped_column(
        Text
    )  # why others compare with it though it failed
    host_tries: Mapped[int] = mapped_column(default=0)
    device_id: Mapped[str | None] = mapped_column(ForeignKey("devices.id"))
    environment_id: Mapped[str | None] = mapped_column(ForeignKey("environments.id"))
    judge_version: Mapped[str | None] = mapped_column(Text)
    kernel_digest: Mapped[str | None] = mapped_column(Text)
    image_digest: Mapped[str | None] = mapped_column(String(100))
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    duration_s: Mapped[float | None]

    job: Mapped[Job] = relationship(back_populates="runs")
    device: Mapped[Device | None] = relationship()


class Document(Base):
    """The verdict document of a run, as the judge wrote it."""

    __tablename__ = "documents"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    body: Mapped[str] = mapped_column(Text)


class Case(Base):
    """One input configuration of a run. T rows, KH key heads, VH value heads."""

    __tablename__ = "cases"
    __table_args__ = (UniqueConstraint("run_id", "name"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"))
    name: Mapped[str] = mapped_column(Text)
    ordinal: Mapped[int]
    params: Mapped[dict[str, Any]]
    outcome: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    ratios: Mapped[dict[str, Any]]
    kernel_names: Mapped[list[str]]
    seconds: Mapped[float | None]


class Check(Base):
    __tablename__ = "checks"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id"), index=True)
    name: Mapped[str] = mapped_column(Text)
    passed: Mapped[bool] = mapped_column(Boolean)
    value: Mapped[Any] = mapped_column(JSON(none_as_null=True), nullable=True)
    bound: Mapped[Any] = mapped_column(JSON(none_as_null=True), nullable=True)
    relation: Mapped[str] = mapped_column(Text)
    detail: Mapped[str] = mapped_column(Text)


class Measurement(Base):
    """Samples of one timed quantity. `case_id` is null for a ceiling of the whole run."""

    __tablename__ = "measurements"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    case_id: Mapped[int | None] = mapped_column(ForeignKey("cases.id"), index=True)
    name: Mapped[str] = mapped_column(Text)
    kind: Mapped[str] = mapped_column(Text)
    unit: Mapped[str] = mapped_column(Text)
    samples: Mapped[list[float]]
    median: Mapped[float | None] = mapped_column(Float)
    p10: Mapped[float | None] = mapped_column(Float)
    p90: Mapped[float | None] = mapped_column(Float)
    calls_per_sample: Mapped[int | None]
    contract_bytes: Mapped[int | None] = mapped_column(BigInteger)
    measured_bytes: Mapped[int | None] = mapped_column(BigInteger)
    tb_per_s: Mapped[float | None]
    percent_of_peak: Mapped[float | None]
    percent_of_rmw_ceiling: Mapped[float | None]
    regime: Mapped[str | None] = mapped_column(Text)
    clocks: Mapped[dict[str, Any]]
    label: Mapped[str] = mapped_column(Text)


class Kernel(Base):
    """A code object; `digest` is the SHA-256 of its bytes."""

    __tablename__ = "kernels"

    digest: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    arch: Mapped[str] = mapped_column(Text)
    resources: Mapped[dict[str, Any]]


class RunKernel(Base):
    __tablename__ = "run_kernels"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    digest: Mapped[str] = mapped_column(ForeignKey("kernels.digest"), primary_key=True)


class Environment(Base):
    """A fingerprint; `id` is the SHA-256 of its canonical JSON."""

    __tablename__ = "environments"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    facts: Mapped[dict[str, Any]]


class Device(Base):
    """`id` is host/kind/index. `vram_baseline` in bytes, recorded by the operator."""

    __tablename__ = "devices"

    id: Mapped[str] = mapped_column(String(250), primary_key=True)
    host: Mapped[str] = mapped_column(String(200))
    kind: Mapped[str] = mapped_column(String(40), index=True)
    index: Mapped[int]
    name: Mapped[str] = mapped_column(String(120))
    uuid: Mapped[str | None] = mapped_column(String(80))
    measures: Mapped[list[str]]
    present: Mapped[bool] = mapped_column(Boolean, default=True)  # a worker serves it
    idle: Mapped[bool] = mapped_column(Boolean)
    why_not_idle: Mapped[str] = mapped_column(Text)
    quarantined: Mapped[str | None] = mapped_column(Text)  # the reason, or null
    failures_in_row: Mapped[int] = mapped_column(default=0)
    suspect: Mapped[str | None] = mapped_column(String(40))  # commit of a failure not counted yet
    counted: Mapped[str | None] = mapped_column(String(40))  # of the last one after its candidate
    vram_baseline: Mapped[int | None] = mapped_column(BigInteger)
    canary_since: Mapped[datetime | None]  # its canaries of runs that began earlier are no guide
    seen_at: Mapped[datetime]


class IdleReading(Base):
    """How idle the device of a run was before or after (`moment`) the run or one of its arms.

    `attempt` counts the executions of the run from 1, those that did not count included.
    `why` names what stood in the way, "" where nothing did. `canary` in words. `others`:
    what the host's other GPUs were doing, one {device, used_bytes, busy_percent, uses} each.
    """

    __tablename__ = "idle_readings"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    attempt: Mapped[int]
    device_id: Mapped[str] = mapped_column(ForeignKey("devices.id"))
    arm: Mapped[str] = mapped_column(Text)  # "run" for all of it
    moment: Mapped[str] = mapped_column(String(10))
    at: Mapped[datetime]
    why: Mapped[str] = mapped_column(Text)
    used_bytes: Mapped[int | None] = mapped_column(BigInteger)
    canary: Mapped[str] = mapped_column(Text, default="")
    others: Mapped[list[dict[str, Any]]] = mapped_column(default=list)


class HostFailure(Base):
    """A try of a run that the host spoiled: nothing of it counts.

    `attempt` counts the run's executions from 1, over all hosts. `device_id` is null where none
    could be had. `dirty`: the device was idle before, and memory without an owner was left on it.
    """

    __tablename__ = "host_failures"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    host: Mapped[str] = mapped_column(String(200))
    device_id: Mapped[str | None] = mapped_column(ForeignKey("devices.id"))
    reason: Mapped[str] = mapped_column(Text)
    dirty: Mapped[bool] = mapped_column(Boolean)
    at: Mapped[datetime]


class Lease(Base):
    """Who holds what until when: ``worker:<name>`` and ``device:<id>``."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(250), primary_key=True)
    holder: Mapped[str] = mapped_column(String(80))
    host: Mapped[str] = mapped_column(String(200))
    facts: Mapped[dict[str, Any]]
    expires_at: Mapped[datetime]


class LogEvent(Base):
    """One event of a job's log. `seq` counts from 1 within the job, without gaps."""

    __tablename__ = "log_events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    data: Mapped[dict[str, Any]]
