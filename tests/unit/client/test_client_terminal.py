"""The client on a real terminal: bars on stderr, tables on stdout, colours only if wanted."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import sample_documents as sample
from support.fake_service import TOKEN, Event, FakeService, job

SGR = re.compile(r"\x1b\[([0-9;]*)m")
COLOURS = re.compile(r"(?:^|;)(?:3[0-7]|9[0-7]|38|48)(?:;|$)")


def judged(service: FakeService) -> None:
    """A job whose log and document are those of a correctness run with wrong cases."""
    document = sample.correctness_failed()
    progress = [
        {"event": "planned", "total": len(document.cases)},
        *(
            {
                "event": "case",
                "id": case.id,
                "outcome": case.outcome,
                "done": number,
                "total": len(document.cases),
                "summary": case.reason,
            }
            for number, case in enumerate(document.cases, start=1)
        ),
        {"event": "finished", "verdict": "failed", "reason": document.reason},
    ]
    data = [{"suite": "correctness", **item} for item in progress]
    service.events = [Event(n, "progress", item) for n, item in enumerate(data, start=1)]
    service.events.append(Event(len(data) + 1, "state", {"state": "failed", "reason": ""}))
    service.documents["r1"] = document.to_dict()
    run = {"id": "r1", "suite": "correctness", "verdict": "failed", "state": "finished"}
    service.jobs["j1"] = job("j1", "error")
    service.after_log = {"j2": job("j2", "failed", runs=[run])}


def on_terminal(service: FakeService, *arguments: str, **changes: str) -> tuple[int, str]:
    """Exit code and everything the terminal got."""
    environment = {
        **os.environ,
        "GDN_SERVER": service.url,
        "GDN_TOKEN": TOKEN,
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        **changes,
    }
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gdn_client", *arguments],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    received = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the last writer has closed the terminal
            break
        if not part:
            break
        received += part
    os.close(ours)
    return process.wait(30), received.decode()


def test_bars_and_tables(service: FakeService) -> None:
    judged(service)
    code, text = on_terminal(service, "retry", "j1")
    assert code == 1
    assert any(COLOURS.search(found) for found in SGR.findall(text))
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert re.search(r"✗ correctness\s+━+\s+19/19", plain)
    assert "correctness 5/19 T33-4x8-small: failed" in plain
    assert "Not passed: 3 of 19" in plain


@pytest.mark.parametrize("changes", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour(service: FakeService, changes: dict[str, str]) -> None:
    judged(service)
    code, text = on_terminal(service, "retry", "j1", **changes)
    assert code == 1
    assert not any(COLOURS.search(found) for found in SGR.findall(text))
    assert "Not passed: 3 of 19" in text


def test_quiet_shows_no_bars(service: FakeService) -> None:
    judged(service)
    code, text = on_terminal(service, "retry", "j1", "--quiet")
    assert code == 1
    assert "━" not in text


def test_a_token_is_typed_blindly(service: FakeService, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "GDN_SERVER": service.url, "GDN_CONFIG_DIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "gdn_client", "login"],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    received = b""
    while b"Token for" not in received:
        received += os.read(ours, 1024)
    os.write(ours, TOKEN.encode() + b"\n")
    while b"logged in" not in received:
        received += os.read(ours, 1024)
    assert process.wait(30) == 0
    os.close(ours)
    assert TOKEN.encode() not in received


def with_closed(
    service: FakeService, streams: tuple[str, ...], *arguments: str
) -> tuple[int, dict[str, bytes]]:
    """Exit code, and what was written to the streams whose reader is still there."""
    reader, writer = os.pipe()
    os.close(reader)
    pipes = {name: writer if name in streams else subprocess.PIPE for name in ("stdout", "stderr")}
    environment = {**os.environ, "GDN_SERVER": service.url, "GDN_TOKEN": TOKEN}
    done = subprocess.run(
        [sys.executable, "-m", "gdn_client", *arguments], env=environment, **pipes
    )
    os.close(writer)
    return done.returncode, {"stdout": done.stdout, "stderr": done.stderr}


@pytest.mark.parametrize(
    ("arguments", "state", "code"),
    [
        (["show", "j1"], "passed", 0),
        (["show", "j1"], "failed", 1),
        (["show", "j1", "--json"], "passed", 0),
        (["status", "j1"], "cancelled", 3),
        (["logs", "-f", "j1"], "failed", 1),
        (["history", "--help"], "passed", 0),
    ],
)
def test_a_reader_that_went_away_changes_no_exit_code(
    service: FakeService, arguments: list[str], state: str, code: int
) -> None:
    service.documents["r1"] = sample.roofline().to_dict()
    run = {"id": "r1", "suite": "roofline", "verdict": "passed", "state": "finished"}
    service.jobs["j1"] = job("j1", state, runs=[run])
    service.events = [
        *(Event(n, "log", {"text": "x" * 9000, "at": "", "run": None}) for n in range(1, 5)),
        Event(5, "state", {"state": state, "reason": ""}),
    ]
    assert with_closed(service, ("stdout",), *arguments) == (code, {"stdout": None, "stderr": b""})
    assert with_closed(service, ("stdout", "stderr"), *arguments)[0] == code


def test_an_error_keeps_its_exit_code_where_nobody_reads_it(service: FakeService) -> None:
    code, left = with_closed(service, ("stderr",), "status", "j9")
    assert (code, left["stdout"]) == (2, b"")
