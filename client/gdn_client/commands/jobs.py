"""Commands on jobs: submit, status, logs, cancel, retry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdn_client.commands import options
from gdn_client.commands.options import chosen_format, ends_with
from gdn_client.exit_codes import ExitCode, of_job

if TYPE_CHECKING:
    from gdn_client.models import Job
    from gdn_client.session import Session


@ends_with
def submit(
    commit: Annotated[
        str, typer.Option("--commit", "-c", metavar="REV", help="The commit to judge.")
    ] = "HEAD",
    worktree: Annotated[
        bool, typer.Option("--worktree", "-w", help="HEAD with all uncommitted changes.")
    ] = False,
    target: options.Target = None,
    device: options.Device = None,
    suite: options.Suites = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option("--batch-sizes", metavar="T,T,...", help="Only these batch sizes."),
    ] = None,
    heads: Annotated[
        str | None, typer.Option("--heads", metavar="KHxVH", help="Head counts, as 4x8.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer cases.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run even if a result is stored.")] = False,
    detach: options.Detach = False,
    timeout: options.Timeout = None,
    strict: options.Strict = False,
    form: options.Format = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    server: options.Server = None,
) -> ExitCode:
    """Judge a commit, pushed or not, and show the result."""
    from gdn_client import submission
    from gdn_client.arguments import parse_batch_sizes, parse_heads
    from gdn_client.errors import UsageError
    from gdn_client.session import connected

    if worktree and commit != "HEAD":
        raise UsageError(
            "--worktree is HEAD with uncommitted changes; it does not go with --commit",
            remedy="Give one of them.",
        )
    sizes = parse_batch_sizes(batch_sizes)
    heads = parse_heads(heads)
    flags = {
        "server": server,
        "target": target,
        "device": device,
        "timeout": timeout,
        "format": chosen_format(form, as_json),
    }
    with connected(flags, quiet=quiet) as session:
        request = submission.Request(
            revision=commit,
            worktree=worktree,
            target=session.settings.get("target"),
            device_kind=session.settings.get("device"),
            suites=suite or None,
            batch_sizes=sizes,
            heads=heads,
            quick=quick,
            force=force,
        )
        job = submission.submit(session.api, request, Path.cwd(), session.screen)
        return _see_through(session, job, detach=detach, strict=strict)


@ends_with
def retry(
    job: options.JobId,
    detach: options.Detach = False,
    timeout: options.Timeout = None,
    strict: options.Strict = False,
    form: options.Format = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    server: options.Server = None,
) -> ExitCode:
    """Run a finished job again, as a new job, and show the result."""
    from gdn_client.session import connected

    flags = {"server": server, "timeout": timeout, "format": chosen_format(form, as_json)}
    with connected(flags, quiet=quiet) as session:
        again = session.api.retry(job)
        return _see_through(session, again, detach=detach, strict=strict)


@ends_with
def status(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="A job's id; without it, the latest.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only jobs in this state.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100, help="How many jobs to list.")
    ] = 15,
    target: options.Target = None,
    strict: options.Strict = False,
    as_json: options.Json = False,
    server: options.Server = None,
) -> ExitCode:
    """How a job stands, by its exit code too; or the latest jobs."""
    from gdn_client import listing
    from gdn_client.session import connected

    with connected({"server": server}) as session:
        if job is not None:
            found = session.api.job(job)
            listing.print_job(found, session.screen, as_json=as_json)
            return of_job(found, strict=strict)
        jobs = session.api.jobs(state=state, target=target, limit=str(limit))
        listing.print_jobs(jobs, session.screen, as_json=as_json)
        return ExitCode.PASSED


@ends_with
def logs(
    job: options.JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends.")
    ] = False,
    timeout: options.Timeout = None,
    strict: options.Strict = False,
    as_json: options.Json = False,
    server: options.Server = None,
) -> ExitCode:
    """Print a job's log; with -f follow it to the end and exit by its result."""
    from gdn_client.events import Clock
    from gdn_client.progress import JsonDisplay, LogDisplay, event_json
    from gdn_client.session import connected
    from gdn_client.text import printable
    from gdn_client.watching import watch

    with connected({"server": server, "timeout": timeout}) as session:
        if not follow and as_json:
            for event in session.api.log_events(job):
                session.screen.data(event_json(event))
            return ExitCode.PASSED
        if not follow:
            session.screen.data(printable(session.api.log_text(job)))
            return ExitCode.PASSED
        found = session.api.job(job)
        clock = Clock(session.settings.timeout_s or found.client_wait_s)
        display = JsonDisplay(session.screen) if as_json else LogDisplay(session.screen)
        ended = watch(session.api, found, display, clock)
        return of_job(ended, strict=strict)


@ends_with
def cancel(
    job: options.JobId,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    server: options.Server = None,
) -> ExitCode:
    """End a job that is queued or running."""
    from gdn_client import listing
    from gdn_client.session import connected

    with connected({"server": server}, quiet=quiet) as session:
        ended = session.api.cancel(job)
        if as_json:
            listing.print_job(ended, session.screen, as_json=True)
        elif ended.state == "cancelled":
            session.screen.say(f"job {ended.id} is cancelled")
        else:
            session.screen.say(f"job {ended.id} is being cancelled (still {ended.state})")
        return ExitCode.PASSED


def _see_through(session: Session, job: Job, *, detach: bool, strict: bool) -> ExitCode:
    """Say what became of the request, wait unless detached, and print the result."""
    from gdn_client import listing, results
    from gdn_client.events import Clock
    from gdn_client.progress import display_for, waiting_line
    from gdn_client.watching import how_to_go_on, watch

    screen = session.screen
    form = session.settings.get("format") or "table"
    screen.say(listing.receipt(job))
    if not job.state.final:
        if detach:
            if job.why_waiting:
                screen.warn(waiting_line({"text": job.why_waiting}))
            screen.say(how_to_go_on(job.id))
            listing.print_id(job, screen, as_json=form == "json")
            return ExitCode.PENDING
        clock = Clock(session.settings.timeout_s or job.client_wait_s)
        job = watch(session.api, job, display_for(screen), clock)
    results.present(results.of_job(session.api, job), form, screen)
    screen.note(f"again: gdn-client show {job.id}   log: gdn-client logs {job.id}")
    return of_job(job, strict=strict)
