from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gdn_service.clock import now
from gdn_service.jobs import placement
from gdn_service.jobs.states import JobState
from gdn_service.store.store import Store
from support.service_rows import add_device, add_job, add_target, add_worker

KIND = "interpreter"


@pytest.fixture
def fleet(store: Store) -> Store:
    """Three living hosts with one device each."""
    add_target(store)
    for host in ("a", "b", "c"):
        add_host(store, host)
    return store


def add_host(store: Store, host: str, *, devices: int = 1, ttl_s: float = 60) -> None:
    add_worker(store, host, ttl_s=ttl_s)
    for index in range(devices):
        add_device(store, host, index)


def quarantine(store: Store, host: str, reason: str | None = "fan") -> None:
    with store.write() as tx:
        assert tx.devices.quarantine(f"{host}/{KIND}/0", reason)


def turn(store: Store, job_id: str) -> set[str]:
    with store.read() as tx:
        return placement.hosts_for(tx, job_id, KIND)


def waiting(store: Store, job_id: str) -> str:
    with store.read() as tx:
        job = tx.jobs.get(job_id)
        assert job is not None
        return placement.why_waiting(placement.Fleet(tx), job)


def takes(store: Store, host: str) -> str | None:
    with store.read() as tx:
        return placement.next_job(tx, host, KIND)


def test_a_job_goes_to_the_hosts_that_spoiled_it_least_and_not_to_the_last_one(
    fleet: Store,
) -> None:
    job = add_job(fleet)
    turns = [turn(fleet, job.id)]
    for host in ("a", "b", "c", "a"):
        with fleet.write() as tx:
            tx.jobs.host_failure(job.runs[0].id, host=host, device_id=None, reason="busy")
        turns.append(turn(fleet, job.id))
    assert turns == [{"a", "b", "c"}, {"b", "c"}, {"c"}, {"a", "b"}, {"b", "c"}]


def test_a_host_that_is_dead_or_has_no_usable_device_is_not_waited_for(fleet: Store) -> None:
    job = add_job(fleet)
    quarantine(fleet, "a")
    with fleet.write() as tx:
        tx.devices.retain("b", [])
    assert turn(fleet, job.id) == {"c"}
    assert [takes(fleet, host) for host in ("a", "b", "c")] == [None, None, job.id]
    with fleet.write() as tx:
        tx.leases.release("worker:c", "c")
    assert turn(fleet, job.id) == set()
    assert [takes(fleet, host) for host in ("a", "b")] == [job.id, job.id]
    quarantine(fleet, "a", None)
    assert [takes(fleet, host) for host in ("a", "b")] == [job.id, None]


def test_a_host_takes_one_job_for_each_device_that_it_can_use(store: Store) -> None:
    add_target(store)
    add_host(store, "a", devices=3)
    quarantine(store, "a")
    jobs = [add_job(store, id=f"j{n}") for n in range(4)]
    add_job(store, id="j0other", device_kind="sm90")
    taken = []
    while (job_id := takes(store, "a")) is not None:
        with store.write() as tx:
            assert tx.jobs.claim(job_id, "a") == 1
        taken.append(job_id)
    assert taken == ["j0", "j1"]
    with store.write() as tx:
        ended = {"reason": "", "failure_class": None, "duration_s": None}
        assert tx.jobs.finish(jobs[0].id, JobState.ERROR, **ended)
    assert takes(store, "a") == "j2"


def test_why_a_host_takes_no_jobs(fleet: Store) -> None:
    quarantine(fleet, "a")
    with fleet.read() as tx:
        assert placement.why_no_jobs(tx, "b", KIND) == ""
        assert placement.why_no_jobs(tx, "a", KIND) == (
            "a has no usable interpreter device and takes no interpreter jobs; they go to b, c"
        )
    quarantine(fleet, "b")
    quarantine(fleet, "c")
    with fleet.read() as tx:
        assert placement.why_no_jobs(tx, "a", KIND) == ""


def test_a_job_waits_in_vain_where_no_live_worker_serves_its_kind(store: Store) -> None:
    add_target(store)
    seen = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for host, minutes in (("a", 0), ("b", 5)):
        add_host(store, host, devices=2)
        with store.write() as tx:
            for index in range(2):
                device = tx.devices.get(f"{host}/{KIND}/{index}")
                assert device is not None
                device.seen_at = seen + timedelta(minutes=minutes - index)
    job = add_job(store)
    assert waiting(store, job.id) == ""
    with store.write() as tx:
        tx.leases.release("worker:a", "a")
    assert waiting(store, job.id) == ""
    with store.write() as tx:
        tx.leases.acquire("worker:b", "b", host="b", ttl_s=-1)
    told = (
        "no live worker serves device kind interpreter; last seen: "
        "b at 2026-01-02T03:09:05.000Z, a at 2026-01-02T03:04:05.000Z; "
    )
    assert waiting(store, job.id) == told + "no worker lives"
    with store.write() as tx:
        other = {"kind": "sm90", "index": 0, "name": "H200", "uuid": "u", "measures": []}
        state = {"present": True, "idle": True, "why_not_idle": "", "seen_at": now()}
        tx.devices.seen("c/sm90/0", host="c", **other, **state)
        tx.leases.acquire("worker:c", "c", host="c", ttl_s=60)
    assert waiting(store, job.id) == told + "live workers serve sm90"


def test_a_job_that_a_dead_worker_has_waits_and_that_a_live_one_has_does_not(
    fleet: Store,
) -> None:
    job = add_job(fleet)
    with fleet.write() as tx:
        claim = tx.jobs.claim(job.id, "a")
        assert claim is not None
        assert tx.jobs.start(job.id, "a", claim) == 1
        for host in ("b", "c"):
            tx.devices.retain(host, [])
    assert waiting(fleet, job.id) == ""
    with fleet.write() as tx:
        tx.leases.release("worker:a", "a")
    assert waiting(fleet, job.id).startswith("no live worker serves device kind interpreter; ")
    with fleet.write() as tx:
        ended = {"reason": "", "failure_class": None, "duration_s": None}
        assert tx.jobs.finish(job.id, JobState.ERROR, **ended)
    assert waiting(fleet, job.id) == ""


def test_a_job_waits_in_vain_where_all_devices_of_live_workers_are_quarantined(
    fleet: Store,
) -> None:
    job = add_job(fleet)
    quarantine(fleet, "a")
    quarantine(fleet, "b", "smoke")
    assert waiting(fleet, job.id) == ""
    with fleet.write() as tx:
        tx.leases.release("worker:c", "c")
    assert waiting(fleet, job.id) == (
        "every interpreter device of a live worker is quarantined: "
        "a/interpreter/0: fan; b/interpreter/0: smoke"
    )
