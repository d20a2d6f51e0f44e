"""From the command line to a session: check what was asked, harden, choose the executor."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from gdn_judge import (
    JUDGE_VERSION,
    accounts,
    candidate,
    cases,
    delivery,
    host,
    processes,
    settings,
)
from gdn_judge.cases import Scope
from gdn_judge.codeobject.compiler import Compiler
from gdn_judge.contract import Heads
from gdn_judge.document import DeviceKind, Document, DocumentError, Scalar, Suite
from gdn_judge.emulated import EmulatedExecutor
from gdn_judge.emulator import apart
from gdn_judge.errors import UsageError
from gdn_judge.execution import ExecutorFactory
from gdn_judge.numerics import Rounding
from gdn_judge.remote import RemoteExecutor
from gdn_judge.session import Session
from gdn_judge.verdicts import Request
from gdn_judge.wire import devices, suites
from gdn_judge.wire.suites import Needs

_SHARED_NOTE = "The candidate ran under the judge's own user, without capabilities"


def prepare(options: argparse.Namespace, deadline: float | None) -> tuple[Request, Session]:
    """Raises UsageError for what cannot be meant, HostError for what this machine lacks."""
    processes.harden()
    launch = dataclasses.replace(
        process(options.target, options.import_path, options.python_path or ["."], options.chain),
        device=devices.spec(options.device).torch_device(options.device_index),
        work=options.work_dir,
    )
    account = _account(options, launch)
    target_name = options.target_name or launch.root.name
    launch = dataclasses.replace(launch, uid=account.uid, shown=account.shown)
    if account.copy is not None:
        launch = _moved(launch, account.copy)
    scope = Scope(
        device=options.device,
        batches=options.batch_sizes,
        heads=_heads(options.heads),
        quick=options.quick,
    )
    device = devices.spec(options.device)
    facts = environment()
    baseline, why_not = _baseline(options.baseline, options.suite, options.device, facts)
    shared = f"{_SHARED_NOTE}: {account.why_shared}" if account.uid is None else ""
    notes = [note for note in (shared, why_not) if note]
    request = Request(
        suite=options.suite,
        scope=scope,
        target=target_name,
        import_path=options.import_path,
        commit=options.commit,
        device_index=options.device_index,
        environment=facts,
        why_shared=account.why_shared,
        notes=[*filter(None, [device.note]), *notes],
    )
    session = Session(
        factory=_factory(options.suite, options.device, launch, options.processes),
        device=options.device,
        roundings=tuple(Rounding) if device.interpreted else (Rounding.NEAREST,),
        deadline=deadline,
        call_timeout=options.call_timeout,
        launches=options.launches,
        chain=options.chain is not None,
        quick=options.quick,
        baseline=baseline,
        commits_behind=options.commits_behind,
    )
    drawn = cases.draw(scope, session.seed.rng("drawn sizes"))
    scope = dataclasses.replace(scope, drawn=drawn)
    return dataclasses.replace(request, scope=scope), session


def _baseline(
    path: Path | None, suite: Suite, device: DeviceKind, facts: Mapping[str, Scalar]
) -> tuple[Document | None, str]:
    """The baseline, or None and why the document at `path` cannot be compared with, if one is.

    Raises UsageError for a path given by mistake: no verdict document, or another run's.
    """
    if path is None:
        return None, ""
    if not suites.spec(suite).compares:
        known = ", ".join(name for name, row in suites.SUITES.items() if row.compares)
        raise UsageError(f"--baseline is for a suite that compares ({known}), not {suite}")
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--baseline {path} is no verdict document: {error}") from error
    try:
        found = Document.from_dict(data)
    except DocumentError as error:
        if not isinstance(data, dict) or "schema" not in data:
            raise UsageError(f"--baseline {path} is no verdict document: {error}") from error
        return None, (
            f"Not compared with the baseline: this judge, {JUDGE_VERSION}, cannot read its "
            f"document: {error}"
        )
    if (found.suite, found.device_kind) != (suite, device):
        raise UsageError(
            f"--baseline {path} is of {found.suite.value} on {found.device_kind.value}, "
            f"this run is {suite.value} on {device.value}"
        )
    if found.partial:
        raise UsageError(f"--baseline {path} is partial: some of its planned cases did not run")
    other = _other_compiler(found, facts)
    return (None, other) if other else (found, "")


def _other_compiler(baseline: Document, facts: Mapping[str, Scalar]) -> str:
    """Why the two cannot be compared, or ""."""
    then, now = baseline.environment.get("triton"), facts["triton"]
    if then is None or then == now:
        return ""
    return (
        f"Not compared with the baseline: Triton {then} compiled it, and Triton {now} this commit; "
        "what differs may be the compiler's doing."
    )


def process(
    target: Path, import_path: str, python_path: Sequence[str], chain: str | None = None
) -> candidate.Launch:
    """How to start the target of a checkout. Raises UsageError for paths that lead nowhere."""
    root = _checkout(target)
    for path in filter(None, (import_path, chain)):
        _check_import_path(path)
    folders = [_inside(root, folder) for folder in python_path]
    return candidate.Launch(root=root, import_path=import_path, python_path=folders, chain=chain)


def _factory(
    suite: Suite, device: DeviceKind, launch: candidate.Launch, processes: int | None
) -> ExecutorFactory:
    count = processes or apart.cores()
    if suites.spec(suite).needs is Needs.COMPILES:
        return lambda: Compiler(launch, processes=count)
    if devices.spec(device).emulated:
        return lambda: EmulatedExecutor(launch, processes=count)
    return lambda: RemoteExecutor(launch)


def environment() -> dict[str, Scalar]:
    """What this judge runs on."""
    facts: dict[str, Scalar] = {
        "host": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
    }
    for name in ("torch", "triton", "numpy", "scipy"):
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[name] = None
    return facts | {"image": settings.image_digest()} | host.facts()


def _checkout(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"--target {path} is not a folder")
    return path.resolve()


def _inside(root: Path, folder: str) -> Path:
    path = (root / folder).resolve()
    if not path.is_relative_to(root):
        raise UsageError(f"--python-path {folder} leads out of the checkout")
    if not path.is_dir():
        raise UsageError(f"--python-path {folder} is not a folder of the checkout")
    return path


def _check_import_path(path: str) -> None:
    module, colon, attribute = path.partition(":")
    parts = module.split(".")
    if not colon or not attribute.isidentifier() or not all(part.isidentifier() for part in parts):
        raise UsageError(f"import path {path!r} should read package.module:attribute")


def _heads(text: str | None) -> Heads | None:
    if text is None:
        return None
    try:
        return Heads.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _moved(launch: candidate.Launch, root: Path) -> candidate.Launch:
    """The same from a copy of its checkout, with temporary folders where they usually are."""
    folders = [root / path.relative_to(launch.root) for path in launch.python_path]
    return dataclasses.replace(launch, root=root, python_path=folders, work=None)


def _account(options: argparse.Namespace, launch: candidate.Launch) -> accounts.Account:
    account = accounts.choose(
        options.candidate_user,
        options.candidate_uids,
        launch.root,
        launch.work,
        device=launch.device,
        python=launch.python,
    )
    if options.out is not None and account.uid is not None:
        delivery.refuse_place(options.out, account.uid)
    return account
