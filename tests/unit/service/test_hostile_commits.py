"""Commits that unfold to more than the host has, under limits of the tests' own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support import bombs
from support.limited import MIB, result_of
from support.service_bench import Repo

# A client's bundle: taken in and checked out, as API and worker do. sys.argv: data folder,
# repository, bundle file, commit, bytes that a git may have.
TAKE_IN = """
from pathlib import Path
from gdn_service.errors import ServiceError
from gdn_service.runner.checkouts import Checkouts
from gdn_service.settings import load_settings
from support.service_bench import demo_target
data, repository, sent, sha, memory = sys.argv[1:]
settings = load_settings(data_dir=Path(data), git_memory_bytes=int(memory))
found["files"] = 0
try:
    content = Path(sent).read_bytes()
    checkouts, target = Checkouts(settings, lambda name: content), demo_target(Path(repository))
    found["bytes"] = len(content)
    checkouts.import_bundle(target, "b1", content)
    found["files"] = len(list(checkouts.export(target, sha, "b1").path.rglob("*")))
except ServiceError as error:
    found["error"], found["words"] = type(error).__name__, str(error)
found["left"] = [path.name for path in (Path(data) / "trees").glob("*")]
"""


def take_in(repo: Repo, folder: Path, sha: str, *, memory: int = 512 * MIB) -> dict[str, object]:
    sent = folder / "sent.bundle"
    sent.write_bytes(bombs.bundle(repo))
    arguments = (folder / "data", repo.path, sent, sha, memory)
    return result_of(TAKE_IN, *arguments, memory=700 * MIB)


@pytest.mark.parametrize(
    ("bomb", "words"),
    [
        (bombs.many_files, "over 50000 files and folders (GDN_TREE_MAX_FILES)"),
        (bombs.many_folders, "over 50000 files and folders (GDN_TREE_MAX_FILES)"),
        (bombs.many_bytes, "over 536870912 bytes (GDN_TREE_MAX_BYTES)"),
        (bombs.deep, "a path of over 64 names (GDN_TREE_MAX_DEPTH)"),
        (bombs.long_name, "a path of over 1000 bytes (GDN_TREE_MAX_PATH)"),
    ],
    ids=["files", "folders", "bytes", "depth", "name"],
)
def test_a_small_bundle_that_unfolds_is_refused_by_name_of_the_limit(
    bomb: Callable[[Repo], str], words: str, repo: Repo, tmp_path: Path
) -> None:
    sha = bombs.commit(repo, bomb(repo))
    found = take_in(repo, tmp_path, sha)
    assert found["error"] == "TreeError", found
    assert str(found["words"]).endswith(words)
    assert int(str(found["bytes"])) < 20_000
    assert int(str(found["peak"])) < 250 * MIB
    assert (found["files"], found["left"]) == (0, [])


def test_a_right_bundle_passes_under_the_same_limits(repo: Repo, tmp_path: Path) -> None:
    """The control: 2,000 files in folders, one of them of 60 MiB."""
    large = ("100644", bombs.blob(repo, bytes(60 << 20)), "large")
    many = bombs.nested(
        repo, bombs.tree(repo, ("100644", bombs.blob(repo, b"1"), "f")), levels=3, width=10
    )
    sha = bombs.commit(repo, bombs.tree(repo, large, ("040000", many, "many")))
    found = take_in(repo, tmp_path, sha)
    assert "error" not in found, found
    assert found["files"] == 1 + 1 + 10 + 100 + 1000 + 1000
    assert int(str(found["peak"])) < 250 * MIB


def test_git_itself_has_a_limit_on_memory(repo: Repo, tmp_path: Path) -> None:
    """A commit's message of 200 MiB, of 200 KiB in the bundle."""
    sha = bombs.commit(repo, "HEAD^{tree}", b"m" * (200 << 20))
    found = take_in(repo, tmp_path, sha, memory=128 * MIB)
    assert found["error"] == "BundleInvalid", found
    assert "(GDN_GIT_MEMORY_BYTES)" in str(found["words"])
    assert not list((tmp_path / "data" / "mirrors").glob("*.git/objects/pack/*tmp*"))
