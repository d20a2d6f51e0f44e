"""Options and arguments that several commands share, and how a command ends."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, ParamSpec

import typer

from gdn_client.exit_codes import ExitCode
from gdn_client.settings import FORMATS

P = ParamSpec("P")

SUITES = ("correctness", "determinism", "roofline", "codeobject")


def _starting(words: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


Server = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Address of the service.")
]
Target = Annotated[str | None, typer.Option("--target", metavar="NAME", help="The op under test.")]
Device = Annotated[
    str | None, typer.Option("--device", metavar="KIND", help="Device kind, as `devices` lists.")
]
Suites = Annotated[
    list[str] | None,
    typer.Option(
        "--suite",
        metavar="NAME",
        help="Only this suite; may be repeated.",
        autocompletion=_starting(SUITES),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="|".join(FORMATS),
        help="How the result is printed.",
        autocompletion=_starting(FORMATS),
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No messages but errors.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 7 when the result is inconclusive.")
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Do not wait; exit with 8.")]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="Wait at most so long, as 90, 30m, 1h30m."),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]


def ends_with(command: Callable[P, ExitCode]) -> Callable[P, None]:
    """Let a command return its exit code; Ctrl-C is 130 in every version of typer."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
        raise typer.Exit(int(code))

    return run


def chosen_format(form: str | None, as_json: bool) -> str | None:
    """--json and --format as one; UsageError when they contradict each other."""
    from gdn_client.errors import UsageError

    if as_json and form not in (None, "json"):
        raise UsageError(f"--json contradicts --format {form}", remedy="Give one of them.")
    return "json" if as_json else form
