"""The API is what its OpenAPI document says, also for inputs that nobody thought of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, load_all_checks

from gdn_service import application
from gdn_service.api.app import build_app
from gdn_service.api.context import Context
from gdn_service.auth import Scope, create_token
from support.service_bench import Repo, bench_settings, demo_target, running
from support.service_rows import add_device

METHODS = ("get", "post", "put", "delete", "patch")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(base URL, token) of an API with one target and one device."""
    folder: Path = tmp_path_factory.mktemp("openapi")
    application.configure_logs()
    config = bench_settings(folder / "data", "")
    application.migrate(config)
    with application.open_store(config) as store:
        with store.write() as tx:
            tx.targets.put(demo_target(Repo(folder / "repo").path))
        add_device(store)
        token = create_token(store, "fuzz", Scope.ADMIN)
        app = build_app(application.build_context(config, store))
        with running(app) as url:
            yield url, token


SETTINGS = bench_settings(Path("nowhere"), "")
# The document needs the settings alone.
BARE = Context(settings=SETTINGS, store=cast(Any, None), checkouts=cast(Any, None),
               jobs=cast(Any, None))  # fmt: skip
DOCUMENT = build_app(BARE).openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT)
load_all_checks()
# Whether a well-formed suite, commit or target exists is not in the document.
LEFT_OUT = CHECKS.get_by_names(["positive_data_acceptance"])


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_the_api_is_what_its_document_says(case: Any, served: tuple[str, str]) -> None:
    case.call_and_validate(
        base_url=served[0],
        headers={"Authorization": f"Bearer {served[1]}"},
        excluded_checks=LEFT_OUT,
        timeout=30,
    )


def _operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method} {path}", operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    ]


def test_every_operation_documents_its_errors() -> None:
    for name, operation in _operations(DOCUMENT):
        assert operation["summary"], name
        errors = {code: r for code, r in operation["responses"].items() if code >= "400"}
        if name.endswith(("/health", "/ready")):
            continue
        assert {"401", "403"} <= errors.keys(), name
        assert "security" in operation, name
        for code, answer in errors.items():
            body = answer["content"]["application/problem+json"]
            assert body["schema"] == {"$ref": "#/components/schemas/Problem"}, (name, code)
            for word, example in body["examples"].items():
                assert example["value"]["code"] == word, (name, code)
                assert example["value"]["status"] == int(code), (name, code)


def test_every_success_has_a_schema() -> None:
    for name, operation in _operations(DOCUMENT):
        good = [answer for code, answer in operation["responses"].items() if code < "300"]
        assert good, name
        for answer in good:
            assert all("schema" in body for body in answer["content"].values()), name


def test_every_body_has_a_limit_that_the_document_names() -> None:
    limits = {"post /api/v1/bundles": SETTINGS.bundle_max_bytes}
    posts = [found for found in _operations(DOCUMENT) if not found[0].startswith("get ")]
    assert len(posts) >= 4
    for name, operation in posts:
        limit = limits.get(name, SETTINGS.request_max_bytes)
        assert f"over {limit} bytes" in operation["responses"]["413"]["description"], name
        if "requestBody" in operation:
            assert operation["requestBody"]["x-max-bytes"] == limit, name
            assert f"at most {limit} bytes" in operation["requestBody"]["description"], name
    assert [name for name, found in _operations(DOCUMENT) if "requestBody" in found] == [
        "post /api/v1/bundles",
        "post /api/v1/jobs",
    ]
