"""Git bundles from clients: checked, then imported under ``refs/quarantine/<id>/``.

A bundle is untrusted. Its objects are checked on the way in, its refs never
touch the mirror's own, and its ref names reach git only if they are plain.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gdn_service.errors import BundleInvalid, GitError
from gdn_service.runner.git import FULL_SHA, Git
from gdn_service.runner.mirror import Mirror

MAX_HEADS = 16
_MAGIC = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_REF = re.compile(r"HEAD|refs/[A-Za-z0-9._+@=/-]{1,200}")


@dataclass(frozen=True)
class Head:
    ref: str
    sha: str


def import_bundle(git: Git, mirror: Mirror, bundle_id: str, content: bytes) -> list[Head]:
    """Bring the bundle's commits into the mirror; raises BundleInvalid saying why not."""
    if not content.startswith(_MAGIC):
        raise BundleInvalid("this is not a git bundle; make one with `git bundle create`")
    with tempfile.NamedTemporaryFile(suffix=".bundle") as file:
        file.write(content)
        file.flush()
        path = Path(file.name)
        with mirror.locked():
            _verify(git, mirror, path)
            heads = _heads(git, mirror, path)
            _fetch(git, mirror, path, bundle_id, heads)
    return heads


def _verify(git: Git, mirror: Mirror, path: Path) -> None:
    try:
        git.run(["bundle", "verify", "--quiet", str(path)], git_dir=mirror.path)
    except GitError as error:
        missing = re.findall(r"\b[0-9a-f]{40}\b", str(error))
        if "prerequisite" in str(error):
            raise BundleInvalid(
                "the bundle builds on commits that the service does not have: "
                + ", ".join(missing[:5])
                + "; push them, or bundle from a commit that is pushed",
                prerequisites=missing,
            ) from error
        raise BundleInvalid(f"the bundle is damaged: {error}") from error


def _heads(git: Git, mirror: Mirror, path: Path) -> list[Head]:
    try:
        listed = git.run(["bundle", "list-heads", str(path)], git_dir=mirror.path)
    except GitError as error:
        raise BundleInvalid(f"the bundle is damaged: {error}") from error
    heads = [
        Head(ref, sha)
        for sha, _, ref in map(_split, listed.decode("utf-8", "replace").splitlines())
    ]
    if not heads or len(heads) > MAX_HEADS:
        raise BundleInvalid(f"the bundle has {len(heads)} heads; 1 to {MAX_HEADS} are allowed")
    for head in heads:
        if not FULL_SHA.fullmatch(head.sha):
            raise BundleInvalid(f"the bundle's head {head.sha[:60]!r} is not a SHA-1 commit id")
        if not _REF.fullmatch(head.ref) or ".." in head.ref:
            raise BundleInvalid(f"the bundle's ref {head.ref[:60]!r} is not a plain ref name")
    return heads


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(" ")


def _fetch(git: Git, mirror: Mirror, path: Path, bundle_id: str, heads: list[Head]) -> None:
    refspecs = [f"+{h.ref}:refs/quarantine/{bundle_id}/{n}" for n, h in enumerate(heads)]
    try:
        git.run(
            [
                "-c",
                "fetch.fsckObjects=true",
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-recurse-submodules",
                "--no-write-fetch-head",
                "--end-of-options",
                str(path),
                *refspecs,
            ],
            git_dir=mirror.path,
        )
    except GitError as error:
        raise BundleInvalid(f"the bundle's objects are refused: {error}") from error
