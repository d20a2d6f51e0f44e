from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gdn_client import cli
from support.fake_service import TOKEN, FakeService
from support.user_repository import IDENTITY, commit_file, git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of five commits on main."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for number in range(5):
        commit_file(root, "file.txt", f"line {number}\n", f"Commit {number}")
    return root


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as running:
        yield running


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own settings, nor of the repository these tests are in."""
    for name in [name for name in os.environ if name.startswith("GDN_")]:
        monkeypatch.delenv(name)
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GDN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    (work / ".git").mkdir()  # ends the search for a project file
    monkeypatch.chdir(work)


Client = Callable[..., int]


@pytest.fixture
def client(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Runs the command line in this process against the fake service; gives the exit code."""
    monkeypatch.setenv("GDN_SERVER", service.url)
    monkeypatch.setenv("GDN_TOKEN", TOKEN)

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["gdn-client", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    return run
