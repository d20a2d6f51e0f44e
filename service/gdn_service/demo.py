"""``python -m gdn_service.demo``: the whole path on this machine, in one command.

Starts the service with a database of its own, makes HEAD of this repository a
target, and lets the real `gdn-client` submit it twice: the first time it is
judged, the second time the answer comes from the store. Ends with 0 only if
the judged job passed. Nothing stays behind.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from gdn_judge.document import DeviceKind, Suite
from gdn_judge.wire import devices
from gdn_service import application
from gdn_service.auth import Scope, create_token
from gdn_service.errors import ServiceError
from gdn_service.runner.checkout import remove_tree
from gdn_service.runner.inventory import build_probes, seen
from gdn_service.settings import Settings, best_kind, load_settings
from gdn_service.targets import new_target

TARGET = "gdn-lab"
_START_S = 60.0


class DemoError(ServiceError):
    """The demo cannot go on; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A running service and what a client needs to talk to it."""

    url: str
    token: str
    repository: Path
    log: Path


def main() -> int:
    arguments = _parse()
    try:
        return run(arguments)
    except ServiceError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2


def run(arguments: argparse.Namespace) -> int:
    repository = _repository()
    client = _executable("gdn-client")
    with _home() as home:
        settings = load_settings(
            data_dir=home,
            database_url="",
            port=_free_port(),
            worker_name="demo",
            device_kinds=(arguments.device,),
        )
        with _stage(settings, repository) as stage:
            _say(f"service at {stage.url}, device kind {arguments.device}, data in {home}")
            code = _submit(client, stage, arguments)
            if code != 0:
                _say(f"the job did not pass (gdn-client ended with {code}); log of the service:")
                _say(stage.log.read_text()[-4000:])
                return code
            _say("the same commit once more:")
            return _submit_again(client, stage, arguments)


def _submit(client: str, stage: Stage, arguments: argparse.Namespace, *, show: bool = True) -> int:
    """The client's exit code; its result goes to stdout if it is to be shown."""
    command = [client, "submit", "--commit", "HEAD", "--target", TARGET]
    command += ["--strict", "--device", arguments.device, *([] if arguments.full else ["--quick"])]
    if devices.spec(arguments.device).emulated:  # no clock, so the code is what to show
        command += [word for suite in Suite for word in ("--suite", suite.value)]
    _say("$ " + " ".join(["gdn-client", *command[1:]]))
    environment = os.environ | {"GDN_SERVER": stage.url, "GDN_TOKEN": stage.token}
    out = None if show else subprocess.DEVNULL
    return subprocess.run(
        command, cwd=stage.repository, env=environment, stdout=out, check=False
    ).returncode


def _submit_again(client: str, stage: Stage, arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    code = _submit(client, stage, arguments, show=False)  # the same result as before
    took = time.monotonic() - started
    answer = httpx.get(
        f"{stage.url}/api/v1/jobs", headers={"Authorization": f"Bearer {stage.token}"}
    )
    jobs = answer.raise_for_status().json()["items"]
    if code != 0 or len(jobs) != 1:
        raise DemoError(f"expected one stored job, found {len(jobs)}; gdn-client ended with {code}")
    _say(
        f"answered from the store in {took:.1f} s: job {jobs[0]['id']}, nothing ran again.\n"
        "This service and its data are gone now. To keep one: "
        f"{Path(sys.executable).parent / 'gdn-service'} serve; README.md says how to submit to it "
        "from a developer machine and from CI, and how to add a GPU host."
    )
    return 0


@contextmanager
def _stage(settings: Settings, repository: Path) -> Iterator[Stage]:
    """The service as a process of its own, up and answering; stopped at the end."""
    application.migrate(settings)
    with application.open_store(settings) as store:
        token = create_token(store, "demo", Scope.SUBMIT)
        with store.write() as tx:
            tx.targets.put(
                new_target(
                    name=TARGET,
                    repository=str(repository),
                    import_path="gdn_kernels:fused_gdn_decode_qkvz",
                    python_path=["kernels"],
                    chain_import_path="gdn_kernels.chain:unfused_gdn_decode_qkvz",
                )
            )
    log = settings.data_dir / "service.log"
    process = _serve(settings, log)
    try:
        url = f"http://{settings.host}:{settings.port}"
        _await_ready(process, url, log)
        yield Stage(url=url, token=token, repository=repository, log=log)
    finally:
        _stop(process)


def _serve(settings: Settings, log: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "GDN_DATABASE_URL": "",
        "GDN_DATA_DIR": str(settings.data_dir),
        "GDN_PORT": str(settings.port),
        "GDN_WORKER_NAME": settings.worker_name,
        "GDN_DEVICE_KINDS": ",".join(settings.device_kinds),
    }
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "gdn_service", "serve"],
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,  # Ctrl-C ends the client first; the service is stopped below
        )


def _await_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise DemoError(f"the service ended at start:\n{log.read_text()[-2000:]}")
        try:
            if httpx.get(f"{url}/api/v1/ready", timeout=2).status_code == 200:
                return
        except httpx.TransportError:  # it does not listen yet
            time.sleep(0.1)
    raise DemoError(f"the service was not ready within {_START_S:g} s:\n{log.read_text()[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _home() -> Iterator[Path]:
    """A temporary data folder."""
    home = Path(tempfile.mkdtemp(prefix="gdn-demo-"))
    try:
        yield home
    finally:
        for tree in (home / "trees").glob("*"):
            remove_tree(tree)
        shutil.rmtree(home)


def _repository() -> Path:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise DemoError("git is not installed; apt-get install git") from error
    if done.returncode != 0:
        raise DemoError("this is not a git repository; run the demo inside a clone of GDN Lab")
    root = Path(done.stdout.strip())
    if not (root / "kernels" / "gdn_kernels").is_dir():
        raise DemoError(f"{root} is not a clone of GDN Lab; run the demo inside one")
    return root


def _executable(name: str) -> str:
    """The one beside this interpreter, so that the demo shows the code of this clone."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise DemoError(f"{path} is missing; run `make setup`")
    return str(path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gdn_service.demo", description=__doc__)
    parser.add_argument(
        "--device",
        choices=[str(kind) for kind in DeviceKind],
        help="device kind; a GPU of this machine that is served, else gfx950-emulated",
    )
    parser.add_argument("--full", action="store_true", help="all cases, not the quick selection")
    arguments = parser.parse_args()
    arguments.device = arguments.device or _best_kind()
    return arguments


def _best_kind() -> str:
    probes = build_probes(load_settings(device_kinds=("auto",)))
    return str(best_kind([device.kind for probe in probes for device in seen(probe)]))


if __name__ == "__main__":
    sys.exit(main())
