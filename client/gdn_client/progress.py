"""What a user sees while a job runs: bars on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import json
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from gdn_client.events import Event
from gdn_client.screen import Screen
from gdn_client.text import one_line, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

TENTHS = 10
WAITING = "waiting"  # the client's own event: {"text": why no host can take the job}


class Display(Protocol):
    """Takes the events of one job. A context manager: it may own the terminal's last lines."""

    def __enter__(self) -> Display: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def show(self, event: Event) -> None: ...


def display_for(screen: Screen) -> Display:
    return BarDisplay(screen) if screen.interactive else LineDisplay(screen)


class LineDisplay:
    """For pipes and CI logs: states, every tenth of a suite, and each case that went wrong."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._tenths: dict[str, int] = {}

    def __enter__(self) -> LineDisplay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def show(self, event: Event) -> None:
        if event.kind == "state":
            self._screen.say(state_line(event.data))
        elif event.kind == "progress":
            self._progress(str(event.data.get("suite", "")), event.data)
        elif event.kind == WAITING:
            self._screen.warn(waiting_line(event.data))

    def _progress(self, suite: str, data: dict[str, Any]) -> None:
        kind = data.get("event")
        if kind in ("planned", "finished"):
            self._tenths[suite] = 0
            self._screen.say(progress_line(data))
        elif kind == "case":
            done, total = _count(data, "done"), max(_count(data, "total"), 1)
            tenth = done * TENTHS // total
            if _went_wrong(data) or tenth > self._tenths.get(suite, 0):
                self._screen.say(progress_line(data))
            self._tenths[suite] = max(tenth, self._tenths.get(suite, 0))


class LogDisplay:
    """For `logs`: everything, as data on stdout."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __enter__(self) -> LogDisplay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def show(self, event: Event) -> None:
        if event.kind == "state":
            self._screen.data(state_line(event.data))
        elif event.kind == "progress":
            self._screen.data(progress_line(event.data))
        elif event.kind == "log":
            self._screen.data(printable(str(event.data.get("text", ""))).rstrip("\n"))
        elif event.kind == WAITING:
            self._screen.warn(waiting_line(event.data))


class JsonDisplay(LogDisplay):
    """For `logs --json`: each event as it came, an object on one line of ASCII."""

    def show(self, event: Event) -> None:
        if event.kind == WAITING:
            super().show(event)
            return
        number = int(event.id) if event.id is not None and event.id.isdecimal() else event.id
        data = {"id": number, "event": event.kind, "data": event.data}
        self._screen.data(event_json(data))


class BarDisplay:
    """One bar per suite on stderr; the newest case beside it, bad cases above."""

    def __init__(self, screen: Screen) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        self._progress: Progress = Progress(
            TextColumn("{task.fields[mark]}", markup=False),
            TextColumn("{task.description:<12}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False, style="dim"),
            console=screen.console(stderr=True),
            transient=False,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> BarDisplay:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, event: Event) -> None:
        if event.kind == "state":
            self._print(state_line(event.data))
        elif event.kind == "progress":
            self._update(str(event.data.get("suite", "")), event.data)
        elif event.kind == WAITING:
            self._print(f"warning: {waiting_line(event.data)}")

    def _print(self, line: str) -> None:
        from rich.text import Text

        self._progress.console.print(Text(line))

    def _update(self, suite: str, data: dict[str, Any]) -> None:
        kind = data.get("event")
        task = self._task(suite)
        if kind == "planned":
            self._progress.reset(task, total=_count(data, "total"), mark="…", note="")
        elif kind == "case":
            self._case(task, data)
        elif kind == "finished":
            passed = data.get("verdict") == "passed"
            note = "passed" if passed else _ending(data)
            self._progress.update(task, mark="✓" if passed else "✗", note=note)
            self._progress.stop_task(task)

    def _case(self, task: TaskID, data: dict[str, Any]) -> None:
        if _went_wrong(data):
            self._print(progress_line(data))
        self._progress.update(
            task,
            completed=_count(data, "done"),
            total=_count(data, "total"),
            note=one_line(str(data.get("id", "")), 40),
        )

    def _task(self, suite: str) -> TaskID:
        if suite not in self._tasks:
            shown = one_line(suite, 40)
            self._tasks[suite] = self._progress.add_task(shown, total=None, mark="…", note="")
        return self._tasks[suite]


def event_json(event: dict[str, Any]) -> str:
    """Exact, and without a control character: JSON escapes them, but for DEL."""
    return json.dumps(event).replace("\x7f", "\\u007f")


def state_line(data: dict[str, Any]) -> str:
    reason = one_line(str(data.get("reason") or ""))
    state = one_line(str(data.get("state", "?")), 40)
    return f"{state}{': ' + reason if reason else ''}"


def waiting_line(data: dict[str, Any]) -> str:
    return f"the job waits: {one_line(str(data.get('text') or ''))}"


def progress_line(data: dict[str, Any]) -> str:
    """One line for a progress object of the judge."""
    suite = one_line(str(data.get("suite", "")), 40)
    match data.get("event"):
        case "planned":
            return f"{suite}: {_count(data, 'total')} cases planned"
        case "case":
            where = f"{_count(data, 'done')}/{_count(data, 'total')}"
            summary = one_line(str(data.get("summary") or ""), 160)
            outcome = one_line(str(data.get("outcome")), 40)
            line = f"{suite} {where} {one_line(str(data.get('id', '')), 80)}: {outcome}"
            return f"{line}  {summary}" if summary else line
        case "finished":
            return f"{suite}: {_ending(data)}"
        case _:
            return f"{suite}: {one_line(str(data.get('text') or data.get('event') or ''))}"


def _went_wrong(data: dict[str, Any]) -> bool:
    return data.get("outcome") not in ("passed", "not_run")


def _ending(data: dict[str, Any]) -> str:
    reason = one_line(str(data.get("reason") or ""), 160)
    verdict = one_line(str(data.get("verdict", "")), 40)
    return f"{verdict}: {reason}" if reason and reason != verdict else verdict


def _count(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0
