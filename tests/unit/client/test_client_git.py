"""Bundles and snapshots with real git: what they hold, and what they leave untouched."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from gdn_client.bundle import nearest_known_ancestor, write_bundle
from gdn_client.errors import CommitUnavailable, NotARepository
from gdn_client.repository import Repository
from gdn_client.snapshot import worktree_snapshot
from support.user_repository import commit_file, git


def fingerprint(root: Path) -> dict[str, tuple[str, int]]:
    """Every file of the repository, .git included, by its bytes and time of change.

    Of objects only the bytes: git renews the time of one that it would write again.
    """
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            0 if "objects" in path.parts else path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def mirror_with(tmp_path: Path, source: Path, revision: str | None) -> Path:
    mirror = tmp_path / "mirror.git"
    subprocess.run(["git", "init", "-q", "--bare", str(mirror)], check=True)
    if revision is not None:
        git(mirror, "fetch", "-q", str(source), f"{revision}:refs/heads/main")
    return mirror


def receive(mirror: Path, bundle: Path) -> str:
    """What a service does with a bundle; the commit it then has."""
    git(mirror, "bundle", "verify", "-q", str(bundle))
    git(
        mirror,
        "-c",
        "fetch.fsckObjects=true",
        "fetch",
        "-q",
        str(bundle),
        "+refs/heads/gdn-client:refs/quarantine/b/0",
    )
    git(mirror, "fsck", "--connectivity-only", "refs/quarantine/b/0")
    return git(mirror, "rev-parse", "refs/quarantine/b/0")


def packed(mirror: Path, bundle: Path) -> int:
    """How many objects the bundle brings."""
    content = bundle.read_bytes()
    pack = content[content.index(b"\n\nPACK") + 2 :]
    return int.from_bytes(pack[8:12], "big")


def test_a_bundle_leaves_out_what_the_server_has(repository: Path, tmp_path: Path) -> None:
    known = git(repository, "rev-parse", "HEAD~2")
    mirror = mirror_with(tmp_path, repository, known)
    head = git(repository, "rev-parse", "HEAD")
    bundle = tmp_path / "b.bundle"
    before = fingerprint(repository)
    write_bundle(Repository(repository), head, {known}.__contains__, bundle)
    assert fingerprint(repository) == before
    assert receive(mirror, bundle) == head
    assert packed(mirror, bundle) == 6  # a commit, a tree and a file, twice


def test_a_bundle_for_a_server_that_has_nothing(repository: Path, tmp_path: Path) -> None:
    mirror = mirror_with(tmp_path, repository, None)
    head = git(repository, "rev-parse", "HEAD")
    bundle = tmp_path / "b.bundle"
    write_bundle(Repository(repository), head, lambda _: False, bundle)
    assert receive(mirror, bundle) == head
    assert packed(mirror, bundle) == 15


def test_a_merge_brings_its_side_branch(repository: Path, tmp_path: Path) -> None:
    known = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "-b", "side", "HEAD~1")
    commit_file(repository, "side.txt", "s", "Side")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "Merge", "side")
    head = git(repository, "rev-parse", "HEAD")
    mirror = mirror_with(tmp_path, repository, known)
    bundle = tmp_path / "b.bundle"
    write_bundle(Repository(repository), head, {known}.__contains__, bundle)
    assert receive(mirror, bundle) == head


def test_the_known_ancestor_is_found_with_few_questions(repository: Path) -> None:
    for number in range(60):
        git(repository, "commit", "-q", "--allow-empty", "-m", f"Empty {number}")
    line = git(repository, "rev-list", "HEAD").split()
    asked: list[str] = []

    def knows(sha: str) -> bool:
        asked.append(sha)
        return sha in line[50:]

    found = nearest_known_ancestor(Repository(repository), line[0], knows)
    assert found == line[64]
    assert [line.index(sha) for sha in asked] == [1, 2, 4, 8, 16, 32, 64]


def shallow_clone(repository: Path, tmp_path: Path, depth: int) -> Path:
    clone = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", str(depth), f"file://{repository}", str(clone))
    return clone


def test_a_shallow_clone_works_when_the_server_has_the_parents(
    repository: Path, tmp_path: Path
) -> None:
    parent = git(repository, "rev-parse", "HEAD~1")
    mirror = mirror_with(tmp_path, repository, parent)
    clone = shallow_clone(repository, tmp_path, 1)
    head = git(clone, "rev-parse", "HEAD")
    bundle = tmp_path / "b.bundle"
    write_bundle(Repository(clone), head, {parent}.__contains__, bundle)
    assert receive(mirror, bundle) == head


def test_a_shallow_clone_with_a_new_commit_on_a_known_one(repository: Path, tmp_path: Path) -> None:
    known = git(repository, "rev-parse", "HEAD")
    mirror = mirror_with(tmp_path, repository, known)
    clone = shallow_clone(repository, tmp_path, 1)
    new = commit_file(clone, "new.txt", "n", "New")
    bundle = tmp_path / "b.bundle"
    write_bundle(Repository(clone), new, {known}.__contains__, bundle)
    assert receive(mirror, bundle) == new
    assert packed(mirror, bundle) == 3


def test_a_shallow_clone_that_cannot_work_says_what_to_do(repository: Path, tmp_path: Path) -> None:
    clone = shallow_clone(repository, tmp_path, 2)
    head = git(clone, "rev-parse", "HEAD")
    with pytest.raises(CommitUnavailable) as raised:
        write_bundle(Repository(clone), head, lambda _: False, tmp_path / "b.bundle")
    missing = git(repository, "rev-parse", "HEAD~2")
    assert missing[:12] in raised.value.message
    assert "git fetch --unshallow" in raised.value.remedy
    assert not (tmp_path / "b.bundle").exists()


@pytest.fixture
def dirty(repository: Path) -> Path:
    """Staged, unstaged, deleted, untracked, ignored and executable files, and a stash."""
    commit_file(repository, ".gitignore", "*.log\n", "Ignore logs")
    commit_file(repository, "gone.txt", "g", "To be deleted")
    commit_file(repository, "staged.txt", "old", "To be staged")
    (repository / "file.txt").write_text("stashed\n")
    git(repository, "stash", "-q")
    (repository / "staged.txt").write_text("staged")
    git(repository, "add", "staged.txt")
    (repository / "staged.txt").write_text("staged, then changed")
    (repository / "file.txt").write_text("changed\n")
    (repository / "gone.txt").unlink()
    (repository / "noise.log").write_text("noise")
    (repository / "folder").mkdir()
    script = repository / "folder" / "späte datei.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    return repository


def test_a_snapshot_holds_the_work_tree(dirty: Path) -> None:
    head = git(dirty, "rev-parse", "HEAD")
    with worktree_snapshot(Repository.find(dirty / "folder")) as snapshot:
        seen = snapshot.repository
        sha = snapshot.commit.sha
        assert not snapshot.clean
        assert seen.git("rev-parse", f"{sha}^") == head
        assert seen.git("-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", sha).split(
            "\n"
        ) == [".gitignore", "file.txt", "folder/späte datei.sh", "staged.txt"]
        assert seen.git("show", f"{sha}:file.txt") == "changed"
        assert seen.git("show", f"{sha}:staged.txt") == "staged, then changed"
        assert seen.git("ls-tree", sha, "folder/").startswith("100755 ")


def test_a_snapshot_touches_nothing(dirty: Path) -> None:
    before = fingerprint(dirty)
    with worktree_snapshot(Repository.find(dirty)):
        assert fingerprint(dirty) == before
    assert fingerprint(dirty) == before


def test_a_snapshot_runs_no_hook(dirty: Path) -> None:
    hook = dirty / ".git" / "hooks" / "post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {dirty}/ran.log\n")
    hook.chmod(0o755)
    with worktree_snapshot(Repository.find(dirty)):
        assert not (dirty / "ran.log").exists()


def test_the_same_work_tree_gives_the_same_commit(dirty: Path) -> None:
    with worktree_snapshot(Repository.find(dirty)) as first:
        pass
    os.utime(dirty / "file.txt", (1, 1))
    with worktree_snapshot(Repository.find(dirty)) as second:
        assert second.commit == first.commit
    (dirty / "file.txt").write_text("changed again\n")
    with worktree_snapshot(Repository.find(dirty)) as third:
        assert third.commit != first.commit


def test_a_snapshot_travels(dirty: Path, tmp_path: Path) -> None:
    head = git(dirty, "rev-parse", "HEAD")
    mirror = mirror_with(tmp_path, dirty, head)
    bundle = tmp_path / "b.bundle"
    with worktree_snapshot(Repository.find(dirty)) as snapshot:
        write_bundle(snapshot.repository, snapshot.commit.sha, {head}.__contains__, bundle)
        sha = snapshot.commit.sha
    assert receive(mirror, bundle) == sha
    assert git(mirror, "show", f"{sha}:file.txt") == "changed"


def test_a_snapshot_works_without_an_identity(dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("GIT_AUTHOR", "GIT_COMMITTER")):
            monkeypatch.delenv(name)
    with worktree_snapshot(Repository.find(dirty)) as snapshot:
        author = snapshot.repository.git("log", "-1", "--format=%an %ae", snapshot.commit.sha)
    assert author == "gdn-client gdn-client@localhost"


def test_a_linked_worktree_has_its_own_snapshot(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked), "HEAD~1")
    (linked / "new.txt").write_text("n")
    with worktree_snapshot(Repository.find(linked)) as snapshot:
        parent = snapshot.repository.git("rev-parse", f"{snapshot.commit.sha}^")
    assert parent == git(repository, "rev-parse", "HEAD~1")


def test_a_clean_tree_is_head(repository: Path) -> None:
    with worktree_snapshot(Repository.find(repository)) as snapshot:
        assert snapshot.clean
        assert snapshot.commit.sha == git(repository, "rev-parse", "HEAD")


def test_no_commit_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "fresh")
    with pytest.raises(CommitUnavailable, match="HEAD has no commit yet"):
        with worktree_snapshot(Repository.find(tmp_path / "fresh")):
            pass


def test_a_bare_repository(repository: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(bare))
    found = Repository.find(bare)
    head = git(repository, "rev-parse", "HEAD")
    commit = found.resolve("HEAD")
    assert commit is not None
    assert (commit.sha, commit.subject) == (head, "Commit 4")
    assert found.uncommitted() == 0
    with pytest.raises(CommitUnavailable, match="is bare"):
        with worktree_snapshot(found):
            pass


def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(NotARepository, match="is not in a git repository"):
        Repository.find(tmp_path)


@pytest.mark.parametrize(
    "revision", ["--all", "-h", "", "a b", "HEAD^{tree}", "main..HEAD", "x;ls"]
)
def test_what_is_no_commit_resolves_to_none(repository: Path, revision: str) -> None:
    assert Repository.find(repository).resolve(revision) is None


@pytest.mark.parametrize("revision", ["main", "HEAD", "v1", "HEAD~0", "@"])
def test_revisions(repository: Path, revision: str) -> None:
    git(repository, "tag", "-a", "-m", "annotated", "v1")
    commit = Repository.find(repository).resolve(revision)
    assert commit is not None
    assert commit.sha == git(repository, "rev-parse", "HEAD")


def test_sha256_repositories_are_refused_in_words(tmp_path: Path) -> None:
    root = tmp_path / "new"
    git(tmp_path, "init", "-q", "--object-format=sha256", str(root))
    git(root, "commit", "-q", "--allow-empty", "-m", "One")
    with pytest.raises(CommitUnavailable) as raised:
        Repository.find(root).resolve("HEAD")
    assert "SHA-1" in raised.value.remedy
