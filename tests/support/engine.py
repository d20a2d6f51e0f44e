"""A real container engine for tests, and a base image made without a registry.

A running engine is used if there is one; else one of our own is started with its
own data folder and socket. The image is nearly empty: the host's system folders
and this Python are shown in it read-only, so nothing of them is copied.
"""

from __future__ import annotations

import ctypes
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker.api import APIClient
from docker.errors import DockerException

ROOT = Path(__file__).parents[2]
_USUAL = "unix:///var/run/docker.sock"
_LINKS = ("bin", "lib", "lib32", "lib64", "libx32")
_START_S = 40


@dataclass(frozen=True, kw_only=True)
class TestEngine:
    """`mounts` must be shown in the image; `python` is the interpreter inside."""

    __test__ = False

    url: str
    image: str
    mounts: tuple[str, ...]
    python: str
    about: str

    @property
    def api(self) -> APIClient:
        return APIClient(base_url=self.url, version="auto", timeout=60)

    def settings(self) -> dict[str, object]:
        """Settings of a service that runs its jobs there."""
        return {
            "runner": "docker",
            "docker_host": self.url,
            "judge_image": self.image,
            "container_mounts": self.mounts,
            "container_memory": 6 << 30,
            "container_scratch": 1 << 30,
            "container_shared_memory": 1 << 30,
        }


class NoEngine(Exception):
    """Why there is no engine here; its text is the reason of the skip."""


@contextmanager
def test_engine() -> Iterator[TestEngine]:
    """Raises NoEngine with the reason where none runs and none can be started."""
    with _running_url() as url:
        api = APIClient(base_url=url, version="auto", timeout=60)
        try:
            image = _import_image(api)
            version = api.version()
            info = api.info()
            yield TestEngine(
                url=url,
                image=image,
                mounts=_mounts(),
                python=sys.executable,
                about=f"Docker {version['Version']}, {info['Driver']}, "
                f"cgroup v{info.get('CgroupVersion', '1')}",
            )
            api.remove_image(image, force=True)
        finally:
            api.close()


test_engine.__test__ = False  # type: ignore[attr-defined]


@contextmanager
def _running_url() -> Iterator[str]:
    for url in (os.environ.get("DOCKER_HOST"), _USUAL):
        if url and _answers(url):
            yield url
            return
    with _started() as url:
        yield url


def _answers(url: str) -> bool:
    """Tried by hand first: the library leaves its socket to the collector where it fails."""
    if url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(url.removeprefix("unix://"))
            except OSError:
                return False
    try:
        api = APIClient(base_url=url, version="auto", timeout=10)
    except DockerException:
        return False
    api.close()
    return True


@contextmanager
def _started() -> Iterator[str]:
    """An engine of our own, without a network bridge: containers of ours have none anyway."""
    if os.geteuid() != 0:
        raise NoEngine("no container engine runs, and only root can start one")
    _install()
    home = Path(tempfile.mkdtemp(prefix="gdn-engine-"))
    url = f"unix://{home}/docker.sock"
    command = ["dockerd", "--storage-driver=vfs", f"--data-root={home}/data"]
    command += [f"--exec-root={home}/exec", f"--host={url}", f"--pidfile={home}/pid"]
    command += ["--iptables=false", "--ip6tables=false", "--bridge=none"]
    with open(home / "log", "wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, preexec_fn=_die_with_parent
        )
    try:
        _await(process, url, home / "log")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for mount in (home / "exec/netns").glob("*"):  # dockerd leaves its own there
            subprocess.run(["umount", str(mount)], capture_output=True, check=False)
        shutil.rmtree(home, ignore_errors=True)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _install() -> None:
    if shutil.which("dockerd") is not None:
        return
    if shutil.which("apt-get") is None:
        raise NoEngine("dockerd is not installed, and there is no apt-get to install it")
    for words in (["update", "-qq"], ["install", "-y", "--no-install-recommends", "docker.io"]):
        done = subprocess.run(
            ["apt-get", *words],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0 or shutil.which("dockerd") is None:
        raise NoEngine(f"docker.io cannot be installed: {done.stderr.strip()[-200:]}")


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            last = log.read_text().strip().splitlines()[-1:]
            raise NoEngine(f"dockerd does not start here: {' '.join(last)[:300]}")
        time.sleep(0.2)


def _mounts() -> tuple[str, ...]:
    """This system, this Python with its packages, and the sources that it imports in place."""
    base, venv = Path(sys.base_prefix), Path(sys.prefix)
    wanted = [Path("/usr"), base, venv, ROOT / "service"]
    wanted += [Path("/") / name for name in _LINKS if (Path("/") / name).is_dir()]
    wanted += [Path("/etc/alternatives"), Path("/etc/ld.so.cache")]
    kept: list[Path] = []
    for path in wanted:
        inside = any(path.is_relative_to(other) for other in kept)
        if path.exists() and not inside and not (path.is_symlink() and path.parent == Path("/")):
            kept.append(path)
    return tuple(str(path) for path in kept)


def _import_image(api: APIClient) -> str:
    """The digest of an image with a few folders and links, and an /etc with two accounts."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folders = {"proc", "sys", "dev", "etc", "tmp", "run", "var", "var/tmp", "gdn"}
        folders.add("sbin")  # no link: the engine puts its init there
        folders |= {str(p)[1:] for m in _mounts() for p in list(Path(m).parents)[:-1]}
        for name in sorted(folders):
            _folder(tar, name)
        for name in _LINKS:
            link = Path("/") / name
            if link.is_symlink():
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(link)
                tar.addfile(entry)
        _file(tar, "etc/passwd", "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
        _file(tar, "etc/group", "root:x:0:\nnogroup:x:65534:\n")
    buffer.seek(0)
    changes = [f"ENV PATH={Path(sys.executable).parent}:/usr/bin:/bin"]
    api.import_image_from_data(buffer.read(), repository="gdn-test", tag="base", changes=changes)
    return str(api.inspect_image("gdn-test:base")["Id"])


def _folder(tar: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    tar.addfile(entry)


def _file(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text), 0o644
    tar.addfile(entry, io.BytesIO(text.encode()))
