"""Health, readiness, whoami."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from sqlalchemy.exc import SQLAlchemyError

from gdn_service.api import problems
from gdn_service.api.context import Ctx, Reader
from gdn_service.api.schemas import Health, Who
from gdn_service.auth import Scope
from gdn_service.errors import Forbidden, RequestError, Unauthorised

router = APIRouter(tags=["system"])


class NotReady(RequestError):
    """The database does not answer."""

    status = 503
    code = "not_ready"
    title = "Not ready"


@router.get("/health", summary="The process is up")
def health() -> Health:
    return Health(status="ok", version=version("gdn-lab"))


@router.get("/ready", summary="The database answers", responses=problems.responses(NotReady))
def ready(context: Ctx) -> Health:
    try:
        context.store.check()
    except SQLAlchemyError as error:
        raise NotReady(f"the database does not answer: {type(error).__name__}") from error
    return Health(status="ready", version=version("gdn-lab"))


@router.get(
    "/whoami",
    summary="Name and scope of the token",
    responses=problems.responses(Unauthorised, Forbidden),
)
def whoami(token: Reader) -> Who:
    return Who(name=token.name, scope=Scope(token.scope))
