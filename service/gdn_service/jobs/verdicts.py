"""Reads the document that a judge left, and holds it against what was asked."""

from __future__ import annotations

import json
from typing import Any

from gdn_judge.document import Document, DocumentError
from gdn_service.errors import RunnerError
from gdn_service.jobs.assignment import Assignment


def read_document(body: str, assignment: Assignment) -> Document:
    """The checked document. Raises RunnerError saying what is wrong with it."""
    try:
        document = Document.from_dict(clean(json.loads(body, parse_constant=_refuse)))
    except (ValueError, RecursionError) as error:
        raise RunnerError(f"the judge's document is not valid: {error}") from error
    asked = {
        "suite": assignment.run.suite,
        "device_kind": assignment.job.device_kind,
        "commit": assignment.job.commit_sha,
        "import_path": assignment.target.import_path,
        "target": assignment.job.target,
    }
    for name, value in asked.items():
        if getattr(document, name) != value:
            raise RunnerError(
                f"the judge's document is about another run: {name} is "
                f"{str(getattr(document, name))[:100]!r}, asked was {value!r}"
            )
    return document


def clean(value: Any) -> Any:
    """Untrusted text without NUL and lone surrogates, which databases refuse."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


def _refuse(name: str) -> Any:
    raise DocumentError(f"{name} is not allowed")
