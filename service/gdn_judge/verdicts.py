"""From the cases of a run to its verdict and document."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from gdn_judge import JUDGE_VERSION
from gdn_judge.cases import Planned, Scope
from gdn_judge.document import (
    Baseline,
    Case,
    Document,
    FailureClass,
    Kernel,
    Measurement,
    Outcome,
    Scalar,
    Suite,
    Verdict,
)
from gdn_judge.numerics import Rounding
from gdn_judge.session import Session

REASON_LIMIT = 1000


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to judge, for the document."""

    suite: Suite
    scope: Scope
    target: str
    import_path: str
    commit: str | None = None
    device_index: int = 0
    environment: dict[str, Scalar] = field(default_factory=dict)
    why_shared: str = ""  # why the candidate has no user of its own; "" where it has one
    notes: Sequence[str] = ()

    @property
    def torch_device(self) -> str | None:
        """What torch calls the device, or None where there is none with event timers."""
        return None if self.scope.on_cpu else f"cuda:{self.device_index}"


@dataclass
class Progress:
    """Cases so far and what ended the run early, if anything did."""

    plan: list[Planned]
    done: list[Case] = field(default_factory=list)
    ceilings: list[Measurement] = field(default_factory=list)
    stopped: str = ""
    out_of_time: bool = False
    host_fault: str = ""


def document(
    request: Request, session: Session, progress: Progress, started: str, seconds: float
) -> Document:
    missing = progress.plan[len(progress.done) :]
    reached = [*progress.done, *map(_not_run, missing)]
    verdict, reason, failure = _verdict(progress, reached)
    if verdict is Verdict.PASSED and session.compared:
        reason = f"{reason}; {session.compared}"
    doubt = _doubt(request, session)
    if verdict is Verdict.PASSED and doubt:
        verdict, reason = Verdict.INCONCLUSIVE, f"{reason}, but {doubt}"
    kernels = _kernels(session)
    made = Document(
        suite=request.suite,
        device_kind=request.scope.device,
        verdict=verdict,
        reason=reason[:REASON_LIMIT],
        planned=[planned.id for planned in progress.plan],
        cases=reached,
        judge_version=JUDGE_VERSION,
        target=request.target,
        import_path=request.import_path,
        commit=request.commit,
        started_at=started,
        duration_s=seconds,
        failure_class=failure,
        partial=bool(missing),
        kernel_digest=_digest(kernels),
        kernels=kernels,
        baseline=_baseline(session),
        ceilings=progress.ceilings,
        declarations=session.declarations,
        environment={**request.environment, **_facts(session)},
        notes=[*request.notes, *_notes(session)],
        log_tail=session.log,
    )
    made.validate()
    return made


def _verdict(
    progress: Progress, reached: Sequence[Case]
) -> tuple[Verdict, str, FailureClass | None]:
    """Worst first: the host, the candidate, a contradiction, an early end, passed."""
    if progress.host_fault:
        return Verdict.ERROR, progress.host_fault, FailureClass.HOST
    harmless = (Outcome.PASSED, Outcome.NOT_RUN, Outcome.SUSPECT)
    bad = [case for case in reached if case.outcome not in harmless]
    if bad:
        more = f" (and {len(bad) - 1} more cases)" if bad[1:] else ""
        return (
            Verdict.FAILED,
            f"{bad[0].id} {bad[0].outcome.value}: {bad[0].reason}{more}",
            FailureClass.CANDIDATE,
        )
    suspect = [case for case in reached if case.outcome is Outcome.SUSPECT]
    if suspect:
        return Verdict.SUSPECT, f"{suspect[0].id}: {suspect[0].reason}", FailureClass.CANDIDATE
    count = len(progress.done)
    skipped = [case for case in progress.done if case.outcome is Outcome.NOT_RUN]
    if skipped:
        more = f" (and {len(skipped) - 1} more cases)" if skipped[1:] else ""
        return Verdict.INCONCLUSIVE, f"{skipped[0].id}: {skipped[0].reason}{more}", None
    if progress.stopped or count < len(reached):
        why = progress.stopped or "the run ended early"
        if not count and progress.out_of_time:
            # a run that judged nothing must not look like one that judged a little
            return Verdict.ERROR, f"{why} before any case was judged", None
        return Verdict.INCONCLUSIVE, f"{why} after {count} of {len(reached)} cases", None
    if not reached:
        return Verdict.INCONCLUSIVE, "no case was planned", None
    return Verdict.PASSED, f"all {count} cases passed" if count > 1 else "the case passed", None


def _doubt(request: Request, session: Session) -> str:
    """Why the judge cannot stand for what it saw, or "": the candidate may have reached it."""
    if session.left_behind:
        pids = ", ".join(map(str, session.left_behind))
        return f"processes of the candidate could not be ended ({pids})"
    if request.why_shared:
        return f"the candidate had no user of its own: {request.why_shared}"
    return ""


def _not_run(planned: Planned) -> Case:
    return Case(
        id=planned.id,
        params=planned.params(),
        outcome=Outcome.NOT_RUN,
        reason="the run ended before this case",
    )


def _kernels(session: Session) -> list[Kernel]:
    found = [
        Kernel(name=run.name, digest=run.digest, arch=run.arch, resources=dict(run.resources))
        for run in session.kernels.values()
        if run.digest
    ]
    return sorted(found, key=lambda kernel: (kernel.name, kernel.digest))


def _digest(kernels: Sequence[Kernel]) -> str | None:
    if not kernels:
        return None
    return hashlib.sha256("".join(sorted(kernel.digest for kernel in kernels)).encode()).hexdigest()


def _baseline(session: Session) -> Baseline | None:
    if session.baseline is None:
        return None
    return Baseline(
        commit=session.baseline.commit,
        started_at=session.baseline.started_at,
        judge_version=session.baseline.judge_version,
        kernel_digest=session.baseline.kernel_digest,
        commits_behind=session.commits_behind,
    )


def _facts(session: Session) -> dict[str, Scalar]:
    return {**session.facts, **(dict(session.hello.device) if session.hello is not None else {})}


def _notes(session: Session) -> list[str]:
    notes = [*(session.hello.notes if session.hello is not None else ()), *session.notes]
    if Rounding.INTERPRETER in session.roundings_seen:
        notes.append(
            "This device truncates fp32 to bfloat16 and misrounds e4m3: the op was held to the "
            "reference with that cast, within the contract's bounds. It says nothing about the "
            "rounding on hardware."
        )
    return notes
