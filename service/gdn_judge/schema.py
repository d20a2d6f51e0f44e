"""The JSON schema of the verdict document, generated from its dataclasses.

`verdict.schema.json` beside this module is the same text, for readers without
Python; a test holds the two equal.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from pathlib import Path
from typing import Any

from gdn_judge.document import SCHEMA_ID, Document
from gdn_judge.wire.names import Name

FILE = Path(__file__).with_name("verdict.schema.json")
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}


def document_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a verdict document."""
    definitions: dict[str, Any] = {}
    root = _of(Document, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Verdict document",
        **root,
        "$defs": definitions,
    }


def text() -> str:
    return json.dumps(document_schema(), indent=2) + "\n"


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union([_of(option, definitions) for option in arguments])
    if origin is list:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum | Name):
        return {"type": "string", "enum": [member.value for member in kind]}
    if dataclasses.is_dataclass(kind):
        return _reference(typing.cast(type, kind), definitions)
    return {"type": _SCALARS[kind]}


def _union(options: list[dict[str, Any]]) -> dict[str, Any]:
    if all(set(option) == {"type"} for option in options):
        return {"type": [option["type"] for option in options]}
    return {"anyOf": options}


def _reference(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}
        definitions[kind.__name__] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    required = [
        f.name
        for f in fields
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    return {
        "type": "object",
        "description": (kind.__doc__ or "").strip().partition("\n")[0],
        "properties": {f.name: _of(hints[f.name], definitions) for f in fields},
        "required": required,
        "additionalProperties": False,
    }
