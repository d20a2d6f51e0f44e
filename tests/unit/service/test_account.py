from __future__ import annotations

import os
from pathlib import Path

import pytest

from gdn_service.runner.account import UNPRIVILEGED, can_use, candidate_account

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another account")


def test_a_named_account_is_taken_as_it_is(tmp_path: Path) -> None:
    assert candidate_account("gdn", tmp_path) == "gdn"


def test_an_account_that_does_not_exist_cannot_be_used(tmp_path: Path) -> None:
    assert not can_use("no-such-account", tmp_path)


@needs_root
def test_an_account_that_cannot_reach_the_tree_is_not_taken(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    tmp_path.chmod(0o700)
    assert can_use("root", tree)
    assert not can_use(UNPRIVILEGED, tree)
    assert candidate_account("", tree) == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root can take another account")
def test_without_root_the_judge_keeps_its_own_account(tmp_path: Path) -> None:
    assert candidate_account("", tmp_path) == ""
