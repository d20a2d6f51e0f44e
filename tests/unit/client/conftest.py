from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_service import TOKEN, FakeService

from gdn_client import cli

IDENTITY = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env={**os.environ, **IDENTITY},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def commit_file(directory: Path, name: str, text: str, message: str) -> str:
    (directory / name).write_text(text)
    git(directory, "add", "--", name)
    git(directory, "commit", "-q", "-m", message)
    return git(directory, "rev-parse", "HEAD")


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
