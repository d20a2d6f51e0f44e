"""Builds the FastAPI application."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gdn_service.api import problems, routes_jobs, routes_read, routes_system
from gdn_service.api.context import Context
from gdn_service.api.door import Door, limit_of
from gdn_service.api.views import PREFIX
from gdn_service.settings import Settings

DESCRIPTION = (
    "Submit a commit, have it judged on an idle device, read the tables. "
    "Errors are application/problem+json with a stable `code`. Times are UTC with Z. "
    "Scopes: read < submit < manage < admin."
)


def build_app(context: Context) -> FastAPI:
    app = FastAPI(
        title="GDN Lab",
        version=version("gdn-lab"),
        description=DESCRIPTION,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=f"{PREFIX}/docs",
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.context = context
    problems.install(app)
    for router in (routes_system.router, routes_read.router, routes_jobs.router):
        app.include_router(router, prefix=PREFIX)
    app.add_middleware(Door, service=app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schema["components"]["schemas"]["Problem"] = problems.PROBLEM_SCHEMA
        _say_limits(schema, app.state.context.settings)
        app.openapi_schema = schema
    return app.openapi_schema


def _say_limits(schema: dict[str, Any], settings: Settings) -> None:
    """How long a body may be on this service, where a client generator looks."""
    for path, item in schema["paths"].items():
        for operation in item.values():
            refusal = operation["responses"].get("413")
            if refusal is None:
                continue
            limit, setting = limit_of(path, settings)
            refusal["description"] = f"A body of over {limit} bytes ({setting}); it is not read"
            body = operation.get("requestBody")
            if body is not None:
                body["description"] = f"{body.get('description', 'JSON')}; at most {limit} bytes"
                body["x-max-bytes"] = limit
