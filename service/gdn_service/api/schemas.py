"""Bodies of requests and answers. Times are ISO 8601 UTC with Z, durations seconds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)

from gdn_judge.document import DeviceKind, FailureClass, Suite, Verdict
from gdn_judge.wire.names import Name
from gdn_service.auth import Scope
from gdn_service.clock import iso
from gdn_service.jobs.states import JobState, RunState

SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"
JOB_ID = "j0ck6v3h1x8m2p4qw"
RUN_ID = "r0ck6v3h1x8m2p5za"

Time = Annotated[
    datetime,
    PlainSerializer(iso, return_type=str, when_used="json"),
    Field(examples=["2026-01-31T12:00:00.000Z"]),
]


def _one_of(kind: type[Name]) -> WithJsonSchema:
    """The names of an open set, as its table has them at start."""
    return WithJsonSchema({"type": "string", "enum": [str(name) for name in kind]})


_AS_TEXT = PlainSerializer(str, return_type=str)
KindOfDevice = Annotated[DeviceKind, PlainValidator(DeviceKind), _AS_TEXT, _one_of(DeviceKind)]
NameOfSuite = Annotated[Suite, PlainValidator(Suite), _AS_TEXT, _one_of(Suite)]


def _plain(text: Any) -> Any:
    if isinstance(text, str) and ("\x00" in text or any("\ud800" <= c <= "\udfff" for c in text)):
        raise ValueError("NUL and lone surrogates are not allowed")
    return text


def plain_text(limit: int, pattern: str | None = None) -> Any:
    return Annotated[
        str, BeforeValidator(_plain), Field(min_length=1, max_length=limit, pattern=pattern)
    ]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """RFC 9457. `code` is a stable word; some codes bring further members."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str


class Health(Body):
    status: str = Field(examples=["ok"])
    version: str


class Who(Body):
    name: str
    scope: Scope


class SuiteOut(Body):
    name: NameOfSuite
    title: str = Field(examples=["steps against the reference, the predicate against the op"])
    default: bool = Field(description="whether a job that names no suites has it")
    compares: bool = Field(description="whether it is judged against an earlier result")
    arms: list[str] = Field(examples=[["candidate"]])


class KindOut(Body):
    name: KindOfDevice
    vendor: str | None = Field(examples=["AMD"])
    hardware: bool = Field(description="whether results are of a device and not of a CPU")
    event_timers: bool = Field(description="whether it has times of its own")
    peak_bytes_per_s: float | None = Field(description="datasheet bandwidth")


class Vocabulary(Body):
    suites: list[SuiteOut] = Field(description="in the order in which a job runs them")
    device_kinds: list[KindOut] = Field(description="best first")


class TargetOut(Body):
    name: str = Field(examples=["gdn-lab"])
    import_path: str = Field(examples=["gdn_kernels:fused_gdn_decode_qkvz"])
    chain_import_path: str | None
    default_device_kind: KindOfDevice | None
    suites: list[NameOfSuite]


class TargetList(Body):
    items: list[TargetOut]


class DeviceOut(Body):
    id: str = Field(examples=["gpu-host-1/gfx950/0"])
    kind: KindOfDevice
    name: str
    index: int
    host: str
    live: bool = Field(description="whether the worker of its host is alive")
    idle: bool
    why_not_idle: str
    seen_at: Time = Field(description="when its worker last looked at it")
    quarantined: bool
    quarantine_reason: str | None
    why_no_jobs: str = Field(
        description="why its host takes no jobs of this kind while others do, or empty"
    )
    measures: list[str]


class DeviceList(Body):
    items: list[DeviceOut]


class CommitOut(Body):
    sha: str = Field(examples=[SHA])
    subject: str
    author_date: str


class HeadOut(Body):
    ref: str = Field(examples=["refs/heads/main"])
    sha: str = Field(examples=[SHA])


class BundleOut(Body):
    id: str
    heads: list[HeadOut]


class SubmitBody(Body):
    target: plain_text(80) = Field(examples=["gdn-lab"])  # type: ignore[valid-type]
    commit: plain_text(64) = Field(  # type: ignore[valid-type]
        description="A full SHA, or the unique beginning of one", examples=[SHA]
    )
    device_kind: plain_text(40) | None = Field(  # type: ignore[valid-type]
        None, description="null: the target's default", examples=["gfx950-emulated"]
    )
    suites: list[plain_text(40)] | None = Field(  # type: ignore[valid-type]
        None,
        description="null: correctness, determinism, roofline",
        max_length=20,
        examples=[["correctness", "roofline"]],
    )
    bundle: plain_text(40) | None = Field(  # type: ignore[valid-type]
        None, description="id from POST /bundles, for a commit that is not pushed"
    )
    batch_sizes: list[Annotated[int, Field(ge=0, le=65536, strict=True)]] | None = Field(
        None, min_length=1, max_length=64, examples=[[1, 8, 64]]
    )
    heads: plain_text(20, r"^[1-9][0-9]?x[1-9][0-9]?$") | None = Field(  # type: ignore[valid-type]
        None, description="key heads x value heads", examples=["4x8"]
    )
    quick: bool = Field(False, strict=True)
    force: bool = Field(False, strict=True, description="run though the answer is stored")
    subject: plain_text(500) | None = None  # type: ignore[valid-type]
    worktree: bool = Field(
        False, strict=True, description="the commit is a snapshot of uncommitted changes"
    )


class RunOut(Body):
    id: str = Field(examples=[RUN_ID])
    suite: NameOfSuite
    verdict: Verdict | None
    state: RunState
    failure_class: FailureClass | None
    reason: str
    started_at: Time | None
    duration_s: float | None
    device: str | None
    partial: bool


class IdleReadingOut(Body):
    attempt: int = Field(description="executions of the run from 1; only the last one counts")
    device: str
    arm: str = Field(description='"run" for all of it, else an arm that the judge named')
    moment: Literal["before", "after"]
    at: Time
    idle: bool
    why: str = Field(description="who or what stood in the way, empty where nothing did")
    used_bytes: int | None
    canary: str = Field(description="times of the two fixed kernels, and what is usual")
    others: list[dict[str, Any]] = Field(description="what the host's other GPUs were doing")


class HostFailureOut(Body):
    attempt: int
    host: str = Field(examples=["gpu-host-1"])
    device: str | None = Field(description="null where none could be had")
    reason: str
    at: Time


class RunDetail(RunOut):
    job_id: str
    target: str
    commit: str
    device_kind: KindOfDevice
    judge_version: str | None
    kernel_digest: str | None
    environment_id: str | None
    environment: dict[str, Any] | None
    finished_at: Time | None
    cases: dict[str, int] = Field(description="number of cases by outcome")
    document: str | None = Field(description="where the verdict document is")
    accepted: str | None = Field(description="why it is a baseline though it failed")
    host_failures: list[HostFailureOut] = Field(
        description="the attempts that a host spoiled, on all hosts, in order"
    )
    idle: list[IdleReadingOut] = Field(description="of every attempt, in the order taken")


class Links(BaseModel):
    model_config = ConfigDict(extra="forbid", serialize_by_alias=True)

    self_: str = Field(alias="self")
    log: str
    results: str


class JobOut(Body):
    id: str = Field(examples=[JOB_ID])
    target: str
    commit: str
    subject: str | None
    worktree: bool
    device_kind: KindOfDevice
    suites: list[NameOfSuite]
    batch_sizes: list[int] | None
    heads: str | None
    quick: bool
    state: JobState
    failure_class: FailureClass | None
    reason: str
    cancel_requested: bool
    from_store: bool = Field(description="answered by a job that was finished before")
    joined: bool = Field(description="answered by a job that is queued or running already")
    attempt: int
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    duration_s: float | None
    queue_position: int | None
    why_waiting: str = Field(
        description="why no host can take it now: no live worker for its device kind, or all its "
        "devices quarantined; else empty"
    )
    client_wait_s: float = Field(description="how long a client should wait, unless told otherwise")
    runs: list[RunOut]
    links: Links


class JobList(Body):
    items: list[JobOut]
    next_cursor: str | None


class ResultOut(Body):
    run_id: str
    suite: NameOfSuite
    device_kind: KindOfDevice
    verdict: Verdict | None
    reason: str
    judge_version: str | None
    kernel_digest: str | None
    environment_id: str | None
    finished_at: Time | None
    document: str | None
    batch_sizes: list[int] | None = Field(description="null: the suite's own")
    heads: str | None = Field(description="null: the suite's own")
    quick: bool


class ResultList(Body):
    commit: str
    target: str
    items: list[ResultOut]
