"""Short forms: one job in a few lines, many jobs, devices and settings as tables."""

from __future__ import annotations

import json
from typing import Any

from gdn_client.models import Device, Job, Run
from gdn_client.report.table import Cell, Column, Table, Tone, tone_of, without_empty_columns
from gdn_client.screen import Screen
from gdn_client.text import duration, listed, one_line

_RUN_COLUMNS = [
    Column("suite", left=True),
    Column("verdict", left=True),
    Column("took"),
    Column("device", left=True, rank=1),
    Column("reason", left=True, flexible=True),
]
_JOB_COLUMNS = [
    Column("job", left=True),
    Column("state", left=True),
    Column("commit", left=True),
    Column("target", left=True, rank=3),
    Column("device", left=True, rank=2),
    Column("created UTC", left=True, rank=4),
    Column("took"),
    Column("subject", left=True, flexible=True, cut=True, rank=1),
]
_DEVICE_COLUMNS = [
    Column("kind", left=True),
    Column("index", rank=3),
    Column("name", left=True, rank=1),
    Column("host", left=True, rank=2),
    Column("idle", left=True),
    Column("measures", left=True, rank=4),
    Column("seen UTC", left=True, rank=5),
    Column("why not idle", left=True, flexible=True),
    Column("why no jobs", left=True, flexible=True),
]


def receipt(job: Job) -> str:
    """What became of a submission, in one line."""
    what = f"{job.commit[:12]} on {job.device_kind} ({listed(job.suites)})"
    if job.from_store:
        when = f" of {job.finished_at}" if job.finished_at else ""
        return (
            f"job {job.id}: {what}, answered from the store with the result{when}; --force reruns"
        )
    if job.joined:
        return f"job {job.id}: {what} is already {job.state}; joining it"
    place = f", position {job.queue_position} in the queue" if job.queue_position else ""
    return f"job {job.id}: {what} is {job.state}{place}"


def print_id(job: Job, screen: Screen, *, as_json: bool) -> None:
    screen.data(_dumped({"job": job.raw, "documents": []}) if as_json else job.id)


def print_job(job: Job, screen: Screen, *, as_json: bool) -> None:
    if as_json:
        screen.data(_dumped(job.raw))
        return
    from gdn_client.report.build import job_report
    from gdn_client.report.table import Report
    from gdn_client.report.terminal import print_report, print_table

    console = screen.console()
    head = job_report(job, {})
    print_report(Report(head.title, head.subject, head.verdict, head.facts, []), console)
    if job.runs:
        print_table(
            without_empty_columns(Table(_RUN_COLUMNS, [_run(r) for r in job.runs])), console
        )


def _run(run: Run) -> list[Cell]:
    verdict = run.verdict or run.state
    return [
        Cell(run.suite),
        Cell(verdict, tone_of(verdict)),
        Cell(duration(run.duration_s) if run.duration_s is not None else ""),
        Cell(one_line(run.device, 60)),
        Cell(one_line(run.reason, 300)),
    ]


def print_jobs(jobs: list[Job], screen: Screen, *, as_json: bool) -> None:
    rows = [
        [
            Cell(job.id),
            Cell(str(job.state), tone_of(job.state)),
            Cell(job.commit[:12]),
            Cell(job.target),
            Cell(job.device_kind),
            Cell(_minute(job.created_at)),
            Cell(duration(job.duration_s) if job.duration_s is not None else ""),
            Cell(one_line(job.subject, 200)),
        ]
        for job in jobs
    ]
    raw = {"items": [job.raw for job in jobs]}
    _print(Table(_JOB_COLUMNS, rows), raw, screen, as_json, "no jobs")
    for why in dict.fromkeys(job.why_waiting for job in jobs if job.why_waiting):
        screen.warn(one_line(why))


def print_devices(devices: list[Device], screen: Screen, *, as_json: bool) -> None:
    rows = [
        [
            Cell(d.kind),
            Cell("" if d.index is None else str(d.index)),
            Cell(one_line(d.name, 60)),
            Cell(one_line(d.host, 40)),
            _idle(d),
            Cell(one_line(d.measures, 60)),
            Cell(_minute(d.seen_at or "")),
            Cell(one_line(d.why_not_idle, 300)),
            Cell(one_line(d.why_no_jobs, 300)),
        ]
        for d in devices
    ]
    raw = {"items": [d.raw for d in devices]}
    _print(Table(_DEVICE_COLUMNS, rows), raw, screen, as_json, "no worker serves any device")


def _minute(time: str) -> str:
    """Month, day, hour and minute of an ISO 8601 time, in UTC as the service gives it."""
    return time[5:16].replace("T", " ")


def _idle(device: Device) -> Cell:
    if device.quarantined:
        return Cell("quarantined", Tone.BAD)
    if not device.live:
        return Cell("no worker", Tone.BAD)
    if device.idle is None:
        return Cell("unknown", Tone.WARN)
    return Cell("yes", Tone.GOOD) if device.idle else Cell("no", Tone.WARN)


def _print(table: Table, raw: Any, screen: Screen, as_json: bool, nothing: str) -> None:
    if as_json:
        screen.data(_dumped(raw))
    elif table.rows:
        print_plain(table, screen)
    else:
        screen.say(nothing)


def print_plain(table: Table, screen: Screen) -> None:
    from gdn_client.report.terminal import print_table

    print_table(without_empty_columns(table), screen.console(), spaced=False)


def _dumped(value: Any) -> str:
    return json.dumps(value, indent=2)
