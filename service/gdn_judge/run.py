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
from types import ModuleType

from gdn_judge import telemetry, verdicts, yardsticks
from gdn_judge.cases import Planned
from gdn_judge.document import Case, Check, Document, Outcome
from gdn_judge.errors import CandidateError, CandidateRefused, HostError, Terminated
from gdn_judge.judged import Judged
from gdn_judge.session import OutOfTime, Session, Setting
from gdn_judge.verdicts import REASON_LIMIT, Progress, Request
from gdn_judge.wire import suites
from gdn_judge.wire.suites import Needs
from gdn_judge.yardsticks import Look, Yardsticks

_DEATHS_IN_A_ROW = 3  # after these the rest is not run: each costs a new process or a timeout
_DEADLY = (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.PROTOCOL_ERROR)
CANDIDATE = "candidate"  # the only arm of a run so far
_DRIFT = 0.02  # of the ceiling between the start and the end of a run


class Events:
    """What a run reports while it goes; the base class reports nothing."""

    def planned(self, total: int) -> None: ...

    def arm(self, name: str, moment: str) -> None:
        """A border of an arm: `moment` is "before" or "after" it."""

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
    module = suites.spec(request.suite).load()
    progress = Progress(module.plan(request.scope))
    events.planned(len(progress.plan))
    try:
        _all_cases(request, session, progress, events, module)
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


def _all_cases(
    request: Request, session: Session, progress: Progress, events: Events, module: ModuleType
) -> None:
    with _on_device(request, session, progress, events):
        _each(module.judge, session, progress, events)
        if suites.spec(request.suite).compares:
            session.compared = module.words(session, progress.done)


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
def _on_device(
    request: Request, session: Session, progress: Progress, events: Events
) -> Iterator[None]:
    """The arm of the candidate, between two looks at the device with nobody on it.

    The looks are the canary, and the ceilings where the suite needs them.
    """
    device = request.torch_device
    if device is None:
        with _arm(session, events):
            yield
        return
    timed = suites.spec(request.suite).needs is Needs.TIMES
    look: Callable[[str], Look] = yardsticks.measure if timed else yardsticks.look
    events.log(f"measuring the {'ceilings' if timed else 'canary'} of {device}")
    before = look(device)
    uuid = before.facts.get("device.uuid")
    probe = telemetry.probe(request.scope.device, request.device_index, uuid=uuid)
    if isinstance(probe, telemetry.NoProbe):
        session.notes.append(f"clocks, power and driver of {device} could not be read")
    session.facts |= {**before.facts, **probe.facts()}
    progress.ceilings += before.measurements("before")
    session.setting = Setting(
        yardsticks=before if isinstance(before, Yardsticks) else None, probe=probe
    )
    with _arm(session, events):
        yield
    after = look(device)
    progress.ceilings += after.measurements("after")
    if isinstance(before, Yardsticks) and isinstance(after, Yardsticks):
        session.notes += _drift(before, after)


def _drift(before: Yardsticks, after: Yardsticks) -> list[str]:
    drift = after.rmw_bytes_per_s / before.rmw_bytes_per_s - 1
    if abs(drift) <= _DRIFT:
        return []
    return [f"the read-modify-write ceiling moved by {100 * drift:+.1f} % during the run"]


@contextlib.contextmanager
def _arm(session: Session, events: Events) -> Iterator[None]:
    """Reports the borders of the candidate's time; its processes are gone at the second."""
    events.arm(CANDIDATE, "before")
    try:
        yield
    finally:
        session.drop()
        events.arm(CANDIDATE, "after")


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
