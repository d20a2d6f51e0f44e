from __future__ import annotations

import math
from typing import Any

import pytest

from gdn_judge.document import Measurement, MeasurementKind
from gdn_service.jobs.canary import CanaryRule, Earlier, identity, judge, readings
from gdn_service.store.models import Run
from gdn_service.store.store import Store
from support.service_rows import DEVICE, add_device, add_job, add_target, document

RULE = CanaryRule(readings=4, runs=2, mads=6, margin=0.05, limit=0.1)
FACTS = {"device.uuid": "GPU-1", "device.driver": "580.1", "torch": "2.11"}


def ceiling(name: str, median: float) -> Measurement:
    return Measurement(
        name=name, kind=MeasurementKind.GPU_TIME, samples=[median] * 3, median=median
    )


def earlier(*medians: float) -> list[Earlier]:
    """Two of each run, as a judge takes them."""
    return [Earlier(f"r{number // 2}", us) for number, us in enumerate(medians)]


def test_too_few_earlier_readings_are_no_baseline_and_void_nothing() -> None:
    found = judge({"canary_copy": 500.0}, {"canary_copy": earlier(10.0, 10.0, 10.0)}, RULE)
    assert found.words == "copy 500.0 us (no baseline yet: 3 of 4 readings, 2 of 2 runs)"
    assert found.why == ""


def test_many_readings_of_one_run_are_no_baseline() -> None:
    history = {"canary_copy": [Earlier("r1", 10.0)] * 4}
    found = judge({"canary_copy": 500.0}, history, RULE)
    assert found.words == "copy 500.0 us (no baseline yet: 4 of 4 readings, 1 of 2 runs)"
    assert found.why == ""


def test_a_reading_in_the_usual_range_is_told_with_it() -> None:
    found = judge(
        {"canary_copy": 520.0}, {"canary_copy": earlier(500.0, 498.0, 502.0, 500.0)}, RULE
    )
    assert found.words == "copy 520.0 us (usual 475.0 to 525.0, 4 readings)"
    assert found.why == ""


@pytest.mark.parametrize("value", [1040.0, 526.0, math.nan])
def test_slower_than_usual_is_named_with_the_figures(value: float) -> None:
    history = {"canary_copy": earlier(*[500.0] * 4), "canary_compute": earlier(*[40.0] * 4)}
    found = judge({"canary_copy": value, "canary_compute": 40.5}, history, RULE)
    assert found.why == f"copy {value:.1f} us (usual 475.0 to 525.0, 4 readings)"
    assert found.words.endswith("; compute 40.5 us (usual 38.0 to 42.0, 4 readings)")


def test_faster_than_usual_is_told_and_voids_nothing() -> None:
    """Readings of a slow hour must not shut out every run after it."""
    found = judge({"canary_copy": 100.0}, {"canary_copy": earlier(*[112.0] * 8)}, RULE)
    assert found.words == "copy 100.0 us (faster than usual 106.4 to 117.6, 8 readings)"
    assert found.why == ""


def test_a_device_that_varies_has_a_wider_range() -> None:
    """MAD 4: 6 x 1.4826 x 4 = 35.6 us are more than 5 % of 500 and less than 10 %."""
    low, high = RULE.usual([492.0, 496.0, 500.0, 504.0, 508.0])
    assert (low, high) == (pytest.approx(464.4176), pytest.approx(535.5824))


def test_a_history_of_two_modes_does_not_make_everything_usual() -> None:
    history = {"canary_copy": earlier(*[100.0] * 5, *[200.0] * 5)}
    found = judge({"canary_copy": 250.0}, history, RULE)
    assert found.why == "copy 250.0 us (usual 135.0 to 165.0, 10 readings)"


def test_the_readings_of_a_document_by_moment() -> None:
    found = document(
        ceilings=[
            ceiling("rmw_ceiling before", 1000.0),
            ceiling("canary_copy before", 500.0),
            ceiling("canary_compute before", 40.0),
            ceiling("canary_copy after", 501.0),
        ]
    )
    assert readings(found) == {
        "before": {"canary_copy": 500.0, "canary_compute": 40.0},
        "after": {"canary_copy": 501.0},
    }
    assert readings(document()) == {}


def keep(store: Store, facts: dict[str, Any], *medians: float) -> str:
    """A run on DEVICE that counted, with one canary reading before and one after."""
    job = add_job(store)
    before, after = medians
    with store.write() as tx:
        (run,) = job.runs
        tx.jobs.start_run(run.id, DEVICE)
        names = {"canary_copy before": before, "canary_copy after": after}
        made = document(
            environment=facts, ceilings=[ceiling(name, value) for name, value in names.items()]
        )
        tx.results.receive(run.id, made.to_json())
        assert tx.results.store(run.id, made)
        return run.id


def test_history_is_that_of_one_device_under_one_driver(store: Store) -> None:
    add_target(store)
    add_device(store)
    keep(store, FACTS | {"candidate.uid": 1}, 1.0, 2.0)
    keep(store, FACTS | {"device.driver": "590.1"}, 90.0, 91.0)
    keep(store, FACTS | {"candidate.uid": 2}, 3.0, 4.0)
    spoiled = keep(store, FACTS, 70.0, 71.0)
    with store.write() as tx:
        tx.session.get_one(Run, spoiled).valid = False
        found = tx.readings.canaries(DEVICE, FACTS)
        assert sorted(reading.us for reading in found["canary_copy"]) == [1.0, 2.0, 3.0, 4.0]
        assert len({reading.run for reading in found["canary_copy"]}) == 2
        assert found["canary_compute"] == []
        assert tx.readings.canaries("bench/interpreter/1", FACTS)["canary_copy"] == []


def test_the_newest_readings_make_up_what_is_usual(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gdn_service.store.readings.KEPT", 3)
    add_target(store)
    add_device(store)
    for number in range(3):
        keep(store, FACTS, number, number + 0.5)
    with store.read() as tx:
        found = tx.readings.canaries(DEVICE, FACTS)["canary_copy"]
    assert len(found) == 3
    assert {reading.us for reading in found} > {2.0, 2.5}


def test_lifting_the_quarantine_begins_a_new_history(store: Store) -> None:
    add_target(store)
    add_device(store)
    keep(store, FACTS, 1.0, 2.0)
    with store.write() as tx:
        assert tx.devices.quarantine(DEVICE, "three in a row")
        assert len(tx.readings.canaries(DEVICE, FACTS)["canary_copy"]) == 2
        assert tx.devices.quarantine(DEVICE, None)
        assert tx.readings.canaries(DEVICE, FACTS)["canary_copy"] == []
    later = keep(store, FACTS, 3.0, 4.0)
    with store.read() as tx:
        found = tx.readings.canaries(DEVICE, FACTS)["canary_copy"]
    assert sorted((reading.run, reading.us) for reading in found) == [(later, 3.0), (later, 4.0)]


def test_what_moves_a_canary_by_right_is_its_identity() -> None:
    assert identity(FACTS | {"host": "a"}) == identity(FACTS | {"host": "b"})
    assert identity(FACTS) != identity(FACTS | {"image": "sha256:1"})
