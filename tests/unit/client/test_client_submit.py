from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fake_service import Event, FakeService, job, problem
from support.user_repository import commit_file, git

Client = Callable[..., int]


@pytest.fixture
def in_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(repository)
    return repository


def know_all(service: FakeService, repository: Path, revision: str = "HEAD") -> None:
    for sha in git(repository, "rev-list", revision).split():
        service.known[sha] = "known"


def test_a_known_commit_is_not_sent_again(
    client: Client, service: FakeService, in_repository: Path
) -> None:
    know_all(service, in_repository)
    assert client("submit", "--detach") == 8
    assert service.asked("POST", "/bundles") == []
    body = service.asked("POST", "/jobs")[0].json
    assert body == {
        "target": "gdn-lab",
        "commit": git(in_repository, "rev-parse", "HEAD"),
        "device_kind": None,
        "suites": None,
        "bundle": None,
        "batch_sizes": None,
        "heads": None,
        "quick": False,
        "force": False,
        "subject": "Commit 4",
        "worktree": False,
    }


def test_all_options_reach_the_server(
    client: Client, service: FakeService, in_repository: Path
) -> None:
    know_all(service, in_repository)
    code = client(
        "submit",
        "--commit",
        "HEAD~1",
        "--target",
        "gdn-lab",
        "--device",
        "gfx950",
        "--suite",
        "roofline",
        "--suite",
        "correctness",
        "--batch-sizes",
        "1,8, 64",
        "--heads",
        "4x8",
        "--quick",
        "--force",
        "--detach",
    )
    assert code == 8
    body = service.asked("POST", "/jobs")[0].json
    assert body["commit"] == git(in_repository, "rev-parse", "HEAD~1")
    assert body["device_kind"] == "gfx950"
    assert body["suites"] == ["roofline", "correctness"]
    assert body["batch_sizes"] == [1, 8, 64]
    assert (body["heads"], body["quick"], body["force"]) == ("4x8", True, True)


def test_an_unpushed_commit_travels_as_a_bundle(
    client: Client, service: FakeService, in_repository: Path, tmp_path: Path
) -> None:
    base = git(in_repository, "rev-parse", "HEAD~2")
    know_all(service, in_repository, base)
    assert client("submit", "--detach") == 8
    upload = service.asked("POST", "/bundles")[0]
    assert upload.query == {"target": "gdn-lab"}
    assert upload.headers["Content-Type"] == "application/octet-stream"
    assert service.asked("POST", "/jobs")[0].json["bundle"] == "b1"
    bundle = tmp_path / "received.bundle"
    bundle.write_bytes(upload.body)
    mirror = tmp_path / "mirror.git"
    subprocess.run(["git", "init", "-q", "--bare", str(mirror)], check=True)
    git(mirror, "fetch", "-q", str(in_repository), f"{base}:refs/heads/main")
    git(mirror, "bundle", "verify", "-q", str(bundle))
    git(mirror, "fetch", "-q", str(bundle), "refs/heads/gdn-client:refs/heads/got")
    assert git(mirror, "rev-parse", "got") == git(in_repository, "rev-parse", "HEAD")


def test_a_dirty_tree_is_said_not_to_be_included(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    (in_repository / "file.txt").write_text("changed\n")
    (in_repository / "new.txt").write_text("new\n")
    assert client("submit", "--detach") == 8
    said = capsys.readouterr()
    assert "uncommitted changes in 2 paths are not included" in said.err
    assert "--worktree" in said.err
    assert said.out == "j1\n"


def test_a_dirty_tree_says_nothing_when_another_commit_is_submitted(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    (in_repository / "file.txt").write_text("changed\n")
    client("submit", "--commit", "HEAD~1", "--detach")
    assert "uncommitted" not in capsys.readouterr().err


def test_worktree_sends_a_snapshot(
    client: Client, service: FakeService, in_repository: Path, tmp_path: Path
) -> None:
    know_all(service, in_repository)
    (in_repository / "new.txt").write_text("new\n")
    assert client("submit", "--worktree", "--detach") == 8
    body = service.asked("POST", "/jobs")[0].json
    assert body["worktree"] is True
    assert body["subject"].startswith("Uncommitted changes on ")
    bundle = tmp_path / "received.bundle"
    bundle.write_bytes(service.asked("POST", "/bundles")[0].body)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(in_repository), str(clone))
    git(clone, "fetch", "-q", str(bundle), "refs/heads/gdn-client:refs/heads/got")
    assert git(clone, "rev-parse", "got") == body["commit"]
    assert git(clone, "show", "got:new.txt") == "new"


def test_worktree_does_not_go_with_a_commit(
    client: Client, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client("submit", "--worktree", "--commit", "HEAD~1") == 2
    assert "--worktree" in capsys.readouterr().err


def test_a_clean_worktree_submits_head(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    client("submit", "--worktree", "--detach")
    body = service.asked("POST", "/jobs")[0].json
    assert body["commit"] == git(in_repository, "rev-parse", "HEAD")
    assert body["worktree"] is False
    assert "no uncommitted changes" in capsys.readouterr().err


def finishing(service: FakeService, state: str, **changes: object) -> None:
    service.events = [
        Event(1, "state", {"state": "running", "reason": ""}),
        Event(2, "progress", {"suite": "correctness", "event": "planned", "total": 2}),
        Event(
            3,
            "progress",
            {
                "suite": "correctness",
                "event": "case",
                "id": "a",
                "done": 1,
                "total": 2,
                "outcome": "passed",
                "summary": "fine",
            },
        ),
        Event(
            4,
            "progress",
            {
                "suite": "correctness",
                "event": "case",
                "id": "b",
                "done": 2,
                "total": 2,
                "outcome": "failed",
                "summary": "state off",
            },
        ),
        Event(5, "state", {"state": state, "reason": "because"}),
    ]
    service.jobs["j1"] = job("j1", state, **changes)


@pytest.mark.parametrize(
    ("state", "changes", "flags", "code"),
    [
        ("passed", {}, [], 0),
        ("failed", {}, [], 1),
        ("cancelled", {}, [], 3),
        ("error", {"failure_class": "host"}, [], 5),
        ("error", {"failure_class": "service"}, [], 5),
        ("error", {"failure_class": "candidate"}, [], 1),
        ("inconclusive", {}, [], 0),
        ("inconclusive", {}, ["--strict"], 7),
    ],
)
def test_exit_code_is_the_jobs_end(
    client: Client,
    service: FakeService,
    in_repository: Path,
    state: str,
    changes: dict[str, object],
    flags: list[str],
    code: int,
) -> None:
    know_all(service, in_repository)
    finishing(service, state, **changes)
    assert client("submit", *flags) == code


def test_messages_go_to_stderr_and_the_result_to_stdout(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    finishing(service, "failed")
    client("submit")
    said = capsys.readouterr()
    assert "correctness 2/2 b: failed  state off" in said.err
    assert "correctness: 2 cases planned" in said.err
    assert "Job j1  failed" in said.out
    assert "planned" not in said.out


def test_quiet_leaves_stderr_empty(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    finishing(service, "failed")
    (in_repository / "new.txt").write_text("new\n")
    assert client("submit", "--quiet", "--json") == 1
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out)["job"]["id"] == "j1"


def test_an_answer_from_the_store_says_so_and_waits_for_nothing(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    service.job_status = 200
    service.job_answer = job("j7", "passed", from_store=True, finished_at="2026-01-02T03:04:05Z")
    assert client("submit") == 0
    assert "answered from the store" in capsys.readouterr().err
    assert service.asked("GET", "/jobs/j7/log") == []


def test_joining_a_running_job_says_so(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    service.job_status = 200
    service.job_answer = job("j7", "running", joined=True)
    assert client("submit", "--detach") == 8
    assert "joining" in capsys.readouterr().err


def test_timeout_leaves_the_job_alone(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    service.endless = True
    assert client("submit", "--timeout", "0.3s") == 3
    said = capsys.readouterr().err
    assert "job j1 goes on" in said
    assert "gdn-client logs -f j1" in said
    assert "gdn-client cancel j1" in said
    assert service.asked("POST", "/jobs/j1/cancel") == []


def test_a_wait_that_no_worker_could_end_is_infrastructure(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    service.endless = True
    gone = "no live worker serves device kind sm90; last seen: gpu-1 at 2026-01-02T03:04:05.000Z"
    service.job_answer = job("j1", "queued", why_waiting=gone)
    assert client("submit", "--timeout", "0.3s") == 5
    said = capsys.readouterr().err
    assert said.count(f"warning: the job waits: {gone}\n") == 1
    assert f"job j1 goes on: {gone}\n" in said
    assert "gdn-client logs -f j1" in said
    assert client("submit", "--detach", "--json") == 8
    out, err = capsys.readouterr()
    assert json.loads(out)["job"]["why_waiting"] == gone
    assert f"warning: the job waits: {gone}\n" in err


def test_without_a_timeout_the_service_says_how_long_to_wait(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    service.endless = True
    service.job_answer = job("j1", "queued", client_wait_s=0.3)
    assert client("submit") == 3
    assert "waited as long as --timeout or the service allows; job j1 goes on" in (
        capsys.readouterr().err
    )


def test_a_lost_answer_is_asked_for_again_under_the_same_key(
    client: Client, service: FakeService, in_repository: Path
) -> None:
    know_all(service, in_repository)
    service.problems["POST", "/jobs"] = [problem(503, "unavailable", "starting")]
    assert client("submit", "--detach") == 8
    first, second = service.asked("POST", "/jobs")
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def bad(client: Client, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = client("submit", "--detach", *arguments)
    said = capsys.readouterr()
    assert said.out == ""
    return code, said.err


def test_unknown_branch(
    client: Client, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = bad(client, capsys, "--commit", "no-such-branch")
    assert code == 6
    assert "'no-such-branch' names no commit in this repository" in said
    assert "git fetch" in said


def test_unknown_commit(
    client: Client, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = bad(client, capsys, "--commit", "beef" * 10)
    assert code == 6
    assert "names no commit, neither in this repository nor on the server" in said


def test_a_commit_only_the_server_has(
    client: Client, service: FakeService, in_repository: Path
) -> None:
    service.known["abcdef12" + "0" * 32] = "Elsewhere"
    assert client("submit", "--commit", "abcdef12", "--detach") == 8
    body = service.asked("POST", "/jobs")[0].json
    assert (body["commit"], body["subject"]) == ("abcdef12" + "0" * 32, "Elsewhere")


def test_ambiguous_on_the_server_names_the_candidates(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.known = {"abcdef12" + "0" * 32: "One", "abcdef12" + "1" * 32: "Two"}
    code, said = bad(client, capsys, "--commit", "abcdef12")
    assert code == 2
    assert "abcdef1200000000  One" in said
    assert "abcdef1211111111  Two" in said
    assert "more digits" in said


def test_a_revision_cannot_be_an_option_of_git(
    client: Client, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = bad(client, capsys, "--commit=--upload-pack=touch pwned")
    assert code == 6
    assert "names no commit" in said
    assert not (in_repository / "pwned").exists()


def test_head_outside_a_repository(
    client: Client,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    code, said = bad(client, capsys)
    assert code == 6
    assert "not in a git repository" in said
    assert "Run this inside the repository" in said


def test_unknown_suite_names_the_known(
    client: Client, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = bad(client, capsys, "--suite", "roofing")
    assert code == 2
    assert "there is no suite 'roofing'" in said
    assert "correctness, determinism, roofline, codeobject" in said


def test_unknown_target_names_the_known(
    client: Client, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = bad(client, capsys, "--target", "aiter")
    assert code == 2
    assert "Known targets: gdn-lab." in said


def test_several_targets_need_a_choice(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.targets = [{**service.targets[0], "name": name} for name in ("ours", "aiter")]
    code, said = bad(client, capsys)
    assert code == 2
    assert "ours, aiter" in said
    assert "--target" in said


def test_unknown_device_kind_is_told_with_the_known(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    service.problems["POST", "/jobs"] = [
        problem(422, "unknown_device_kind", "no worker serves 'mi300'", known=["sm90", "gfx950"])
    ]
    code, said = bad(client, capsys, "--device", "mi300")
    assert code == 2
    assert "no worker serves 'mi300'" in said
    assert "Known: sm90, gfx950." in said


def test_a_device_kind_without_a_worker_is_no_fault_of_the_caller(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    detail = "no worker serves device kind 'sm90'; served: interpreter"
    service.problems["POST", "/jobs"] = [
        problem(409, "device_kind_not_served", detail, served=["interpreter"])
    ]
    code, said = bad(client, capsys, "--device", "sm90")
    assert code == 5
    assert f"error: {detail}\n" in said
    assert len(service.asked("POST", "/jobs")) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--batch-sizes", "1,x"], "'1,x' is not a list of batch sizes"),
        (["--batch-sizes", "-1"], "is not a list of batch sizes"),
        (["--heads", "4"], "'4' is not a pair of head counts"),
        (["--heads", "4x6"], "'4x6' is not a pair of head counts"),
        (["--timeout", "soon"], "'soon' is not a duration"),
        (["--format", "xml"], "'xml' is not a format"),
        (["--json", "--format", "junit"], "--json contradicts --format junit"),
        (["--server", "localhost:80"], "'localhost:80' is not a server address"),
        (["--server", "http://host:99999"], "'http://host:99999' has no usable port"),
        (["--server", "http://host:0"], "'http://host:0' has no usable port"),
        (["--server", "http://host:http"], "'http://host:http' has no usable port"),
        (["--server", "http://me:pw@host"], "holds a user name or password"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_usage_errors(
    client: Client,
    service: FakeService,
    in_repository: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    code, said = bad(client, capsys, *arguments)
    assert code == 2
    assert complaint in said
    assert service.requests == []


def test_wrong_token(
    client: Client,
    in_repository: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GDN_TOKEN", "gdn_abc123_wrong")
    code, said = bad(client, capsys)
    assert code == 4
    assert "does not accept the token: unknown token" in said
    assert "gdn-client login" in said
    assert "gdn_abc123_wrong" not in said


def test_no_token(
    client: Client,
    service: FakeService,
    in_repository: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GDN_TOKEN")
    code, said = bad(client, capsys)
    assert code == 4
    assert f"no token for {service.url}" in said
    assert service.requests == []


def test_a_scope_too_small(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    know_all(service, in_repository)
    service.problems["POST", "/jobs"] = [problem(403, "forbidden", "this needs scope submit")]
    code, said = bad(client, capsys)
    assert code == 4
    assert "this needs scope submit" in said


def test_server_down(
    client: Client, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = bad(client, capsys, "--server", "http://127.0.0.1:9")
    assert code == 5
    assert "cannot reach the server at http://127.0.0.1:9" in said
    assert "gdn-service serve" in said


def test_a_failing_server(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.problems["GET", "/targets"] = [problem(500, "internal", "boom")]
    code, said = bad(client, capsys)
    assert code == 5
    assert "the server failed (500): boom" in said


def test_a_refused_bundle(
    client: Client, service: FakeService, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.problems["POST", "/bundles"] = [problem(413, "payload_too_large", "over 64 MiB")]
    code, said = bad(client, capsys)
    assert code == 6
    assert "too large to send: over 64 MiB" in said


def test_local_short_sha_that_is_ambiguous(
    client: Client, in_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_prefix: dict[str, str] = {}
    number = 0
    while True:  # two commits that share four digits appear after a few hundred
        number += 1
        sha = git(in_repository, "commit-tree", "-m", f"twin {number}", "HEAD^{tree}")
        if sha[:4] in by_prefix:
            break
        by_prefix[sha[:4]] = sha
    code, said = bad(client, capsys, "--commit", sha[:4])
    assert code == 2
    assert f"{sha[:4]} is short for 2 commits" in said
    assert f"{sha[:16]}  twin {number}" in said


def test_the_subject_is_made_safe(
    client: Client, service: FakeService, in_repository: Path
) -> None:
    sha = commit_file(in_repository, "f", "x", "evil \x1b[31mred\x1b[0m \x07")
    service.known[sha] = ""
    client("submit", "--detach")
    assert service.asked("POST", "/jobs")[0].json["subject"] == "evil red"
