"""One worker process: claims jobs that its devices are free for, and runs their flows.

It renews its lease while it lives. A worker whose lease has run out is dead:
whoever notices first takes its claims from it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Callable
from typing import IO

import structlog
from dbos import DBOS, DBOSConfig
from sqlalchemy.exc import SQLAlchemyError

from gdn_judge import JUDGE_VERSION
from gdn_judge.document import DeviceKind
from gdn_service.errors import SettingsError, WorkerNameTaken, WorkerStopping
from gdn_service.jobs import placement
from gdn_service.jobs.flow import JobFlow
from gdn_service.jobs.judging import SuiteJudge
from gdn_service.jobs.placement import WORKER
from gdn_service.jobs.queue import (
    APP_NAME,
    FLOW_VERSION,
    WORKFLOW,
    JobQueue,
    queue_name,
    quiet_dbos,
)
from gdn_service.jobs.requests import log_line
from gdn_service.jobs.states import JobState
from gdn_service.runner.base import Runner
from gdn_service.runner.checkouts import Checkouts
from gdn_service.runner.choice import build_runner
from gdn_service.runner.inventory import Inventory, build_probes
from gdn_service.settings import Settings
from gdn_service.store.leases import LeaseRepository
from gdn_service.store.store import Store

_log = structlog.get_logger(__name__)


class Worker:
    """`start`, then `stop`. One per process: DBOS is a singleton."""

    def __init__(
        self, settings: Settings, store: Store, queue: JobQueue, runner: Runner | None = None
    ) -> None:
        self._settings = settings
        self._store = store
        self._queue = queue
        self._runner = runner or build_runner(settings)
        self._holder = secrets.token_hex(8)
        self._stopping = threading.Event()
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock: IO[str] | None = None
        self._kinds: dict[DeviceKind, None] = {}  # served so far, also after a device is gone
        self.inventory = Inventory(settings, store, build_probes(settings))

    def start(self) -> None:
        """Raises WorkerNameTaken, or SettingsError when there is no device to serve."""
        self._lock_data_dir()
        self._look()
        if not self.inventory.kinds():
            wanted = ", ".join(self._settings.device_kinds)
            raise SettingsError(f"this machine has no device of the kinds asked for ({wanted})")
        self._take_name()
        self._launch()
        self._spawn("heartbeat", self._settings.heartbeat_s, self._beat)
        self._spawn("sweep", self._settings.heartbeat_s, self._sweep)
        self._spawn("claims", self._settings.database_poll_s, self._claim)
        self._spawn("devices", self._settings.device_refresh_s, self._look)
        _log.info(
            "worker started",
            worker=self._settings.worker_name,
            kinds=[str(kind) for kind in self.inventory.kinds()],
        )

    def stop(self, patience_s: float = 30) -> None:
        """End the judges gently and leave their jobs to be taken up again."""
        self._stopping.set()
        deadline = time.monotonic() + patience_s
        while self._running() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._done.set()
        DBOS.destroy(destroy_registry=True)
        for thread in self._threads:
            thread.join(timeout=10)
        with self._store.write() as tx:
            tx.jobs.release(self._settings.worker_name)
            tx.leases.release(WORKER + self._settings.worker_name, self._holder)
        if self._lock is not None:
            self._lock.close()

    def _running(self) -> bool:
        return bool(self._flows)

    def _launch(self) -> None:
        quiet_dbos()
        self._flows: set[tuple[str, int]] = set()
        checkouts = Checkouts(self._settings, self._bundle_content)
        judge = SuiteJudge(
            store=self._store,
            checkouts=checkouts,
            inventory=self.inventory,
            runner=self._runner,
            settings=self._settings,
            stopping=self._stopping,
        )
        flow = JobFlow(store=self._store, checkouts=checkouts, judge=judge, settings=self._settings)

        def job(job_id: str, claim: int) -> None:
            if self._stopping.is_set():
                raise WorkerStopping
            self._flows.add((job_id, claim))
            try:
                flow.run(job_id, claim)
            finally:
                self._flows.discard((job_id, claim))

        # The flow counts its starts itself, so the queue's own limit never comes first.
        DBOS.workflow(name=WORKFLOW, max_recovery_attempts=1000)(job)
        config: DBOSConfig = {
            "name": APP_NAME,
            "system_database_url": self._settings.queue_url,
            "application_version": FLOW_VERSION,
            "executor_id": self._settings.worker_name,
            "log_level": "WARNING",
            "run_migrations": False,
        }
        DBOS(config=config)
        name = queue_name(self._settings.worker_name)
        DBOS.listen_queues([name])
        DBOS.launch()
        DBOS.register_queue(
            name,
            polling_interval_sec=self._settings.database_poll_s,
            on_conflict="always_update",
        )

    def _lock_data_dir(self) -> None:
        """Two workers on one data folder would share a name, mirrors and locks."""
        self._settings.data_dir.mkdir(parents=True, exist_ok=True)
        path = self._settings.data_dir / "worker.lock"
        lock = open(path, "a+", opener=lambda path, flags: os.open(path, flags, 0o600))  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise WorkerNameTaken(
                f"another worker already runs on {self._settings.data_dir}; give each its own "
                "GDN_DATA_DIR and GDN_WORKER_NAME"
            ) from error
        self._lock = lock

    def _take_name(self) -> None:
        """A lease left by a killed worker of this very data folder is ours to take."""
        with self._store.write() as tx:
            name = WORKER + self._settings.worker_name
            lease = tx.leases.get(name)
            force = lease is not None and lease.facts.get("data_dir") == self._data_dir
            if not self._acquire(tx.leases, force=force):
                raise WorkerNameTaken(
                    f"a live worker named {self._settings.worker_name!r} uses this database; "
                    "set GDN_WORKER_NAME"
                )

    @property
    def _data_dir(self) -> str:
        return f"{os.uname().nodename}:{self._settings.data_dir.absolute()}"

    def _acquire(self, leases: LeaseRepository, *, force: bool = False) -> bool:
        return leases.acquire(
            WORKER + self._settings.worker_name,
            self._holder,
            host=os.uname().nodename,
            ttl_s=self._settings.worker_ttl_s,
            facts={
                "data_dir": self._data_dir,
                "kinds": [str(kind) for kind in self.inventory.kinds()],
                "judge_version": JUDGE_VERSION,
                "isolates": self._runner.isolates,
            },
            force=force,
        )

    def _spawn(self, name: str, pause_s: float, action: Callable[[], None]) -> None:
        def loop() -> None:
            while not self._done.wait(pause_s):
                try:
                    action()
                except SQLAlchemyError:
                    _log.exception(f"{name} failed; it is tried again")

        thread = threading.Thread(target=loop, name=f"gdn-{name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _beat(self) -> None:
        with self._store.write() as tx:
            renewed = self._acquire(tx.leases)
        if not renewed:
            _log.error(
                "the worker's name was taken by another worker", worker=self._settings.worker_name
            )

    def _look(self) -> None:
        self.inventory.refresh()
        self._kinds |= dict.fromkeys(self.inventory.kinds())

    def _claim(self) -> None:
        """One job per device at a time."""
        if self._stopping.is_set():
            return
        host = self._settings.worker_name
        for kind in list(self._kinds):
            with self._store.read() as tx:
                job_id = placement.next_job(tx, host, kind)
            if job_id is None:
                continue
            with self._store.write() as tx:
                claim = tx.jobs.claim(job_id, host)
            if claim is not None:
                self._queue.enqueue(job_id, claim)

    def _sweep(self) -> None:
        sweep(self._store, self._queue, self._settings.worker_name)

    def _bundle_content(self, bundle_id: str) -> bytes | None:
        with self._store.read() as tx:
            return tx.bundles.content(bundle_id)


def sweep(store: Store, queue: JobQueue, worker: str) -> None:
    """Mend what a kill can leave behind: claims of the dead, claims without a living flow."""
    with store.write() as tx:
        claimed = tx.jobs.claimed()
        alive = placement.living(tx) | {worker}  # read last: a lease is older than its claims
        for job_id, claim, holder in claimed:
            if holder not in alive and tx.jobs.void_claim(job_id, claim):
                _log.warning("worker is dead; its job is taken over", worker=holder, job=job_id)
                text = f"worker {holder} is dead; the job waits for another"
                tx.log.append(job_id, [log_line(text)])
        for lease in tx.leases.expired(WORKER):
            if lease.name != WORKER + worker:
                tx.leases.release(lease.name, lease.holder)
    with store.read() as tx:
        held = [(job_id, claim) for job_id, claim, _ in tx.jobs.held(worker)]
    for job_id, claim in held:
        queue.enqueue(job_id, claim)
    for job_id, claim in queue.ended(held):
        with store.write() as tx:
            reason = "the queue gave the job up"
            if tx.jobs.finish(
                job_id,
                JobState.ERROR,
                reason=reason,
                failure_class="service",
                duration_s=None,
                claim=claim,
            ):
                tx.jobs.cancel_runs(job_id, reason)
                tx.log.append(job_id, [("state", {"state": "error", "reason": reason})])
