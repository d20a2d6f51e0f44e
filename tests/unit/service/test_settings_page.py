"""docs/settings.md is made of settings.py: `pytest <this file> --update-golden` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo

from gdn_service.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"
START = """\
# Settings of the service

`gdn-service` reads them from its environment when it starts; `gdn-service doctor` says what
does not fit together. Names that end in `_S` are seconds, `_BYTES` and the sizes of
containers are bytes, lists are comma-separated words. The client's are in
[client.md](client.md#settings), what `docker/compose.yaml` takes in `docker/.env` is in
[docker/README.md](../docker/README.md).

| Variable | Default | Meaning |
| :-- | :-- | :-- |
"""


def default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "the host name"
    value = field.default
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, int) and value >= 1 << 20:
        unit, name = (1 << 30, "GiB") if value % (1 << 30) == 0 else (1 << 20, "MiB")
        return f"{value // unit} {name} (`{value}`)"
    if isinstance(value, float):
        value = f"{value:g}"
    return f"`{value}`" if str(value) else ""


def page() -> str:
    rows = []
    for name, field in Settings.model_fields.items():
        meaning = " ".join((field.description or "").split())
        rows.append(f"| `GDN_{name.upper()}` | {default(field)} | {meaning} |\n")
    return START + "".join(rows)


def test_the_page_tells_every_setting(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_setting_says_what_it_means() -> None:
    assert [n for n, field in Settings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("DATA_DIR", ["`var/gdn`", "Where the service keeps its files"]),
        ("WORKER_NAME", ["the host name", "Of this host"]),
        ("PUBLIC_URL", ["", "Where people reach the API"]),
        ("CONTAINER_MEMORY", ["80 GiB (`85899345920`)", "Memory of a container"]),
        ("JOB_TIMEOUT_S", ["`14400`", "Longest job."]),
        ("CONTAINER_JUDGE_COMMAND", ["`python3,-I,-m,gdn_judge`", "How the judge is started"]),
    ],
)
def test_defaults_are_told_as_they_are_set(
    name: str, row: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = [line for line in page().splitlines() if line.startswith(f"| `GDN_{name}` |")]
    shown, meaning = (cell.strip() for cell in line.split("|")[2:4])
    assert shown == row[0]
    assert meaning.startswith(row[1])
    if shown.startswith("`"):
        usual: Any = getattr(Settings(), name.lower())
        monkeypatch.setenv(f"GDN_{name}", shown.strip("`"))
        assert getattr(Settings(), name.lower()) == usual
