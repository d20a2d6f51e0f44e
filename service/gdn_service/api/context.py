"""What the endpoints share, and the dependencies that hand it to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from gdn_service.auth import Scope, authenticate, require
from gdn_service.jobs.requests import JobRequests
from gdn_service.runner.checkouts import Checkouts
from gdn_service.settings import Settings
from gdn_service.store.models import Token
from gdn_service.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Context:
    settings: Settings
    store: Store
    checkouts: Checkouts
    jobs: JobRequests


def get_context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Ctx = Annotated[Context, Depends(get_context)]
_bearer = HTTPBearer(auto_error=False, description="gdn_<id>_<secret>")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def scoped(needed: Scope) -> Callable[[Context, HTTPAuthorizationCredentials | None], Token]:
    """A dependency: the caller's token, if it covers `needed`."""

    def caller(context: Ctx, credentials: Credentials) -> Token:
        token = authenticate(
            context.store, None if credentials is None else credentials.credentials
        )
        require(token, needed)
        return token

    return caller


Reader = Annotated[Token, Depends(scoped(Scope.READ))]
Submitter = Annotated[Token, Depends(scoped(Scope.SUBMIT))]
