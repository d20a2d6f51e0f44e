"""Fixtures for tests of the service; imported by the conftest of each of their folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gdn_service import application
from gdn_service.store.store import Store
from support.service_bench import Repo, bench_settings, postgres_database, postgres_missing


@pytest.fixture(scope="session")
def postgres_template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a migrated database; copying it is faster than migrating again."""
    reason = postgres_missing()
    if reason:
        pytest.skip(reason)
    with postgres_database() as url:
        application.migrate(bench_settings(tmp_path_factory.mktemp("template"), url))
        yield url.rpartition("/")[2]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of each kind; the one on PostgreSQL is migrated already."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/data/gdn.sqlite"
        return
    with postgres_database(request.getfixturevalue("postgres_template")) as url:
        yield url


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A migrated store of each kind."""
    made = Store(database_url.replace("postgresql://", "postgresql+psycopg://"))
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")
