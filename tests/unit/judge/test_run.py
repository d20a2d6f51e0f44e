"""From cases to a verdict, with an op in this process behind the seam."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

from gdn_judge import yardsticks
from gdn_judge.cases import Scope
from gdn_judge.contract import Heads
from gdn_judge.document import Case, DeviceKind, Document, FailureClass, Outcome, Suite, Verdict
from gdn_judge.errors import (
    CandidateCrashed,
    CandidateError,
    CandidateRaised,
    CandidateTimedOut,
    HostError,
    Terminated,
)
from gdn_judge.generate import Seed
from gdn_judge.numerics import Rounding
from gdn_judge.operands import CallResult
from gdn_judge.run import Events, run
from gdn_judge.session import Session
from gdn_judge.verdicts import Request
from gdn_judge.yardsticks import Canary, Look
from support import plain_op
from support.local_executor import LocalExecutor


class Heard(Events):
    """Remembers what was reported."""

    def __init__(self) -> None:
        self.total, self.cases, self.document = 0, [], None  # type: ignore[var-annotated]
        self.arms: list[tuple[str, str]] = []

    def planned(self, total: int) -> None:
        self.total = total

    def arm(self, name: str, moment: str) -> None:
        self.arms.append((name, moment))

    def case(self, case: Case, done: int, total: int) -> None:
        self.cases.append((case.id, done, total))

    def finished(self, document: Document) -> None:
        self.document = document


def judge(
    executor: LocalExecutor,
    suite: Suite = Suite.CORRECTNESS,
    events: Events | None = None,
    device: DeviceKind = DeviceKind.INTERPRETER,
    why_shared: str = "",
    **session: Any,
) -> Document:
    scope = Scope(device=device, batches=[2], heads=Heads(1, 2), quick=True)
    request = Request(
        suite=suite, scope=scope, target="t", import_path="fake:op", why_shared=why_shared
    )
    state = Session(
        factory=lambda: executor,
        device=device,
        seed=Seed(b"run"),
        launches=None,
        quick=True,
        **session,
    )
    return run(request, state, events or Heard())


def op(fault: str = "") -> Callable[..., Any]:
    return functools.partial(plain_op.fused_gdn_decode_qkvz, fault=fault)


def test_a_right_op_passes_and_all_is_reported() -> None:
    heard, executor = Heard(), LocalExecutor(op())
    document = judge(executor, events=heard)
    assert document.verdict is Verdict.PASSED, document.reason
    assert document.planned == [case.id for case in document.cases]
    assert heard.total == len(document.cases) == len(heard.cases)
    assert heard.document is document
    assert (executor.starts, executor.closes) == (1, 1)
    assert document.log_tail == "log of start 1\n"
    Document.from_json(document.to_json())


def test_without_a_user_of_its_own_a_candidate_passes_nothing() -> None:
    document = judge(LocalExecutor(op()), why_shared="uidmap is missing: apt-get install uidmap")
    assert {case.outcome for case in document.cases} == {Outcome.PASSED}
    assert document.verdict is Verdict.INCONCLUSIVE
    assert document.failure_class is None
    assert document.reason.endswith(
        "cases passed, but the candidate had no user of its own: "
        "uidmap is missing: apt-get install uidmap"
    )
    wrong = judge(LocalExecutor(op("no_scale")), why_shared="uidmap is missing")
    assert wrong.verdict is Verdict.FAILED


def test_a_candidate_that_could_not_be_ended_passes_nothing() -> None:
    executor = LocalExecutor(op())
    executor.left = [4711, 4712]
    document = judge(executor)
    assert document.verdict is Verdict.INCONCLUSIVE
    assert document.reason.endswith(
        "but processes of the candidate could not be ended (4711, 4712)"
    )


def test_a_wrong_op_fails_and_the_reason_names_the_worst() -> None:
    document = judge(LocalExecutor(op("no_scale")))
    assert document.verdict is Verdict.FAILED
    assert document.failure_class is FailureClass.CANDIDATE
    assert "out_illegal is" in document.reason
    assert "should be <= 0 (out[" in document.reason
    assert not document.partial


def test_what_the_executor_says_of_a_call_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = LocalExecutor.call

    def call(self: LocalExecutor, *arguments: Any, **more: Any) -> CallResult:
        return dataclasses.replace(plain(self, *arguments, **more), notes=("in one process",))

    monkeypatch.setattr(LocalExecutor, "call", call)
    assert judge(LocalExecutor(op())).notes.count("in one process") == 1


def test_a_dead_candidate_is_replaced_and_the_next_case_passes() -> None:
    executor = LocalExecutor(op(), deaths=[CandidateCrashed("ended by SIGSEGV")])
    document = judge(executor)
    assert [case.outcome for case in document.cases[:2]] == [Outcome.CRASHED, Outcome.PASSED]
    assert document.verdict is Verdict.FAILED
    assert executor.starts == executor.closes == 2


@pytest.mark.parametrize(
    ("death", "outcome"),
    [
        (CandidateCrashed("exited with 0"), Outcome.CRASHED),
        (CandidateTimedOut("no answer"), Outcome.TIMED_OUT),
        (CandidateRaised("KeyError", "x"), Outcome.RAISED),
    ],
)
def test_each_end_has_its_outcome(death: CandidateError, outcome: Outcome) -> None:
    document = judge(LocalExecutor(op(), deaths=[death]))
    assert document.cases[0].outcome is outcome
    assert str(death) in document.cases[0].reason


def test_an_op_that_raised_keeps_its_process() -> None:
    executor = LocalExecutor(op(), deaths=[CandidateRaised("KeyError", "x")])
    judge(executor)
    assert executor.starts == 1


def test_a_device_fault_costs_the_process_though_it_answered() -> None:
    fault = CandidateRaised("AcceleratorError", "CUDA error: an illegal memory access")
    executor = LocalExecutor(op(), deaths=[fault])
    judge(executor)
    assert executor.starts == 2


def test_three_deaths_in_a_row_are_enough() -> None:
    deaths: list[CandidateError | None] = [CandidateCrashed("dead") for _ in range(9)]
    executor = LocalExecutor(op(), deaths=deaths)
    document = judge(executor)
    outcomes = [case.outcome for case in document.cases]
    assert outcomes[:3] == [Outcome.CRASHED] * 3
    assert set(outcomes[3:]) == {Outcome.NOT_RUN}
    assert document.verdict is Verdict.FAILED
    assert document.partial


def test_deaths_with_a_pass_between_do_not_end_the_run() -> None:
    dead: CandidateError = CandidateCrashed("dead")
    document = judge(LocalExecutor(op(), deaths=[dead, dead, None, dead, dead]))
    assert not document.partial


def test_the_deadline_is_nobodys_fault() -> None:
    executor = LocalExecutor(op(), deaths=[None, CandidateTimedOut("late")])
    document = judge(executor, deadline=time.monotonic() - 1)
    assert document.verdict is Verdict.ERROR  # nothing was judged: not a kind of success
    assert document.reason == "the run's deadline passed before any case was judged"
    assert document.failure_class is None
    assert document.partial
    assert executor.calls == 0


def test_a_fault_of_the_host_is_an_error_of_the_host() -> None:
    class NoGpu(LocalExecutor):
        def start(self):  # type: ignore[no-untyped-def]
            raise HostError("no device 7")

    document = judge(NoGpu(op()))
    assert document.verdict is Verdict.ERROR
    assert document.failure_class is FailureClass.HOST
    assert document.reason == "no device 7"
    assert {case.outcome for case in document.cases} == {Outcome.NOT_RUN}


def test_an_op_that_cannot_be_imported_is_tried_twice() -> None:
    class Broken(LocalExecutor):
        def start(self):  # type: ignore[no-untyped-def]
            self.starts += 1
            raise CandidateRaised("ImportError", "half a checkout")

    executor = Broken(op())
    document = judge(executor)
    assert executor.starts == 2
    assert {case.outcome for case in document.cases} == {Outcome.RAISED}
    assert document.verdict is Verdict.FAILED


def test_termination_keeps_what_was_done() -> None:
    class Ends(Heard):
        def case(self, case: Case, done: int, total: int) -> None:
            if done == 2:
                raise Terminated("ended by SIGTERM")

    document = judge(LocalExecutor(op()), events=Ends())
    assert document.partial
    assert document.verdict is Verdict.INCONCLUSIVE
    assert document.reason.startswith("ended by SIGTERM after 2 of")


def test_declarations_soften_only_what_they_name() -> None:
    fault = op("pad_not_zeroed")
    assert judge(LocalExecutor(fault)).verdict is Verdict.FAILED
    declared = {"pad_output": "unspecified"}
    document = judge(LocalExecutor(fault, declarations=declared))
    assert document.verdict is Verdict.PASSED, document.reason
    assert document.declarations == declared


def test_the_rounding_of_the_interpreter_is_told() -> None:
    document = judge(LocalExecutor(op()), roundings=tuple(Rounding))
    assert not any("truncates" in note for note in document.notes)


def test_determinism_catches_one_bit() -> None:
    calls = []

    def drifting(*args: Any, **kwargs: Any) -> Any:
        results = plain_op.fused_gdn_decode_qkvz(*args, **kwargs)
        calls.append(1)
        if len(calls) == 15:
            kwargs["ssm_state"][kwargs["ssm_state_indices"][0].item()] *= 1 + 2e-7
        return results

    document = judge(LocalExecutor(drifting), suite=Suite.DETERMINISM)
    checks = {check.name: check for check in document.cases[0].checks}
    assert checks["distinct_results"].value == 2
    assert not checks["distinct_results"].passed
    assert checks["fresh_process_differs"].value == 0
    assert document.verdict is Verdict.FAILED


def test_invariance_is_measured() -> None:
    document = judge(LocalExecutor(op()), suite=Suite.DETERMINISM)
    values = {check.name: check.value for check in document.cases[1].checks}
    assert values == {"rows_changed_by_permutation": 0, "row_changed_when_alone": 0}


def test_a_device_is_looked_at_with_nobody_on_it_before_and_after_the_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = LocalExecutor(op())
    alive: list[int] = []

    def look(device: str) -> Look:
        assert device == "cuda:0"
        alive.append(executor.starts - executor.closes)
        canary = Canary(copy=[500.0, 502.0, 501.0], compute=[40.0 + len(alive)], bytes=512 << 20)
        return Look(canary=canary, facts={"device.uuid": "GPU-1"})

    monkeypatch.setattr(yardsticks, "look", look)
    heard = Heard()
    document = judge(executor, events=heard, device=DeviceKind.SM90)
    assert alive == [0, 0]
    assert [(m.name, m.median) for m in document.ceilings] == [
        ("canary_copy before", 501.0),
        ("canary_compute before", 41.0),
        ("canary_copy after", 501.0),
        ("canary_compute after", 42.0),
    ]
    assert document.ceilings[0].tb_per_s == pytest.approx(1.0716, abs=1e-3)
    assert document.environment["device.uuid"] == "GPU-1"
    assert "clocks, power and driver of cuda:0 could not be read" in document.notes
    assert heard.arms == [("candidate", "before"), ("candidate", "after")]


def test_a_device_that_is_gone_after_the_candidate_is_a_fault_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canary = Canary(copy=[500.0], compute=[40.0], bytes=1)
    looks = [Look(canary=canary, facts={})]

    def look(device: str) -> Look:
        if not looks:
            raise HostError("cannot use cuda:0: device lost")
        return looks.pop()

    monkeypatch.setattr(yardsticks, "look", look)
    document = judge(LocalExecutor(op()), device=DeviceKind.SM90)
    assert (document.verdict, document.failure_class) == (Verdict.ERROR, FailureClass.HOST)
    assert document.reason == "cannot use cuda:0: device lost"


def test_on_a_cpu_there_is_no_canary_but_the_arm_has_its_borders() -> None:
    heard = Heard()
    assert judge(LocalExecutor(op()), events=heard).ceilings == []
    assert heard.arms == [("candidate", "before"), ("candidate", "after")]
