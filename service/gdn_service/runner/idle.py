"""Is a device idle? One pure function from samples to a report that names who is in the way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gdn_service.runner.probe import IdleReport, Offender, Sample, Use, bytes_text
from gdn_service.settings import Settings

_NAMED = 8  # offenders in the message; more are counted


@dataclass(frozen=True, kw_only=True)
class IdleRule:
    """Idle is: memory under `fraction` of the total or under baseline plus `margin` bytes."""

    fraction: float
    margin: int
    partition: str | None = None  # the mode it must be in, where it has modes

    @classmethod
    def of(cls, settings: Settings, partition: str | None = None) -> IdleRule:
        return cls(
            fraction=settings.idle_vram_fraction,
            margin=settings.idle_vram_margin_bytes,
            partition=partition,
        )


def decide(
    samples: Sequence[Sample], rule: IdleRule, baseline: int | None, own: Collection[int] = ()
) -> IdleReport:
    """One sample that is not idle is enough. What cannot be seen is not idle.

    `baseline`: bytes that the operator recorded for the idle device; `own`: pids
    that belong to the run itself.
    """
    uses = {u.pid: u for s in samples for u in s.uses if u.counts and u.pid not in own}
    known = [sample.used for sample in samples if sample.used is not None]
    used = max(known, default=None)
    offenders = tuple(
        Offender(pid=use.pid, command=use.command, used_bytes=use.used) for use in uses.values()
    )
    why, dirty = _why(samples, rule, baseline, tuple(uses.values()), bool(own))
    return IdleReport(why=why, used_bytes=used, offenders=offenders, dirty=dirty)


def _why(
    samples: Sequence[Sample],
    rule: IdleRule,
    baseline: int | None,
    uses: tuple[Use, ...],
    in_use: bool,
) -> tuple[str, bool]:
    """(what stands in the way, whether it is memory that no process owns)."""
    if not samples:
        return "no sample of its state could be taken", False
    wrong = next((s.partition for s in samples if s.partition not in (None, rule.partition)), None)
    if rule.partition is not None and wrong is not None:
        return f"its partition mode is {wrong}, expected {rule.partition}", False
    if uses:
        more = f" and {len(uses) - _NAMED} more" if len(uses) > _NAMED else ""
        return "in use by " + "; ".join(map(describe, uses[:_NAMED])) + more, False
    if any(sample.used is None or sample.total is None for sample in samples):
        return "its memory use is not available", False
    if rule.partition is not None and any(s.has_modes and s.partition is None for s in samples):
        return f"its partition mode is not available, expected {rule.partition}", False
    if in_use:  # memory of the run itself is there, and cannot be told from a stranger's
        return "", False
    used = max(sample.used or 0 for sample in samples)
    limit = _limit(samples[0].total or 0, rule, baseline)
    if used > limit:
        return f"{bytes_text(used)} in use that no process owns (limit {bytes_text(limit)})", True
    return "", False


def _limit(total: int, rule: IdleRule, baseline: int | None) -> int:
    recorded = 0 if baseline is None else baseline + rule.margin
    return max(int(total * rule.fraction), recorded)


def describe(use: Use) -> str:
    """ "pid 7 (python, 1.0 GiB, 2 queues)"."""
    memory = "unknown memory" if use.used is None else bytes_text(use.used)
    queues = f", {use.queues} queues" if use.queues else ""
    return f"pid {use.pid} ({use.command}, {memory}{queues})"
