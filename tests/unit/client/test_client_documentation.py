from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gdn_client.cli import app
from gdn_client.exit_codes import ExitCode
from gdn_client.settings import KEYS

PAGE = (Path(__file__).parents[3] / "docs" / "client.md").read_text(encoding="utf-8")
SECTIONS = {
    part.partition("\n")[0]: part.partition("\n")[2] for part in re.split(r"(?m)^## ", PAGE)[1:]
}


def commands(group: Any, prefix: str = "") -> dict[str, Any]:
    found = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found.update(commands(command, f"{prefix}{name} "))
        else:
            found[f"{prefix}{name}"] = command
    return found


COMMANDS = commands(typer.main.get_command(app))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    section = SECTIONS[name]
    missing = [
        option
        for parameter in COMMANDS[name].params
        for option in parameter.opts
        if option.startswith("-")
        and option not in ("-h", "--help")
        and f"`{option}`" not in section
    ]
    assert missing == []


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_documented_that_does_not_exist(name: str) -> None:
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    rows = [line for line in SECTIONS[name].splitlines() if line.startswith("| `-")]
    claimed = {option for row in rows for option in re.findall(r"`(-[\w-]+)`", row.split(" | ")[0])}
    assert claimed <= known


def test_every_section_is_a_command_or_a_known_chapter() -> None:
    chapters = {"Exit codes", "Settings", "Shell completion"}
    assert set(SECTIONS) == set(COMMANDS) | chapters


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert [p.name for p in command.params if not p.help] == []


def test_every_exit_code_is_documented() -> None:
    documented = set(map(int, re.findall(r"(?m)^\| (\d+) \|", SECTIONS["Exit codes"])))
    assert documented == {int(code) for code in ExitCode}


def test_every_setting_is_documented() -> None:
    for key in KEYS.values():
        assert f"| `{key.name}` | `{key.variable}` |" in SECTIONS["Settings"]


HEAVY = ("httpx", "rich", "asyncio", "platformdirs", "torch", "numpy", "ssl", "http")


@pytest.mark.parametrize("arguments", [["--help"], ["submit", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom gdn_client.cli import main\n"
        f"sys.argv = ['gdn-client', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("gdn-client can", ["cancel"]),
        ("gdn-client submit --suite ro", ["roofline"]),
        ("gdn-client show --format j", ["json", "junit"]),
        ("gdn-client submit --work", ["--worktree"]),
    ],
)
def test_completion(words: str, offered: list[str]) -> None:
    code = "import sys; sys.argv = ['gdn-client']; from gdn_client.cli import main; main()"
    environment = {
        "_GDN_CLIENT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == offered
