from __future__ import annotations

import pytest

from gdn_judge.document import Verdict
from gdn_service.errors import IllegalTransition
from gdn_service.jobs.states import (
    JOB_TRANSITIONS,
    JobState,
    RunState,
    check_transition,
    job_state,
    run_sources,
    sources,
)


def test_final_states_lead_nowhere() -> None:
    assert {state for state in JobState if state not in JOB_TRANSITIONS} == {
        state for state in JobState if state.final
    }


def test_sources_follow_the_table() -> None:
    assert sources(JobState.RUNNING) == (JobState.QUEUED, JobState.RUNNING)
    assert sources(JobState.PASSED) == (JobState.RUNNING,)
    assert sources(JobState.CANCELLED) == (JobState.QUEUED, JobState.RUNNING)
    assert run_sources(RunState.FINISHED) == (RunState.QUEUED, RunState.RUNNING)


def test_a_finished_job_does_not_start_again() -> None:
    with pytest.raises(IllegalTransition, match="a passed job cannot become running"):
        check_transition(JobState.PASSED, JobState.RUNNING)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], JobState.ERROR),
        ([None], JobState.ERROR),
        ([Verdict.PASSED, Verdict.PASSED], JobState.PASSED),
        ([Verdict.PASSED, None], JobState.ERROR),
        ([Verdict.ERROR, Verdict.FAILED], JobState.FAILED),
        ([Verdict.PASSED, Verdict.SUSPECT], JobState.FAILED),
        ([Verdict.PASSED, Verdict.UNSTABLE], JobState.INCONCLUSIVE),
        ([Verdict.INCONCLUSIVE, Verdict.ERROR], JobState.ERROR),
    ],
)
def test_job_state_is_the_worst_of_its_runs(
    verdicts: list[Verdict | None], expected: JobState
) -> None:
    assert job_state(verdicts) is expected
