from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from gdn_client.api import Api
from gdn_client.errors import NoWorker, ServerUnreachable, WaitTimeout
from gdn_client.events import GIVE_UP_AFTER_S, READ_TIMEOUT_S, Clock, Event, Follower, decode
from gdn_client.models import read_job
from gdn_client.progress import LineDisplay
from gdn_client.screen import Screen
from gdn_client.text import duration, listed, one_line, printable
from gdn_client.watching import watch


def decoded(text: str) -> list[Event]:
    return [event for event in decode(text.split("\n")) if event is not None]


def test_decoding() -> None:
    text = (
        ": a comment\n\n"
        'id: 7\nevent: log\ndata: {"text":\ndata:  "two lines"}\nretry: 3\n\n'
        'data:{"a": 1}\n\n'
        "event: empty\n\n"
        "id: 8\nevent: log\ndata: not json\n\n"
        "id: 9\nevent: log\ndata: [1]\n\n"
        'id: 10\nevent: log\ndata: {"text": "cut"}'
    )
    assert decoded(text) == [
        Event("log", "7", {"text": "two lines"}),
        Event("message", None, {"a": 1}),
    ]


JOB = {"id": "j1", "target": "t", "commit": "c", "state": "running"}


class FakeTime:
    """A clock that only `sleep` moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def follower(
    handler: Callable[[httpx.Request], httpx.Response], time: FakeTime, timeout_s: float | None
) -> Follower:
    api = Api("http://gdn.test", "t", transport=httpx.MockTransport(handler), sleep=time.sleep)
    return Follower(api, "j1", Clock(timeout_s, now=time.now, sleep=time.sleep))


def test_a_server_that_stays_away_is_given_up() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    time = FakeTime()
    with pytest.raises(ServerUnreachable, match="cannot reach the server"):
        list(follower(refuse, time, None))
    assert GIVE_UP_AFTER_S < time.now_s < GIVE_UP_AFTER_S + 10
    assert time.slept[:4] == [0.5, 1.0, 2.0, 5.0]


def test_a_silent_server_is_not_given_up_before_the_deadline() -> None:
    time = FakeTime()

    class Silence(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            time.now_s += READ_TIMEOUT_S
            raise httpx.ReadTimeout("silent")
            yield b""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=Silence())

    with pytest.raises(WaitTimeout):
        list(follower(answer, time, 4 * GIVE_UP_AFTER_S))


def test_the_last_read_timeouts_shrink_with_the_time_left() -> None:
    time = FakeTime()
    read_timeouts: list[float] = []

    class Heartbeats(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                time.now_s += 15
                yield b": ping\n\n"

    def answer(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/log"):
            return httpx.Response(200, json=JOB)
        read_timeouts.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, stream=Heartbeats())

    with pytest.raises(WaitTimeout):
        list(follower(answer, time, 100))
    assert read_timeouts[0] == READ_TIMEOUT_S
    assert read_timeouts[-1] <= 15
    assert time.now_s < 110


def test_a_job_that_stands_still_is_looked_at_and_each_reason_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A ping each 5 s for 200 s; events come until 20 s, and the worker dies at 40 s."""
    time = FakeTime()
    looks: list[float] = []

    class Pings(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                time.now_s += 5
                if time.now_s <= 20:
                    text = f'id: {time.now_s:.0f}\nevent: state\ndata: {{"state": "running"}}\n\n'
                    yield text.encode()
                yield b": ping\n\n"

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/log"):
            return httpx.Response(200, stream=Pings())
        looks.append(time.now_s)
        return httpx.Response(200, json={**JOB, "why_waiting": "gone" if time.now_s > 40 else ""})

    api = Api("http://gdn.test", "t", transport=httpx.MockTransport(answer), sleep=time.sleep)
    clock = Clock(200, now=time.now, sleep=time.sleep)
    with pytest.raises(NoWorker, match="job j1 goes on: gone"):
        watch(api, read_job(JOB), LineDisplay(Screen()), clock)
    said = capsys.readouterr().err.splitlines()
    assert said == ["running"] * 4 + ["warning: the job waits: gone"]
    assert [look for look in looks if look < 135] == [35, 50, 65, 80, 95, 110, 125]


def test_a_server_gone_at_the_end_of_the_wait_makes_it_no_other_wait() -> None:
    time = FakeTime()

    def refuse(request: httpx.Request) -> httpx.Response:
        time.now_s += 30
        raise httpx.ConnectError("refused", request=request)

    api = Api("http://gdn.test", "t", transport=httpx.MockTransport(refuse), sleep=time.sleep)
    clock = Clock(20, now=time.now, sleep=time.sleep)
    with pytest.raises(WaitTimeout, match="job j1 goes on"):
        watch(api, read_job(JOB), LineDisplay(Screen()), clock)


def test_a_stream_that_ends_early_on_a_finished_job_ends_the_wait() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/log"):
            return httpx.Response(200, content=b"")
        return httpx.Response(200, json={**JOB, "state": "passed"})

    assert list(follower(answer, FakeTime(), None)) == []


def shown(events: list[dict[str, object]], capsys: pytest.CaptureFixture[str]) -> list[str]:
    display = LineDisplay(Screen())
    for data in events:
        display.show(Event("progress", None, {"suite": "roofline", **data}))
    return capsys.readouterr().err.splitlines()


def test_lines_are_sparse_where_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        {"event": "case", "id": f"T{n}", "outcome": "passed", "done": n, "total": 200}
        for n in range(1, 201)
    ]
    assert len(shown(cases, capsys)) == 10


def test_each_wrong_case_has_a_line_and_those_not_run_have_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = ["failed", "crashed", "not_run", "not_run"]
    cases = [
        {"event": "case", "id": f"T{n}", "outcome": outcome, "done": n, "total": 100}
        for n, outcome in enumerate(outcomes, start=1)
    ]
    assert [line.split(": ")[1] for line in shown(cases, capsys)] == ["failed", "crashed"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\after", "after"),
        ("\x1b]0;never ended\nnext", "\nnext"),
        ("\x1bPnever ended\r\nnext", "\nnext"),
        ("\u061cturned", "turned"),
        ("over\rwritten", "over\nwritten"),
        ("a\x00b\x08c\x7fd\x9be", "abcde"),
        ("\u202egnp.exe", "gnp.exe"),
        ("lone \ud800", "lone \ufffd"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_small_texts() -> None:
    assert one_line(" a\n\tb  c ") == "a b c"
    assert one_line("x" * 10, 5) == "xxxx…"
    assert listed(["a", "b", "c"], limit=2) == "a, b and 1 more"
    assert [duration(s) for s in (None, 0.44, 12.3, 185, 3720)] == [
        "-",
        "0.4 s",
        "12 s",
        "3 min 05 s",
        "1 h 02 min",
    ]
