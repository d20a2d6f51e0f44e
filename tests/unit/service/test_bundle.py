from __future__ import annotations

import random
from pathlib import Path

import pytest

from gdn_service.errors import BundleInvalid, PayloadTooLarge
from gdn_service.runner.bundle import import_bundle, rebuilt, receive_bundle
from gdn_service.runner.git import Git
from gdn_service.runner.mirror import Mirror
from support.service_bench import Repo


class Desk:
    """A pushed repository with its mirror, and a developer's clone that is ahead of it."""

    def __init__(self, repo: Repo, folder: Path) -> None:
        self.git = Git(folder / "mirrors")
        self.mirror = Mirror(self.git, folder / "mirrors", "demo", str(repo.path))
        self.mirror.fetch()
        self.base = repo.git("rev-parse", "HEAD")
        self.dev = Repo(folder / "dev")
        self.dev.git("fetch", "--quiet", str(repo.path), "main")
        self.dev.git("reset", "--quiet", "--hard", "FETCH_HEAD")

    def bundle(self, *revisions: str) -> bytes:
        path = self.dev.path / ".git" / "sent.bundle"
        self.dev.git("bundle", "create", "--quiet", str(path), *revisions)
        return path.read_bytes()


@pytest.fixture
def desk(repo: Repo, tmp_path: Path) -> Desk:
    return Desk(repo, tmp_path / "data")


def test_an_unpushed_commit_arrives_in_quarantine(desk: Desk) -> None:
    sha = desk.dev.commit("unpushed", {"new": "1"})
    heads = import_bundle(desk.git, desk.mirror, "b1", desk.bundle(f"{desk.base}..main"))
    assert [(head.ref, head.sha) for head in heads] == [("refs/heads/main", sha)]
    assert desk.mirror.has(sha)
    refs = desk.git.run(["for-each-ref", "--format=%(refname)"], git_dir=desk.mirror.path)
    assert [r for r in refs.decode().split() if "upstream" not in r] == ["refs/quarantine/b1/0"]
    main = desk.git.run(["rev-parse", "refs/upstream/refs/heads/main"], git_dir=desk.mirror.path)
    assert main.decode().strip() == desk.base


def test_missing_prerequisites_are_named(desk: Desk) -> None:
    middle = desk.dev.commit("middle", {"m": "1"})
    desk.dev.commit("tip", {"t": "1"})
    with pytest.raises(BundleInvalid, match=f"does not have: {middle}; push them") as caught:
        import_bundle(desk.git, desk.mirror, "b1", desk.bundle("HEAD^..main"))
    assert caught.value.extra["prerequisites"] == [middle]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"# v2 git bundle\nnonsense"])
def test_what_is_no_bundle_is_refused(desk: Desk, content: bytes) -> None:
    with pytest.raises(BundleInvalid, match=r"not a git bundle|damaged"):
        import_bundle(desk.git, desk.mirror, "b1", content)


def test_a_truncated_bundle_leaves_no_ref(desk: Desk) -> None:
    desk.dev.commit("unpushed", {"new": "1"})
    content = desk.bundle(f"{desk.base}..main")
    with pytest.raises(BundleInvalid):
        import_bundle(desk.git, desk.mirror, "b1", content[:-30])
    refs = desk.git.run(["for-each-ref", "refs/quarantine"], git_dir=desk.mirror.path)
    assert refs == b""


@pytest.mark.parametrize("ref", ["refs/heads/a:refs/heads/main", "--upload-pack=id", "$(id)"])
def test_a_forged_ref_name_never_reaches_git(desk: Desk, ref: str) -> None:
    sha = desk.dev.commit("unpushed", {"new": "1"})
    content = desk.bundle(f"{desk.base}..main").replace(b"refs/heads/main", ref.encode())
    assert [head.sha for head in import_bundle(desk.git, desk.mirror, "b1", content)] == [sha]
    refs = desk.git.run(["for-each-ref", "--format=%(refname)"], git_dir=desk.mirror.path)
    assert [r for r in refs.decode().split() if "upstream" not in r] == ["refs/quarantine/b1/0"]


def test_a_commit_whose_objects_are_not_in_the_bundle_is_refused(desk: Desk) -> None:
    one = desk.dev.commit("one", {"new": "1"})
    other = desk.dev.commit("two", {"new": "2"})
    content = desk.bundle(f"{desk.base}..main")
    forged = content.replace(other.encode(), b"f" * 40)
    with pytest.raises(BundleInvalid, match="objects are refused"):
        import_bundle(desk.git, desk.mirror, "b1", forged)
    assert not desk.mirror.has(one)


def test_a_filtered_bundle_is_refused(desk: Desk) -> None:
    content = b"# v3 git bundle\n@filter=blob:none\n" + b"1" * 40 + b" HEAD\n\nPACK"
    with pytest.raises(BundleInvalid, match="asks for 'filter=blob:none', which is not supported"):
        import_bundle(desk.git, desk.mirror, "b1", content)


def test_objects_are_checked_on_the_way_in(desk: Desk) -> None:
    """A tree with a folder named .git is what hostile repositories are made of."""
    blob = desk.dev.git("hash-object", "-w", "--stdin", data=b"x")
    inner = desk.dev.git("mktree", data=f"100644 blob {blob}\tconfig\n".encode())
    tree = desk.dev.git("mktree", data=f"040000 tree {inner}\t.git\n".encode())
    sha = desk.dev.git("commit-tree", tree, "-p", desk.base, "-m", "evil")
    desk.dev.git("update-ref", "refs/heads/evil", sha)
    with pytest.raises(BundleInvalid, match="objects are refused"):
        import_bundle(desk.git, desk.mirror, "b1", desk.bundle(f"{desk.base}..evil"))


def elsewhere(desk: Desk, folder: Path) -> Mirror:
    """The mirror of another host, which has what is pushed."""
    mirror = Mirror(Git(folder), folder, "demo", desk.mirror.repository)
    mirror.fetch()
    return mirror


def test_a_bundle_on_top_of_another_is_kept_so_that_any_host_can_import_it(
    desk: Desk, tmp_path: Path
) -> None:
    first = desk.dev.commit("first", {"a": "1"})
    import_bundle(desk.git, desk.mirror, "b1", desk.bundle(f"{desk.base}..main"))
    second = desk.dev.commit("second", {"b": "1"})
    sent = desk.bundle(f"{first}..main")
    import_bundle(desk.git, desk.mirror, "b2", sent)
    other = elsewhere(desk, tmp_path / "other")
    with pytest.raises(BundleInvalid, match=f"does not have: {first}"):
        import_bundle(Git(tmp_path / "other"), other, "b2", sent)
    kept = rebuilt(desk.git, desk.mirror, "b2", 1 << 20)
    assert kept is not None
    (head,) = import_bundle(Git(tmp_path / "other"), other, "b2", kept)
    assert head.sha == second
    assert other.has(first)
    assert other.has(second)


def test_the_limit_is_on_what_is_kept_and_nothing_of_a_refused_bundle_stays(desk: Desk) -> None:
    def sent(name: str, base: str) -> tuple[str, bytes]:
        sha = desk.dev.commit(name, {name: random.Random(name).randbytes(20_000).hex()})
        return sha, desk.bundle(f"{base}..main")

    first, content = sent("first", desk.base)
    _, kept = receive_bundle(desk.git, desk.mirror, "b1", content, 40_000)
    assert 20_000 < len(kept) <= 40_000
    second, content = sent("second", first)
    assert 20_000 < len(content) <= 40_000
    with pytest.raises(PayloadTooLarge, match=r"over 40000 bytes \(GDN_BUNDLE_MAX_BYTES\); push"):
        receive_bundle(desk.git, desk.mirror, "b2", content, 40_000)
    assert desk.mirror.has(first)
    assert not desk.mirror.has(second)
    refs = desk.git.run(["for-each-ref", "--format=%(refname)"], git_dir=desk.mirror.path)
    assert [r for r in refs.decode().split() if "upstream" not in r] == ["refs/quarantine/b1/0"]
    heads, kept = receive_bundle(desk.git, desk.mirror, "b3", content, 80_000)
    assert [head.sha for head in heads] == [second]
    assert len(kept) > 40_000


def test_a_bundle_whose_commits_are_pushed_by_now_is_kept_as_it_came(
    desk: Desk, repo: Repo
) -> None:
    desk.dev.commit("pushed later", {"a": "1"})
    import_bundle(desk.git, desk.mirror, "b1", desk.bundle(f"{desk.base}..main"))
    desk.dev.git("push", "--quiet", str(repo.path), "main:refs/heads/other")
    desk.mirror.fetch()
    assert rebuilt(desk.git, desk.mirror, "b1", 1 << 20) is None


def test_which_bundle_has_a_commit(desk: Desk, repo: Repo) -> None:
    first = desk.dev.commit("first", {"a": "1"})
    second = desk.dev.commit("second", {"b": "1"})
    import_bundle(desk.git, desk.mirror, "b1", desk.bundle(f"{desk.base}..main"))
    assert desk.mirror.bundles_with(first) == ["b1"]
    assert desk.mirror.bundles_with(second) == ["b1"]
    assert desk.mirror.bundles_with(desk.base) == []
    desk.dev.git("push", "--quiet", str(repo.path), f"{first}:refs/heads/other")
    desk.mirror.fetch()
    assert desk.mirror.bundles_with(first) == []
    assert desk.mirror.bundles_with(second) == ["b1"]
