"""Leases, devices, log, tokens, bundles."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest

from gdn_service.auth import Scope, authenticate, create_token, require
from gdn_service.clock import iso, now
from gdn_service.errors import Forbidden, Unauthorised
from gdn_service.store.models import Bundle, Device
from gdn_service.store.store import Store
from support.service_rows import DEVICE, add_device, add_job, add_target


def test_a_lease_has_one_holder_until_it_runs_out(store: Store) -> None:
    with store.write() as tx:
        assert tx.leases.acquire("l", "a", host="h", ttl_s=60)
        assert not tx.leases.acquire("l", "b", host="h", ttl_s=60)
        assert tx.leases.acquire("l", "a", host="h", ttl_s=-1)
    with store.write() as tx:
        assert [lease.name for lease in tx.leases.expired("l")] == ["l"]
        assert tx.leases.acquire("l", "b", host="h", ttl_s=60)
        tx.leases.release("l", "a")
        assert [lease.holder for lease in tx.leases.live("l")] == ["b"]


def test_three_host_failures_in_a_row_quarantine_a_device(store: Store) -> None:
    add_device(store)
    with store.write() as tx:
        assert [tx.devices.host_failure(DEVICE, "fan") for _ in range(2)] == [False, False]
        tx.devices.host_success(DEVICE)
    with store.write() as tx:
        assert [tx.devices.host_failure(DEVICE, "fan") for _ in range(3)] == [False, False, True]
    add_device(store)  # seen again: stays in quarantine
    with store.write() as tx:
        device = tx.devices.get(DEVICE)
        assert device is not None
        assert device.quarantined == "3 host failures in a row, last: fan"
        assert tx.devices.quarantine(DEVICE, None)
        assert tx.devices.get(DEVICE).quarantined is None  # type: ignore[union-attr]


def test_failures_of_one_commits_candidate_count_only_when_the_device_fails_without_it(
    store: Store,
) -> None:
    add_device(store)

    def fail(*suspects: str | None) -> list[int]:
        counts = []
        for suspect in suspects:
            with store.write() as tx:
                tx.devices.host_failure(DEVICE, "hang", suspect=suspect)
                counts.append(tx.session.get_one(Device, DEVICE).failures_in_row)
        return counts

    assert fail("a", "a", "a", "a") == [0, 0, 0, 0]
    with store.write() as tx:
        tx.devices.host_success(DEVICE)
    assert fail("b", "a") == [0, 1]
    with store.write() as tx:
        tx.devices.quarantine(DEVICE, None)
    assert fail("a", None, None) == [0, 2, 3]
    with store.read() as tx:
        assert tx.session.get_one(Device, DEVICE).quarantined == (
            "3 host failures in a row, last: hang"
        )


def failures_after_one_more(store: Store, **commit: str) -> int:
    with store.write() as tx:
        tx.devices.host_failure(DEVICE, "gone", **commit)
        return tx.session.get_one(Device, DEVICE).failures_in_row


def test_a_commit_that_also_fails_while_it_runs_counts_no_more_often(store: Store) -> None:
    add_device(store)

    fail = partial(failures_after_one_more, store)
    assert [fail(after="a"), fail(suspect="a"), fail(after="a"), fail(suspect="a")] == [1, 1, 1, 1]
    assert [fail(after="a"), fail(after="b")] == [1, 2]
    assert [fail(suspect="c"), fail(after="b")] == [2, 4]


def test_failures_after_a_commits_candidate_count_once_in_a_row(store: Store) -> None:
    add_device(store)

    fail = partial(failures_after_one_more, store)
    assert [fail(after=commit) for commit in ("a", "a", "a", "b", "b")] == [1, 1, 1, 2, 2]
    with store.write() as tx:
        tx.devices.host_success(DEVICE)
    assert [fail(after="b"), fail(suspect="b"), fail(suspect="c")] == [1, 1, 2]
    with store.write() as tx:
        tx.devices.quarantine(DEVICE, None)
    assert [fail(suspect="a"), fail(after="a"), fail(after="b"), fail()] == [0, 1, 2, 3]
    with store.read() as tx:
        assert tx.session.get_one(Device, DEVICE).quarantined == (
            "3 host failures in a row, last: gone"
        )


def test_a_device_that_is_gone_serves_nothing(store: Store) -> None:
    add_device(store)
    with store.write() as tx:
        assert tx.devices.served_kinds() == ["interpreter"]
        tx.devices.retain("bench", [])
    with store.read() as tx:
        assert tx.devices.served_kinds() == []


def test_log_events_are_numbered_without_gaps_by_many_writers(store: Store) -> None:
    add_target(store)
    job = add_job(store)

    def write(number: int) -> None:
        for i in range(20):
            store.append(job.id, [("log", {"text": f"{number}.{i}"}), ("log", {"text": "x"})])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as tx:
        assert [event.seq for event in tx.log.after(job.id, 0)] == list(range(1, 161))
        assert [event.seq for event in tx.log.after(job.id, 158)] == [159, 160]


def test_times_come_back_in_utc_whatever_zone_they_had(store: Store) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    add_target(store)
    job = add_job(store, created_at=noon.astimezone(timezone(timedelta(hours=5, minutes=30))))
    with store.read() as tx:
        found = tx.jobs.get(job.id)
    assert found is not None
    assert found.created_at == noon
    assert iso(found.created_at) == "2026-01-31T12:00:00.000Z"


def test_a_token_is_known_by_its_text_until_it_is_revoked(store: Store) -> None:
    text = create_token(store, "ci", Scope.SUBMIT)
    token = authenticate(store, text)
    assert (token.name, token.scope) == ("ci", "submit")
    assert text.split("_", 2)[2] not in repr(vars(token))
    with store.write() as tx:
        assert tx.tokens.revoke(token.id)
        assert not tx.tokens.revoke("nobody")
    with pytest.raises(Unauthorised, match="revoked"):
        authenticate(store, text)


@pytest.mark.parametrize("text", [None, "", "gdn_x", "gdn_0123456789ab_" + "A" * 43])
def test_a_wrong_token_is_refused(store: Store, text: str | None) -> None:
    with pytest.raises(Unauthorised):
        authenticate(store, text)


def test_a_right_id_with_a_wrong_secret_is_refused(store: Store) -> None:
    text = create_token(store, "ci", Scope.SUBMIT)
    with pytest.raises(Unauthorised):
        authenticate(store, text[:-4] + ("AAAA" if not text.endswith("AAAA") else "BBBB"))


def test_scopes_are_ordered(store: Store) -> None:
    token = authenticate(store, create_token(store, "dev", Scope.SUBMIT))
    require(token, Scope.READ)
    require(token, Scope.SUBMIT)
    with pytest.raises(Forbidden, match="needs scope manage; the token 'dev' has submit"):
        require(token, Scope.MANAGE)


def test_a_bundle_keeps_its_bytes(store: Store) -> None:
    add_target(store)
    with store.write() as tx:
        tx.bundles.add(
            Bundle(
                id="b1",
                target="demo",
                sha256="0" * 64,
                size=3,
                heads=[{"ref": "HEAD", "sha": "1" * 40}],
                content=b"\x00\xff\n",
                created_at=now(),
            )
        )
    with store.read() as tx:
        assert tx.bundles.content("b1") == b"\x00\xff\n"
        assert tx.bundles.content("b2") is None
