from __future__ import annotations

from pathlib import Path

import pytest

from gdn_service.errors import AmbiguousCommit, InvalidRequest, MirrorError, UnknownCommit
from gdn_service.runner.git import Git, full_sha
from gdn_service.runner.mirror import Mirror
from support.service_bench import Repo


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "mirrors")


@pytest.fixture
def mirror(git: Git, repo: Repo, tmp_path: Path) -> Mirror:
    return Mirror(git, tmp_path / "mirrors", "demo", str(repo.path))


def test_full_and_short_shas_resolve(mirror: Mirror, repo: Repo) -> None:
    sha = repo.commit("wörk: a subject", {"a": "1"})
    assert mirror.resolve(sha) == sha
    assert mirror.resolve(sha[:10].upper()) == sha
    facts = mirror.facts(sha)
    assert (facts.subject, facts.sha) == ("wörk: a subject", sha)
    assert facts.parents == (repo.git("rev-parse", "HEAD^"),)


def test_a_commit_pushed_later_is_fetched(mirror: Mirror, repo: Repo) -> None:
    mirror.fetch()
    later = repo.commit("later", {"b": "1"})
    assert not mirror.has(later)
    assert mirror.resolve(later) == later


def test_an_unknown_commit_is_named(mirror: Mirror) -> None:
    with pytest.raises(UnknownCommit, match=r"commit f{40} is not in .*; push it, or send it"):
        mirror.resolve("f" * 40)
    with pytest.raises(UnknownCommit, match=r"no commit of .* begins with ffffff"):
        mirror.resolve("ffffff")


def test_an_ambiguous_sha_lists_its_candidates(mirror: Mirror, repo: Repo) -> None:
    """With 257 commits two of them share their first two digits; four are forced."""
    tree = repo.git("rev-parse", "HEAD^{tree}")
    first: dict[str, str] = {}
    for number in range(2000):
        sha = repo.git("commit-tree", tree, "-m", f"twin {number}")
        if sha[:4] in first:
            twins = sorted([first[sha[:4]], sha])
            break
        first[sha[:4]] = sha
    for n, twin in enumerate(twins):
        repo.git("update-ref", f"refs/heads/twin{n}", twin)
    with pytest.raises(AmbiguousCommit, match=f"{twins[0][:4]} begins 2 commits") as caught:
        mirror.resolve(twins[0][:4])
    assert [c["sha"] for c in caught.value.extra["candidates"]] == twins
    assert all(c["subject"].startswith("twin") for c in caught.value.extra["candidates"])


@pytest.mark.parametrize(
    "rev", ["--upload-pack=touch pwned", "main", "HEAD~1", "a" * 41, "abc", "$(id)", "@{u}"]
)
def test_only_hexadecimal_reaches_git(mirror: Mirror, rev: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a commit SHA"):
        mirror.resolve(rev)
    with pytest.raises(InvalidRequest):
        full_sha(rev)


def test_an_object_that_is_no_commit_does_not_resolve(mirror: Mirror, repo: Repo) -> None:
    tree = repo.git("rev-parse", "HEAD^{tree}")
    with pytest.raises(UnknownCommit):
        mirror.resolve(tree)
    with pytest.raises(UnknownCommit):
        mirror.resolve(tree[:12])


def test_an_unreachable_repository_says_so(git: Git, tmp_path: Path) -> None:
    mirror = Mirror(git, tmp_path / "mirrors", "gone", str(tmp_path / "gone"))
    with pytest.raises(MirrorError, match=r"repository .*/gone cannot be fetched"):
        mirror.resolve("a" * 40)


def test_hooks_and_user_settings_have_no_effect(
    mirror: Mirror, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trapped"
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[core]\n\thooksPath = {home}\n[uploadpack]\n\tpackObjectsHook = "touch {trap}; cat"\n'
    )
    hook = home / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {trap}\n")
    hook.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    mirror.fetch()
    assert mirror.has(repo.git("rev-parse", "HEAD"))
    assert not trap.exists()


def test_a_shallow_clone_can_be_a_target(git: Git, repo: Repo, tmp_path: Path) -> None:
    sha = repo.commit("second", {"a": "2"})
    clone = tmp_path / "clone"
    repo.git("clone", "--quiet", "--depth=1", f"file://{repo.path}", str(clone))
    assert Mirror(git, tmp_path / "mirrors", "shallow", str(clone)).resolve(sha) == sha


def test_first_parents_leave_out_what_was_merged(mirror: Mirror, repo: Repo) -> None:
    root = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "--quiet", "-b", "side")
    side = repo.commit("side", {"s": "1"})
    repo.git("checkout", "--quiet", "main")
    main = repo.commit("main", {"m": "1"})
    repo.git("merge", "--quiet", "--no-ff", "-m", "merge", "side")
    merge = repo.git("rev-parse", "HEAD")
    mirror.fetch()
    assert mirror.first_parents(merge, 10) == [main, root]
    assert mirror.first_parents(merge, 1) == [main]
    assert mirror.first_parents(side, 10) == [root]
    assert mirror.first_parents(root, 10) == []
