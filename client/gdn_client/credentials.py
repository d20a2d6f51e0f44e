"""Tokens, one per server, in a file that only its owner can read.

A token is stored under the address it was given for and is sent nowhere else.
"""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

from gdn_client.errors import NotAuthorised, SettingError
from gdn_client.settings import Settings, write_privately

_TOKEN = re.compile(r"gdn_[A-Za-z0-9]+_[A-Za-z0-9_-]+")


def path_of(settings: Settings) -> Path:
    return settings.user_directory / "credentials.json"


def check_form(token: str) -> str:
    """The token without surrounding space; NotAuthorised when it cannot be one."""
    token = token.strip()
    if not _TOKEN.fullmatch(token):
        raise NotAuthorised(
            "that is not a GDN Lab token: one reads gdn_<id>_<secret>",
            remedy="An operator makes one with `gdn-service token create --name N --scope submit`.",
        )
    return token


def token_for(settings: Settings) -> str | None:
    """GDN_TOKEN, else the token stored for this server, else None."""
    given = settings.token_from_environment()
    if given is None:
        return _read(path_of(settings)).get(settings.server)
    try:
        return check_form(given)
    except NotAuthorised as error:
        raise NotAuthorised(f"GDN_TOKEN: {error.message}", remedy=error.remedy) from error


def require_token(settings: Settings) -> str:
    token = token_for(settings)
    if token is None:
        raise NotAuthorised(
            f"no token for {settings.server}",
            remedy="Run `gdn-client login`, or set GDN_TOKEN.",
        )
    return token


def store(settings: Settings, token: str | None) -> None:
    """Keep `token` for the current server, or with None forget the one kept."""
    path = path_of(settings)
    tokens = _read(path)
    if token is None:
        tokens.pop(settings.server, None)
    else:
        tokens[settings.server] = token
    write_privately(path, json.dumps(tokens, indent=1, sort_keys=True) + "\n")


def _read(path: Path) -> dict[str, str]:
    try:
        mode = path.stat().st_mode
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{path} cannot be read: {error}", remedy="Move it away and run `gdn-client login`."
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise SettingError(f"{path} can be read by others", remedy=f"Run `chmod 600 {path}`.")
    if not isinstance(data, dict):
        raise SettingError(
            f"{path} does not hold tokens", remedy="Move it away and run `gdn-client login`."
        )
    return {str(server): str(token) for server, token in data.items()}
