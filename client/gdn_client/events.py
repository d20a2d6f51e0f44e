"""Server-sent events: decoding a stream, and following one across cut connections.

A stream cut by a proxy is taken up again after the last event seen, so no line is
lost, and events at or below that id are dropped, so none is shown twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gdn_client.api import Api
from gdn_client.errors import ServerFailure, ServerUnreachable, WaitTimeout
from gdn_client.models import JobState

READ_TIMEOUT_S = 60.0  # the server sends a comment every 15 s when nothing happens
GIVE_UP_AFTER_S = 90.0  # of being unreachable; a dead worker's jobs are taken over in 90 s
PAUSES_S = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Event:
    """One event; `data` is its JSON object."""

    kind: str
    id: str | None
    data: dict[str, Any]


@dataclass
class _Draft:
    kind: str = "message"
    id: str | None = None
    lines: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self.lines.append(value)
        elif name == "event":
            self.kind = value
        elif name == "id":
            self.id = value

    def finish(self) -> Event | None:
        """None for an event without data, or with data that is not an object."""
        try:
            data = json.loads("\n".join(self.lines))
        except ValueError:
            return None
        return Event(self.kind, self.id, data) if isinstance(data, dict) else None


def decode(lines: Iterable[str]) -> Iterator[Event | None]:
    """The events of a stream; None for each line that ends none, as a heartbeat.

    A cut leaves a last event without its blank line; it is dropped, and comes again.
    """
    draft = _Draft()
    for line in lines:
        if line == "":
            event, draft = (draft.finish() if draft.lines else None), _Draft()
            yield event
        else:
            if not line.startswith(":"):
                draft.take(line)
            yield None


class Clock:
    """A deadline on the monotonic clock; `timeout_s` None never ends."""

    def __init__(
        self,
        timeout_s: float | None,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.now = now
        self.sleep = sleep
        self._end = None if timeout_s is None else now() + timeout_s

    def remaining(self) -> float | None:
        return None if self._end is None else self._end - self.now()

    def check(self) -> None:
        remaining = self.remaining()
        if remaining is not None and remaining <= 0:
            raise WaitTimeout("the time to wait ran out")

    def bounded(self, seconds: float) -> float:
        remaining = self.remaining()
        return seconds if remaining is None else max(0.05, min(seconds, remaining))


class Follower:
    """Follows one job's log until its final state, over as many connections as it takes."""

    def __init__(
        self, api: Api, job_id: str, clock: Clock, pause: Callable[[], None] = lambda: None
    ) -> None:
        """`pause` is called for each line that brings no event, as the server's pings."""
        self._api = api
        self._job_id = job_id
        self._clock = clock
        self._pause = pause
        self._last: str | None = None
        self._connected = False
        self.reconnections = 0

    def __iter__(self) -> Iterator[Event]:
        """Raises WaitTimeout at the deadline, ServerUnreachable when it stays away."""
        failures = 0
        down_since: float | None = None
        while True:
            self._clock.check()
            self._connected = False
            before = self._last
            try:
                for event in self._connection():
                    yield event
                    if _is_final(event):
                        return
                if self._last == before and self._api.job(self._job_id).state.final:
                    return
            except (ServerUnreachable, ServerFailure):
                self._clock.check()
                if self._connected:
                    failures, down_since = 0, None
                down_since = self._clock.now() if down_since is None else down_since
                if self._clock.now() - down_since > GIVE_UP_AFTER_S:
                    raise
            else:
                failures, down_since = 0, None
            self.reconnections += 1
            self._clock.sleep(self._clock.bounded(PAUSES_S[min(failures, len(PAUSES_S) - 1)]))
            failures += 1

    def _connection(self) -> Iterator[Event]:
        """Events of one connection, new ones only; ends when it ends or nears the deadline."""
        timeout = self._clock.bounded(READ_TIMEOUT_S)
        with self._api.log_stream(
            self._job_id, last_event_id=self._last, read_timeout_s=timeout
        ) as lines:
            self._connected = True
            for event in decode(lines):
                if event is not None and self._is_new(event):
                    yield event
                self._clock.check()
                if event is None:
                    self._pause()
                if timeout - self._clock.bounded(READ_TIMEOUT_S) > 2.0:
                    return

    def _is_new(self, event: Event) -> bool:
        if event.id is None:
            return True
        if self._last is not None and _order(event.id) <= _order(self._last):
            return False
        self._last = event.id
        return True


def _is_final(event: Event) -> bool:
    state = event.data.get("state")
    return event.kind == "state" and state in set(JobState) and JobState(state).final


def _order(event_id: str) -> int:
    return int(event_id) if event_id.isdecimal() else 0
