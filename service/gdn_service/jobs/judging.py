"""The step `judge` of the flow: one suite on one idle device, start to end."""

from __future__ import annotations

import enum
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from gdn_judge.document import DeviceKind, Document, FailureClass, Outcome, Suite, Verdict
from gdn_service.clock import iso, now
from gdn_service.errors import DeviceBusy, DeviceError, GitError, RunnerError, WorkerStopping
from gdn_service.jobs.assignment import Assignment, load_assignment
from gdn_service.jobs.baseline import Baseline, find_baseline
from gdn_service.jobs.idleness import Assertion, Stay, canaries
from gdn_service.jobs.states import RunState
from gdn_service.jobs.verdicts import clean, read_document
from gdn_service.runner.base import Ending, JudgeOutcome, JudgeRequest, RunControl, Runner
from gdn_service.runner.checkouts import Checkouts
from gdn_service.runner.inventory import HeldDevice, Inventory, LocalDevice
from gdn_service.runner.watch import Watch
from gdn_service.settings import Settings
from gdn_service.store import log
from gdn_service.store.models import Job, Run
from gdn_service.store.store import Store

_log = structlog.get_logger(__name__)
_DIRTY_DEVICES = 2  # left dirty by one job: then it is the commit, and no third is risked


class Result(enum.StrEnum):
    """How the step `judge` ended."""

    DOCUMENT = "document"  # the judge left one; it is kept
    FAILED = "failed"  # there is none, and a second try would not help
    HOST = "host"  # the host spoiled it; try again
    CANCELLED = "cancelled"


class Blame(enum.Enum):
    """What the commit may have to do with a failure of its host."""

    NOBODY = enum.auto()  # its candidate never came, or the device was seen not to be idle
    SUSPECT = enum.auto()  # its candidate was running
    AFTER = enum.auto()  # all cases were judged and the candidate gone: the judge's last look


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What the step `judge` records; small, since documents are kept in the store."""

    result: Result
    reason: str = ""
    failure_class: FailureClass | None = None
    verdict: Verdict = Verdict.ERROR
    host_tries: int = 0  # with HOST: how often hosts have spoiled this run so far


class Cancelled(Exception):
    """Someone cancelled the job; raised and caught in this module."""


@dataclass(frozen=True, kw_only=True)
class SuiteJudge:
    store: Store
    checkouts: Checkouts
    inventory: Inventory
    runner: Runner
    settings: Settings
    stopping: threading.Event

    def run(self, job_id: str, suite: str) -> Judged:
        """One suite on one idle device, start to end; after a pause where a host spoiled it."""
        asked = load_assignment(self.store, job_id, suite)
        run = asked.run
        if run.state == RunState.FINISHED:
            return Judged(result=Result.DOCUMENT)
        try:
            self._pause(job_id, self.settings.host_retry_s if run.host_tries else 0.0)
            with self.inventory.hold_idle(
                DeviceKind(asked.job.device_kind),
                f"run {run.id}",
                lambda: self._give_up(job_id),
                lambda text: self.store.say(job_id, text, run=run.id),
                last=run.device_id if run.host_tries else None,
            ) as held:
                return self._judge_on(held, asked)
        except Cancelled:
            return Judged(result=Result.CANCELLED, reason="cancelled")
        except DeviceBusy as error:
            return self._spoiled(run, f"host busy: {error}", Verdict.ERROR)
        except DeviceError as error:
            return self._spoiled(run, str(error), Verdict.ERROR)

    def _judge_on(self, held: HeldDevice, asked: Assignment) -> Judged:
        job, run = asked.job, asked.run
        tree = self.checkouts.export(asked.target, job.commit_sha, job.bundle_id).path
        work_dir = self.settings.work_dir / run.id
        shutil.rmtree(work_dir, ignore_errors=True)
        # It may be there: what another user left of a run that was killed is not ours to remove.
        work_dir.mkdir(parents=True, exist_ok=True)
        device = held.device
        before = Assertion(at=now(), report=held.idle, others=self.inventory.load(device))
        with self.store.write() as tx:
            tx.jobs.start_run(run.id, device.id)
            tx.leases.acquire(
                f"device:{device.id}",
                run.id,
                host=self.settings.worker_name,
                ttl_s=self.settings.suite_timeout_s,
                force=True,  # the file lock is ours, so any lease there is a dead one's
            )
        self.store.say(job.id, f"{run.suite} on {device.id} ({device.facts.name})", run=run.id)
        try:
            request = self._request(asked, held.device, tree, work_dir)
            with self._watch(held.device) as watch:
                outcome = self.runner.run(request, self._control(run, held, watch))
            document = self._document(outcome, asked)
            stay = Stay(
                device_id=device.id,
                facts=device.facts,
                before=before,
                after=self._assertion(device),
                watch=watch,
                canaries=canaries(self.store, device.id, document, self.settings),
            )
            return self._conclude(asked, stay, document, outcome)
        except DeviceError as error:
            return self._spoiled(run, str(error), Verdict.ERROR, device_id=device.id)
        except (GitError, RunnerError) as error:
            return failed(FailureClass.SERVICE, str(error))
        finally:
            with self.store.write() as tx:
                tx.leases.release(f"device:{device.id}", run.id)

    def _document(self, outcome: JudgeOutcome, asked: Assignment) -> Document | None:
        """What the judge left, checked. Raises RunnerError for what is no document of this run."""
        if outcome.ending is Ending.STOPPED:
            raise WorkerStopping
        if outcome.ending is Ending.CANCELLED:
            raise Cancelled
        return None if outcome.document is None else read_document(outcome.document, asked)

    def _conclude(
        self, asked: Assignment, stay: Stay, document: Document | None, outcome: JudgeOutcome
    ) -> Judged:
        """Keep what was seen of the device; the document only where the run counts."""
        run = asked.run
        with self.store.write() as tx:
            attempt = tx.session.get_one(Run, run.id).host_tries + 1
            tx.readings.add(stay.readings(run.id, attempt))
            if stay.after.report.dirty:
                tx.devices.quarantine(stay.device_id, f"gpu_dirty: {stay.after.report.why}")
        for note in dict.fromkeys((*stay.before.report.notes, *stay.after.report.notes)):
            self.store.say(run.job_id, f"{stay.device_id}: {note}", run=run.id)
        for moment, found in stay.canaries.items():
            self.store.say(run.job_id, f"canary {moment} the run: {found.words}", run=run.id)
        if stay.left_dirty:
            return self._dirtied(run, stay)
        judged = self._classify(document, outcome)
        if judged.result is Result.HOST:
            blame = Blame.NOBODY
            if stay.candidate_came and not stay.void:
                blame = Blame.AFTER if _all_judged(document) else Blame.SUSPECT
            return self._spoiled(
                run, judged.reason, judged.verdict, device_id=stay.device_id, blame=blame
            )
        if stay.void:
            return self._spoiled(run, stay.void, Verdict.INCONCLUSIVE, device_id=stay.device_id)
        if judged.result is Result.DOCUMENT and outcome.document is not None:
            with self.store.write() as tx:
                tx.results.receive(run.id, outcome.document)
                tx.devices.host_success(stay.device_id)
        return judged

    def _classify(self, document: Document | None, outcome: JudgeOutcome) -> Judged:
        if document is None:
            return _without_document(outcome, self.settings.suite_timeout_s)
        by_host = document.failure_class is FailureClass.HOST
        return Judged(
            result=Result.HOST if by_host else Result.DOCUMENT,
            reason=document.reason if by_host else "",
            failure_class=FailureClass.HOST if by_host else None,
            verdict=document.verdict,
        )

    def _watch(self, device: LocalDevice) -> Watch:
        return Watch(lambda: device.probe.look(device.facts), self.settings.idle_watch_s)

    def _assertion(self, device: LocalDevice) -> Assertion:
        """Under the lock of the device, as a run begins or has ended."""
        report = self.inventory.idle(device)
        return Assertion(at=now(), report=report, others=self.inventory.load(device))

    def _dirtied(self, run: Run, stay: Stay) -> Judged:
        """On a second device it is the commit, not the host."""
        judged = self._spoiled(
            run, stay.void, Verdict.INCONCLUSIVE, device_id=stay.device_id, dirty=True
        )
        with self.store.read() as tx:
            failures = tx.jobs.host_failures(run.job_id)
        dirty = sorted({str(failure.device_id) for failure in failures if failure.dirty})
        if len(dirty) < _DIRTY_DEVICES:
            return judged
        return failed(
            FailureClass.CANDIDATE,
            f"it left memory that no process owns on {' and '.join(dirty)}, idle before; "
            f"it is not tried on another device: {stay.after.report.why}",
        )

    def _spoiled(
        self,
        run: Run,
        reason: str,
        verdict: Verdict,
        *,
        device_id: str | None = None,
        blame: Blame = Blame.NOBODY,
        dirty: bool = False,
    ) -> Judged:
        """The host is at fault: nothing of the run counts, and it may be tried again.

        `device_id` where a device was held; it is quarantined after so many in a row.
        """
        with self.store.write() as tx:
            commit = tx.session.get_one(Job, run.job_id).commit_sha
            tries = tx.jobs.host_failure(
                run.id,
                host=self.settings.worker_name,
                device_id=device_id,
                reason=reason,
                dirty=dirty,
            )
            tx.results.discard(run.id)
            if device_id is not None and tx.devices.host_failure(
                device_id,
                reason,
                suspect=commit if blame is Blame.SUSPECT else None,
                after=commit if blame is Blame.AFTER else None,
            ):
                _log.warning("device quarantined", device=device_id, reason=reason)
        self.store.say(run.job_id, reason, run=run.id)
        if blame is Blame.SUSPECT:
            text = f"counts against {device_id} only if it fails without this commit as well"
            self.store.say(run.job_id, text, run=run.id)
        if blame is Blame.AFTER:
            text = f"the candidate had ended: it counts against {device_id}, for this commit once"
            self.store.say(run.job_id, text, run=run.id)
        return Judged(
            result=Result.HOST,
            reason=reason,
            failure_class=FailureClass.HOST,
            verdict=verdict,
            host_tries=tries,
        )

    def _request(
        self, asked: Assignment, device: LocalDevice, tree: Path, work_dir: Path
    ) -> JudgeRequest:
        settings, job, target = self.settings, asked.job, asked.target
        baseline = find_baseline(self.store, self.checkouts, asked)
        if baseline is not None:
            place = f"{baseline.commit}, first parents back: {baseline.commits_behind}"
            self.store.say(job.id, f"compared with {place}", run=asked.run.id)
        return JudgeRequest(
            tree=tree,
            import_path=target.import_path,
            python_path=target.python_path,
            chain_import_path=target.chain_import_path,
            target=target.name,
            commit=job.commit_sha,
            suite=Suite(asked.run.suite),
            device_kind=DeviceKind(job.device_kind),
            device_index=device.facts.index,
            device_uuid=device.facts.uuid,
            batch_sizes=job.batch_sizes,
            heads=job.heads,
            quick=job.quick,
            candidate_user=settings.candidate_user,
            candidate_uids=settings.candidate_uids,
            work_dir=work_dir,
            # The judge ends by itself, with a document, before the outer deadline.
            deadline_s=max(settings.suite_timeout_s - 2 * settings.stop_grace_s, 1.0),
            timeout_s=settings.suite_timeout_s,
            call_timeout_s=settings.kernel_timeout_s,
            device_nodes=device.facts.nodes,
            cpus=device.facts.cpus,
            memory_nodes=device.facts.memory_nodes,
            baseline=_left_in(work_dir, baseline) if baseline else None,
            commits_behind=baseline.commits_behind if baseline else None,
            emulator_processes=settings.emulator_processes,
        )

    def _control(self, run: Run, held: HeldDevice, watch: Watch) -> RunControl:
        def events(batch: list[dict[str, Any]]) -> None:
            told = []
            for event in clean(batch):
                if event.get("event") == "arm":
                    watch.border(str(event.get("arm"))[:80], _moment(event))
                else:
                    told.append(_judge_event(event, run))
            self.store.append(run.job_id, told)

        return RunControl(
            say=lambda text: self.store.say(run.job_id, text, run=run.id),
            events=events,
            cancelled=lambda: self._cancelled(run.job_id),
            stopping=self.stopping.is_set,
            lock_fds=(held.lock_fd,),
            started=watch.begin,
        )

    def _pause(self, job_id: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._give_up(job_id)
        while time.monotonic() < end:
            time.sleep(min(0.5, seconds))
            self._give_up(job_id)

    def _give_up(self, job_id: str) -> None:
        if self.stopping.is_set():
            raise WorkerStopping
        if self._cancelled(job_id):
            raise Cancelled

    def _cancelled(self, job_id: str) -> bool:
        with self.store.read() as tx:
            return tx.jobs.cancel_requested(job_id)


def failed(failure_class: FailureClass, reason: str) -> Judged:
    return Judged(result=Result.FAILED, reason=reason[:2000], failure_class=failure_class)


def _all_judged(document: Document | None) -> bool:
    """Whether the judge came to the end of its plan, where only its last look is left."""
    if document is None or document.partial:
        return False
    return all(case.outcome is not Outcome.NOT_RUN for case in document.cases)


def _left_in(work_dir: Path, baseline: Baseline) -> Path:
    path = work_dir / "baseline.json"
    path.write_text(baseline.document, encoding="utf-8")
    return path


def _without_document(outcome: JudgeOutcome, timeout_s: float) -> Judged:
    """Exit 5 of the judge means that this host cannot run it; all else is a fault of ours."""
    if outcome.ending is Ending.TIMED_OUT:
        return failed(
            FailureClass.SERVICE,
            f"the judge did not end within {timeout_s:g} s and left no document",
        )
    if outcome.exit_code == 5:
        return Judged(
            result=Result.HOST,
            reason=f"the judge cannot run on this host: {outcome.last_words or 'see the log'}",
            failure_class=FailureClass.HOST,
        )
    words = f": {outcome.last_words}" if outcome.last_words else ""
    return failed(
        FailureClass.SERVICE,
        f"the judge left no document (exit status {outcome.exit_code}){words}",
    )


def _moment(event: dict[str, Any]) -> str:
    return "before" if event.get("moment") == "before" else "after"


def _judge_event(event: dict[str, Any], run: Run) -> tuple[str, dict[str, Any]]:
    if event.get("event") == "log":
        return log.LOG, {"at": iso(now()), "run": run.id, "text": str(event.get("text", ""))}
    return log.PROGRESS, event | {"suite": run.suite}
