"""Every endpoint over HTTP against a real store and real git; no worker runs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gdn_service import application
from gdn_service.api.app import build_app
from gdn_service.auth import Scope, create_token
from gdn_service.jobs.states import JobState
from gdn_service.store.models import Device, Job
from gdn_service.store.store import Store
from support.service_bench import Repo, bench_settings, demo_target, running
from support.service_rows import DEVICE, add_device, add_worker, document


class Api:
    """A client with tokens of two scopes."""

    def __init__(self, client: httpx.Client, store: Store, repo: Repo) -> None:
        self.client = client
        self.store = store
        self.repo = repo
        self.tokens = {scope: create_token(store, f"the {scope}", scope) for scope in Scope}

    def call(
        self, method: str, path: str, *, scope: Scope | None = Scope.SUBMIT, **arguments: Any
    ) -> Any:
        headers = arguments.pop("headers", {})
        if scope is not None:
            headers["Authorization"] = f"Bearer {self.tokens[scope]}"
        return self.client.request(method, f"/api/v1{path}", headers=headers, **arguments)

    def get(self, path: str, **arguments: Any) -> Any:
        return self.call("GET", path, **arguments)

    def submit(self, commit: str | None = None, **body: Any) -> Any:
        headers = body.pop("headers", {})
        commit = commit or self.repo.git("rev-parse", "HEAD")
        return self.call(
            "POST", "/jobs", json={"target": "demo", "commit": commit, **body}, headers=headers
        )

    def end(self, job_id: str, state: JobState = JobState.PASSED) -> None:
        with self.store.write() as tx:
            claim = tx.jobs.claim(job_id, "w")
            assert claim is not None
            tx.jobs.start(job_id, "w", claim)
            tx.jobs.finish(job_id, state, reason="", failure_class=None, duration_s=1.0)


@pytest.fixture
def api(database_url: str, tmp_path: Path, repo: Repo) -> Iterator[Api]:
    application.configure_logs()
    settings = bench_settings(tmp_path / "data", database_url, bundle_max_bytes=100_000)
    application.migrate(settings)
    with application.open_store(settings) as store:
        with store.write() as tx:
            tx.targets.put(demo_target(repo.path))
        add_device(store)
        add_worker(store)
        app = build_app(application.build_context(settings, store))
        with running(app) as url, httpx.Client(base_url=url, timeout=30) as client:
            yield Api(client, store, repo)


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert {key: body[key] for key in ("status", "code")} == {"status": status, "code": code}
    assert body["type"]
    assert body["title"]
    return body


def test_system_endpoints(api: Api) -> None:
    assert api.get("/health", scope=None).json()["status"] == "ok"
    assert api.get("/ready", scope=None).json()["status"] == "ready"
    assert api.get("/whoami", scope=Scope.READ).json() == {"name": "the read", "scope": "read"}


def test_tokens_and_scopes(api: Api) -> None:
    answer = api.get("/jobs", scope=None)
    assert "gdn-service token create" in problem(answer, 401, "unauthorised")["detail"]
    assert answer.headers["www-authenticate"] == "Bearer"
    answer = api.get("/jobs", scope=None, headers={"Authorization": "Bearer gdn_no"})
    problem(answer, 401, "unauthorised")
    problem(api.call("POST", "/jobs", scope=Scope.READ, json={}), 403, "forbidden")


def test_the_vocabulary_is_the_tables_in_their_order(api: Api) -> None:
    found = api.get("/vocabulary").json()
    assert [suite["name"] for suite in found["suites"]] == [
        "correctness",
        "determinism",
        "roofline",
        "codeobject",
    ]
    assert [suite["name"] for suite in found["suites"] if suite["compares"]] == ["codeobject"]
    assert [suite["name"] for suite in found["suites"] if not suite["default"]] == ["codeobject"]
    kinds = {kind["name"]: kind for kind in found["device_kinds"]}
    assert list(kinds) == ["gfx950", "sm90", "gfx950-emulated", "interpreter"]
    assert kinds["sm90"]["peak_bytes_per_s"] == 4.8e12
    assert kinds["gfx950-emulated"] == {
        "name": "gfx950-emulated",
        "vendor": None,
        "hardware": False,
        "event_timers": False,
        "peak_bytes_per_s": None,
    }


def test_targets_and_devices(api: Api) -> None:
    (target,) = api.get("/targets").json()["items"]
    assert target["name"] == "demo"
    assert target["suites"] == ["correctness", "determinism", "roofline", "codeobject"]
    (device,) = api.get("/devices").json()["items"]
    assert (device["id"], device["idle"], device["quarantined"]) == (DEVICE, True, False)
    with api.store.write() as tx:
        tx.session.get_one(Device, DEVICE).quarantined = "fan"
    (device,) = api.get("/devices").json()["items"]
    assert (device["idle"], device["quarantine_reason"]) == (False, "fan")


def test_a_device_is_not_idle_while_its_worker_is_dead(api: Api) -> None:
    add_worker(api.store, ttl_s=-1)
    (device,) = api.get("/devices").json()["items"]
    assert (device["live"], device["idle"]) == (False, False)
    seen = device["seen_at"]
    assert device["why_not_idle"] == f"worker bench is not alive; last seen {seen}"
    add_worker(api.store)
    (device,) = api.get("/devices").json()["items"]
    assert (device["live"], device["idle"], device["why_not_idle"]) == (True, True, "")


def test_a_job_says_why_no_host_can_take_it(api: Api) -> None:
    assert api.submit().json()["why_waiting"] == ""
    with api.store.write() as tx:
        tx.leases.release("worker:bench", "bench")
    (device,) = api.get("/devices").json()["items"]
    job = api.submit(quick=True).json()
    assert job["why_waiting"] == (
        "no live worker serves device kind interpreter; "
        f"last seen: bench at {device['seen_at']}; no worker lives"
    )
    listed = [item["why_waiting"] for item in api.get("/jobs").json()["items"]]
    assert listed == [job["why_waiting"]] * 2
    api.end(job["id"])
    assert api.get(f"/jobs/{job['id']}").json()["why_waiting"] == ""


def test_resolving_a_commit(api: Api) -> None:
    sha = api.repo.commit("to resolve", {"x": "1"})
    answer = api.get("/commits/resolve", params={"target": "demo", "rev": sha[:9]})
    assert (answer.json()["sha"], answer.json()["subject"]) == (sha, "to resolve")
    answer = api.get("/commits/resolve", params={"target": "demo", "rev": "f" * 40})
    problem(answer, 404, "unknown_commit")
    answer = api.get("/commits/resolve", params={"target": "nope", "rev": sha})
    assert "known: demo" in problem(answer, 404, "unknown_target")["detail"]
    answer = api.get("/commits/resolve", params={"target": "demo", "rev": "main"})
    problem(answer, 422, "invalid_request")


def test_submit_gives_a_job_with_its_runs(api: Api) -> None:
    answer = api.submit(suites=["roofline", "correctness", "roofline"], batch_sizes=[8, 1, 8])
    assert answer.status_code == 201
    job = answer.json()
    assert job["state"] == "queued"
    assert job["queue_position"] == 1
    assert job["client_wait_s"] == 6 * 3600
    assert job["subject"] == "first"
    assert job["suites"] == ["correctness", "roofline"]
    assert job["batch_sizes"] == [1, 8]
    assert [run["suite"] for run in job["runs"]] == ["correctness", "roofline"]
    assert job["links"]["self"] == f"/api/v1/jobs/{job['id']}"
    assert api.get(f"/jobs/{job['id']}").json() == job


def test_the_default_suites_are_three(api: Api) -> None:
    assert api.submit().json()["suites"] == ["correctness", "determinism", "roofline"]


def test_an_identical_open_job_is_joined(api: Api) -> None:
    first = api.submit().json()
    again = api.submit()
    assert again.status_code == 200
    assert (again.json()["id"], again.json()["joined"]) == (first["id"], True)
    assert api.submit(quick=True).status_code == 201
    assert api.submit(force=True).status_code == 201


@pytest.mark.parametrize(
    ("state", "stored"),
    [
        (JobState.PASSED, True),
        (JobState.FAILED, True),
        (JobState.ERROR, False),
        (JobState.INCONCLUSIVE, False),
        (JobState.CANCELLED, False),
    ],
)
def test_only_an_answer_is_reused(api: Api, state: JobState, stored: bool) -> None:
    first = api.submit().json()
    api.end(first["id"], state)
    again = api.submit()
    assert again.status_code == (200 if stored else 201)
    assert again.json()["from_store"] is stored
    assert (again.json()["id"] == first["id"]) is stored
    assert api.submit(force=True).json()["id"] != first["id"]


def test_an_idempotency_key_makes_one_job(api: Api) -> None:
    key = {"Idempotency-Key": "k1"}
    first = api.submit(force=True, headers=dict(key))
    again = api.submit(force=True, headers=dict(key))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    problem(api.submit(quick=True, headers=dict(key)), 422, "idempotency_mismatch")


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"target": "x"}, 404, "unknown_target", "known: demo"),
        ({"suites": ["speed"]}, 422, "unknown_suite", "no suite 'speed'; known: correctness"),
        ({"suites": []}, 422, "invalid_request", "at least one"),
        ({"device_kind": "gfx950"}, 409, "device_kind_not_served", "served: interpreter"),
        ({"device_kind": "mi300"}, 422, "unknown_device_kind", "known: gfx950, sm90"),
        ({"commit": "f" * 40}, 404, "unknown_commit", "gdn-client does so"),
        ({"commit": "--exec=id"}, 422, "invalid_request", "not a commit SHA"),
        ({"bundle": "b0"}, 404, "not_found", "upload it again"),
        ({"heads": "4"}, 422, "invalid_request", "body.heads"),
        ({"batch_sizes": [-1]}, 422, "invalid_request", "body.batch_sizes.0"),
        ({"batch_sizes": ["1"]}, 422, "invalid_request", "body.batch_sizes.0"),
        (
            {"batch_sizes": [0], "suites": ["correctness", "roofline"]},
            422,
            "invalid_request",
            "roofline would have nothing to judge",
        ),
        ({"subject": "a\x00b"}, 422, "invalid_request", "NUL"),
        ({"sutes": ["correctness"]}, 422, "invalid_request", "body.sutes"),
    ],
)
def test_bad_submissions_are_told_apart(
    api: Api, body: dict[str, Any], status: int, code: str, words: str
) -> None:
    assert words in problem(api.submit(**body), status, code)["detail"]
    assert api.get("/jobs").json()["items"] == []


def test_an_ambiguous_commit_brings_candidates(api: Api) -> None:
    tree = api.repo.git("rev-parse", "HEAD^{tree}")
    seen: dict[str, str] = {}
    for number in range(2000):
        sha = api.repo.git("commit-tree", tree, "-m", f"twin {number}")
        if sha[:4] in seen:
            break
        seen[sha[:4]] = sha
    for n, twin in enumerate((sha, seen[sha[:4]])):
        api.repo.git("update-ref", f"refs/heads/twin{n}", twin)
    body = problem(api.submit(sha[:4]), 422, "ambiguous_commit")
    assert {c["sha"] for c in body["candidates"]} == {sha, seen[sha[:4]]}
    assert set(body["candidates"][0]) == {"sha", "subject", "author_date"}


def test_an_unreachable_repository_is_not_the_callers_fault(api: Api, tmp_path: Path) -> None:
    with api.store.write() as tx:
        tx.targets.put(demo_target(tmp_path / "gone", name="gone"))
    problem(api.submit(target="gone"), 503, "repository_unavailable")


def clone_of(repo: Repo, folder: Path) -> Repo:
    dev = Repo(folder)
    dev.git("fetch", "--quiet", str(repo.path), "main")
    dev.git("reset", "--quiet", "--hard", "FETCH_HEAD")
    return dev


def send_bundle(api: Api, dev: Repo, base: str, target: str = "demo") -> httpx.Response:
    """What `dev` has on `main` since `base`."""
    path = dev.path.with_name("sent.bundle")
    dev.git("bundle", "create", "--quiet", str(path), f"{base}..main")
    answer: httpx.Response = api.call(
        "POST",
        "/bundles",
        params={"target": target},
        content=path.read_bytes(),
        headers={"Content-Type": "application/octet-stream"},
    )
    return answer


def test_a_bundle_makes_an_unpushed_commit_available(api: Api, tmp_path: Path) -> None:
    base = api.repo.git("rev-parse", "HEAD")
    dev = clone_of(api.repo, tmp_path / "dev")
    sha = dev.commit("unpushed", {"new": "1"})
    answer = send_bundle(api, dev, base)
    assert answer.status_code == 201, answer.text
    assert answer.json()["heads"] == [{"ref": "refs/heads/main", "sha": sha}]
    job = api.submit(sha, bundle=answer.json()["id"], worktree=True, subject="my work")
    assert job.status_code == 201, job.text
    assert (job.json()["subject"], job.json()["worktree"]) == ("my work", True)


def test_a_bundle_that_grows_past_the_limit_by_what_it_builds_on_is_refused(
    api: Api, tmp_path: Path
) -> None:
    """Each is under 100 kB; the second one's kept form has both."""
    dev = clone_of(api.repo, tmp_path / "dev")
    for status in (201, 413):
        base = dev.git("rev-parse", "HEAD")
        sha = dev.commit("large", {"large": random.Random(status).randbytes(50_000).hex()})
        answer = send_bundle(api, dev, base)
        assert answer.status_code == status, answer.text
    told = problem(answer, 413, "payload_too_large")
    assert told["detail"].startswith("with the earlier commits that it builds on")
    assert told["detail"].endswith("over 100000 bytes (GDN_BUNDLE_MAX_BYTES); push those commits")
    problem(api.submit(sha), 404, "unknown_commit")


def test_a_job_takes_no_bundle_of_another_target(api: Api, tmp_path: Path) -> None:
    with api.store.write() as tx:
        tx.targets.put(demo_target(api.repo.path, name="other"))
    base = api.repo.git("rev-parse", "HEAD")
    dev = clone_of(api.repo, tmp_path / "dev")
    sha = dev.commit("unpushed", {"new": "1"})
    bundle = send_bundle(api, dev, base, "other").json()["id"]
    told = problem(api.submit(sha, bundle=bundle), 422, "invalid_request")
    assert told["detail"] == (
        f"bundle {bundle} was sent for target 'other', not for 'demo'; upload it again for this one"
    )
    assert api.submit(sha, bundle=bundle, target="other").status_code == 201


def test_bad_bundles_are_refused(api: Api) -> None:
    def send(content: bytes, target: str = "demo") -> Any:
        return api.call("POST", "/bundles", params={"target": target}, content=content)

    problem(send(b"junk"), 422, "bundle_invalid")
    problem(send(b"x" * 100_001), 413, "payload_too_large")
    problem(send(b"junk", "nope"), 404, "unknown_target")


def test_pages_of_jobs(api: Api) -> None:
    ids = [api.submit(batch_sizes=[n]).json()["id"] for n in range(1, 6)]
    seen: list[str] = []
    cursor = None
    while True:
        page = api.get("/jobs", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]
    problem(api.get("/jobs", params={"cursor": "%%"}), 422, "invalid_request")
    problem(api.get("/jobs", params={"state": "lost"}), 422, "invalid_request")
    assert api.get("/jobs", params={"state": "passed"}).json()["items"] == []


def test_cancelling_a_queued_job_is_idempotent(api: Api) -> None:
    job_id = api.submit().json()["id"]
    for _ in range(2):
        answer = api.call("POST", f"/jobs/{job_id}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
        assert {run["state"] for run in answer.json()["runs"]} == {"cancelled"}
    assert api.submit().json()["id"] != job_id


def test_a_finished_job_cannot_be_cancelled(api: Api) -> None:
    job_id = api.submit().json()["id"]
    api.end(job_id)
    body = problem(api.call("POST", f"/jobs/{job_id}/cancel"), 409, "not_cancellable")
    assert "already passed" in body["detail"]
    problem(api.call("POST", "/jobs/j0/cancel"), 404, "not_found")


def test_retry_makes_a_new_attempt(api: Api) -> None:
    job = api.submit(batch_sizes=[4], quick=True).json()
    problem(api.call("POST", f"/jobs/{job['id']}/retry"), 409, "conflict")
    api.end(job["id"], JobState.FAILED)
    answer = api.call("POST", f"/jobs/{job['id']}/retry")
    assert answer.status_code == 201
    again = answer.json()
    assert (again["attempt"], again["state"]) == (2, "queued")
    assert [again[k] for k in ("commit", "batch_sizes", "quick")] == [job["commit"], [4], True]
    assert api.submit(batch_sizes=[4], quick=True).json()["id"] == again["id"]


def _finish_run(api: Api, job: dict[str, Any]) -> str:
    run_id: str = job["runs"][0]["id"]
    judged = document(commit=job["commit"])
    with api.store.write() as tx:
        tx.jobs.start_run(run_id, DEVICE)
        tx.results.receive(run_id, judged.to_json())
        tx.results.store(run_id, judged)
    return run_id


def test_runs_documents_and_results_of_a_commit(api: Api) -> None:
    job = api.submit(suites=["correctness"]).json()
    waiting = api.get(f"/runs/{job['runs'][0]['id']}")
    assert (waiting.json()["state"], waiting.json()["document"]) == ("queued", None)
    problem(api.get(f"/runs/{job['runs'][0]['id']}/document"), 404, "not_found")
    run_id = _finish_run(api, job)
    run = api.get(f"/runs/{run_id}").json()
    assert (run["verdict"], run["cases"], run["device"]) == ("passed", {"passed": 1}, DEVICE)
    assert run["environment"] == {"driver": "1.2"}
    assert api.get(f"/runs/{run_id}/document").json()["cases"][0]["id"] == "T8"
    found = api.get(f"/commits/{job['commit']}/results", params={"target": "demo"}).json()
    assert [(item["run_id"], item["suite"]) for item in found["items"]] == [(run_id, "correctness")]
    assert found["items"][0]["document"] == f"/api/v1/runs/{run_id}/document"
    problem(api.get("/runs/r0"), 404, "not_found")
    problem(api.get("/commits/abc/results", params={"target": "demo"}), 422, "invalid_request")


def _events(text: str) -> list[dict[str, Any]]:
    events = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "id" in fields:
            events.append(
                {
                    "id": int(fields["id"]),
                    "event": fields["event"],
                    "data": json.loads(fields["data"]),
                }
            )
    return events


def test_the_log_streams_to_its_end_and_resumes(api: Api) -> None:
    job_id = api.submit().json()["id"]
    api.store.say(job_id, "one line\n[passed]")
    api.end(job_id)
    with api.store.write() as tx:
        tx.log.append(job_id, [("state", {"state": "passed", "reason": ""})])
    answer = api.get(f"/jobs/{job_id}/log")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = _events(answer.text)
    assert [event["id"] for event in events] == [1, 2, 3]
    assert [event["event"] for event in events] == ["state", "log", "state"]
    assert events[1]["data"]["text"] == "one line\n[passed]"
    rest = api.get(f"/jobs/{job_id}/log", headers={"Last-Event-ID": "2"})
    assert [event["id"] for event in _events(rest.text)] == [3]
    text = api.get(f"/jobs/{job_id}/log", params={"format": "text"})
    assert text.text == "[queued] queued for interpreter\none line\n  [passed]\n[passed]\n"
    lines = api.get(f"/jobs/{job_id}/log", params={"format": "jsonl"}).text.splitlines()
    assert [json.loads(line) for line in lines] == events
    problem(api.get("/jobs/j0/log"), 404, "not_found")
    problem(api.get(f"/jobs/{job_id}/log", headers={"Last-Event-ID": "x"}), 422, "invalid_request")


def test_unknown_paths_and_methods_are_problems_too(api: Api) -> None:
    problem(api.get("/nothing"), 404, "not_found")
    problem(api.call("DELETE", "/jobs"), 405, "method_not_allowed")


def test_a_fault_of_the_service_hides_its_inside(api: Api) -> None:
    job_id = api.submit().json()["id"]
    with api.store.write() as tx:
        tx.session.get_one(Job, job_id).device_kind = "broken"
    body = problem(api.get(f"/jobs/{job_id}"), 500, "internal_error")
    assert "broken" not in body["detail"]
