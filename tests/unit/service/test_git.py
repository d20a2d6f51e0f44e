"""The limits on every git: its time, its answer, and what it leaves running."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gdn_service.errors import GitError, GitOverLimit
from gdn_service.runner.git import Git
from support.service_bench import Repo, processes_under


def assert_all_ended(folder: Path) -> None:
    """What was killed may still be on its way out; nothing else ends it."""
    limit = time.monotonic() + 10
    while processes_under(folder) and time.monotonic() < limit:
        time.sleep(0.02)
    assert processes_under(folder) == []


@pytest.fixture
def with_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes ``git demo`` run a script."""

    def install(script: str) -> None:
        path = tmp_path / "bin" / "git-demo"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return install


def test_over_its_time_git_ends_with_its_children(
    with_helper: Callable[[str], None], tmp_path: Path
) -> None:
    with_helper("sleep 600 & sleep 600")
    with pytest.raises(GitOverLimit, match=r"git demo took over 0.5 s \(GDN_GIT_TIMEOUT_S\)"):
        Git(tmp_path, timeout_s=0.5).run(["demo"])
    assert_all_ended(tmp_path)


def test_output_that_does_not_end_does_not_outlast_the_time(
    with_helper: Callable[[str], None], tmp_path: Path
) -> None:
    with_helper("exec yes")

    def read_slowly() -> None:
        with Git(tmp_path, timeout_s=0.5).reading(["demo"]) as pieces:
            for _ in pieces:
                time.sleep(0.01)

    with pytest.raises(GitOverLimit, match="took over"):
        read_slowly()
    assert_all_ended(tmp_path)


def test_an_answer_is_cut_at_its_limit(with_helper: Callable[[str], None], tmp_path: Path) -> None:
    with_helper("exec yes")
    with pytest.raises(GitOverLimit, match=r"with over 1000 bytes \(THE_SETTING\)"):
        Git(tmp_path).run(["demo"], max_bytes=1000, limit_name="THE_SETTING")
    assert_all_ended(tmp_path)


def test_whoever_stops_reading_ends_git(with_helper: Callable[[str], None], tmp_path: Path) -> None:
    with_helper("exec yes")
    with Git(tmp_path).reading(["demo"]) as pieces:
        assert next(pieces).startswith(b"y\n")
    assert_all_ended(tmp_path)


def test_gits_last_words_are_kept(repo: Repo, tmp_path: Path) -> None:
    with pytest.raises(GitError, match=r"git cat-file failed \(128\): fatal: Not a valid object"):
        Git(tmp_path).run(["cat-file", "-e", "f" * 40 + "^{commit}"], git_dir=repo.path / ".git")


def test_git_gets_what_it_is_fed(repo: Repo, tmp_path: Path) -> None:
    sha = Git(tmp_path).feed(["hash-object", "--stdin"], b"x", git_dir=repo.path / ".git")
    assert sha.decode().strip() == repo.git("hash-object", "--stdin", data=b"x")
