"""Which runner the settings ask for."""

from __future__ import annotations

from gdn_service.runner.base import Runner
from gdn_service.runner.docker_runner import DockerRunner
from gdn_service.runner.process import ProcessRunner
from gdn_service.settings import Settings


def build_runner(settings: Settings) -> Runner:
    return DockerRunner(settings) if settings.runner == "docker" else ProcessRunner(settings)
