"""What the service says, as values. Unknown fields are ignored, so a newer server is fine."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gdn_client.errors import UnexpectedAnswer
from gdn_client.text import printable

T = TypeVar("T")


class JobState(enum.StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self not in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, kw_only=True)
class Target:
    name: str
    import_path: str
    default_device_kind: str | None
    suites: list[str]


@dataclass(frozen=True, kw_only=True)
class Device:
    kind: str
    name: str
    index: int | None
    host: str
    live: bool  # its host's worker is alive
    idle: bool | None  # None: not known
    why_not_idle: str
    why_no_jobs: str  # why its host takes no jobs of its kind while others do
    seen_at: str | None
    quarantined: bool
    measures: str
    raw: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ResolvedCommit:
    sha: str
    subject: str


@dataclass(frozen=True, kw_only=True)
class Run:
    id: str
    suite: str
    verdict: str | None
    state: str
    reason: str
    device: str
    duration_s: float | None
    partial: bool


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the service last described it; `raw` is its JSON, whole."""

    id: str
    target: str
    commit: str
    subject: str
    worktree: bool
    device_kind: str
    suites: list[str]
    state: JobState
    failure_class: str | None
    reason: str
    from_store: bool
    joined: bool
    attempt: int
    created_at: str
    finished_at: str | None
    duration_s: float | None
    queue_position: int | None
    why_waiting: str  # why no host can take it now, or ""
    client_wait_s: float | None  # how long the service would have a client wait; None: for ever
    runs: list[Run]
    raw: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class StoredResult:
    """The latest valid run of one suite, by one plan, on one device kind, for a commit.

    Its verdict document is at `Api.document(run_id)`. `narrowed` says in words what options
    left of the suite's plan, "" where it is all of it; the server gives the widest plan first.
    """

    run_id: str
    suite: str
    device_kind: str
    verdict: str
    reason: str
    kernel_digest: str | None
    environment_id: str | None
    finished_at: str | None
    narrowed: str
    raw: dict[str, Any]


class Reader:
    """Reads one JSON object; a missing or ill-typed field is an UnexpectedAnswer naming it."""

    def __init__(self, data: Any, what: str) -> None:
        if not isinstance(data, dict):
            raise UnexpectedAnswer(
                f"the server's {what} should be an object, got {type(data).__name__}",
                remedy="Check that --server names a GDN Lab service and that versions match.",
            )
        self.data: dict[str, Any] = data
        self.what = what

    def _bad(self, name: str, expected: str) -> UnexpectedAnswer:
        got = f"{type(self.data[name]).__name__}" if name in self.data else "nothing"
        return UnexpectedAnswer(
            f"the server's {self.what} should have {name!r} as {expected}, got {got}",
            remedy="The client and the server may be of different versions; update the older.",
        )

    def text(self, name: str, default: str | None = None) -> str:
        value = self.data.get(name)
        if isinstance(value, int | str) and not isinstance(value, bool):
            return printable(str(value))
        if value is None and default is not None:
            return default
        raise self._bad(name, "text")

    def maybe_text(self, name: str) -> str | None:
        return None if self.data.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        value = self.data.get(name, False)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self._bad(name, "true or false")

    def maybe_int(self, name: str) -> int | None:
        value = self.data.get(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._bad(name, "a whole number")

    def maybe_float(self, name: str) -> float | None:
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        raise self._bad(name, "a number")

    def texts(self, name: str) -> list[str]:
        value = self.data.get(name)
        if value is None:
            return []
        if isinstance(value, list):
            return [printable(str(item)) for item in value]
        raise self._bad(name, "a list")

    def objects(self, name: str, read: Callable[[Any], T]) -> list[T]:
        value = self.data.get(name)
        if not isinstance(value, list):
            raise self._bad(name, "a list")
        return [read(item) for item in value]


def read_target(data: Any) -> Target:
    r = Reader(data, "target")
    return Target(
        name=r.text("name"),
        import_path=r.text("import_path", ""),
        default_device_kind=r.maybe_text("default_device_kind"),
        suites=r.texts("suites"),
    )


def read_device(data: Any) -> Device:
    r = Reader(data, "device")
    return Device(
        kind=r.text("kind"),
        name=r.text("name", ""),
        index=r.maybe_int("index"),
        host=r.text("host", ""),
        live=True if r.data.get("live") is None else r.flag("live"),
        idle=None if r.data.get("idle") is None else r.flag("idle"),
        why_not_idle=_why_not_idle(r),
        why_no_jobs=r.text("why_no_jobs", ""),
        seen_at=r.maybe_text("seen_at"),
        quarantined=r.flag("quarantined"),
        measures=", ".join(r.texts("measures")),
        raw=r.data,
    )


def _why_not_idle(r: Reader) -> str:
    """A quarantine outlives the worker, so both are told."""
    told = [r.text("quarantine_reason", "")]
    if not told[0] or r.data.get("live") is False:
        told.append(r.text("why_not_idle", ""))
    return "; ".join(filter(None, told))


def read_run(data: Any) -> Run:
    r = Reader(data, "run")
    return Run(
        id=r.text("id"),
        suite=r.text("suite"),
        verdict=r.maybe_text("verdict"),
        state=r.text("state", ""),
        reason=r.text("reason", ""),
        device=_device_name(r.data.get("device")),
        duration_s=r.maybe_float("duration_s"),
        partial=r.flag("partial"),
    )


def _device_name(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("name") or value.get("kind") or "")
    return "" if value is None else str(value)


def read_job(data: Any) -> Job:
    r = Reader(data, "job")
    state = r.text("state")
    if state not in set(JobState):
        raise UnexpectedAnswer(
            f"the server says the job is {state!r}, a state this client does not know",
            remedy="Update the client.",
        )
    return Job(
        id=r.text("id"),
        target=r.text("target"),
        commit=r.text("commit"),
        subject=r.text("subject", ""),
        worktree=r.flag("worktree"),
        device_kind=r.text("device_kind", ""),
        suites=r.texts("suites"),
        state=JobState(state),
        failure_class=r.maybe_text("failure_class"),
        reason=r.text("reason", ""),
        from_store=r.flag("from_store"),
        joined=r.flag("joined"),
        attempt=r.maybe_int("attempt") or 1,
        created_at=r.text("created_at", ""),
        finished_at=r.maybe_text("finished_at"),
        duration_s=r.maybe_float("duration_s"),
        queue_position=r.maybe_int("queue_position"),
        why_waiting=r.text("why_waiting", ""),
        client_wait_s=r.maybe_float("client_wait_s"),
        runs=r.objects("runs", read_run) if "runs" in r.data else [],
        raw=r.data,
    )


def read_result(data: Any) -> StoredResult:
    r = Reader(data, "result")
    return StoredResult(
        run_id=r.text("run_id"),
        suite=r.text("suite"),
        device_kind=r.text("device_kind"),
        verdict=r.text("verdict", "error"),
        reason=r.text("reason", ""),
        kernel_digest=r.maybe_text("kernel_digest"),
        environment_id=r.maybe_text("environment_id"),
        finished_at=r.maybe_text("finished_at"),
        narrowed=_narrowed(r),
        raw=r.data,
    )


def _narrowed(r: Reader) -> str:
    sizes = r.data.get("batch_sizes")
    heads = r.maybe_text("heads")
    said = [
        f"batch sizes {', '.join(map(str, sizes))}" if isinstance(sizes, list) else "",
        f"heads {heads}" if heads else "",
        "quick" if r.flag("quick") else "",
    ]
    return ", ".join(part for part in said if part)
