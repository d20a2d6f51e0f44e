"""Fixtures for tests of the service; imported by the conftest of each of their folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gdn_service.store.store import Store
from support.service_bench import Repo, postgres_database, postgres_missing


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)],
)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/data/gdn.sqlite"
        return
    reason = postgres_missing()
    if reason:
        pytest.skip(reason)
    with postgres_database() as url:
        yield url


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A migrated store of each kind."""
    url = database_url.replace("postgresql://", "postgresql+psycopg://")
    made = Store(url)
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")
