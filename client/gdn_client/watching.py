"""Waiting for a job, and what is said when the wait is broken off."""

from __future__ import annotations

from gdn_client.api import Api
from gdn_client.errors import (
    Interrupted,
    NoWorker,
    ServerFailure,
    ServerUnreachable,
    WaitTimeout,
)
from gdn_client.events import Clock, Event, Follower
from gdn_client.models import Job
from gdn_client.progress import WAITING, Display
from gdn_client.text import one_line

LOOK_S = 15.0  # between two looks at a job of which no event comes; the server pings as often


class _Wait:
    """Tells why a job that stands still is waiting, each reason once."""

    def __init__(self, api: Api, job: Job, display: Display, clock: Clock) -> None:
        self._api = api
        self._job_id = job.id
        self._display = display
        self._clock = clock
        self._looked = clock.now()
        self._told = ""
        self._tell(job)

    def event(self, event: Event) -> None:
        self._looked = self._clock.now()
        self._display.show(event)

    def pause(self) -> None:
        if self._clock.now() - self._looked >= LOOK_S:
            self._looked = self._clock.now()
            self._tell(self._api.job(self._job_id))

    def _tell(self, job: Job) -> None:
        if job.why_waiting and job.why_waiting != self._told:
            self._display.show(Event(WAITING, None, {"text": job.why_waiting}))
        self._told = job.why_waiting


def watch(api: Api, job: Job, display: Display, clock: Clock) -> Job:
    """Follow `job` to its end and return it as it then is.

    Breaking off never touches the job: it goes on, and the error raised says how to
    follow or cancel it. Raises Interrupted, ServerUnreachable, WaitTimeout, and NoWorker
    in its place where no host could have taken the job.
    """
    try:
        with display:
            wait = _Wait(api, job, display, clock)
            for event in Follower(api, job.id, clock, wait.pause):
                wait.event(event)
        return api.job(job.id)
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"interrupted; job {job.id} goes on", remedy=how_to_go_on(job.id)
        ) from error
    except WaitTimeout as error:
        waited = f"waited as long as --timeout or the service allows; job {job.id} goes on"
        why = _why_waiting(api, job.id)
        if why:
            raise NoWorker(f"{waited}: {why}", remedy=how_to_go_on(job.id)) from error
        raise WaitTimeout(waited, remedy=how_to_go_on(job.id)) from error
    except ServerUnreachable as error:
        raise ServerUnreachable(
            f"{error.message}; job {job.id} goes on without us", remedy=how_to_go_on(job.id)
        ) from error


def _why_waiting(api: Api, job_id: str) -> str:
    """A server that is gone at the very end of the wait makes it no other wait."""
    try:
        return one_line(api.job(job_id).why_waiting)
    except (ServerUnreachable, ServerFailure):
        return ""


def how_to_go_on(job_id: str) -> str:
    return (
        f"Follow it with `gdn-client logs -f {job_id}`, end it with `gdn-client cancel {job_id}`."
    )
