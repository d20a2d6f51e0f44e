"""The durable queue as a submitter sees it: one DBOS queue per device kind."""

from __future__ import annotations

import logging

from dbos import DBOS, DBOSClient, EnqueueOptions

from gdn_service.settings import Settings
from gdn_service.store.database import use_wal

APP_NAME = "gdn-lab"
WORKFLOW = "job"
FLOW_VERSION = "job-flow-1"  # raise when the steps of the flow change their order or meaning

ENDED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")


def queue_name(device_kind: str) -> str:
    return f"gdn-{device_kind}"


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
    """Enqueues by the job's id, so that doing it twice changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self._client = DBOSClient(system_database_url=settings.queue_url, application_name=APP_NAME)

    def enqueue(self, job_id: str, device_kind: str) -> None:
        options: EnqueueOptions = {
            "workflow_name": WORKFLOW,
            "queue_name": queue_name(device_kind),
            "workflow_id": job_id,
            "app_version": FLOW_VERSION,
        }
        self._client.enqueue(options, job_id)

    def ended(self, job_ids: list[str]) -> list[str]:
        """Which of these have no living flow any more."""
        if not job_ids:
            return []
        flows = self._client.list_workflows(
            workflow_ids=job_ids, status=list(ENDED), load_input=False, load_output=False
        )
        return [flow.workflow_id for flow in flows]

    def close(self) -> None:
        self._client.destroy()
