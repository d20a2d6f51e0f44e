"""Submit: find the commit, bring it to the server if it lacks it, ask for the job.

choose target → locate commit → known to the server? → else bundle → POST /jobs
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gdn_client.api import Api
from gdn_client.bundle import write_bundle
from gdn_client.errors import (
    CommitUnavailable,
    Interrupted,
    NotARepository,
    SettingError,
    UnknownName,
)
from gdn_client.models import Job, Target
from gdn_client.repository import HEX, Commit, Repository
from gdn_client.screen import Screen
from gdn_client.snapshot import worktree_snapshot
from gdn_client.text import counted, listed


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for. None leaves the choice to the server."""

    revision: str
    worktree: bool
    target: str | None
    device_kind: str | None
    suites: list[str] | None
    batch_sizes: list[int] | None
    heads: str | None
    quick: bool
    force: bool


@dataclass(frozen=True)
class Source:
    """A commit and the repository that can bundle it, None when only the server has it."""

    commit: Commit
    repository: Repository | None
    snapshot: bool = False


def submit(api: Api, request: Request, directory: Path, screen: Screen) -> Job:
    """Raises Interrupted, saying that nothing was submitted, on Ctrl-C."""
    try:
        target = choose_target(api, request.target)
        check_suites(target, request.suites)
        with located(api, request, target, directory, screen) as source:
            bundle = bring(api, target, source, screen)
        return api.submit(_body(request, target, source, bundle), uuid.uuid4().hex)
    except KeyboardInterrupt as error:
        raise Interrupted(
            "interrupted before the server confirmed a job",
            remedy="`gdn-client status` shows whether it has one.",
        ) from error


def choose_target(api: Api, name: str | None) -> Target:
    """The target of that name, or the only one there is."""
    targets = api.targets()
    known = listed([target.name for target in targets]) or "none"
    if name is None and len(targets) == 1:
        return targets[0]
    if name is None:
        raise SettingError(
            f"which target? The server has {known}" if targets else "the server has no target",
            remedy="Give --target, or `gdn-client config set target NAME`."
            if targets
            else "Its operator adds one with `gdn-service target add`.",
        )
    for target in targets:
        if target.name == name:
            return target
    raise UnknownName(f"there is no target {name!r}", remedy=f"Known targets: {known}.")


def check_suites(target: Target, suites: list[str] | None) -> None:
    for suite in suites or []:
        if target.suites and suite not in target.suites:
            raise UnknownName(
                f"there is no suite {suite!r} for target {target.name}",
                remedy=f"Known suites: {listed(target.suites)}.",
            )


@contextmanager
def located(
    api: Api, request: Request, target: Target, directory: Path, screen: Screen
) -> Iterator[Source]:
    """The commit to submit; a snapshot's objects live only within this context."""
    if request.worktree:
        with worktree_snapshot(Repository.find(directory)) as snapshot:
            if snapshot.clean:
                screen.say("no uncommitted changes: submitting HEAD itself")
            yield Source(snapshot.commit, snapshot.repository, snapshot=not snapshot.clean)
        return
    source = find_commit(api, request.revision, target, directory)
    if source.repository is not None:
        _warn_if_dirty(source.repository, source.commit, screen)
    yield source


def find_commit(api: Api, revision: str, target: Target, directory: Path) -> Source:
    """What `revision` means here, else to the server. Raises CommitUnavailable."""
    try:
        repository = Repository.find(directory)
    except NotARepository:
        if revision == "HEAD" or revision.startswith(("HEAD~", "HEAD^", "@")):
            raise
        repository = None
    commit = None if repository is None else repository.resolve(revision)
    if commit is not None:
        return Source(commit, repository)
    here = "in this repository" if repository is not None else "here (not a git repository)"
    if not HEX.fullmatch(revision):
        raise CommitUnavailable(
            f"{revision!r} names no commit {here}",
            remedy="Check the spelling, or `git fetch` if someone else made it. "
            "The server knows commits by SHA only.",
        )
    try:
        known = api.resolve(target.name, revision)
    except CommitUnavailable as error:
        raise CommitUnavailable(
            f"{revision!r} names no commit, neither {here} nor on the server",
            remedy="Check the digits, or `git fetch` if someone else made it.",
        ) from error
    return Source(Commit(known.sha, known.subject), None)


def bring(api: Api, target: Target, source: Source, screen: Screen) -> str | None:
    """Upload the commit as a bundle unless the server knows it; the bundle's id."""
    sha = source.commit.sha
    if source.repository is None or api.knows(target.name, sha):
        return None
    with tempfile.TemporaryDirectory(prefix="gdn-bundle-") as folder:
        path = Path(folder) / "commit.bundle"
        write_bundle(source.repository, sha, lambda other: api.knows(target.name, other), path)
        screen.say(f"sending {sha[:12]} as a bundle of {_size(path.stat().st_size)}")
        return api.upload_bundle(target.name, path)


def _body(
    request: Request, target: Target, source: Source, bundle: str | None
) -> dict[str, object]:
    return {
        "target": target.name,
        "commit": source.commit.sha,
        "device_kind": request.device_kind,
        "suites": request.suites,
        "bundle": bundle,
        "batch_sizes": request.batch_sizes,
        "heads": request.heads,
        "quick": request.quick,
        "force": request.force,
        "subject": source.commit.subject or None,
        "worktree": source.snapshot,
    }


def _warn_if_dirty(repository: Repository, commit: Commit, screen: Screen) -> None:
    head = repository.resolve("HEAD")
    if head is None or head.sha != commit.sha:
        return
    paths = repository.uncommitted()
    if paths:
        verb = "is" if paths == 1 else "are"
        screen.warn(
            f"uncommitted changes in {counted(paths, 'path')} {verb} not included; "
            "commit them, or submit them with --worktree"
        )


def _size(size: int) -> str:
    return f"{size / 1024:.1f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MiB"
