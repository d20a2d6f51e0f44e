from __future__ import annotations

import json

import jsonschema
import pytest

from gdn_judge import schema
from gdn_judge.document import (
    Case,
    Check,
    DeviceKind,
    Document,
    Measurement,
    MeasurementKind,
    Outcome,
    Suite,
    Verdict,
)


def document(**changes: object) -> Document:
    case = Case(
        id="a",
        params={"T": 1},
        outcome=Outcome.PASSED,
        checks=[Check(name="x", passed=True, value=1.0, bound=2)],
        measurements=[Measurement(name="fused", kind=MeasurementKind.GPU_TIME, samples=[1.0])],
    )
    values: dict[str, object] = {
        "suite": Suite.CORRECTNESS,
        "device_kind": DeviceKind.SM90,
        "verdict": Verdict.PASSED,
        "reason": "",
        "planned": ["a"],
        "cases": [case],
        "judge_version": "1",
        "target": "t",
        "import_path": "m:f",
        "commit": None,
        "started_at": "2026-01-01T00:00:00Z",
        "duration_s": 1.0,
    }
    return Document(**{**values, **changes})  # type: ignore[arg-type]


def test_the_file_is_what_the_dataclasses_say() -> None:
    assert schema.FILE.read_text() == schema.text()


def test_the_schema_is_a_schema_and_takes_a_document() -> None:
    jsonschema.Draft202012Validator.check_schema(schema.document_schema())
    jsonschema.validate(json.loads(document().to_json()), schema.document_schema())


@pytest.mark.parametrize(
    ("field", "value"),
    [("verdict", "great"), ("cases", {}), ("duration_s", "long"), ("surprise", 1)],
)
def test_the_schema_refuses_what_the_decoder_refuses(field: str, value: object) -> None:
    data = json.loads(document().to_json()) | {field: value}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema.document_schema())
    with pytest.raises(ValueError, match=field):
        Document.from_dict(data)
