"""Commands that set the client up: login, config, devices."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gdn_client.commands import options
from gdn_client.commands.options import ends_with
from gdn_client.exit_codes import ExitCode

if TYPE_CHECKING:
    from gdn_client.screen import Screen

config = typer.Typer(help="Read and write settings.", no_args_is_help=True, rich_markup_mode=None)

KeyName = Annotated[str, typer.Argument(metavar="KEY", help="server, target, device, ...")]


@ends_with
def login(
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove the token kept for the server.")
    ] = False,
    server: options.Server = None,
) -> ExitCode:
    """Check a token and keep it for later. It is asked for, or read from stdin."""
    from gdn_client import credentials, settings
    from gdn_client.api import Api, is_loopback
    from gdn_client.screen import Screen

    current = settings.load({"server": server})
    screen = Screen(colour=current.colour)
    if forget:
        credentials.store(current, None)
        screen.say(f"forgot the token for {current.server}")
        return ExitCode.PASSED
    if current.server.startswith("http:") and not is_loopback(current.server):
        screen.warn(f"{current.server} is not https: the token travels unencrypted")
    token = credentials.check_form(_asked(current.server))
    with Api(current.server, token) as api:
        name, scope = api.whoami()
    credentials.store(current, token)
    screen.say(f"logged in to {current.server} as {name} with scope {scope}")
    _use_from_now_on(current.server, screen)
    return ExitCode.PASSED


def _use_from_now_on(server: str, screen: Screen) -> None:
    """Keep `server` as the setting where none is set; say so where another one is."""
    from gdn_client import settings

    usual = settings.load()
    if usual.values["server"].origin == "default":
        settings.write_user_setting(usual, "server", server)
    elif usual.server != server:
        screen.warn(
            f"other commands go to {usual.server} (from {usual.values['server'].origin}); "
            f"`gdn-client config set server {server}`, or --server, sends them here"
        )


def _asked(server: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline()
    import getpass

    return getpass.getpass(f"Token for {server}: ")


@ends_with
def devices(as_json: options.Json = False, server: options.Server = None) -> ExitCode:
    """List the devices, what each measures, and why one is not idle."""
    from gdn_client import listing
    from gdn_client.session import connected

    with connected({"server": server}) as session:
        listing.print_devices(session.api.devices(), session.screen, as_json=as_json)
    return ExitCode.PASSED


@config.command("list")
@ends_with
def config_list(as_json: options.Json = False) -> ExitCode:
    """All settings with their values and where each value comes from."""
    import json

    from gdn_client import settings
    from gdn_client.listing import print_plain
    from gdn_client.report.table import Cell, Column, Table
    from gdn_client.screen import Screen

    current = settings.load()
    screen = Screen(colour=current.colour)
    found = {name: current.values.get(name) for name in settings.KEYS}
    if as_json:
        values = {k: v and {"value": v.value, "origin": v.origin} for k, v in found.items()}
        screen.data(json.dumps(values, indent=2))
        return ExitCode.PASSED
    rows = [
        [
            Cell(name),
            Cell(setting.value if setting else "-"),
            Cell(setting.origin if setting else "not set"),
            Cell(settings.KEYS[name].meaning),
        ]
        for name, setting in found.items()
    ]
    columns = [
        Column("key", left=True),
        Column("value", left=True),
        Column("from", left=True),
        Column("meaning", left=True, rank=1),
    ]
    print_plain(Table(columns, rows), screen)
    return ExitCode.PASSED


@config.command("get")
@ends_with
def config_get(key: KeyName) -> ExitCode:
    """Print one setting; where it comes from goes to stderr."""
    from gdn_client import settings
    from gdn_client.errors import SettingError
    from gdn_client.screen import Screen

    settings.require_key(key)
    current = settings.load()
    setting = current.values.get(key)
    if setting is None:
        raise SettingError(
            f"{key} is not set", remedy=f"Set it with `gdn-client config set {key} VALUE`."
        )
    screen = Screen(colour=current.colour)
    screen.data(setting.value)
    screen.note(f"from {setting.origin}")
    return ExitCode.PASSED


@config.command("set")
@ends_with
def config_set(
    key: KeyName, value: Annotated[str, typer.Argument(metavar="VALUE", help="Its new value.")]
) -> ExitCode:
    """Keep a setting in the user's file."""
    from gdn_client import settings
    from gdn_client.screen import Screen

    settings.require_key(key)
    settings.write_user_setting(settings.load(), key, value)
    _mention_override(key)
    Screen().say(f"{key} is kept in {settings.load().user_file}")
    return ExitCode.PASSED


@config.command("unset")
@ends_with
def config_unset(key: KeyName) -> ExitCode:
    """Remove a setting from the user's file."""
    from gdn_client import settings

    settings.write_user_setting(settings.load(), key, None)
    return ExitCode.PASSED


@config.command("path")
@ends_with
def config_path() -> ExitCode:
    """Print where the user's settings are kept."""
    from gdn_client import settings
    from gdn_client.screen import Screen

    Screen().data(str(settings.load().user_file))
    return ExitCode.PASSED


def _mention_override(key: str) -> None:
    """Say so when the value just set has no effect here."""
    from gdn_client import settings
    from gdn_client.screen import Screen

    current = settings.load()
    setting = current.values.get(key)
    if setting is not None and setting.origin != str(current.user_file):
        Screen(colour=current.colour).warn(f"{setting.origin} overrides it here")
