"""A git bundle of a commit that the server does not have, as small as is cheap to find.

The bundle is written as header and pack, because `git bundle create` packs only what
a ref names and the user's refs are not ours to change. The nearest ancestor that the
server knows is found with a number of questions logarithmic in its distance, and
everything it reaches is left out.

In a shallow clone the oldest commits lack their parents. The server can use such a
bundle only if it has those parents, so they are asked for, and otherwise the bundle
is refused here with the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gdn_client.errors import CommitUnavailable, GitFailure
from gdn_client.repository import Repository

REF = "refs/heads/gdn-client"

Knows = Callable[[str], bool]


def write_bundle(repository: Repository, sha: str, knows: Knows, path: Path) -> None:
    """Write `sha`, without what `knows` says the server has, to `path`.

    Raises CommitUnavailable when a shallow or partial clone lacks what is needed.
    """
    base = nearest_known_ancestor(repository, sha, knows)
    _refuse_missing_parents(repository, sha, base, knows)
    prerequisites = _boundary(repository, sha, base)
    header = "# v2 git bundle\n"
    header += "".join(f"-{commit} \n" for commit in prerequisites)
    header += f"{sha} {REF}\n\n"
    wanted = "\n".join([sha, "--not", *prerequisites]) + "\n"
    try:
        pack = repository.git_bytes(
            "pack-objects",
            "--revs",
            "--stdout",
            "--thin",
            "--delta-base-offset",
            "-q",
            stdin=wanted.encode(),
        )
    except GitFailure as error:
        raise CommitUnavailable(
            f"git cannot pack {sha[:12]}: {error.message}",
            remedy="In a partial or shallow clone run `git fetch --unshallow` or "
            "`git fetch --refetch`, or push the commit.",
        ) from error
    path.write_bytes(header.encode() + pack)


def nearest_known_ancestor(repository: Repository, sha: str, knows: Knows) -> str | None:
    """An ancestor the server has, looked for at first-parent distances 1, 2, 4, 8 and so on."""
    ancestors = repository.git(
        "rev-list", "--first-parent", "--skip=1", "--end-of-options", sha
    ).split()
    step = 1
    while step <= len(ancestors):
        if knows(ancestors[step - 1]):
            return ancestors[step - 1]
        step *= 2
    if ancestors and knows(ancestors[-1]):
        return ancestors[-1]
    return None


def _boundary(repository: Repository, sha: str, base: str | None) -> list[str]:
    """The commits outside the bundle that its commits have as parents."""
    if base is None:
        return []
    listed = repository.git("rev-list", "--boundary", sha, "--not", base).split()
    return [line[1:] for line in listed if line.startswith("-")]


def _refuse_missing_parents(
    repository: Repository, sha: str, base: str | None, knows: Knows
) -> None:
    shallow = repository.root / repository.git("rev-parse", "--git-path", "shallow")
    if not shallow.is_file():
        return
    included = repository.git("rev-list", sha, *(("--not", base) if base else ())).split()
    for commit in set(shallow.read_text().split()) & set(included):
        missing = [parent for parent in _real_parents(repository, commit) if not knows(parent)]
        if missing:
            raise CommitUnavailable(
                f"this clone is shallow: it lacks {missing[0][:12]}, a parent of {commit[:12]}, "
                "and so does the server",
                remedy="Run `git fetch --unshallow` and submit again, or push the commit.",
            )


def _real_parents(repository: Repository, sha: str) -> list[str]:
    """Parents as the commit object names them; a shallow clone's log hides them."""
    header = repository.git("cat-file", "commit", sha).partition("\n\n")[0]
    return [line.split()[1] for line in header.splitlines() if line.startswith("parent ")]
