from __future__ import annotations

import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from gdn_service.errors import DatabaseNewer
from gdn_service.store.database import MIGRATIONS
from gdn_service.store.models import Base
from gdn_service.store.store import Store
from support.service_bench import postgres_database, postgres_missing


def test_migrations_and_models_agree(store: Store) -> None:
    with store.database.engine.connect() as connection:
        difference = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    assert difference == []


def test_a_database_of_a_newer_service_is_refused_and_left_alone(store: Store) -> None:
    with store.write() as tx:
        tx.session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseNewer, match=r"has revision 9999, this service knows 0\d+ at most"):
        store.migrate()
    with store.read() as tx:
        assert tx.session.scalars(text("SELECT version_num FROM alembic_version")).all() == ["9999"]


def _migrate_at_once(url: str) -> None:
    stores = [Store(url) for _ in range(3)]
    threads = [threading.Thread(target=store.migrate) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.check()
        store.close()


def test_migrating_at_once_is_harmless_on_sqlite(tmp_path: Path) -> None:
    _migrate_at_once(f"sqlite:///{tmp_path}/gdn.sqlite")


@pytest.mark.postgres
def test_migrating_at_once_is_harmless_on_postgresql() -> None:
    if reason := postgres_missing():
        pytest.skip(reason)
    with postgres_database() as url:
        _migrate_at_once(url.replace("postgresql://", "postgresql+psycopg://"))


def _write_and_fail(store: Store) -> None:
    with store.write() as tx:
        tx.session.execute(text("INSERT INTO environments (id, facts) VALUES ('e', '{}')"))
        raise ZeroDivisionError


def test_a_failed_write_leaves_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        _write_and_fail(store)
    with store.read() as tx:
        assert tx.results.environment("e") is None


def test_migrations_travel_with_the_package() -> None:
    assert (MIGRATIONS / "env.py").is_file()
    assert sorted((MIGRATIONS / "versions").glob("0001_*.py"))
