from __future__ import annotations

import json
from typing import Any

import pytest

from gdn_judge.document import DocumentError
from gdn_service.errors import RunnerError
from gdn_service.jobs.assignment import Assignment
from gdn_service.jobs.verdicts import clean, read_document
from gdn_service.store.models import Job, Run
from gdn_service.targets import new_target
from support.service_rows import SHA, document

ASKED = Assignment(
    job=Job(target="demo", commit_sha=SHA, device_kind="interpreter"),
    run=Run(suite="correctness"),
    target=new_target(name="demo", repository="/r", import_path="m:f"),
)


def test_the_right_document_is_read() -> None:
    assert read_document(document().to_json(), ASKED) == document()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"commit": None}, "commit is 'None', asked was '0123"),
        ({"target": "other"}, "target is 'other'"),
        ({"suite": "roofline"}, "suite is 'roofline'"),
        ({"device_kind": "sm90"}, "device_kind is 'sm90'"),
        ({"import_path": "m:g"}, "import_path is 'm:g'"),
    ],
)
def test_a_document_about_another_run_is_refused(values: dict[str, Any], message: str) -> None:
    body = json.dumps(document().to_dict() | values)
    with pytest.raises(RunnerError, match=message):
        read_document(body, ASKED)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "not valid"),
        ("[]", "should be an object"),
        ('{"a": NaN}', "NaN is not allowed"),
        ("[" * 100_000, "not valid"),
    ],
)
def test_what_is_no_document_is_refused(body: str, message: str) -> None:
    with pytest.raises(RunnerError, match=message) as caught:
        read_document(body, ASKED)
    assert isinstance(caught.value.__cause__, DocumentError | ValueError | RecursionError)


def test_a_passed_verdict_needs_every_planned_case() -> None:
    body = json.dumps(document().to_dict() | {"planned": ["T8", "T9"]})
    with pytest.raises(RunnerError, match=r"cases differ from the plan: .* missing \['T9'\]"):
        read_document(body, ASKED)


def test_text_is_made_fit_for_a_database() -> None:
    assert clean({"a\x00": ["\ud800x", 1, None, {"b": "ok"}]}) == {
        "a\ufffd": ["?x", 1, None, {"b": "ok"}]
    }
