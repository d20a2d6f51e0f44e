"""Which host takes a job.

A host is fit for a device kind while its worker lives and has a device of that kind that
is there and not quarantined. A job goes to the fit hosts that spoiled it least often;
of equals not to the one that did so last. Where no host is fit, any that serves the
kind takes it, and says what is wrong.
"""

from __future__ import annotations

from collections import Counter

from gdn_service.store.store import Transaction

WORKER = "worker:"  # prefix of the lease that a living worker holds


def living(tx: Transaction) -> set[str]:
    """Names of the workers that renew their leases."""
    return {lease.name.removeprefix(WORKER) for lease in tx.leases.live(WORKER)}


def fit_hosts(tx: Transaction, kind: str) -> set[str]:
    return {device.host for device in tx.devices.usable(kind)} & living(tx)


def hosts_for(tx: Transaction, job_id: str, kind: str) -> set[str]:
    """The hosts whose turn it is; empty where none is fit."""
    failures = [failure.host for failure in tx.jobs.host_failures(job_id)]
    spoiled, last = Counter(failures), failures[-1] if failures else None
    ranks = {host: (spoiled[host], host == last) for host in fit_hosts(tx, kind)}
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
    for job_id in waiting:
        turn = hosts_for(tx, job_id, kind)
        if not turn or host in turn:
            return job_id
    return None


def why_no_jobs(tx: Transaction, host: str, kind: str) -> str:
    """Why `host` takes no jobs of `kind`, or ""."""
    if tx.devices.usable(kind, host):
        return ""
    others = fit_hosts(tx, kind) - {host}
    if not others:
        return ""
    names = ", ".join(sorted(others))
    return f"{host} has no usable {kind} device and takes no {kind} jobs; they go to {names}"
