"""`gdn-client`: the commands put together, and the one place where errors are told."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gdn_client import __version__, streams
from gdn_client.commands import jobs, results, setup
from gdn_client.errors import ClientError

# Plain help: rich's costs 150 ms more, half of what --help may take.
app = typer.Typer(
    name="gdn-client",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    jobs.submit,
    jobs.status,
    jobs.logs,
    results.show,
    results.compare,
    results.history,
    results.report,
    jobs.cancel,
    jobs.retry,
    setup.devices,
    setup.login,
):
    app.command()(command)
app.add_typer(setup.config, name="config")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gdn-client {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Judge and measure a commit of the fused Gated DeltaNet decode op on real hardware.

    Exit codes: 0 passed, 1 wrong or regressed, 2 usage, 3 cancelled or timed out,
    4 not authorised, 5 host busy or infrastructure, 6 commit unavailable,
    7 inconclusive (--strict), 8 still pending, 130 interrupted.
    """


def main() -> None:
    streams.prepare()
    try:
        app()
    except ClientError as error:
        from gdn_client.screen import Screen
        from gdn_client.settings import colour_wanted

        Screen(colour=colour_wanted()).error(error.message, error.remedy)
        sys.exit(int(error.exit_code))


if __name__ == "__main__":
    main()
