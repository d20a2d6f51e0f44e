"""Targets, devices, commits, runs: everything that is only read, and bundles."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from gdn_service.api import problems, schemas, views
from gdn_service.api.context import Context, Ctx, Reader, Submitter
from gdn_service.api.door import too_large
from gdn_service.clock import now
from gdn_service.errors import (
    AmbiguousCommit,
    BundleInvalid,
    Forbidden,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    RequestError,
    Unauthorised,
    UnknownCommit,
    UnknownTarget,
)
from gdn_service.ids import new_id
from gdn_service.jobs.placement import Fleet
from gdn_service.store.models import Bundle, Target

router = APIRouter()

_ACCESS = (Unauthorised, Forbidden)
Name = Annotated[str, Query(min_length=1, max_length=80, examples=["gdn-lab"])]
Sha = Annotated[str, Path(pattern=r"^[0-9a-f]{40}$", examples=[schemas.SHA])]
Id = Annotated[str, Path(pattern=r"^[a-z0-9]{1,20}$", examples=[schemas.RUN_ID])]


class RepositoryUnavailable(RequestError):
    """The target's repository cannot be reached now."""

    status = 503
    code = "repository_unavailable"
    title = "Repository unavailable"


@router.get(
    "/vocabulary",
    tags=["targets"],
    summary="Suites and device kinds, in the order in which they are shown",
    responses=problems.responses(*_ACCESS),
)
def vocabulary(_token: Reader) -> schemas.Vocabulary:
    return views.vocabulary()


@router.get(
    "/targets", tags=["targets"], summary="All targets", responses=problems.responses(*_ACCESS)
)
def targets(context: Ctx, _token: Reader) -> schemas.TargetList:
    with context.store.read() as tx:
        return schemas.TargetList(items=[views.target_out(t) for t in tx.targets.all()])


@router.get(
    "/devices",
    tags=["devices"],
    summary="Devices that workers serve, and why one is not idle",
    responses=problems.responses(*_ACCESS),
)
def devices(context: Ctx, _token: Reader) -> schemas.DeviceList:
    with context.store.read() as tx:
        fleet = Fleet(tx)
        items = [views.device_out(device, tx, fleet) for device in fleet.devices]
    return schemas.DeviceList(items=items)


@router.get(
    "/commits/resolve",
    tags=["commits"],
    summary="The commit that a full or short SHA names",
    responses=problems.responses(
        *_ACCESS,
        UnknownCommit,
        UnknownTarget,
        AmbiguousCommit,
        InvalidRequest,
        RepositoryUnavailable,
    ),
)
def resolve(
    context: Ctx,
    _token: Reader,
    target: Name,
    rev: Annotated[str, Query(min_length=1, max_length=64, examples=[schemas.SHA[:12]])],
) -> schemas.CommitOut:
    facts = context.checkouts.resolve(find_target(context, target), rev)
    return schemas.CommitOut(sha=facts.sha, subject=facts.subject, author_date=facts.author_date)


@router.get(
    "/commits/{sha}/results",
    tags=["commits"],
    summary="The latest valid run of each suite, device kind and plan of a commit",
    responses=problems.responses(*_ACCESS, UnknownTarget, InvalidRequest),
)
def results(
    context: Ctx,
    _token: Reader,
    sha: Sha,
    target: Name,
    device_kind: schemas.KindOfDevice | None = None,
) -> schemas.ResultList:
    find_target(context, target)
    with context.store.read() as tx:
        runs = tx.jobs.results(sha, target, device_kind)
        items = [views.result_out(run) for run in runs]
    return schemas.ResultList(commit=sha, target=target, items=items)


@router.get(
    "/runs/{run_id}",
    tags=["runs"],
    summary="One run with its summary",
    responses=problems.responses(*_ACCESS, NotFound, InvalidRequest),
)
def run(context: Ctx, _token: Reader, run_id: Id) -> schemas.RunDetail:
    with context.store.read() as tx:
        found = tx.jobs.run(run_id)
        if found is None:
            raise NotFound(f"there is no run {run_id}")
        return views.run_detail(found, tx)


@router.get(
    "/runs/{run_id}/document",
    tags=["runs"],
    summary="The verdict document as the judge wrote it",
    response_class=Response,
    responses={
        200: {
            "description": "Verdict document, schema gdn-lab/verdict/1",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        **problems.responses(*_ACCESS, NotFound, InvalidRequest),
    },
)
def document(context: Ctx, _token: Reader, run_id: Id) -> Response:
    with context.store.read() as tx:
        found = tx.jobs.run(run_id)
        body = tx.results.document(run_id) if found and views.document_link(found) else None
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    if body is None:
        raise NotFound(f"run {run_id} has no document: {found.reason or found.state}")
    return Response(body, media_type="application/json")


_BUNDLE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The bytes that `git bundle create` writes",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "/bundles",
    tags=["commits"],
    summary="Send a commit that is not pushed",
    status_code=201,
    openapi_extra=_BUNDLE_BODY,
    responses=problems.responses(
        *_ACCESS,
        UnknownTarget,
        PayloadTooLarge,
        BundleInvalid,
        InvalidRequest,
        RepositoryUnavailable,
    ),
)
async def add_bundle(
    context: Ctx, _token: Submitter, request: Request, target: Name
) -> schemas.BundleOut:
    content = await _read_body(request, context.settings.bundle_max_bytes)
    return await run_in_threadpool(_add_bundle, context, target, content)


async def _read_body(request: Request, limit: int) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large(limit, "GDN_BUNDLE_MAX_BYTES")
        chunks.append(chunk)
    return b"".join(chunks)


def _add_bundle(context: Context, target_name: str, content: bytes) -> schemas.BundleOut:
    target = find_target(context, target_name)
    bundle_id = new_id("b")
    heads, content = context.checkouts.import_bundle(target, bundle_id, content)
    with context.store.write() as tx:
        tx.bundles.add(
            Bundle(
                id=bundle_id,
                target=target.name,
                sha256=hashlib.sha256(content).hexdigest(),
                size=len(content),
                heads=[{"ref": head.ref, "sha": head.sha} for head in heads],
                content=content,
                created_at=now(),
            )
        )
    return schemas.BundleOut(
        id=bundle_id, heads=[schemas.HeadOut(ref=head.ref, sha=head.sha) for head in heads]
    )


def find_target(context: Context, name: str) -> Target:
    with context.store.read() as tx:
        target = tx.targets.get(name)
        known = ", ".join(t.name for t in tx.targets.all())
    if target is None:
        raise UnknownTarget(f"there is no target {name!r}; known: {known or 'none'}")
    return target
