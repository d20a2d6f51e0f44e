"""Builds the FastAPI application."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gdn_service.api import problems, routes_jobs, routes_read, routes_system
from gdn_service.api.context import Context
from gdn_service.api.views import PREFIX

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
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schema["components"]["schemas"]["Problem"] = problems.PROBLEM_SCHEMA
        app.openapi_schema = schema
    return app.openapi_schema
