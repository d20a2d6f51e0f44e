"""Errors as application/problem+json (RFC 9457), in answers and in OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from gdn_service import errors
from gdn_service.api.schemas import Problem

MEDIA_TYPE = "application/problem+json"
_log = structlog.get_logger(__name__)
_WORDS = {404: "not_found", 405: "method_not_allowed", 413: "payload_too_large"}


def problem(
    status: int,
    code: str,
    title: str,
    detail: str,
    extra: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    body = {
        **(extra or {}),
        "type": f"urn:gdn-lab:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
    }
    return JSONResponse(body, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make every error answer of the app a problem."""
    app.add_exception_handler(errors.RequestError, _request_error)
    app.add_exception_handler(errors.GitError, _repository_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


def _request_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.RequestError)
    return of_request_error(error)


def of_request_error(error: errors.RequestError) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return problem(error.status, error.code, error.title, str(error), error.extra, headers)


def _repository_error(_request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, errors.GitOverLimit):
        return problem(422, "invalid_request", "Invalid request", f"not a usable commit: {error}")
    return problem(503, "repository_unavailable", "Repository unavailable", str(error))


def _validation_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    faults = [
        f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()
    ]
    return problem(422, "invalid_request", "Invalid request", "; ".join(faults)[:2000])


def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    status = 422 if error.status_code == 400 else error.status_code  # a body that is no JSON
    code = _WORDS.get(status, "invalid_request")
    title = code.replace("_", " ").capitalize()
    return problem(status, code, title, str(error.detail), None, headers)


def _methods(request: Request) -> list[str]:
    """Every method of the path; the router alone names only those of its first match."""
    found: list[str] = []
    for template, operations in request.app.openapi()["paths"].items():
        pattern = re.sub(r"\{[^}]*\}", "[^/]+", template)
        if re.fullmatch(pattern, request.url.path):
            found += [method.upper() for method in operations]
    return sorted(found)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("request failed", path=request.url.path, exc_info=error)
    return problem(500, "internal_error", "Internal error", "the service has a fault; see its log")


def responses(*kinds: type[errors.RequestError]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries for error classes, those of one status together."""
    entries: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        entry = entries.setdefault(
            kind.status,
            {
                "description": kind.title,
                "content": {MEDIA_TYPE: {"schema": _SCHEMA, "examples": {}}},
            },
        )
        entry["content"][MEDIA_TYPE]["examples"][kind.code] = {"value": _example(kind)}
    return entries


def _example(kind: type[errors.RequestError]) -> dict[str, Any]:
    return {
        "type": f"urn:gdn-lab:problem:{kind.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": kind.__doc__ or kind.title,
        "code": kind.code,
    }


_SCHEMA = {"$ref": "#/components/schemas/Problem"}
PROBLEM_SCHEMA = Problem.model_json_schema()
