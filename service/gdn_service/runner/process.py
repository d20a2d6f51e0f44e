"""The runner without a container: the judge as a process tree on this host.

It bounds time and log, and ends the whole tree; it does not isolate. The commit
under test can reach the network and read what its account can read, so the
runner says so in every log. The Docker runner has the same interface.

The document comes over a pipe that the judge alone holds: no file that the commit
under test might write is believed.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from gdn_judge.wire import devices
from gdn_judge.wire.devices import Vendor
from gdn_service.errors import RunnerError
from gdn_service.runner import pinning, supervisor
from gdn_service.runner.base import Ending, JudgeOutcome, JudgeRequest, RunControl, judge_arguments
from gdn_service.runner.output import OutputReader, SentDocument
from gdn_service.settings import Settings, device_environment

WARNING = (
    "this runner does not isolate: the commit under test runs on the host itself, with its network"
)
Sink = Callable[[bytes], None]
_STEP_S = 0.25  # how often deadline and cancellation are looked at


class ProcessRunner:
    isolates = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def run(self, request: JudgeRequest, control: RunControl) -> JudgeOutcome:
        """Runs the judge to its end. Raises RunnerError when it cannot be started."""
        control.say(WARNING)
        document = SentDocument(self._settings.document_max_bytes)
        reader = OutputReader(control, self._settings.log_max_bytes)
        with _pipe() as (sent, out):
            try:
                process = self._start(request, control.lock_fds, out)
            finally:
                os.close(out)
            control.started(process.pid)
            try:
                sinks = {sent: document.feed, **_sinks(process, reader)}
                ending = self._attend(process, sinks, reader, request.timeout_s, control)
            finally:
                _end(process)
        return JudgeOutcome(
            ending=ending,
            exit_code=process.returncode,
            document=document.text(),
            last_words=reader.last_words,
        )

    def _start(
        self, request: JudgeRequest, lock_fds: tuple[int, ...], out: int
    ) -> subprocess.Popen[bytes]:
        words = judge_arguments(request, ("--out-fd", str(out)))
        judge = [*_pinned(request), *self._settings.judge_argv, *words]
        try:
            return subprocess.Popen(
                [sys.executable, "-I", supervisor.__file__, "--hand-on", str(out), *judge],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=request.work_dir,
                env=_environment(request),
                pass_fds=(*lock_fds, out),
                start_new_session=True,
            )
        except OSError as error:
            raise RunnerError(f"the judge cannot be started: {error}") from error

    def _attend(
        self,
        process: subprocess.Popen[bytes],
        sinks: Mapping[int, Sink],
        reader: OutputReader,
        timeout_s: float,
        control: RunControl,
    ) -> Ending:
        """Pass output on until the tree is gone; stop it when told to or when it is time."""
        stop = _Stop(process, self._settings.stop_grace_s)
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for stream, sink in sinks.items():
                os.set_blocking(stream, False)
                selector.register(stream, selectors.EVENT_READ, sink)
            while selector.get_map():
                _pump(selector)
                reader.flush()
                stop.advance(control.why_stop(deadline))
        reader.close()
        process.wait()
        return stop.ending


def _pinned(request: JudgeRequest) -> list[str]:
    """The words before a command that keep it on the cores and memory near the device."""
    if not request.cpus and not request.memory_nodes:
        return []
    return [sys.executable, "-I", pinning.__file__, request.cpus, request.memory_nodes]


def _environment(request: JudgeRequest) -> dict[str, str]:
    environment = device_environment() | {
        "HOME": str(request.work_dir),
        "TRITON_CACHE_DIR": str(request.work_dir / "triton"),  # a job's cache starts empty
        "PYTHONUNBUFFERED": "1",
    }
    if request.device_uuid is not None:
        amd = devices.spec(request.device_kind).vendor is Vendor.AMD
        name = "ROCR_VISIBLE_DEVICES" if amd else "CUDA_VISIBLE_DEVICES"
        environment[name] = request.device_uuid
    return environment


class _Stop:
    """A gentle stop first, then the kill; remembers why."""

    def __init__(self, process: subprocess.Popen[bytes], grace_s: float) -> None:
        self._process = process
        self._grace_s = grace_s
        self._kill_at = float("inf")
        self.ending = Ending.EXITED

    def advance(self, why: Ending | None) -> None:
        if why is not None and self.ending is Ending.EXITED:
            self.ending = why
            self._kill_at = time.monotonic() + self._grace_s
            self._send(b"T")
        if time.monotonic() >= self._kill_at and self._process.stdin is not None:
            self._kill_at = float("inf")
            self._process.stdin.close()

    def _send(self, command: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command)
            self._process.stdin.flush()
        except BrokenPipeError:  # the tree is gone already
            return


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Both ends; the caller closes the second, this the first."""
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(reader)


def _sinks(process: subprocess.Popen[bytes], reader: OutputReader) -> dict[int, Sink]:
    assert process.stdout is not None
    assert process.stderr is not None
    return {process.stdout.fileno(): reader.stdout, process.stderr.fileno(): reader.stderr}


def _pump(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(_STEP_S):
        data = os.read(key.fd, 1 << 16)
        if data:
            key.data(data)
        else:
            selector.unregister(key.fileobj)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Whatever happened, the supervisor ends its tree and is collected."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
