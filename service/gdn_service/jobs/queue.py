"""The durable queue of a host: the flows of the jobs that it has claimed.

Waiting jobs are rows of the store. A host claims one when it has a device for it, and the claim
gets a flow on the host's own queue, named by job and claim.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dbos import DBOS, DBOSClient, EnqueueOptions

from gdn_service.settings import Settings
from gdn_service.store.database import use_wal

APP_NAME = "gdn-lab"
WORKFLOW = "job"
FLOW_VERSION = "job-flow-2"  # raise when the steps of the flow change their order or meaning

ENDED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")


def queue_name(worker: str) -> str:
    return f"gdn-{worker}"


def flow_id(job_id: str, claim: int) -> str:
    return f"{job_id}.{claim}"


def migrate_queue(settings: Settings) -> None:
    """Create or update the queue's own tables."""
    quiet_dbos()
    use_wal(settings.queue_url)
    DBOS.migrate(settings.queue_url)


def quiet_dbos() -> None:
    """Warnings only, through the service's own handlers."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.setLevel(logging.WARNING)


class JobQueue:
    """Enqueues by job and claim, so that doing it twice changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self._worker = settings.worker_name
        self._client = DBOSClient(system_database_url=settings.queue_url, application_name=APP_NAME)

    def enqueue(self, job_id: str, claim: int) -> None:
        options: EnqueueOptions = {
            "workflow_name": WORKFLOW,
            "queue_name": queue_name(self._worker),
            "workflow_id": flow_id(job_id, claim),
            "app_version": FLOW_VERSION,
        }
        self._client.enqueue(options, job_id, claim)

    def ended(self, claims: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Which of these (job, claim) have no living flow any more."""
        by_id = {flow_id(job_id, claim): (job_id, claim) for job_id, claim in claims}
        if not by_id:
            return []
        flows = self._client.list_workflows(
            workflow_ids=list(by_id), status=list(ENDED), load_input=False, load_output=False
        )
        return [by_id[flow.workflow_id] for flow in flows]

    def close(self) -> None:
        self._client.destroy()
