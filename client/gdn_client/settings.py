"""Where each setting comes from: flag > environment > project file > user file > default.

The only module that reads the environment. The project file is `.gdn.toml` in the
working directory or the nearest parent; it belongs to the repository, so it may not
hold a token, and a token from the environment is not sent to a server it names.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gdn_client.errors import NotAuthorised, SettingError, UsageError
from gdn_client.text import listed

PROJECT_FILE = ".gdn.toml"
USER_FILE = "config.toml"
FORMATS = ("table", "json", "markdown", "junit")


def parse_server(text: str) -> str:
    """A base URL without trailing slash; UsageError for anything else."""
    match = re.fullmatch(r"(https?)://([^/?#\s]+)(/[^?#\s]*)?", text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is not a server address", remedy="Give one like https://gdn.example.org."
        )
    if "@" in match[2]:
        raise UsageError(
            "the server address holds a user name or password",
            remedy="Leave them out and run `gdn-client login`.",
        )
    try:
        usable = urllib.parse.urlsplit(text.strip()).port != 0
    except ValueError:  # no number, or above 65535
        usable = False
    if not usable:
        raise UsageError(
            f"{text!r} has no usable port", remedy="A port is a number from 1 to 65535."
        )
    path = (match[3] or "").rstrip("/").removesuffix("/api/v1")
    return f"{match[1]}://{match[2]}{path}"


def parse_duration(text: str) -> str:
    """Check a duration such as 90, 45s, 30m, 1h30m; returned as it was given."""
    seconds(text)
    return text.strip()


def seconds(text: str) -> float:
    """`text` in seconds; UsageError unless it is a positive duration."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    parts = match.groups() if match else (None, None, None)
    total = sum(float(part or 0) * unit for part, unit in zip(parts, (3600, 60, 1), strict=True))
    if total <= 0:
        raise UsageError(
            f"{text!r} is not a duration", remedy="Give seconds, or a form like 45s, 30m, 1h30m."
        )
    return total


def parse_format(text: str) -> str:
    if text not in FORMATS:
        raise UsageError(f"{text!r} is not a format", remedy=f"Choose one of {', '.join(FORMATS)}.")
    return text


def parse_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise UsageError(
            f"{text!r} is not a name", remedy="Names are letters, digits, dot, dash, underscore."
        )
    return text


@dataclass(frozen=True)
class Key:
    name: str
    meaning: str
    parse: Callable[[str], str]
    default: str | None = None

    @property
    def variable(self) -> str:
        return f"GDN_{self.name.upper()}"


KEYS = {
    key.name: key
    for key in (
        Key("server", "address of the service", parse_server, "http://127.0.0.1:8321"),
        Key("target", "the op under test, by the name the operator gave it", parse_name),
        Key("device", "device kind to run on", parse_name),
        Key("timeout", "how long to wait for a result", parse_duration),
        Key("format", "table, json, markdown or junit", parse_format, "table"),
    )
}


@dataclass(frozen=True)
class Setting:
    value: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings in force. `values` holds only keys that have a value."""

    values: dict[str, Setting]
    user_directory: Path
    project_file: Path | None
    token_variable: str | None = field(default=None, repr=False)
    colour: bool = True

    def get(self, name: str) -> str | None:
        setting = self.values.get(name)
        return None if setting is None else setting.value

    @property
    def server(self) -> str:
        return self.values["server"].value

    @property
    def user_file(self) -> Path:
        return self.user_directory / USER_FILE

    @property
    def timeout_s(self) -> float | None:
        text = self.get("timeout")
        return None if text is None else seconds(text)

    def token_from_environment(self) -> str | None:
        """GDN_TOKEN, unless the server was chosen by a file of the repository at hand."""
        if self.token_variable and self.values["server"].origin == str(self.project_file):
            raise NotAuthorised(
                f"GDN_TOKEN is set, but the server {self.server} comes from {self.project_file}, "
                "which anyone who can change the repository controls",
                remedy="Set GDN_SERVER to the server the token is meant for.",
            )
        return self.token_variable


def load(
    flags: Mapping[str, str | None] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Merge all sources. Raises SettingError naming the file or variable at fault."""
    env = os.environ if environment is None else environment
    user_directory = _user_directory(env)
    project = _find_project_file(directory or Path.cwd())
    values: dict[str, Setting] = {}
    for key in KEYS.values():
        if key.default is not None:
            values[key.name] = Setting(key.default, "default")
    for file in (user_directory / USER_FILE, project):
        if file is not None:
            values.update(_from_file(file))
    values.update(_from_mapping({k.name: env.get(k.variable) for k in KEYS.values()}, "$GDN_{}"))
    values.update(_from_mapping(flags or {}, "--{}"))
    return Settings(
        values=values,
        user_directory=user_directory,
        project_file=project,
        token_variable=env.get("GDN_TOKEN") or None,
        colour=colour_wanted(env),
    )


def colour_wanted(environment: Mapping[str, str] | None = None) -> bool:
    """NO_COLOR, when it is not empty, and TERM=dumb turn colour off."""
    env = os.environ if environment is None else environment
    return not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def _user_directory(env: Mapping[str, str]) -> Path:
    if env.get("GDN_CONFIG_DIR"):
        return Path(env["GDN_CONFIG_DIR"])
    import platformdirs

    return platformdirs.user_config_path("gdn-lab")


def _find_project_file(directory: Path) -> Path | None:
    for folder in (directory, *directory.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
        if (folder / ".git").exists():
            return None
    return None


def _from_mapping(values: Mapping[str, str | None], origin: str) -> dict[str, Setting]:
    found = {}
    for name, text in values.items():
        if text:
            where = origin.format(name.upper() if origin.startswith("$") else name)
            found[name] = _parsed(name, text, where)
    return found


def _from_file(path: Path) -> dict[str, Setting]:
    return {name: _parsed(name, text, str(path)) for name, text in read_file(path).items()}


def _parsed(name: str, text: str, origin: str) -> Setting:
    try:
        return Setting(KEYS[name].parse(text), origin)
    except UsageError as error:
        raise SettingError(f"{origin}: {error.message}", remedy=error.remedy) from error


def read_file(path: Path) -> dict[str, str]:
    """The settings in one file; none when it does not exist."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingError(
            f"{path} cannot be read: {error}", remedy="Correct the file or move it away."
        ) from error
    return {name: _file_value(path, name, value) for name, value in data.items()}


def _file_value(path: Path, name: str, value: Any) -> str:
    if name == "token":
        raise SettingError(
            f"{path} holds a token", remedy="Remove it there; use `gdn-client login` or GDN_TOKEN."
        )
    require_key(name, f"{path}: ")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SettingError(
            f"{path}: {name} should be text", remedy=f'Write {name} = "…" in quotes.'
        )
    return str(value)


def require_key(name: str, where: str = "") -> Key:
    if name not in KEYS:
        raise SettingError(
            f"{where}there is no setting {name!r}", remedy=f"Known settings: {listed(list(KEYS))}."
        )
    return KEYS[name]


def write_user_setting(settings: Settings, name: str, text: str | None) -> None:
    """Set, or with None remove, one key of the user's file."""
    key = require_key(name)
    values = read_file(settings.user_file)
    if text is None:
        values.pop(name, None)
    else:
        values[name] = key.parse(text)
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in sorted(values.items())]
    write_privately(settings.user_file, "".join(lines))


def write_privately(path: Path, text: str) -> None:
    """Write a file only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
