from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fake_service import TOKEN, Event, FakeService, job, problem

Client = Callable[..., int]

LOG = [
    Event(1, "state", {"state": "running", "reason": ""}),
    Event(2, "log", {"at": "2026-01-02T03:04:05Z", "run": None, "text": "checking out"}),
    Event(3, "progress", {"suite": "correctness", "event": "planned", "total": 1}),
    Event(
        4,
        "progress",
        {
            "suite": "correctness",
            "event": "case",
            "id": "T1",
            "outcome": "passed",
            "done": 1,
            "total": 1,
            "summary": "state 1.2e-05",
        },
    ),
    Event(5, "log", {"at": "2026-01-02T03:04:06Z", "run": "r1", "text": "\x1b[2J\x1b]0;t\x07evil"}),
    Event(6, "state", {"state": "passed", "reason": "all 1 cases passed"}),
]
SHOWN = [
    "running",
    "checking out",
    "correctness: 1 cases planned",
    "correctness 1/1 T1: passed  state 1.2e-05",
    "evil",
    "passed: all 1 cases passed",
]


@pytest.mark.parametrize(
    ("state", "code"),
    [("queued", 8), ("running", 8), ("passed", 0), ("failed", 1), ("cancelled", 3), ("error", 5)],
)
def test_status_exits_by_state(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str], state: str, code: int
) -> None:
    run = {
        "id": "r1",
        "suite": "correctness",
        "verdict": None,
        "state": "running",
        "reason": "waiting for an idle device",
        "duration_s": None,
        "device": None,
    }
    service.jobs["j1"] = job("j1", state, runs=[run], queue_position=3)
    assert client("status", "j1") == code
    said = capsys.readouterr().out
    assert f"Job j1  {state}" in said
    assert "waiting for an idle device" in said
    assert "queue position 3" in said


def test_status_as_json_is_the_servers_own(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.jobs["j1"] = job("j1", "passed", novelty=[1])
    assert client("status", "j1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == service.jobs["j1"]


def test_status_without_a_job_lists_the_latest(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.jobs = {"j1": job("j1", "passed"), "j2": job("j2", "running", subject="\x1b[1mBold")}
    assert client("status", "--state", "running", "--limit", "5") == 0
    assert service.asked("GET", "/jobs")[0].query == {"state": "running", "limit": "5"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "job",
        "state",
        "commit",
        "target",
        "device",
        "created",
        "UTC",
        "subject",
    ]
    assert lines[3].split() == [
        "j2",
        "running",
        "1" * 12,
        "gdn-lab",
        "sm90",
        "01-02",
        "03:04",
        "Bold",
    ]


def test_a_long_subject_is_cut_to_one_line(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.jobs = {"j1": job("j1m8pg65nzt1t8m0y", "passed", subject="word " * 30)}
    assert client("status") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("j1m8pg65nzt1t8m0y  passed  111111111111  ")
    assert len(lines[2].rstrip()) == 100
    assert lines[2].rstrip().endswith("…")


GONE = "no live worker serves device kind sm90; last seen: gpu-1 at 2026-01-02T03:04:05.000Z"


def test_status_says_why_a_job_waits(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.jobs["j1"] = job("j1", "queued", queue_position=1, why_waiting=GONE)
    service.jobs["j2"] = job("j2", "queued", queue_position=2, why_waiting=GONE)
    assert client("status", "j1") == 8
    assert GONE in " ".join(capsys.readouterr().out.split())
    assert client("status", "j1", "--json") == 8
    assert json.loads(capsys.readouterr().out)["why_waiting"] == GONE
    assert client("status") == 0
    assert capsys.readouterr().err == f"warning: {GONE}\n"


def test_logs_of_a_job_that_waits_in_vain_end_as_infrastructure(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.jobs["j1"] = job("j1", "queued", why_waiting=GONE)
    service.endless = True
    assert client("logs", "-f", "j1", "--timeout", "1") == 5
    said = capsys.readouterr()
    assert said.out == ""
    assert f"warning: the job waits: {GONE}\n" in said.err
    assert f"job j1 goes on: {GONE}\n" in said.err


def test_status_of_an_unknown_job(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert client("status", "j404") == 2
    said = capsys.readouterr().err
    assert "there is no j404" in said
    assert "`gdn-client status` lists the latest jobs" in said


def test_logs_prints_what_there_is_without_escapes(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.events = LOG
    assert client("logs", "j1") == 0
    said = capsys.readouterr().out
    assert "evil" in said
    assert "\x1b" not in said
    assert "\x07" not in said


def test_an_escape_that_a_candidate_leaves_open_hides_no_line(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    log = {"at": "2026-01-02T03:04:05Z", "run": "r1"}
    texts = ["first", "\x1b]52;c;", "\x1bP", "\x9b2J\x1b[", "last"]
    service.events = [Event(n, "log", {**log, "text": t}) for n, t in enumerate(texts, start=1)]
    assert client("logs", "j1") == 0
    said = capsys.readouterr().out
    assert "first" in said
    assert "last" in said
    assert [c for c in said if c != "\n" and not c.isprintable()] == []


@pytest.mark.parametrize("arguments", [(), ("-f",)])
def test_logs_as_json_are_exact_and_cannot_steer_a_terminal(
    client: Client,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    evil = {"at": "2026-01-02T03:04:05Z", "run": "r1", "text": "\x1b[2J\x00\x7f\x9b\u202eé\n"}
    events = [Event(1, "log", evil), Event(2, "state", {"state": "passed", "reason": ""})]
    service.events = events
    service.jobs["j1"] = job("j1", "passed")
    assert client("logs", "j1", "--json", *arguments) == 0
    said = capsys.readouterr().out
    assert [json.loads(line) for line in said.splitlines()] == [
        {"id": event.id, "event": event.kind, "data": event.data} for event in events
    ]
    assert [c for c in said if c != "\n" and not c.isprintable()] == []


def test_no_field_of_an_event_reaches_the_terminal_raw(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[2Jevil\x07"
    words = {"suite": evil, "id": evil, "outcome": evil, "summary": evil, "text": evil}
    ends = {"verdict": evil, "reason": evil}
    service.events = [
        Event(n, "progress", {"event": kind, **words, **ends})
        for n, kind in enumerate(("planned", "case", "finished", evil), start=1)
    ]
    service.events.append(Event(5, "state", {"state": evil, "reason": evil}))
    service.jobs["j1"] = job("j1", "passed")
    assert client("logs", "-f", "j1") == 0
    said = capsys.readouterr().out
    assert said.count("evil") >= 10
    assert [c for c in said if c != "\n" and not c.isprintable()] == []


def test_logs_follows_to_the_end_and_exits_by_the_result(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.events = LOG
    service.jobs["j1"] = job("j1", "failed")
    assert client("logs", "-f", "j1") == 1
    assert capsys.readouterr().out.splitlines() == SHOWN


@pytest.mark.parametrize("cuts", [[0, 0], [1, 2, 1], [3], [5, 0]])
def test_a_cut_stream_loses_and_doubles_nothing(
    client: Client,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cuts: list[int],
) -> None:
    monkeypatch.setattr("gdn_client.events.PAUSES_S", (0.01,))
    service.events = LOG
    service.cuts = list(cuts)
    service.jobs["j1"] = job("j1", "running")
    service.after_log = {"j1": job("j1", "passed")}
    assert client("logs", "-f", "j1") == 0
    assert capsys.readouterr().out.splitlines() == SHOWN
    streams = service.asked("GET", "/jobs/j1/log")
    seen = [stream.headers.get("Last-Event-ID") for stream in streams]
    sent = [sum(cuts[:n]) for n in range(len(cuts) + 1)]
    assert seen == [str(n) if n else None for n in sent]


def test_a_server_that_is_away_for_a_moment_is_waited_for(
    client: Client,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gdn_client.events.PAUSES_S", (0.01,))
    service.events = LOG
    service.jobs["j1"] = job("j1", "passed")
    service.problems["GET", "/jobs/j1/log"] = [problem(503, "unavailable"), problem(502, "bad")]
    assert client("logs", "-f", "j1") == 0
    assert capsys.readouterr().out.splitlines() == SHOWN


def test_cancel(client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    service.jobs["j1"] = job("j1", "running")
    assert client("cancel", "j1") == 0
    assert service.jobs["j1"]["state"] == "cancelled"
    assert capsys.readouterr().err == "job j1 is cancelled\n"


def test_cancel_of_a_finished_job(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.problems["POST", "/jobs/j1/cancel"] = [
        problem(409, "not_cancellable", "job j1 has already passed")
    ]
    assert client("cancel", "j1") == 2
    assert "job j1 has already passed" in capsys.readouterr().err


def test_retry_follows_the_new_job(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.events = LOG
    service.jobs["j1"] = job("j1", "error")
    service.after_log = {"j2": job("j2", "passed", attempt=2)}
    assert client("retry", "j1") == 0
    said = capsys.readouterr()
    assert "Job j2  passed" in said.out
    assert "attempt 2" in said.out


def test_retry_of_an_open_job_tells_the_servers_reason(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.problems["POST", "/jobs/j1/retry"] = [
        problem(409, "conflict", "job j1 is running; cancel it or wait for its end")
    ]
    assert client("retry", "j1") == 2
    said = capsys.readouterr().err
    assert said == "error: the server refused: job j1 is running; cancel it or wait for its end\n"


def test_a_job_id_cannot_reach_another_path(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client("cancel", "../targets") == 2
    assert "'../targets' is not a job's id" in capsys.readouterr().err
    assert service.requests == []


def run_in_process(service: FakeService, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "GDN_SERVER": service.url, "GDN_TOKEN": TOKEN}
    return subprocess.Popen(
        [sys.executable, "-m", "gdn_client", *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_ctrl_c_detaches_and_leaves_the_job(service: FakeService) -> None:
    service.events = LOG[:4]
    service.endless = True
    service.jobs["j1"] = job("j1", "running")
    process = run_in_process(service, "logs", "-f", "j1")
    assert service.streaming.wait(20)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted; job j1 goes on" in said
    assert "gdn-client logs -f j1" in said
    assert "gdn-client cancel j1" in said
    assert "Traceback" not in said
    assert service.asked("POST", ".*") == []


def test_a_closed_pipe_is_not_a_traceback(service: FakeService) -> None:
    service.jobs = {f"j{n}": job(f"j{n}") for n in range(50)}
    process = run_in_process(service, "status")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    process.wait(20)
    assert "Traceback" not in said


def test_answers_that_are_no_gdn_lab_service(
    client: Client, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.jobs["j1"] = {"id": "j1"}
    assert client("status", "j1") == 5
    assert "the server's job should have 'state' as text, got nothing" in capsys.readouterr().err


def test_a_project_file_in_the_way(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    Path(".gdn.toml").write_text("targte = 'x'\n")
    assert client("status") == 2
    said = capsys.readouterr().err
    assert "there is no setting 'targte'" in said
    assert "Known settings: server, target, device, timeout, format." in said
