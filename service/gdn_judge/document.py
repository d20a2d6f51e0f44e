"""The verdict document: what one run of one suite on one device says.

It is the only thing that leaves the judge. The judge writes it, the service
validates and stores it, the client shows it. Standard library only, so that
every part can import it.

    Document
      ├─ Case (one planned input configuration; every planned case appears)
      │    ├─ Check        (one judged output)
      │    └─ Measurement  (samples of one timed quantity, all kept)
      ├─ Kernel            (each code object that ran)
      ├─ Baseline          (the earlier result it was compared with)
      └─ environment       (fingerprint: flat str -> str | int | float | bool | None)

JSON is strict: NaN and infinities never reach it (`to_json` raises ValueError).
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any

from gdn_judge.wire.devices import DeviceKind as DeviceKind
from gdn_judge.wire.names import Name
from gdn_judge.wire.suites import Suite as Suite

SCHEMA_ID = "gdn-lab/verdict/1"

Scalar = str | int | float | bool | None


class Verdict(enum.StrEnum):
    """`passed` needs every planned case present and passed; nothing else does."""

    PASSED = "passed"
    FAILED = "failed"
    UNSTABLE = "unstable"
    SUSPECT = "suspect"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


class FailureClass(enum.StrEnum):
    """Whose fault: the candidate's, the host's (retried), or a bug of ours."""

    CANDIDATE = "candidate"
    HOST = "host"
    SERVICE = "service"


class Outcome(enum.StrEnum):
    """How one case ended."""

    PASSED = "passed"
    FAILED = "failed"
    REFUSED = "refused"  # the op declined operands the contract says it must take
    RAISED = "raised"  # the op raised something other than a documented refusal
    CRASHED = "crashed"  # the candidate process died
    TIMED_OUT = "timed_out"
    PROTOCOL_ERROR = "protocol_error"
    SUSPECT = "suspect"  # the candidate's claim contradicts the judge's own evidence
    NOT_RUN = "not_run"  # planned, but the run ended before it


class MeasurementKind(enum.StrEnum):
    GPU_TIME = "gpu_time"  # graph replay, us per call
    HOST_TIME = "host_time"  # Python call on the host, us per call
    EMULATED_TRAFFIC = "emulated_traffic"  # exact bytes counted by the emulator; no time
    WALL_TIME = "wall_time"  # a device without event timers: the judge's clock, labelled


@dataclass(frozen=True, kw_only=True)
class Check:
    """One judged quantity. `value` is compared with `bound` as `relation` says."""

    name: str
    passed: bool
    value: float | int | str | None = None
    bound: float | int | str | None = None
    relation: str = "<="
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Samples of one timed quantity of one case, in the order they were taken.

    `name` says what was timed: "fused", "chain", "launch_floor", "rmw_ceiling",
    "host_call". Units are in the field names; fields that a device cannot
    measure are None, never 0. tb_per_s and the percentages derive from
    `contract_bytes` over the median.
    """

    name: str
    kind: MeasurementKind
    unit: str = "us"
    samples: list[float] = field(default_factory=list)
    median: float | None = None
    p10: float | None = None
    p90: float | None = None
    calls_per_sample: int | None = None
    contract_bytes: int | None = None
    measured_bytes: int | None = None
    tb_per_s: float | None = None
    percent_of_peak: float | None = None
    percent_of_rmw_ceiling: float | None = None
    regime: str | None = None  # "latency" | "bandwidth"
    clocks: dict[str, Scalar] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One planned case. `params` always holds T, KH, VH and fp8 where they apply."""

    id: str
    params: dict[str, Scalar]
    outcome: Outcome
    reason: str = ""
    checks: list[Check] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)  # e.g. {"chain_over_fused": 2.1}
    kernels: list[str] = field(default_factory=list)  # names of the kernels that ran
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A code object that ran. `digest` is the SHA-256 of its bytes, in hex."""

    name: str
    digest: str
    arch: str
    resources: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The earlier result of the same suite that a run was compared with.

    `commits_behind` counts first parents from the judged commit back to `commit`, 1
    for the parent; None where the judge was not told. `started_at` is that run's.
    """

    commit: str | None
    started_at: str
    judge_version: str
    kernel_digest: str | None = None
    commits_behind: int | None = None


@dataclass(frozen=True, kw_only=True)
class Document:
    suite: Suite
    device_kind: DeviceKind
    verdict: Verdict
    reason: str
    planned: list[str]  # ids of all planned cases, in order
    cases: list[Case]
    judge_version: str
    target: str  # name of the target
    import_path: str  # "package.module:attribute" of the op
    commit: str | None  # full SHA, or None when run on a plain directory
    started_at: str  # UTC, ISO 8601 with Z
    duration_s: float  # from a monotonic clock
    failure_class: FailureClass | None = None
    partial: bool = False  # some planned cases did not run; never a baseline
    kernel_digest: str | None = None  # over all kernels that ran, sorted
    kernels: list[Kernel] = field(default_factory=list)
    baseline: Baseline | None = None  # None: nothing was compared with
    ceilings: list[Measurement] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Scalar] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # fidelity statements, warnings
    log_tail: str = ""  # candidate's stdout and stderr, cut, untrusted text
    schema: str = SCHEMA_ID

    def to_dict(self) -> dict[str, Any]:
        return typing.cast(dict[str, Any], _encode(self, "document"))

    def to_json(self, indent: int | None = None) -> str:
        """Strict JSON. Raises ValueError naming the field that holds a NaN or infinity."""
        return json.dumps(self.to_dict(), allow_nan=False, indent=indent)

    @classmethod
    def from_dict(cls, data: Any) -> Document:
        """Strictly decode; raises DocumentError naming the field that is wrong.

        Also holds the rules that types cannot: every planned case present once
        and in order, and `passed` only where every case passed and at least one
        was planned.
        """
        document = typing.cast(Document, _decode(cls, data, "document"))
        document.validate()
        return document

    @classmethod
    def from_json(cls, text: str | bytes) -> Document:
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
        except ValueError as error:
            raise DocumentError(f"not a JSON document: {error}") from error
        return cls.from_dict(data)

    def validate(self) -> None:
        if self.schema != SCHEMA_ID:
            raise DocumentError(f"schema is {self.schema!r}, this reader knows {SCHEMA_ID!r}")
        ids = [case.id for case in self.cases]
        if ids != self.planned:
            missing = sorted(set(self.planned) - set(ids))
            raise DocumentError(
                f"cases differ from the plan: {len(ids)} cases, {len(self.planned)} planned"
                + (f", missing {missing[:3]}" if missing else "")
            )
        if len(set(ids)) != len(ids):
            raise DocumentError("a case id appears twice")
        if self.verdict is Verdict.PASSED:
            if not self.cases:
                raise DocumentError("verdict is passed with no case at all")
            bad = [case.id for case in self.cases if case.outcome is not Outcome.PASSED]
            if bad:
                raise DocumentError(f"verdict is passed but case {bad[0]} did not pass")
            for case in self.cases:
                if any(not check.passed for check in case.checks):
                    raise DocumentError(f"case {case.id} passed with a failed check")


class DocumentError(ValueError):
    """The document does not have the form of a verdict document."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


def _encode(value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _encode(getattr(value, f.name), f"{where}.{f.name}")
            for f in dataclasses.fields(value)
        }
    if isinstance(value, enum.Enum | Name):
        return value.value
    if isinstance(value, list | tuple):
        return [_encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _encode(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}; JSON stays strict")
    return value


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), data, where)
    if origin is list:
        if not isinstance(data, list):
            raise DocumentError(f"{where} should be a list, got {type(data).__name__}")
        (item,) = typing.get_args(kind)
        return [_decode(item, value, f"{where}[{i}]") for i, value in enumerate(data)]
    if origin is dict:
        if not isinstance(data, dict):
            raise DocumentError(f"{where} should be an object, got {type(data).__name__}")
        _, item = typing.get_args(kind)
        return {key: _decode(item, value, f"{where}.{key}") for key, value in data.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast(type, kind), data, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum | Name):
        try:
            return kind(data)
        except ValueError as error:
            known = ", ".join(str(member.value) for member in kind)
            raise DocumentError(f"{where} is {data!r}, expected one of {known}") from error
    return _decode_scalar(kind, data, where)


def _decode_union(options: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in options:
        return None
    for option in options:
        if option is not type(None):
            try:
                return _decode(option, data, where)
            except DocumentError:
                continue
    names = ", ".join(getattr(option, "__name__", str(option)) for option in options)
    raise DocumentError(f"{where} is {data!r}, expected one of {names}")


def _decode_dataclass(kind: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise DocumentError(f"{where} should be an object, got {type(data).__name__}")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise DocumentError(f"{where} has an unknown field {unknown[0]!r}")
    values = {}
    for name, f in fields.items():
        if name in data:
            values[name] = _decode(hints[name], data[name], f"{where}.{name}")
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise DocumentError(f"{where} lacks the field {name!r}")
    return kind(**values)


def _decode_scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if kind is int and isinstance(data, bool):
        raise DocumentError(f"{where} should be int, got a boolean")
    if not isinstance(data, kind):
        raise DocumentError(f"{where} should be {kind.__name__}, got {type(data).__name__}")
    if isinstance(data, float) and not math.isfinite(data):
        raise DocumentError(f"{where} is {data}; JSON stays strict")
    return data
