"""Engines and transactions, the same on SQLite and PostgreSQL.

SQLite runs in WAL mode with a busy timeout. A write transaction begins with
BEGIN IMMEDIATE: a transaction that reads first and upgrades later cannot wait
for another writer and fails with "database is locked" whatever the timeout is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import Session

from gdn_service.errors import DatabaseNewer, DatabaseUnavailable

BUSY_TIMEOUT_MS = 30_000
MIGRATIONS = Path(__file__).parent.parent / "migrations"


def open_engine(url: str) -> Engine:
    """An engine for `url`; makes the folder of a SQLite file and sets its modes.

    Raises DatabaseUnavailable for what is no URL of a database that can be used here.
    """
    try:
        return _engine(url)
    except (ArgumentError, ModuleNotFoundError) as error:
        raise _unavailable(error) from error


def driver_words(error: Exception) -> str:
    """What the driver said, one line, without SQLAlchemy's frame around it."""
    return str(error.__cause__ or error).strip().splitlines()[0]


def _unavailable(error: Exception) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"the database cannot be reached: {driver_words(error)}; "
        "check GDN_DATABASE_URL and that the server runs"
    )


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=10)
    database = make_url(url).database
    if database:
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, pool_size=10, max_overflow=10)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # this module begins transactions, not the driver
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("gdn_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def use_wal(url: str) -> None:
    """Switch a SQLite file that another library opens to WAL; the mode stays in the file."""
    database = make_url(url).database
    if url.startswith("sqlite") and database:
        Path(database).parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(database, timeout=BUSY_TIMEOUT_MS / 1000)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        finally:
            connection.close()


class Database:
    """Hands out sessions; `read` never blocks a writer on SQLite."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = open_engine(url)
        self._writer = self.engine.execution_options(gdn_write=True)

    @contextmanager
    def read(self) -> Iterator[Session]:
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back on any exception."""
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def migrate(self) -> None:
        """Bring the schema to the newest revision; safe to call from several processes.

        Raises DatabaseUnavailable where there is no connection, and DatabaseNewer.
        """
        with self._connected() as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(7466110)"))
            config = alembic_config(connection)
            _refuse_newer(connection, config)
            alembic.command.upgrade(config, "head")

    def _connected(self) -> Connection:
        try:
            return self._writer.connect()
        except SQLAlchemyError as error:
            raise _unavailable(error) from error

    def close(self) -> None:
        self.engine.dispose()


def _refuse_newer(connection: Connection, config: alembic.config.Config) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    here = MigrationContext.configure(connection).get_current_heads()
    newer = ", ".join(sorted(set(here) - known))
    if newer:
        raise DatabaseNewer(
            f"the database has revision {newer}, this service knows {max(known)} at most: "
            "a newer one has migrated it; update this installation"
        )


def alembic_config(connection: Connection | None = None) -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config
