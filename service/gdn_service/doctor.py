"""What an operator should know about this machine: what works, what is missing, how to get it."""

from __future__ import annotations

import enum
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from gdn_judge.wire import devices
from gdn_judge.wire.devices import Vendor
from gdn_service.errors import DatabaseUnavailable, DeviceUnavailable, EngineError
from gdn_service.runner import kfd, nvml
from gdn_service.runner.amd import AmdProbe, ask_amdsmi
from gdn_service.runner.engine import Engine
from gdn_service.runner.kfd import KfdProbe
from gdn_service.runner.nvml import query
from gdn_service.settings import Settings, base_environment
from gdn_service.store.database import driver_words, open_engine

GLUON_SINCE = (3, 8)  # as in gdn_kernels.platform, which the service does not import


class Level(enum.StrEnum):
    OK = "ok"
    NOTE = "note"  # works, with something to know
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Finding:
    what: str
    level: Level
    detail: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> str:
        line = f"{self.level:8}{self.what}: {self.detail}"
        return line + (f"\n        -> {self.remedy}" if self.remedy else "")


def examine(settings: Settings) -> list[Finding]:
    """Every check, in the order in which they matter."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _system,
        _git,
        _data_dir,
        _database,
        _judge,
        _nvidia,
        _amd,
        _docker,
        _account,
    )
    return [finding for check in checks for finding in check(settings)]


def _ok(what: str, detail: str) -> Finding:
    return Finding(what=what, level=Level.OK, detail=detail)


def _note(what: str, detail: str, remedy: str = "") -> Finding:
    return Finding(what=what, level=Level.NOTE, detail=detail, remedy=remedy)


def _missing(what: str, detail: str, remedy: str) -> Finding:
    return Finding(what=what, level=Level.MISSING, detail=detail, remedy=remedy)


def _system(_settings: Settings) -> Iterator[Finding]:
    if platform.system() == "Linux":
        yield _ok("system", f"Linux {platform.release()}, Python {platform.python_version()}")
    else:
        yield _missing("system", platform.system(), "workers need Linux; run only the client here")


def _git(_settings: Settings) -> Iterator[Finding]:
    if shutil.which("git") is None:
        yield _missing("git", "not found", "apt-get install git")
        return
    done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False)
    yield _ok("git", done.stdout.strip())


def _data_dir(settings: Settings) -> Iterator[Finding]:
    existing = _existing(settings.data_dir)
    if not os.access(existing, os.W_OK):
        yield _missing(
            "data folder", f"{settings.data_dir} cannot be written", "set GDN_DATA_DIR to another"
        )
        return
    free = shutil.disk_usage(existing).free / 2**30
    finding = _ok if free > 5 else _note
    yield finding("data folder", f"{settings.data_dir.absolute()}, {free:.0f} GiB free")


def _database(settings: Settings) -> Iterator[Finding]:
    if settings.store_url.startswith("sqlite"):
        yield _ok("database", "SQLite in the data folder; enough for one machine")
        return
    remedy = "check GDN_DATABASE_URL and that the server runs"
    try:
        engine = open_engine(settings.store_url)
    except DatabaseUnavailable as error:
        yield _missing("database", driver_words(error), remedy)
        return
    try:
        with engine.connect() as connection:
            version = connection.execute(text("SHOW server_version")).scalar()
        yield _ok("database", f"PostgreSQL {version}")
    except SQLAlchemyError as error:
        yield _missing("database", driver_words(error), remedy)
    finally:
        engine.dispose()


def _judge(settings: Settings) -> Iterator[Finding]:
    if settings.runner == "docker":
        return  # it is in the image
    for package in ("numpy", "scipy", "torch", "triton"):
        if importlib.util.find_spec(package) is None:
            yield _missing(
                "judge", f"package {package} is not installed", "pip install 'gdn-lab[kernels]'"
            )
            return
    try:
        done = subprocess.run(
            [*settings.judge_argv, "schema"],
            capture_output=True,
            text=True,
            timeout=60,
            env=base_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield _missing("judge", f"cannot be run: {error}", "check GDN_JUDGE_COMMAND")
        return
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield _missing("judge", f"fails: {last}", "pip install 'gdn-lab[kernels]'")
    else:
        yield _ok("judge", " ".join(settings.judge_argv))
        yield from _triton(settings)


def _triton(settings: Settings) -> Iterator[Finding]:
    """Whether the Triton of the judge's Python has Gluon; nothing where that is no `-m` call."""
    words = settings.judge_argv
    if "-m" not in words:
        return
    done = subprocess.run(
        [*words[: words.index("-m")], "-c", "import triton; print(triton.__version__)"],
        capture_output=True,
        text=True,
        env=base_environment(),
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield _missing("Triton", f"does not import: {last}", "pip install 'gdn-lab[kernels]'")
        return
    yield judge_triton(done.stdout.strip())


def judge_triton(version: str) -> Finding:
    """`version` as Triton gives it, for instance 3.7.1+rocm7.2."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is not None and (int(match[1]), int(match[2])) >= GLUON_SINCE:
        return _ok("Triton", version)
    floor = ".".join(map(str, GLUON_SINCE))
    return _note(
        "Triton",
        f"{version}: the Gluon kernel needs {floor}; the portable kernel is tested in its place",
        f"install Triton {floor} or later where the judge's torch allows it",
    )


def _no_device(settings: Settings, vendor: Vendor, why: str, remedy: str) -> Finding:
    """A lack where the settings ask for a kind of `vendor` by name, else a note."""
    kinds = [row.kind for row in devices.of_vendor(vendor) if row.kind in settings.device_kinds]
    if kinds:
        named = " or ".join(kinds)
        detail = f"no {named} device, which GDN_DEVICE_KINDS asks for: {why}"
        return _missing(vendor, detail, f"{remedy}, or take {named} out of GDN_DEVICE_KINDS")
    return _note(vendor, f"no device: {why}", remedy)


def _served(vendor: Vendor) -> str:
    """The architectures of `vendor` that a kind covers, as its driver names them."""
    return " or ".join(row.driver_name for row in devices.of_vendor(vendor))


def _nvidia(settings: Settings) -> Iterator[Finding]:
    driver = "on a host with an NVIDIA GPU: install its driver"
    try:
        rows = query({"do": "list"})["devices"]
    except DeviceUnavailable as error:
        yield _no_device(settings, Vendor.NVIDIA, str(error), driver)
        return
    if not any(nvml.kind_of(row["capability"]) for row in rows):
        why = f"the driver shows none of compute capability {_served(Vendor.NVIDIA)}"
        yield _no_device(settings, Vendor.NVIDIA, why, "look at nvidia-smi")
    for row in rows:
        major, minor = row["capability"]
        detail = f"{row['index']}: {row['name']}, compute capability {major}.{minor}"
        if kind := nvml.kind_of(row["capability"]):
            yield _ok("NVIDIA", f"{detail}, served as {kind}")
        else:
            yield _note("NVIDIA", f"{detail}, which no device kind covers")


def _amd(settings: Settings) -> Iterator[Finding]:
    try:
        rows = KfdProbe(settings).rows()
    except DeviceUnavailable as error:
        driver = "on a ROCm host: install amdgpu-dkms, then reboot"
        yield _no_device(settings, Vendor.AMD, str(error), driver)
        return
    if not any(kfd.kind_of(row["gfx"]) for row in rows):
        why = f"the kernel shows no {_served(Vendor.AMD)}"
        yield _no_device(settings, Vendor.AMD, why, "look at rocminfo")
    for row in rows:
        detail = f"{row['index']}: {row['name']}, {row['gfx']}"
        if kind := kfd.kind_of(row["gfx"]):
            yield _ok("AMD", f"{detail}, served as {kind}")
        else:
            yield _note("AMD", f"{detail}, which no device kind covers")
    yield from _second_witness(settings, rows)
    if rows and settings.runner == "process" and not os.access("/dev/kfd", os.R_OK | os.W_OK):
        yield _missing(
            "AMD", "/dev/kfd is not accessible", "add the account to the groups render and video"
        )


def _second_witness(settings: Settings, rows: list[dict[str, Any]]) -> Iterator[Finding]:
    """Whether amdsmi is there, and agrees with the kernel's files."""
    try:
        if rows and "absent" in ask_amdsmi({"kfd_id": 0, "samples": 0, "interval_s": 0}):
            yield _note("AMD", "without amdsmi: only the kernel's files tell who uses a card")
        probe = AmdProbe(settings)
        for device in probe.devices():
            for note in probe.idle(device, None).notes:
                yield _note("AMD", f"{device.index}: {note}")
    except DeviceUnavailable as error:
        yield _note("AMD", f"{error}")


def _docker(settings: Settings) -> Iterator[Finding]:
    try:
        engine = Engine(settings.docker_host)
    except EngineError as error:
        if settings.runner == "docker":
            yield _missing("docker", str(error), "start it, or set GDN_DOCKER_HOST")
        else:
            yield _note(
                "docker",
                "no engine; jobs run as plain processes, which does not isolate them",
                "install Docker Engine with Compose v2 (Ubuntu: apt-get install docker.io "
                "docker-compose-v2; else Docker's own docker-compose-plugin); "
                "then docker/README.md",
            )
        return
    try:
        yield from _engine(engine, settings)
    finally:
        engine.close()


def _engine(engine: Engine, settings: Settings) -> Iterator[Finding]:
    version = engine.version()
    if settings.runner != "docker":
        yield _note(
            "docker",
            f"engine {version}, unused: jobs run as plain processes, which does not isolate them",
            "set GDN_RUNNER=docker and GDN_JUDGE_IMAGE; see docker/README.md",
        )
        return
    try:
        yield _ok("docker", f"engine {version}, judges in {engine.image_id(settings.judge_image)}")
        floor = ".".join(map(str, GLUON_SINCE))
        yield _note(
            "Triton",
            f"the image's, not looked at; below {floor} the portable kernel is tested, not Gluon",
            f"docker run --rm {settings.judge_image} "
            "python3 -c 'import triton; print(triton.__version__)'",
        )
    except EngineError as error:
        yield _missing("docker", str(error), "docker/README.md tells how to build it")


def _account(settings: Settings) -> Iterator[Finding]:
    """The judge is asked, as it is started for a run: it tries it."""
    if settings.runner == "docker":
        yield _ok("account", "the candidate runs under an account of its own in its container")
        return
    existing = _existing(settings.data_dir)
    words = ["account", "--work-dir", str(existing), "--candidate-uids", settings.candidate_uids]
    if settings.candidate_user:
        words += ["--candidate-user", settings.candidate_user]
    try:
        with tempfile.TemporaryDirectory(prefix="gdn-doctor-", dir=existing) as tree:
            Path(tree).chmod(0o755)  # as a checkout is
            done = subprocess.run(
                [*settings.judge_argv, *words, "--target", tree],
                capture_output=True,
                text=True,
                env=base_environment(),
                check=False,
            )
    except OSError as error:
        yield _missing("account", f"the judge cannot be asked: {error}", "check GDN_JUDGE_COMMAND")
        return
    if done.returncode == 0:
        yield _ok("account", f"the candidate has {done.stdout.strip()}")
        return
    said = (done.stdout.strip() or done.stderr.strip() or "no message").splitlines()[-1]
    yield _missing(
        "account",
        f"the candidate has {said}",
        "until then every run that would pass is inconclusive; README.md, "
        "'Run a worker on a GPU host'",
    )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that there is."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())
