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

Words = Annotated[tuple[str, ...], NoDecode]


class Settings(BaseSettings):
    """Seconds, bytes and counts are plain numbers; lists are comma-separated words."""

    model_config = SettingsConfigDict(
        env_prefix="GDN_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    data_dir: Path = Path("var/gdn")
    """Where the service keeps its files, and the SQLite database unless `GDN_DATABASE_URL` says
    otherwise. A relative path is below the folder in which a command is started."""
    database_url: str = ""
    """`postgresql://…`; empty: SQLite in the data folder."""
    host: str = "127.0.0.1"
    """Address that the API listens on."""
    port: int = Field(8321, ge=0, le=65535)
    """Port that the API listens on."""
    public_url: str = ""
    """Where people reach the API, when behind a proxy."""

    worker_name: str = Field(default_factory=socket.gethostname)
    """Of this host among those that share the database; each needs its own."""
    device_kinds: Words = ("auto",)
    """Kinds to serve here; `auto`: the CPU kinds and every GPU that is seen; `none`: no device."""
    default_device_kind: str = ""
    """For a job that names none; empty: the target's, else the best one served."""
    cpu_slots: int = Field(1, ge=1)
    """Devices of each CPU kind on this host."""
    judge_command: Words = ()
    """How the process runner starts the judge; empty: the interpreter of the service with `-I -m
    gdn_judge`."""
    emulator_processes: int = Field(0, ge=0)
    """Processes of one emulating judge; 0: as many as the cores that it may use."""
    candidate_user: str = ""
    """Account that the candidate runs under, by name or uid, if it must be that one: nothing else
    may use it, and one run at a time has it. Empty: a user of its own for each run."""
    candidate_uids: str = "60706-61183"
    """Uids for these users, one for each run; none with an account is taken. A worker that is not
    root has as many of its own as /etc/subuid gives it. Containers have uids from 200000 on."""
    runner: Literal["process", "docker"] = "process"
    """`docker` isolates; `process` runs the judge as a plain process tree."""
    docker_host: str = ""
    """The container engine's URL; empty: `DOCKER_HOST`, else the usual socket."""
    judge_image: str = ""
    """Image with the judge, by digest, id or tag; never pulled."""
    container_judge_command: Words = ("python3", "-I", "-m", "gdn_judge")
    """How the judge is started in its container."""
    container_memory: int = Field(80 << 30, ge=1 << 28)
    """Memory of a container, tmpfs and shared memory included; no swap."""
    container_pids: int = Field(4096, ge=64)
    """Processes and threads of a container."""
    container_scratch: int = Field(16 << 30, ge=1 << 24)
    """The tmpfs for compiled kernels and scratch."""
    container_shared_memory: int = Field(8 << 30, ge=1 << 24)
    """/dev/shm of a container."""
    container_cpus: str = ""
    """Cores like `0-15`; empty: the device's share of those near it."""
    container_memory_nodes: str = ""
    """NUMA nodes like `0` or `0-1`; empty: the one near the device."""
    container_mounts: Words = ()
    """Host folders shown read-only under the same path."""
    database_poll_s: float = Field(0.5, gt=0)
    """How often a worker looks for work."""

    kernel_timeout_s: float = Field(120, gt=0)
    """Longest call of the op."""
    suite_timeout_s: float = Field(3600, gt=0)
    """Longest run of a suite."""
    job_timeout_s: float = Field(4 * 3600, gt=0)
    """Longest job. Time on all hosts that had it counts; it is looked at before each run."""
    client_wait_s: float = Field(6 * 3600, gt=0)
    """How long a client waits for a job when it does not say."""
    stop_grace_s: float = Field(5, gt=0)
    """Between the gentle stop of a process tree and its kill."""

    job_tries: int = Field(3, ge=1)
    """Starts of one job, crashes of the worker included."""
    host_tries: int = Field(3, ge=1)
    """Runs of one suite that hosts may spoil."""
    host_retry_s: float = Field(10, ge=0)
    """Pause before a run is repeated."""
    busy_wait_s: float = Field(600, ge=0)
    """Longest wait for an idle device."""
    heartbeat_s: float = Field(10, gt=0)
    """How often a worker says that it lives."""
    device_refresh_s: float = Field(30, gt=0)
    """How often the devices' state is looked at."""
    worker_ttl_s: float = Field(45, gt=0)
    """A worker silent for so long is dead; more than twice `GDN_HEARTBEAT_S`."""

    bundle_max_bytes: int = Field(64 << 20, ge=1)
    """Largest git bundle that is taken, and kept with the commits below it that are not pushed."""
    tree_max_bytes: int = Field(512 << 20, ge=1)
    """Largest commit's tree, exported."""
    tree_max_files: int = Field(50_000, ge=1)
    """Most files and folders in a commit's tree."""
    tree_max_depth: int = Field(64, ge=1)
    """Most names in a path of a commit's tree."""
    tree_max_path: int = Field(1000, ge=1, le=4000)
    """Longest path in a commit's tree, in bytes."""
    git_memory_bytes: int = Field(4 << 30, ge=64 << 20)
    """Address space of one git process: what a commit or a bundle may unfold to in memory."""
    git_timeout_s: float = Field(300, gt=0)
    """Longest run of one git process."""
    request_max_bytes: int = Field(64 << 10, ge=1 << 10)
    """Largest body of a request to the API, bundles left out; a longer one is not read."""
    document_max_bytes: int = Field(64 << 20, ge=1)
    """Largest verdict document that is taken from a judge."""
    log_max_bytes: int = Field(4 << 20, ge=1)
    """Log of one run; the rest is cut with a note."""

    idle_samples: int = Field(3, ge=1)
    """Looks at a device that must all find it idle."""
    idle_interval_s: float = Field(0.3, ge=0)
    """Between two of these looks."""
    idle_vram_fraction: float = Field(0.03, gt=0, lt=1)
    """Memory in use on an idle device, as a part of the whole; less is idle."""
    idle_watch_s: float = Field(5, gt=0)
    """How often the device is looked at during a run."""
    expected_partition: str = "SPX"
    """Partition mode of AMD devices; another one is not idle."""
    idle_vram_margin_bytes: int = Field(256 << 20, ge=0)
    """Memory in use above the recorded baseline of an idle device."""
    canary_readings: int = Field(8, ge=2, le=40)
    """Earlier readings of the canary that make a baseline."""
    canary_runs: int = Field(6, ge=1, le=20)
    """Runs that these readings must come from; one job has at most 5."""
    canary_mads: float = Field(6, gt=0)
    """Half the usual range of the canary, in median absolute deviations."""
    canary_margin: float = Field(0.05, gt=0, lt=1)
    """And at least this part of the median."""
    canary_limit: float = Field(0.10, gt=0, lt=1)
    """And at most this part of it."""

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

    @field_validator("candidate_uids")
    @classmethod
    def _uids(cls, value: str) -> str:
        first, _, last = value.partition("-")
        if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last)):
            raise ValueError(f"{value!r} should read like 60706-61183")
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
    return next((kind for kind in DeviceKind if kind in kinds), None)


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
