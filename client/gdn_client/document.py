"""The verdict document as the client reads it: only what it shows, absent fields allowed.

The judge owns the format ("gdn-lab/verdict/1"). This reader is lenient, so that a
document of a newer judge still shows; the whole document is always there as JSON.
Text is made printable on the way in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gdn_client.text import printable

Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Check:
    name: str
    passed: bool
    value: Scalar
    bound: Scalar
    relation: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Microseconds unless `unit` says otherwise; None is "not measured here"."""

    name: str
    kind: str
    unit: str
    samples: int
    median: float | None
    p10: float | None
    p90: float | None
    contract_bytes: int | None
    measured_bytes: int | None
    tb_per_s: float | None
    percent_of_peak: float | None
    percent_of_rmw_ceiling: float | None
    regime: str | None
    label: str


@dataclass(frozen=True, kw_only=True)
class Case:
    id: str
    params: dict[str, Scalar]
    outcome: str
    reason: str
    checks: list[Check]
    measurements: list[Measurement]
    ratios: dict[str, float]
    seconds: float | None

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"

    def measured(self, name: str, *kinds: str) -> Measurement | None:
        """The first measurement of that name and of one of `kinds`, with a value."""
        for m in self.measurements:
            if m.name == name and (not kinds or m.kind in kinds):
                return m
        return None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    name: str
    digest: str
    arch: str
    resources: dict[str, Scalar]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The earlier result that a run was compared with; `started_at` is that run's."""

    commit: str
    started_at: str
    commits_behind: int | None


@dataclass(frozen=True, kw_only=True)
class Document:
    suite: str
    device_kind: str
    verdict: str
    reason: str
    cases: list[Case]
    judge_version: str
    started_at: str
    duration_s: float | None
    partial: bool
    kernel_digest: str | None
    kernels: list[Kernel]
    baseline: Baseline | None
    ceilings: list[Measurement]
    declarations: dict[str, str]
    environment: dict[str, Scalar]
    notes: list[str]
    log_tail: str
    raw: dict[str, Any] = field(repr=False)

    @property
    def device_name(self) -> str:
        for key in ("device_name", "gpu_name", "device.name", "gpu.name", "name"):
            if self.environment.get(key):
                return str(self.environment[key])
        return ""


def read_document(data: dict[str, Any]) -> Document:
    return Document(
        suite=_text(data, "suite"),
        device_kind=_text(data, "device_kind"),
        verdict=_text(data, "verdict"),
        reason=_text(data, "reason"),
        cases=[_case(item) for item in _objects(data, "cases")],
        judge_version=_text(data, "judge_version"),
        started_at=_text(data, "started_at"),
        duration_s=_number(data, "duration_s"),
        partial=data.get("partial") is True,
        kernel_digest=_text(data, "kernel_digest") or None,
        kernels=[_kernel(item) for item in _objects(data, "kernels")],
        baseline=_baseline(data),
        ceilings=[_measurement(item) for item in _objects(data, "ceilings")],
        declarations={key: str(value) for key, value in _mapping(data, "declarations").items()},
        environment=_mapping(data, "environment"),
        notes=[printable(str(note)) for note in _list(data, "notes")],
        log_tail=_text(data, "log_tail"),
        raw=data,
    )


def _case(data: dict[str, Any]) -> Case:
    return Case(
        id=_text(data, "id"),
        params=_mapping(data, "params"),
        outcome=_text(data, "outcome"),
        reason=_text(data, "reason"),
        checks=[_check(item) for item in _objects(data, "checks")],
        measurements=[_measurement(item) for item in _objects(data, "measurements")],
        ratios=_ratios(data),
        seconds=_number(data, "seconds"),
    )


def _ratios(data: dict[str, Any]) -> dict[str, float]:
    ratios = _mapping(data, "ratios")
    found = {name: _number(ratios, name) for name in ratios}
    return {name: value for name, value in found.items() if value is not None}


def _check(data: dict[str, Any]) -> Check:
    return Check(
        name=_text(data, "name"),
        passed=data.get("passed") is True,
        value=_scalar(data, "value"),
        bound=_scalar(data, "bound"),
        relation=_text(data, "relation") or "<=",
        detail=_text(data, "detail"),
    )


def _measurement(data: dict[str, Any]) -> Measurement:
    return Measurement(
        name=_text(data, "name"),
        kind=_text(data, "kind"),
        unit=_text(data, "unit") or "us",
        samples=len(_list(data, "samples")),
        median=_number(data, "median"),
        p10=_number(data, "p10"),
        p90=_number(data, "p90"),
        contract_bytes=_whole(data, "contract_bytes"),
        measured_bytes=_whole(data, "measured_bytes"),
        tb_per_s=_number(data, "tb_per_s"),
        percent_of_peak=_number(data, "percent_of_peak"),
        percent_of_rmw_ceiling=_number(data, "percent_of_rmw_ceiling"),
        regime=_text(data, "regime") or None,
        label=_text(data, "label"),
    )


def _kernel(data: dict[str, Any]) -> Kernel:
    return Kernel(
        name=_text(data, "name"),
        digest=_text(data, "digest"),
        arch=_text(data, "arch"),
        resources=_mapping(data, "resources"),
    )


def _baseline(data: dict[str, Any]) -> Baseline | None:
    found = data.get("baseline")
    if not isinstance(found, dict):
        return None
    return Baseline(
        commit=_text(found, "commit"),
        started_at=_text(found, "started_at"),
        commits_behind=_whole(found, "commits_behind"),
    )


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    return "" if value is None else printable(str(value))


def _scalar(data: dict[str, Any], name: str) -> Scalar:
    value = data.get(name)
    return value if isinstance(value, int | float | None) else printable(str(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(data: Mapping[str, Any], name: str) -> float | None:
    value = data.get(name)
    return float(value) if value is not None and _is_number(value) else None


def _whole(data: dict[str, Any], name: str) -> int | None:
    number = _number(data, name)
    return None if number is None else int(number)


def _objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [item for item in _list(data, name) if isinstance(item, dict)]


def _list(data: dict[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    return value if isinstance(value, list) else []


def _mapping(data: dict[str, Any], name: str) -> dict[str, Scalar]:
    value = data.get(name)
    return {printable(key): _scalar(value, key) for key in value} if isinstance(value, dict) else {}
