"""What docker/ says is true of the code: names of settings, commands, the compose file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gdn_service.cli import app
from gdn_service.doctor import GLUON_SINCE
from gdn_service.settings import Settings, load_settings

DOCKER = Path(__file__).parents[3] / "docker"
README = (DOCKER / "README.md").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
NOT_OURS = {"GDN_DB_PASSWORD", "GDN_DB_LISTEN", "GDN_LISTEN", "GDN_REPOSITORIES"}  # compose's
CLIENTS = {"GDN_SERVER", "GDN_TOKEN"}
FILES = sorted(path for path in DOCKER.iterdir() if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_is_a_setting(path: Path) -> None:
    named = set(re.findall(r"\bGDN_[A-Z_]+\b", path.read_text()))
    settings = {f"GDN_{name.upper()}" for name in Settings.model_fields}
    assert named - settings - NOT_OURS - CLIENTS == set()


def test_every_setting_of_containers_is_told_with_its_default() -> None:
    for name, field in Settings.model_fields.items():
        if name.startswith("container_"):
            assert f"`GDN_{name.upper()}`" in README, name
            if isinstance(field.default, int) and field.default >= 1 << 30:
                row = next(line for line in README.splitlines() if f"GDN_{name.upper()}" in line)
                assert f"{field.default >> 30} GiB" in row


def test_every_command_exists() -> None:
    said = set(re.findall(r"gdn-service ((?:token|target) [a-z]+|[a-z]+)", README))
    assert {"doctor", "devices", "target add", "token create"} <= said
    for words in said - {"worker"}:
        shown = CliRunner().invoke(app, [*words.split(), "--help"])
        assert shown.exit_code == 0, words


def test_the_documented_options_exist() -> None:
    for option in re.findall(r"gdn-service\s+devices\s+(--[a-z-]+)", README):
        assert option in CliRunner().invoke(app, ["devices", "--help"]).output.replace("\n", "")


def test_the_workers_of_compose_and_systemd_get_settings_that_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = COMPOSE["services"]["worker-cpu"]
    for name, value in worker["environment"].items():
        default = re.fullmatch(r"\$\{\w+:-(.*)\}", value)
        monkeypatch.setenv(name, default.group(1) if default else value)
    settings = load_settings()
    assert settings.runner == "docker"
    folder = str(settings.data_dir)
    assert f"{folder}:{folder}" in worker["volumes"]  # the engine mounts from the same path


def test_the_api_has_no_right_and_no_socket() -> None:
    api = COMPOSE["services"]["api"]
    assert api["cap_drop"] == ["ALL"]
    assert api["read_only"] is True
    assert not [volume for volume in api["volumes"] if "docker.sock" in volume]
    assert api["ports"] == ["${GDN_LISTEN:-127.0.0.1:8321}:8321"]


def test_api_and_worker_see_the_operators_repositories_and_cannot_write_them() -> None:
    folder = "${GDN_REPOSITORIES:-/srv/git}"
    for name in ("api", "worker-cpu"):
        assert f"{folder}:{folder}:ro" in COMPOSE["services"][name]["volumes"]
    assert "/srv/git/gdn-lab.git" in README


def test_the_readme_asks_for_the_triton_that_has_gluon() -> None:
    floor = ".".join(map(str, GLUON_SINCE))
    assert f"Triton {floor} or later" in README


def test_what_the_images_copy_is_there() -> None:
    for name in ("Dockerfile.service", "Dockerfile.worker"):
        for line in (DOCKER / name).read_text().splitlines():
            if line.startswith("COPY "):
                for source in line.split()[1:-1]:
                    assert (DOCKER.parent / source).exists(), source
