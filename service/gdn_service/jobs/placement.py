"""Which host takes a job.

A host is fit for a device kind while its worker lives and has a device of that kind that
is there and not quarantined. A job goes to the fit hosts that spoiled it least often;
of equals not to the one that did so last. Where no host is fit, any that serves the
kind takes it, and says what is wrong.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from gdn_service.clock import iso
from gdn_service.jobs.states import OPEN_STATES
from gdn_service.store.models import Device, Job
from gdn_service.store.store import Transaction

WORKER = "worker:"  # prefix of the lease that a living worker holds


def living(tx: Transaction) -> set[str]:
    """Names of the workers that renew their leases."""
    return {lease.name.removeprefix(WORKER) for lease in tx.leases.live(WORKER)}


class Fleet:
    """Workers that live and devices that are there, each read when first asked for, and once."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    @cached_property
    def alive(self) -> set[str]:
        return living(self._tx)

    @cached_property
    def devices(self) -> list[Device]:
        return [device for device in self._tx.devices.all() if device.present]


def fit_hosts(tx: Transaction, kind: str) -> set[str]:
    return {device.host for device in tx.devices.usable(kind)} & living(tx)


def hosts_for(tx: Transaction, job_id: str, kind: str) -> set[str]:
    """The hosts whose turn it is; empty where none is fit."""
    return _turn(tx, job_id, fit_hosts(tx, kind))


def _turn(tx: Transaction, job_id: str, fit: set[str]) -> set[str]:
    failures = [failure.host for failure in tx.jobs.host_failures(job_id)]
    spoiled, last = Counter(failures), failures[-1] if failures else None
    ranks = {host: (spoiled[host], host == last) for host in fit}
    best = min(ranks.values(), default=None)
    return {host for host, rank in ranks.items() if rank == best}


def next_job(tx: Transaction, host: str, kind: str) -> str | None:
    """The oldest waiting job that `host` may take now, one for each device that it can use."""
    waiting = tx.jobs.unclaimed(kind)
    if not waiting:
        return None
    busy = sum(1 for _, _, held in tx.jobs.held(host) if held == kind)
    if busy >= max(1, len(tx.devices.usable(kind, host))):
        return None
    fit = fit_hosts(tx, kind)
    for job_id in waiting:
        turn = _turn(tx, job_id, fit)
        if not turn or host in turn:
            return job_id
    return None


def why_waiting(fleet: Fleet, job: Job) -> str:
    """Why no host can take `job` now; "" where one can, or has it, or the job is ended.

    A worker that died has its job until another notices; where none lives, for ever.
    """
    if job.state not in OPEN_STATES or job.worker in fleet.alive:
        return ""
    kind = job.device_kind
    wanted = [device for device in fleet.devices if device.kind == kind]
    served = [device for device in wanted if device.host in fleet.alive]
    if not served:
        seen, others = _last_seen(wanted), _others(fleet)
        return f"no live worker serves device kind {kind}; {seen}; {others}"
    if any(device.quarantined is None for device in served):
        return ""
    whole = "; ".join(f"{device.id}: {device.quarantined}" for device in served)
    return f"every {kind} device of a live worker is quarantined: {whole}"


def _last_seen(devices: list[Device]) -> str:
    """Of hosts whose workers are gone, the one heard of last first."""
    newest: dict[str, Device] = {}
    for device in sorted(devices, key=lambda device: device.seen_at):
        newest[device.host] = device
    hosts = sorted(newest.values(), key=lambda device: device.seen_at, reverse=True)
    told = ", ".join(f"{device.host} at {iso(device.seen_at)}" for device in hosts)
    return f"last seen: {told or 'never'}"


def _others(fleet: Fleet) -> str:
    kinds = sorted({device.kind for device in fleet.devices if device.host in fleet.alive})
    return f"live workers serve {', '.join(kinds)}" if kinds else "no worker lives"


def why_no_jobs(tx: Transaction, host: str, kind: str) -> str:
    """Why `host` takes no jobs of `kind`, or ""."""
    if tx.devices.usable(kind, host):
        return ""
    others = fit_hosts(tx, kind) - {host}
    if not others:
        return ""
    names = ", ".join(sorted(others))
    return f"{host} has no usable {kind} device and takes no {kind} jobs; they go to {names}"
