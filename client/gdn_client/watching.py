"""Waiting for a job, and what is said when the wait is broken off."""

from __future__ import annotations

from gdn_client.api import Api
from gdn_client.errors import Interrupted, ServerUnreachable, WaitTimeout
from gdn_client.events import Clock, Follower
from gdn_client.models import Job
from gdn_client.progress import Display


def watch(api: Api, job: Job, display: Display, clock: Clock) -> Job:
    """Follow `job` to its end and return it as it then is.

    Breaking off never touches the job: it goes on, and the error raised says how to
    follow or cancel it. Raises Interrupted, WaitTimeout, ServerUnreachable.
    """
    try:
        with display:
            for event in Follower(api, job.id, clock):
                display.show(event)
        return api.job(job.id)
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"interrupted; job {job.id} goes on", remedy=how_to_go_on(job.id)
        ) from error
    except WaitTimeout as error:
        raise WaitTimeout(
            f"waited as long as --timeout or the service allows; job {job.id} goes on",
            remedy=how_to_go_on(job.id),
        ) from error
    except ServerUnreachable as error:
        raise ServerUnreachable(
            f"{error.message}; job {job.id} goes on without us", remedy=how_to_go_on(job.id)
        ) from error


def how_to_go_on(job_id: str) -> str:
    return (
        f"Follow it with `gdn-client logs -f {job_id}`, end it with `gdn-client cancel {job_id}`."
    )
