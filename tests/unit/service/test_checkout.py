from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gdn_service.errors import TreeError
from gdn_service.runner.checkout import Checkout, Limits, export_tree, remove_tree
from gdn_service.runner.git import Git
from gdn_service.runner.mirror import Mirror
from support.service_bench import Repo

LIMITS = Limits(max_bytes=1 << 20, max_files=100)


class Exporter:
    def __init__(self, repo: Repo, folder: Path) -> None:
        self.git = Git(folder / "mirrors")
        self.mirror = Mirror(self.git, folder / "mirrors", "demo", str(repo.path))
        self.trees = folder / "trees"

    def __call__(self, sha: str, limits: Limits = LIMITS) -> Checkout:
        self.mirror.resolve(sha)
        return export_tree(self.git, self.mirror, sha, self.trees, limits)


@pytest.fixture
def export(repo: Repo, tmp_path: Path) -> Exporter:
    return Exporter(repo, tmp_path / "data")


def test_the_tree_is_exact_and_read_only(export: Exporter, repo: Repo) -> None:
    (repo.path / "run.sh").write_bytes(b"#!/bin/sh\r\n\x00\xff")
    (repo.path / "run.sh").chmod(0o755)
    sha = repo.commit("files", {"a/b/c.txt": "$Id$ text\n", "empty": ""})
    tree = export(sha).path
    assert (tree / "a/b/c.txt").read_text() == "$Id$ text\n"
    assert (tree / "run.sh").read_bytes() == b"#!/bin/sh\r\n\x00\xff"
    modes = {p: stat.S_IMODE((tree / p).stat().st_mode) for p in ("run.sh", "empty", "a/b", ".")}
    assert modes == {"run.sh": 0o555, "empty": 0o444, "a/b": 0o555, ".": 0o555}
    assert {p.stat().st_uid for p in tree.rglob("*")} == {os.geteuid()}
    assert not (tree / ".git").exists()


def test_attributes_and_filters_of_the_commit_have_no_effect(export: Exporter, repo: Repo) -> None:
    sha = repo.commit(
        "attributes",
        {
            ".gitattributes": "secret export-ignore\nid export-subst\n*.bin filter=lfs\n",
            "secret": "kept",
            "id": "$Format:%H$",
        },
    )
    tree = export(sha).path
    assert (tree / "secret").read_text() == "kept"
    assert (tree / "id").read_text() == "$Format:%H$"


def test_links_out_of_the_tree_and_submodules_are_left_out(export: Exporter, repo: Repo) -> None:
    repo.commit("base", {"real": "content", "deep/x": "1"})
    links = {
        "good": "real",
        "deep/up": "../real",
        "absolute": "/etc/passwd",
        "outside": "../../secret",
        "deep/outside": "../../secret",
        "loop": "loop",
        "folder": "deep",
        "hop": "folder/../../out",
        "bad\nname": "/etc/shadow",
    }
    for name, target in links.items():
        (repo.path / name).symlink_to(target)
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    repo.git("add", *links)
    repo.git("commit", "--quiet", "-m", "links")
    checkout = export(repo.git("rev-parse", "HEAD"))
    tree = checkout.path
    assert (tree / "good").read_text() == "content"
    assert (tree / "deep/up").read_text() == "content"
    for name in ("absolute", "outside", "deep/outside", "loop", "hop", "bad\nname", "sub"):
        assert not os.path.lexists(tree / name), name
    assert "submodule sub is not fetched" in checkout.notes
    assert "symbolic link absolute leaves the tree and is left out" in checkout.notes


def test_a_file_below_a_link_is_refused(export: Exporter, repo: Repo, tmp_path: Path) -> None:
    """A forged tree with a link and, under the same name, a folder cannot write outside."""
    blob = repo.git("hash-object", "-w", "--stdin", data=b"pwned")
    link = repo.git("hash-object", "-w", "--stdin", data=str(tmp_path).encode())
    inner = repo.git("mktree", data=f"100644 blob {blob}\tpwned\n".encode())
    listing = f"120000 blob {link}\tx\n040000 tree {inner}\tx\n".encode()
    tree = repo.git("mktree", data=listing)
    sha = repo.git("commit-tree", tree, "-m", "forged")
    repo.git("update-ref", "refs/heads/forged", sha)
    try:
        exported = export(sha).path
        assert not exported.joinpath("x").is_symlink()
    except TreeError:
        pass
    assert not (tmp_path / "pwned").exists()


def test_lfs_pointers_are_noted(export: Exporter, repo: Repo) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    checkout = export(repo.commit("lfs", {"weights.bin": pointer}))
    assert checkout.notes == ("weights.bin is a Git LFS pointer; its content is not fetched",)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(max_bytes=10, max_files=100), r"tree has over 10 bytes \(GDN_TREE_MAX_BYTES\)"),
        (
            Limits(max_bytes=1 << 20, max_files=1),
            r"has over 1 files and folders \(GDN_TREE_MAX_FILES\)",
        ),
    ],
)
def test_limits_hold_before_anything_is_written(
    export: Exporter, repo: Repo, limits: Limits, message: str
) -> None:
    sha = repo.commit("big", {"big": "x" * 1000})
    with pytest.raises(TreeError, match=message):
        export(sha, limits)
    assert list(export.trees.iterdir()) == []


def test_a_path_into_dot_git_is_refused(export: Exporter, repo: Repo) -> None:
    blob = repo.git("hash-object", "-w", "--stdin", data=b"x")
    inner = repo.git("mktree", data=f"100644 blob {blob}\tconfig\n".encode())
    tree = repo.git("mktree", data=f"040000 tree {inner}\t.GIT\n".encode())
    sha = repo.git("commit-tree", tree, "-m", "evil")
    repo.git("update-ref", "refs/heads/evil", sha)
    with pytest.raises(TreeError, match="unusable path"):
        export(sha)


def test_exporting_again_uses_the_tree_that_is_there(export: Exporter, repo: Repo) -> None:
    sha = repo.git("rev-parse", "HEAD")
    first = export(sha)
    assert export(sha).path == first.path
    remove_tree(first.path)
    assert not first.path.exists()
