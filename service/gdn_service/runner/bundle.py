"""Git bundles from clients: checked, then kept under ``refs/quarantine/<id>/``.

A bundle is untrusted. Its header is parsed here and none of its words reaches
git; its pack goes through ``git index-pack --strict``, which checks every object
(``git fetch`` from a bundle does not), and its heads must be complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gdn_service.errors import (
    BundleInvalid,
    GitError,
    GitOverLimit,
    PayloadTooLarge,
    ServiceError,
)
from gdn_service.runner.git import FULL_SHA, Git
from gdn_service.runner.mirror import QUARANTINE, UPSTREAM, Mirror

MAX_HEADS = 16
MAX_HEADER_BYTES = 64 << 10
_MAGIC = (b"# v2 git bundle\n", b"# v3 git bundle\n")


@dataclass(frozen=True)
class Head:
    ref: str
    sha: str


@dataclass(frozen=True, kw_only=True)
class Bundle:
    prerequisites: tuple[str, ...]
    heads: tuple[Head, ...]
    pack: bytes


def import_bundle(git: Git, mirror: Mirror, bundle_id: str, content: bytes) -> list[Head]:
    """Bring the bundle's commits into the mirror; raises BundleInvalid saying why not."""
    with _imported(git, mirror, bundle_id, content) as bundle:
        return list(bundle.heads)


def receive_bundle(
    git: Git, mirror: Mirror, bundle_id: str, content: bytes, max_bytes: int
) -> tuple[list[Head], bytes]:
    """`import_bundle` of what a client sent: its heads, and the content to keep.

    Raises BundleInvalid, and PayloadTooLarge for more than `max_bytes` to keep.
    """
    with _imported(git, mirror, bundle_id, content) as bundle:
        try:
            kept = rebuilt(git, mirror, bundle_id, max_bytes) or content
        except GitOverLimit as error:
            raise PayloadTooLarge(
                "with the earlier commits that it builds on and that are not pushed "
                f"the bundle is too large: {error}; push those commits"
            ) from error
        return list(bundle.heads), kept


@contextmanager
def _imported(git: Git, mirror: Mirror, bundle_id: str, content: bytes) -> Iterator[Bundle]:
    """The bundle, in the locked mirror; nothing of it stays there if the body refuses it."""
    bundle = parse_bundle(content)
    missing = [sha for sha in bundle.prerequisites if not mirror.has(sha)]
    if missing:
        raise BundleInvalid(
            "the bundle builds on commits that the service does not have: "
            + ", ".join(missing[:5])
            + "; push them, or bundle from a commit that is pushed",
            prerequisites=missing,
        )
    with mirror.locked():
        before = _packs(mirror)
        try:
            _take(git, mirror, bundle_id, bundle)
            yield bundle
        except ServiceError:
            _forget(git, mirror, bundle_id, _packs(mirror) - before)
            raise


def rebuilt(git: Git, mirror: Mirror, bundle_id: str, max_bytes: int) -> bytes | None:
    """An imported bundle made anew on what the repository itself has, and nothing else.

    A client's may build on commits of an earlier bundle, which only this host's mirror
    has; this one any other host can import. None where all of it is pushed by now.
    Raises GitOverLimit for more than `max_bytes`.
    """
    wanted = _refs(git, mirror, bundle_id)
    pushed = ["--not", f"--glob={UPSTREAM}/*"]
    if not git.run(["rev-list", "--max-count=1", *wanted, *pushed], git_dir=mirror.path):
        return None
    return git.run(
        ["bundle", "create", "--quiet", "-", *wanted, *pushed],
        git_dir=mirror.path,
        max_bytes=max_bytes,
        limit_name="GDN_BUNDLE_MAX_BYTES",
    )


def parse_bundle(content: bytes) -> Bundle:
    """Split header and pack. Raises BundleInvalid."""
    if not content.startswith(_MAGIC):
        raise BundleInvalid("this is not a git bundle; make one with `git bundle create`")
    header, separator, pack = content.partition(b"\n\n")
    if not separator or len(header) > MAX_HEADER_BYTES:
        raise BundleInvalid("the bundle is damaged: its header does not end")
    lines = header.decode("utf-8", "replace").split("\n")[1:]
    _check_capabilities([line for line in lines if line.startswith("@")])
    heads = [
        Head(ref=ref[:200], sha=_sha(sha))
        for sha, _, ref in (line.partition(" ") for line in lines if line[:1] not in "-@")
    ]
    if not 1 <= len(heads) <= MAX_HEADS:
        raise BundleInvalid(f"the bundle has {len(heads)} heads; 1 to {MAX_HEADS} are allowed")
    return Bundle(
        prerequisites=tuple(_sha(line[1:41]) for line in lines if line.startswith("-")),
        heads=tuple(heads),
        pack=pack,
    )


def _check_capabilities(lines: list[str]) -> None:
    for line in lines:
        if line != "@object-format=sha1":
            raise BundleInvalid(f"the bundle asks for {line[1:60]!r}, which is not supported")


def _sha(text: str) -> str:
    if not FULL_SHA.fullmatch(text):
        raise BundleInvalid(f"the bundle is damaged: {text[:60]!r} is not a commit id")
    return text


def _take(git: Git, mirror: Mirror, bundle_id: str, bundle: Bundle) -> None:
    shas = [head.sha for head in bundle.heads]
    index = ["index-pack", "--strict", "--fix-thin", "--stdin"]
    walk = ["rev-list", "--objects", "--quiet", "--not", "--all", "--not", "--end-of-options"]
    try:
        git.feed(index, bundle.pack, git_dir=mirror.path)
        git.run([*walk, *shas], git_dir=mirror.path)
        for number, sha in enumerate(shas):
            git.run(["update-ref", f"{QUARANTINE}/{bundle_id}/{number}", sha], git_dir=mirror.path)
    except GitError as error:
        raise BundleInvalid(f"the bundle's objects are refused: {error}") from error


def _forget(git: Git, mirror: Mirror, bundle_id: str, packs: set[Path]) -> None:
    """Else the mirror would have a refused commit, and a job could ask for it without a bundle."""
    for ref in _refs(git, mirror, bundle_id):
        git.run(["update-ref", "-d", ref], git_dir=mirror.path)
    for path in sorted(packs):  # the index first: without it git does not see the pack
        path.unlink()


def _refs(git: Git, mirror: Mirror, bundle_id: str) -> list[str]:
    words = ["for-each-ref", "--format=%(refname)", f"{QUARANTINE}/{bundle_id}"]
    return git.run(words, git_dir=mirror.path).decode().split()


def _packs(mirror: Mirror) -> set[Path]:
    return set((mirror.path / "objects" / "pack").iterdir())
