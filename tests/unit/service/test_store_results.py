from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from sqlalchemy import func, select

from gdn_judge.document import Case, Check, Document, Outcome, Suite, Verdict
from gdn_service.store import models
from gdn_service.store.models import Run
from gdn_service.store.store import Store
from support.service_rows import DEVICE, add_device, add_job, add_target, document


@pytest.fixture
def run_id(store: Store) -> str:
    add_target(store)
    add_device(store)
    run_id = add_job(store).runs[0].id
    with store.write() as tx:
        tx.jobs.start_run(run_id, DEVICE)
    return run_id


def _count(store: Store, table: type[models.Base]) -> int:
    with store.read() as tx:
        return tx.session.scalar(select(func.count()).select_from(table)) or 0


def test_a_document_is_stored_whole(store: Store, run_id: str) -> None:
    judged = document()
    with store.write() as tx:
        tx.results.receive(run_id, judged.to_json())
        assert tx.results.store(run_id, judged)
    with store.read() as tx:
        run = tx.jobs.run(run_id)
        assert run is not None
        assert (run.verdict, run.duration_s, run.kernel_digest) == ("passed", 1.5, "cd" * 32)
        assert tx.results.environment(run.environment_id or "") == {"driver": "1.2"}
        assert json.loads(tx.results.document(run_id) or "") == judged.to_dict()
        assert tx.results.counts(run_id) == {"passed": 1}
        measurement = tx.session.scalars(select(models.Measurement)).one()
        check = tx.session.scalars(select(models.Check)).one()
        kernel = tx.session.scalars(select(models.Kernel)).one()
    assert (measurement.samples, measurement.contract_bytes) == ([9.5, 10.0, 10.5], 1_081_378)
    assert (check.name, check.value, check.bound) == ("state_rel_l2", 1.25e-5, 4e-5)
    assert (kernel.arch, kernel.resources) == ("sm90", {"regs": 64})


def test_storing_twice_changes_nothing(store: Store, run_id: str) -> None:
    for expected in (True, False):
        with store.write() as tx:
            tx.results.receive(run_id, document().to_json())
            assert tx.results.store(run_id, document()) is expected
    assert _count(store, models.Case) == 1
    assert _count(store, models.Measurement) == 1


def test_names_may_be_long_and_values_missing(store: Store, run_id: str) -> None:
    check = Check(name="n" * 500, passed=True, relation="is not " * 20, detail="d" * 9000)
    case = Case(id="c" * 500, params={}, outcome=Outcome.PASSED, checks=[check])
    judged = document(planned=[case.id], cases=[case], kernel_digest="k" * 300)
    with store.write() as tx:
        tx.results.receive(run_id, judged.to_json())
        assert tx.results.store(run_id, judged)
    with store.read() as tx:
        row = tx.session.scalars(select(models.Check)).one()
    assert (row.name, row.value, row.bound, row.detail) == ("n" * 500, None, None, "d" * 9000)


def test_runs_share_an_environment_and_a_kernel(store: Store, run_id: str) -> None:
    other = add_job(store).runs[0].id
    with store.write() as tx:
        tx.jobs.start_run(other, DEVICE)
        for name in (run_id, other):
            tx.results.receive(name, document().to_json())
            assert tx.results.store(name, document())
    assert _count(store, models.Environment) == 1
    assert _count(store, models.Kernel) == 1
    assert _count(store, models.RunKernel) == 2


def _result(store: Store, judged: Document, **job: Any) -> Run:
    """A finished run with `judged` as its document."""
    added = add_job(store, suites=(judged.suite,), **job)
    with store.write() as tx:
        tx.jobs.start_run(added.runs[0].id, DEVICE)
        tx.results.receive(added.runs[0].id, judged.to_json())
        assert tx.results.store(added.runs[0].id, judged)
    return added.runs[0]


def test_only_complete_valid_results_of_the_same_kind_are_comparable(
    store: Store, run_id: str
) -> None:
    judged = document(suite=Suite.CODEOBJECT)
    runs = []
    for number, (job, change) in enumerate(
        [
            ({}, {}),
            ({}, {"verdict": Verdict.FAILED, "reason": "spills"}),
            ({}, {"partial": True}),
            ({}, {"verdict": Verdict.INCONCLUSIVE}),
            ({}, {"suite": Suite.CORRECTNESS}),
            ({"device_kind": "sm90"}, {}),
            ({"target": "other"}, {}),
            ({"heads": "1x2"}, {}),
            ({"batch_sizes": [1, 8]}, {}),
            ({"batch_sizes": [1]}, {}),
            ({"quick": True}, {}),
        ]
    ):
        if "target" in job:
            add_target(store, "other")
        result = dataclasses.replace(judged, **change)
        runs.append(_result(store, result, **job, commit_sha=f"{number:040}").id)
    shas = [f"{number:040}" for number in range(20)]
    asked = {"plain": {}, "sizes": {"batch_sizes": [1, 8]}, "quick": {"quick": True}}
    jobs = {name: add_job(store, suites=("codeobject",), **job) for name, job in asked.items()}
    with store.read() as tx:
        found = {
            name: sorted(map(int, tx.results.comparable(job, "codeobject", shas)))
            for name, job in jobs.items()
        }
    assert found == {"plain": [0], "sizes": [0, 8], "quick": [0, 10]}
    with store.write() as tx:
        assert not tx.results.accept(runs[0], "it passed as it is")
        assert tx.results.accept(runs[1], "meant")
        assert tx.results.comparable(jobs["plain"], "codeobject", shas).keys() == {*shas[:2]}
        assert tx.results.accept(runs[1], None)
        assert tx.results.comparable(jobs["plain"], "codeobject", shas).keys() == {shas[0]}


def test_the_latest_valid_result_of_a_commit_is_compared_with(store: Store, run_id: str) -> None:
    judged = document(suite=Suite.CODEOBJECT)
    runs = [_result(store, judged, commit_sha="a" * 40).id for _ in range(3)]
    job = add_job(store, suites=("codeobject",))
    for expected in reversed(runs):
        with store.write() as tx:
            assert tx.results.comparable(job, "codeobject", ["a" * 40]) == {"a" * 40: expected}
            tx.session.get_one(Run, expected).valid = False
    with store.read() as tx:
        assert tx.results.comparable(job, "codeobject", ["a" * 40]) == {}
