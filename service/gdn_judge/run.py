"""One run of one suite: the judge's flow, from a request to a verdict document.

plan -> (each case: call the candidate, then hold its bytes against the
reference) -> verdict -> document. Every planned case appears in the document,
whatever happens.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator, Sequence

from gdn_judge import (
    cases,
    correctness,
    determinism,
    roofline,
    telemetry,
    verdicts,
    yardsticks,
)
from gdn_judge.cases import Planned, Scope
from gdn_judge.codeobject import suite as codeobject
from gdn_judge.document import (
    Case,
    Check,
    Document,
    Outcome,
    Suite,
)
from gdn_judge.errors import CandidateError, CandidateRefused, HostError, Terminated
from gdn_judge.judged import Judged
from gdn_judge.session import OutOfTime, Session
from gdn_judge.timed import Setting
from gdn_judge.verdicts import REASON_LIMIT, Progress, Request

_DEATHS_IN_A_ROW = 3  # after these the rest is not run: each costs a new process or a timeout
_DEADLY = (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.PROTOCOL_ERROR)
_DRIFT = 0.02  # of the ceiling between the start and the end of a run


class Events:
    """What a run reports while it goes; the base class reports nothing."""

    def planned(self, total: int) -> None: ...

    def case(self, case: Case, done: int, total: int) -> None: ...

    def log(self, text: str) -> None: ...

    def finished(self, document: Document) -> None: ...


def run(
    request: Request,
    session: Session,
    events: Events,
    deliver: Callable[[Document], None] = lambda document: None,
) -> Document:
    """Run the suite; `deliver` gets the document before `finished` is reported.

    Never raises for what the candidate or the host does.
    """
    started, clock = _now(), time.monotonic()
    progress = Progress(PLANS[request.suite](request.scope))
    events.planned(len(progress.plan))
    try:
        _all_cases(request, session, progress, events)
    except Terminated as error:
        progress.stopped = str(error)
    except OutOfTime as error:
        progress.stopped, progress.out_of_time = str(error), True
    except HostError as error:
        progress.host_fault = str(error)
    finally:
        session.drop()
    document = verdicts.document(request, session, progress, started, time.monotonic() - clock)
    deliver(document)
    events.finished(document)
    return document


PLANS: dict[Suite, Callable[[Scope], list[Planned]]] = {
    Suite.CORRECTNESS: cases.correctness,
    Suite.DETERMINISM: cases.determinism,
    Suite.ROOFLINE: cases.roofline,
    Suite.CODEOBJECT: codeobject.plan,
}
"""The suites that run cases, and what plans each; ids of a plan are unique."""


def _all_cases(request: Request, session: Session, progress: Progress, events: Events) -> None:
    if request.suite is Suite.ROOFLINE:
        with _yardsticks(request, session, progress, events) as setting:
            _each(
                lambda planned, session: roofline.judge(planned, session, setting),
                session,
                progress,
                events,
            )
    else:
        if request.torch_device is not None:
            session.facts |= yardsticks.facts(request.torch_device)
        judges = {
            Suite.CORRECTNESS: correctness.judge,
            Suite.DETERMINISM: determinism.judge,
            Suite.CODEOBJECT: codeobject.judge,
        }
        _each(judges[request.suite], session, progress, events)


def _each(
    judge: Callable[[Planned, Session], Judged],
    session: Session,
    progress: Progress,
    events: Events,
) -> None:
    deaths = 0
    for planned in progress.plan:
        if session.left() == 0:
            raise OutOfTime("the run's deadline passed")
        if deaths == _DEATHS_IN_A_ROW:
            progress.stopped = f"the candidate died in {deaths} cases in a row; given up"
            return
        case = _one_case(planned, session, judge)
        progress.done.append(case)
        deaths = deaths + 1 if case.outcome in _DEADLY else 0
        events.case(case, len(progress.done), len(progress.plan))


@contextlib.contextmanager
def _yardsticks(
    request: Request, session: Session, progress: Progress, events: Events
) -> Iterator[Setting]:
    """Ceilings measured before the candidate starts and after it has ended."""
    device = request.torch_device
    if device is None:
        yield Setting()
        return
    events.log(f"measuring the ceilings of {device}")
    before = yardsticks.measure(device)
    probe = telemetry.probe(request.scope.device, request.device_index)
    session.facts |= {**before.facts, **probe.facts()}
    progress.ceilings += before.measurements("before")
    yield Setting(yardsticks=before, probe=probe)
    session.drop()
    after = yardsticks.measure(device)
    progress.ceilings += after.measurements("after")
    drift = after.rmw_bytes_per_s / before.rmw_bytes_per_s - 1
    if abs(drift) > _DRIFT:
        session.notes.append(
            f"the read-modify-write ceiling moved by {100 * drift:+.1f} % during the run"
        )


def _one_case(
    planned: Planned, session: Session, judge: Callable[[Planned, Session], Judged]
) -> Case:
    begin = time.monotonic()
    try:
        judged = judge(planned, session)
    except CandidateError as error:
        return _ended_case(planned, error, time.monotonic() - begin)
    return Case(
        id=planned.id,
        params=planned.params(),
        outcome=judged.outcome,
        reason=_first_failure(judged.checks),
        checks=judged.checks,
        measurements=judged.measurements,
        ratios=judged.ratios,
        kernels=judged.kernels,
        seconds=time.monotonic() - begin,
    )


def _ended_case(planned: Planned, error: CandidateError, seconds: float) -> Case:
    reason = str(error)
    if isinstance(error, CandidateRefused):
        reason = f"the op refused operands that the contract says it must take: {error.message}"
    return Case(
        id=planned.id,
        params=planned.params(),
        outcome=error.outcome,
        reason=reason[:REASON_LIMIT],
        seconds=seconds,
    )


def _first_failure(checks: Sequence[Check]) -> str:
    failed = [check for check in checks if not check.passed]
    if not failed:
        return ""
    return describe(failed[0]) + (f" (and {len(failed) - 1} more)" if failed[1:] else "")


def describe(check: Check) -> str:
    """ "ssm_state_rel_l2 is 0.3, should be <= 4e-05"."""
    if check.value is None:
        return f"{check.name}: {check.detail}"
    value = f"{check.value:.4g}" if isinstance(check.value, float) else str(check.value)
    detail = f" ({check.detail})" if check.detail else ""
    return f"{check.name} is {value}, should be {check.relation} {check.bound}{detail}"


def _now() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
