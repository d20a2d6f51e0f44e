"""Who may send a body, and how long a one: asked before any of it is read.

FastAPI parses a body before it looks at the token. So this stands before it: without a
valid token a body is answered with 401 unread, and one that is over the limit of its
route with 413, at its length if it names one, else where it passes the limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gdn_service.api import problems
from gdn_service.api.context import Context
from gdn_service.api.views import PREFIX
from gdn_service.auth import authenticate
from gdn_service.errors import PayloadTooLarge, RequestError
from gdn_service.settings import Settings

BUNDLES = f"{PREFIX}/bundles"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Door:
    """ASGI middleware. The bundle's route reads its own body, piece by piece."""

    def __init__(self, app: ASGIApp, service: FastAPI) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WITH_BODY:
            await self._app(scope, receive, send)
            return
        context: Context = self._service.state.context
        try:
            headers = Headers(scope=scope)
            await run_in_threadpool(authenticate, context.store, _bearer(headers))
            limit, setting = limit_of(scope["path"], context.settings)
            _check_length(headers, limit, setting)
            if scope["path"] != BUNDLES:
                receive = _again(await _read(receive, limit, setting), receive)
        except RequestError as error:
            await problems.of_request_error(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def limit_of(path: str, settings: Settings) -> tuple[int, str]:
    """(bytes that a body of this path may have, the setting that says so)."""
    if path == BUNDLES:
        return settings.bundle_max_bytes, "GDN_BUNDLE_MAX_BYTES"
    return settings.request_max_bytes, "GDN_REQUEST_MAX_BYTES"


def too_large(limit: int, setting: str) -> PayloadTooLarge:
    remedy = "; push the commit instead" if setting == "GDN_BUNDLE_MAX_BYTES" else ""
    return PayloadTooLarge(f"the body of this request may have {limit} bytes ({setting}){remedy}")


def _bearer(headers: Mapping[str, str]) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" and token else None


def _check_length(headers: Mapping[str, str], limit: int, setting: str) -> None:
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > limit:
        raise too_large(limit, setting)


async def _read(receive: Receive, limit: int, setting: str) -> bytes:
    """The whole body. One without a length is read to the limit and no further."""
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise too_large(limit, setting)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _again(body: bytes, receive: Receive) -> Receive:
    """`receive` as if nothing had been read."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
