"""Jobs: submit, list, read, follow, cancel, retry."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import PlainTextResponse
from sse_starlette import EventSourceResponse

from gdn_judge.document import DeviceKind
from gdn_service.api import problems, schemas, views
from gdn_service.api.context import Context, Ctx, Reader, Submitter
from gdn_service.api.routes_read import RepositoryUnavailable
from gdn_service.api.stream import job_events, log_jsonl, log_text
from gdn_service.errors import (
    AmbiguousCommit,
    Conflict,
    DeviceKindNotServed,
    Forbidden,
    IdempotencyMismatch,
    InvalidRequest,
    NotCancellable,
    NotFound,
    PayloadTooLarge,
    Unauthorised,
    UnknownCommit,
    UnknownDeviceKind,
    UnknownSuite,
    UnknownTarget,
)
from gdn_service.jobs.placement import Fleet
from gdn_service.jobs.rows import Submission
from gdn_service.jobs.states import JobState
from gdn_service.store.models import Job
from gdn_service.store.store import Transaction

router = APIRouter(tags=["jobs"])

_ACCESS = (Unauthorised, Forbidden)
Id = Annotated[str, Path(pattern=r"^[a-z0-9]{1,20}$", examples=[schemas.JOB_ID])]


@router.post(
    "/jobs",
    summary="Submit a commit",
    description=(
        "201 with a new job; 200 when a finished or an open job asks exactly the same "
        "(`from_store`, `joined`), or when the Idempotency-Key was used for this request before."
    ),
    status_code=201,
    responses={
        200: {"description": "An earlier job answers", "model": schemas.JobOut},
        **problems.responses(
            *_ACCESS,
            NotFound,
            UnknownCommit,
            UnknownTarget,
            AmbiguousCommit,
            InvalidRequest,
            UnknownSuite,
            UnknownDeviceKind,
            DeviceKindNotServed,
            IdempotencyMismatch,
            RepositoryUnavailable,
            PayloadTooLarge,
        ),
    },
)
def submit(
    context: Ctx,
    token: Submitter,
    body: schemas.SubmitBody,
    response: Response,
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=200, pattern=r"^[!-~]+$")
    ] = None,
) -> schemas.JobOut:
    if body.device_kind is not None and body.device_kind not in set(DeviceKind):
        known = [str(kind) for kind in DeviceKind]
        raise UnknownDeviceKind(
            f"{body.device_kind!r} is not a device kind; known: {', '.join(known)}", known=known
        )
    try:
        submitted = context.jobs.submit(Submission(**body.model_dump()), token, idempotency_key)
    except UnknownDeviceKind as error:  # a kind that there is: no worker has it now
        raise DeviceKindNotServed(str(error), **error.extra) from error
    response.status_code = 201 if submitted.created else 200
    with context.store.read() as tx:
        return views.job_out(
            _job(tx, submitted.job.id),
            tx,
            context.settings,
            from_store=submitted.from_store,
            joined=submitted.joined,
        )


@router.get(
    "/jobs",
    summary="Jobs, newest first",
    responses=problems.responses(*_ACCESS, InvalidRequest),
)
def jobs(
    context: Ctx,
    _token: Reader,
    state: JobState | None = None,
    commit: Annotated[str | None, Query(pattern=r"^[0-9a-f]{40}$")] = None,
    target: Annotated[str | None, Query(min_length=1, max_length=80)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
) -> schemas.JobList:
    before = None if cursor is None else _decode_cursor(cursor)
    with context.store.read() as tx:
        page = tx.jobs.page(
            state=state, commit=commit, target=_plain(target), before=before, limit=limit + 1
        )
        fleet = Fleet(tx)
        items = [views.job_out(job, tx, context.settings, fleet=fleet) for job in page[:limit]]
    more = len(page) > limit
    return schemas.JobList(items=items, next_cursor=_encode_cursor(items[-1].id) if more else None)


@router.get(
    "/jobs/{job_id}",
    summary="One job",
    responses=problems.responses(*_ACCESS, NotFound, InvalidRequest),
)
def job(context: Ctx, _token: Reader, job_id: Id) -> schemas.JobOut:
    with context.store.read() as tx:
        return views.job_out(_job(tx, job_id), tx, context.settings)


@router.post(
    "/jobs/{job_id}/cancel",
    summary="Cancel; idempotent",
    description="A job that no live worker has ends at once, a running one within seconds.",
    responses=problems.responses(
        *_ACCESS, NotFound, NotCancellable, InvalidRequest, PayloadTooLarge
    ),
)
def cancel(context: Ctx, _token: Submitter, job_id: Id) -> schemas.JobOut:
    return _answer(context, context.jobs.cancel(job_id).id)


@router.post(
    "/jobs/{job_id}/retry",
    summary="A new job with the same inputs",
    status_code=201,
    responses=problems.responses(*_ACCESS, NotFound, Conflict, InvalidRequest, PayloadTooLarge),
)
def retry(context: Ctx, token: Submitter, job_id: Id) -> schemas.JobOut:
    return _answer(context, context.jobs.retry(job_id, token).id)


_LOG_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "Server-sent events with increasing integer ids: `log` {at, run, text}, `progress` "
            "(the judge's object and its suite), `state` {state, reason}. The stream ends behind "
            "the final state. With format=text, what there is as plain text; with format=jsonl, "
            "its events as one {id, event, data} a line."
        ),
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 1\nevent: state\ndata: {"state": "queued", "reason": ""}\n\n',
            },
            "text/plain": {"schema": {"type": "string"}},
            "application/x-ndjson": {"schema": {"type": "string"}},
        },
    }
}


@router.get(
    "/jobs/{job_id}/log",
    summary="Follow the log",
    response_class=Response,
    responses=_LOG_ANSWER | problems.responses(*_ACCESS, NotFound, InvalidRequest),
)
async def job_log(
    context: Ctx,
    _token: Reader,
    job_id: Id,
    format: Literal["events", "text", "jsonl"] = "events",
    last_event_id: Annotated[int | None, Header(ge=0, le=2**31 - 1)] = None,
) -> Response:
    with context.store.read() as tx:
        _job(tx, job_id)
    if format == "text":
        return PlainTextResponse(log_text(context.store, job_id))
    if format == "jsonl":
        return Response(log_jsonl(context.store, job_id), media_type="application/x-ndjson")
    return EventSourceResponse(
        job_events(context.store, job_id, last_event_id or 0), ping=15, sep="\n"
    )


def _answer(context: Context, job_id: str) -> schemas.JobOut:
    with context.store.read() as tx:
        return views.job_out(_job(tx, job_id), tx, context.settings)


def _job(tx: Transaction, job_id: str) -> Job:
    found = tx.jobs.get(job_id)
    if found is None:
        raise NotFound(f"there is no job {job_id}")
    return found


def _plain(text: str | None) -> str | None:
    if text is not None and "\x00" in text:
        raise InvalidRequest("NUL is not allowed in a name")
    return text


def _encode_cursor(job_id: str) -> str:
    return base64.urlsafe_b64encode(job_id.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest("the cursor is not one that this service gave out") from error
    if not text.isalnum():
        raise InvalidRequest("the cursor is not one that this service gave out")
    return text
