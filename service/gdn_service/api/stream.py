"""A job's log as server-sent events, from any event on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from gdn_service.jobs.states import JobState
from gdn_service.store import log
from gdn_service.store.models import LogEvent
from gdn_service.store.store import Store

_POLL_S = 0.3


async def job_events(store: Store, job_id: str, after: int) -> AsyncIterator[ServerSentEvent]:
    """Events with a number above `after`; ends behind the final state."""
    while True:
        events, final = await run_in_threadpool(_next, store, job_id, after)
        for event in events:
            after = event.seq
            yield ServerSentEvent(
                id=str(event.seq), event=event.kind, data=json.dumps(event.data), sep="\n"
            )
        if not events:
            if final:
                return
            await asyncio.sleep(_POLL_S)


def _next(store: Store, job_id: str, after: int) -> tuple[list[LogEvent], bool]:
    """The state is read before the events, so the final event is never missed."""
    with store.read() as tx:
        job = tx.jobs.get(job_id)
        final = job is None or JobState(job.state).final
        return tx.log.after(job_id, after), final


def log_text(store: Store, job_id: str) -> str:
    """All there is, one line an event; further lines of its text are indented.

    A candidate's exception may have several, and must not pass for events.
    """
    lines = (_line(event.kind, event.data) for event in _all(store, job_id))
    return "".join("\n  ".join(line.split("\n")) + "\n" for line in lines)


def log_jsonl(store: Store, job_id: str) -> str:
    """All there is, each event an object on one line, its text exact."""
    return "".join(
        json.dumps({"id": event.seq, "event": event.kind, "data": event.data}) + "\n"
        for event in _all(store, job_id)
    )


def _all(store: Store, job_id: str) -> list[LogEvent]:
    found: list[LogEvent] = []
    with store.read() as tx:
        while events := tx.log.after(job_id, found[-1].seq if found else 0):
            found += events
    return found


def _line(kind: str, data: dict[str, Any]) -> str:
    if kind == log.STATE:
        return f"[{data['state']}] {data['reason']}".rstrip()
    if kind == log.LOG:
        return str(data["text"])
    suite, event = data.get("suite", ""), data.get("event", "")
    if event == "case":
        progress = f"{data.get('done', '?')}/{data.get('total', '?')}"
        summary = data.get("summary") or f"{data.get('id', '')} {data.get('outcome', '')}"
        return f"{suite} {progress} {summary}"
    rest = {k: v for k, v in data.items() if k not in ("suite", "event")}
    return f"{suite} {event} {json.dumps(rest)}"
