from __future__ import annotations

import pytest

from gdn_service.clock import now
from gdn_service.jobs import placement
from gdn_service.jobs.states import JobState
from gdn_service.store.store import Store
from support.service_rows import add_job, add_target

KIND = "interpreter"


@pytest.fixture
def fleet(store: Store) -> Store:
    """Three living hosts with one device each."""
    add_target(store)
    for host in ("a", "b", "c"):
        add_host(store, host)
    return store


def add_host(store: Store, host: str, *, devices: int = 1, ttl_s: float = 60) -> None:
    with store.write() as tx:
        tx.leases.acquire(f"worker:{host}", host, host=host, ttl_s=ttl_s)
        for index in range(devices):
            tx.devices.seen(
                f"{host}/{KIND}/{index}",
                host=host,
                kind=KIND,
                index=index,
                name="interpreter",
                uuid=None,
                measures=[],
                present=True,
                idle=True,
                why_not_idle="",
                seen_at=now(),
            )


def quarantine(store: Store, host: str, reason: str | None = "fan") -> None:
    with store.write() as tx:
        assert tx.devices.quarantine(f"{host}/{KIND}/0", reason)


def turn(store: Store, job_id: str) -> set[str]:
    with store.read() as tx:
        return placement.hosts_for(tx, job_id, KIND)


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
