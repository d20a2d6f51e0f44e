"""Puts the parts together: API alone, worker alone, or both in one process."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from gdn_service.api.app import build_app
from gdn_service.api.context import Context
from gdn_service.errors import SettingsError
from gdn_service.jobs.queue import JobQueue, migrate_queue
from gdn_service.jobs.requests import JobRequests
from gdn_service.jobs.worker import Worker
from gdn_service.runner.base import Runner
from gdn_service.runner.checkouts import Checkouts
from gdn_service.settings import Settings
from gdn_service.store.store import Store

OpenStore = AbstractContextManager[Store]


def configure_logs() -> None:
    """Everything to stderr; data stays on stdout."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(message)s"
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
            if sys.stderr.isatty()
            else structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def migrate(settings: Settings) -> None:
    """Bring the store's and the queue's tables up to date.

    Raises SettingsError for a data folder that cannot be made, DatabaseUnavailable.
    """
    try:
        _close_data_dir(settings)
    except OSError as error:
        raise SettingsError(
            f"the data folder {settings.data_dir.absolute()} cannot be made: {error.strerror}; "
            "set GDN_DATA_DIR to another"
        ) from error
    store = Store(settings.store_url)
    try:
        store.migrate()
    finally:
        store.close()
    migrate_queue(settings)


def _close_data_dir(settings: Settings) -> None:
    """Nobody but the service's account reads what it keeps: tokens, leases, every target's trees.

    A candidate is shown its own tree (`gdn_judge.enter`). A data folder that was there before is
    left as it is, and everything of ours in it closed.
    """
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    folders = (settings.mirrors_dir, settings.trees_dir, settings.work_dir, settings.locks_dir)
    for folder in folders:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
    for url in (settings.store_url, settings.queue_url):
        if url.startswith("sqlite:///"):
            path = Path(url.removeprefix("sqlite:///"))
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.chmod(0o600)


@contextmanager
def open_store(settings: Settings) -> Iterator[Store]:
    store = Store(settings.store_url)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def open_queue(settings: Settings) -> Iterator[JobQueue]:
    queue = JobQueue(settings)
    try:
        yield queue
    finally:
        queue.close()


def build_context(settings: Settings, store: Store) -> Context:
    def bundle_content(bundle_id: str) -> bytes | None:
        with store.read() as tx:
            return tx.bundles.content(bundle_id)

    checkouts = Checkouts(settings, bundle_content)
    return Context(
        settings=settings,
        store=store,
        checkouts=checkouts,
        jobs=JobRequests(settings, store, checkouts),
    )


def serve_api(settings: Settings) -> None:
    """The API until a signal comes."""
    with open_store(settings) as store:
        stop_on_signals()
        _serve(build_app(build_context(settings, store)), settings)


def serve_worker(settings: Settings, runner: Runner | None = None) -> None:
    """A worker until a signal comes."""
    with open_store(settings) as store, open_queue(settings) as queue:
        worker = Worker(settings, store, queue, runner)
        stop = stop_on_signals()
        worker.start()
        try:
            stop.wait()
        finally:
            worker.stop()


def serve_all(settings: Settings, runner: Runner | None = None) -> None:
    """API and worker in one process until a signal comes."""
    with open_store(settings) as store, open_queue(settings) as queue:
        worker = Worker(settings, store, queue, runner)
        stop_on_signals()
        worker.start()
        try:
            _serve(build_app(build_context(settings, store)), settings)
        finally:
            worker.stop()


def _serve(app: FastAPI, settings: Settings) -> None:
    """uvicorn ends on SIGTERM and SIGINT by itself; open streams get a few seconds.

    It raises the signal again afterwards, so a handler of ours must be installed.
    """
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        timeout_graceful_shutdown=5,
        access_log=False,
    )
    uvicorn.Server(config).run()


def stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stop
