"""What every command starts from: settings, a screen, and a connection with a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gdn_client import credentials, settings
from gdn_client.screen import Screen
from gdn_client.settings import Settings

if TYPE_CHECKING:
    from gdn_client.api import Api


@dataclass(frozen=True, kw_only=True)
class Session:
    api: Api
    settings: Settings
    screen: Screen


@contextmanager
def connected(flags: dict[str, str | None], *, quiet: bool = False) -> Iterator[Session]:
    """Raises NotAuthorised when there is no token for the server."""
    from gdn_client.api import Api

    current = settings.load(flags)
    screen = Screen(quiet=quiet, colour=current.colour)
    with Api(current.server, credentials.require_token(current)) as api:
        yield Session(api=api, settings=current, screen=screen)
