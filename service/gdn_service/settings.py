"""The only place where the service reads its environment (prefix ``GDN_``)."""

from __future__ import annotations

import itertools
import os
import socket
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gdn_judge.document import DeviceKind
from gdn_service.errors import SettingsError

CPU_KINDS = (DeviceKind.GFX950_EMULATED, DeviceKind.INTERPRETER)
BEST_FIRST = (DeviceKind.GFX950, DeviceKind.SM90, *CPU_KINDS)

Words = Annotated[tuple[str, ...], NoDecode]


class Settings(BaseSettings):
    """Seconds, bytes and counts are plain numbers; lists are comma-separated words."""

    model_config = SettingsConfigDict(env_prefix="GDN_", extra="ignore", frozen=True)

    data_dir: Path = Path("var/gdn")
    database_url: str = ""  # empty: SQLite in data_dir
    host: str = "127.0.0.1"
    port: int = Field(8321, ge=0, le=65535)
    public_url: str = ""  # where people reach the API, when behind a proxy

    worker_name: str = Field(default_factory=socket.gethostname)
    device_kinds: Words = ("auto",)  # "auto": the CPU kinds and every GPU that is seen
    default_device_kind: str = ""  # empty: the target's, else the best one served
    cpu_slots: int = Field(1, ge=1)  # devices of each CPU kind on this host
    judge_command: Words = ()  # empty: this interpreter with -I -m gdn_judge
    emulator_processes: int = Field(0, ge=0)  # of one judge; 0: the cores that it may use
    candidate_user: str = ""  # account the candidate runs under; empty: nobody, where possible
    runner: Literal["process", "docker"] = "process"
    docker_host: str = ""  # the engine's URL; empty: DOCKER_HOST, else the usual socket
    judge_image: str = ""  # image with the judge, by digest, id or tag; never pulled
    container_judge_command: Words = ("python3", "-I", "-m", "gdn_judge")
    container_memory: int = Field(80 << 30, ge=1 << 28)  # bytes, swap and tmpfs included
    container_pids: int = Field(4096, ge=64)  # threads count
    container_scratch: int = Field(16 << 30, ge=1 << 24)  # bytes of tmpfs
    container_shared_memory: int = Field(8 << 30, ge=1 << 24)
    container_cpus: str = ""  # like 0-15; empty: the device's share of those near it
    container_memory_nodes: str = ""  # NUMA nodes like 0; empty: the one near the device
    container_mounts: Words = ()  # host folders shown read-only under the same path
    database_poll_s: float = Field(0.5, gt=0)

    kernel_timeout_s: float = Field(120, gt=0)
    suite_timeout_s: float = Field(3600, gt=0)
    job_timeout_s: float = Field(4 * 3600, gt=0)
    client_wait_s: float = Field(6 * 3600, gt=0)
    stop_grace_s: float = Field(5, gt=0)  # between the gentle stop of a tree and its kill

    job_tries: int = Field(3, ge=1)  # starts of one job, crashes of the worker included
    host_tries: int = Field(3, ge=1)  # runs of one suite that the host may spoil
    host_retry_s: float = Field(10, ge=0)
    busy_wait_s: float = Field(600, ge=0)  # wait for an idle device
    heartbeat_s: float = Field(10, gt=0)
    device_refresh_s: float = Field(30, gt=0)  # how often the devices' state is looked at
    worker_ttl_s: float = Field(45, gt=0)  # a worker silent for so long is dead

    bundle_max_bytes: int = Field(64 << 20, ge=1)
    tree_max_bytes: int = Field(512 << 20, ge=1)
    tree_max_files: int = Field(50_000, ge=1)
    document_max_bytes: int = Field(64 << 20, ge=1)
    log_max_bytes: int = Field(4 << 20, ge=1)  # of one run; the rest is cut with a note

    idle_samples: int = Field(3, ge=1)
    idle_interval_s: float = Field(0.3, ge=0)
    idle_vram_fraction: float = Field(0.03, gt=0, lt=1)
    idle_watch_s: float = Field(5, gt=0)  # how often the device is looked at during a run
    expected_partition: str = "SPX"  # of AMD devices; another mode is not idle
    idle_vram_margin_bytes: int = Field(256 << 20, ge=0)
    canary_readings: int = Field(8, ge=2, le=40)  # earlier ones that make a baseline
    canary_runs: int = Field(6, ge=1, le=20)  # they are from so many; one job has at most 5
    canary_mads: float = Field(6, gt=0)  # half the usual range, in median absolute deviations
    canary_margin: float = Field(0.05, gt=0, lt=1)  # and at least this part of the median
    canary_limit: float = Field(0.10, gt=0, lt=1)  # and at most this part

    @field_validator(
        "device_kinds",
        "judge_command",
        "container_judge_command",
        "container_mounts",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(word.strip() for word in value.split(",") if word.strip())
        return value

    @field_validator("device_kinds")
    @classmethod
    def _known_kinds(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        known = {"auto", "none", *(str(kind) for kind in DeviceKind)}
        for word in value:
            if word not in known:
                raise ValueError(f"unknown device kind {word!r}; known: {', '.join(sorted(known))}")
        return value

    @model_validator(mode="after")
    def _timeouts_nest(self) -> Self:
        ladder = ("kernel_timeout_s", "suite_timeout_s", "job_timeout_s", "client_wait_s")
        for inner, outer in itertools.pairwise(ladder):
            if getattr(self, inner) >= getattr(self, outer):
                raise ValueError(
                    f"{inner} ({getattr(self, inner):g} s) must be smaller than "
                    f"{outer} ({getattr(self, outer):g} s)"
                )
        if self.heartbeat_s * 2 >= self.worker_ttl_s:
            raise ValueError("worker_ttl_s must be more than twice heartbeat_s")
        return self

    @model_validator(mode="after")
    def _canary_range_exists(self) -> Self:
        if self.canary_margin > self.canary_limit:
            raise ValueError(
                f"canary_margin ({self.canary_margin:g}) must not be larger than "
                f"canary_limit ({self.canary_limit:g})"
            )
        return self

    @model_validator(mode="after")
    def _containers_have_an_image(self) -> Self:
        if self.runner == "docker" and not self.judge_image:
            raise ValueError("runner docker needs judge_image (GDN_JUDGE_IMAGE)")
        if self.runner == "docker" and not self.container_judge_command:
            raise ValueError("container_judge_command must not be empty")
        for folder in self.container_mounts:
            if not folder.startswith("/"):
                raise ValueError(f"container_mounts: {folder!r} is not an absolute path")
        return self

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL of the store."""
        if not self.database_url:
            return f"sqlite:///{self.data_dir.absolute() / 'gdn.sqlite'}"
        if self.database_url.startswith(("postgresql://", "postgres://")):
            return "postgresql+psycopg://" + self.database_url.split("://", 1)[1]
        return self.database_url

    @property
    def queue_url(self) -> str:
        """URL of the queue's own tables: schema ``dbos`` on PostgreSQL, a second file on SQLite."""
        if self.store_url.startswith("sqlite"):
            return self.store_url.removesuffix(".sqlite") + "-queue.sqlite"
        return self.store_url.replace("postgresql+psycopg://", "postgresql://", 1)

    @property
    def judge_argv(self) -> tuple[str, ...]:
        return self.judge_command or (sys.executable, "-I", "-m", "gdn_judge")

    @property
    def mirrors_dir(self) -> Path:
        return self.data_dir.absolute() / "mirrors"

    @property
    def trees_dir(self) -> Path:
        return self.data_dir.absolute() / "trees"

    @property
    def work_dir(self) -> Path:
        return self.data_dir.absolute() / "work"

    @property
    def locks_dir(self) -> Path:
        return self.data_dir.absolute() / "locks"

    @property
    def gpu_locks_dir(self) -> Path:
        """Shared by every service on the machine, whatever its data folder."""
        return Path("/run/lock/gdn-lab") if os.geteuid() == 0 else Path("/tmp/gdn-lab-locks")


def best_kind(kinds: Collection[str]) -> DeviceKind | None:
    """The most telling of `kinds`: hardware first, the smoke test last."""
    return next((kind for kind in BEST_FIRST if kind in kinds), None)


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment; raises SettingsError with a readable list of faults."""
    try:
        return Settings(**overrides)
    except ValueError as error:
        raise SettingsError(_readable(error)) from error


def _readable(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    lines = []
    for item in error.errors():
        name = "_".join(str(part) for part in item["loc"])
        lines.append(f"{'GDN_' + name.upper() + ': ' if name else ''}{item['msg']}")
    return "; ".join(lines)


def base_environment() -> dict[str, str]:
    """The few variables that child processes get; no credential is among them."""
    keep = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "ROCM_PATH")
    return {name: os.environ[name] for name in keep if name in os.environ}


def device_environment() -> dict[str, str]:
    """`base_environment` plus what tells GPU libraries where devices and compilers are."""
    keep = (
        "CUDA_PATH",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "ROCM_HOME",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "TRITON_PTXAS_PATH",
        "TRITON_LIBCUDA_PATH",
    )
    return base_environment() | {name: os.environ[name] for name in keep if name in os.environ}


def git_environment() -> dict[str, str]:
    """`base_environment` plus what ssh needs to reach the operator's repositories."""
    keep = ("HOME", "SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "HTTPS_PROXY", "https_proxy", "NO_PROXY")
    found = {name: os.environ[name] for name in keep if name in os.environ}
    return base_environment() | found
