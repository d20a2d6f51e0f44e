"""The runner that isolates: judge and candidate in a container of their own."""

from __future__ import annotations

import os
import select
import shutil
import threading
import time
from pathlib import Path

from gdn_service.errors import RunnerError
from gdn_service.runner import supervisor
from gdn_service.runner.base import Ending, JudgeOutcome, JudgeRequest, RunControl
from gdn_service.runner.container import VERDICT, Allowance, container_request
from gdn_service.runner.engine import Container, Engine
from gdn_service.runner.frames import STDOUT, FrameParser
from gdn_service.runner.output import OutputReader, left_document
from gdn_service.settings import Settings

_STEP_S = 0.25  # how often deadline and cancellation are looked at


class DockerRunner:
    isolates = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sweeping = threading.Lock()
        self._swept = False

    def run(self, request: JudgeRequest, control: RunControl) -> JudgeOutcome:
        """Runs the judge to its end. Raises EngineError where the engine cannot do it."""
        settings = self._settings
        engine = Engine(settings.docker_host)
        try:
            self._sweep(engine)
            body = container_request(
                request,
                image_id=engine.image_id(settings.judge_image),
                judge=settings.container_judge_command,
                worker=settings.worker_name,
                leash=_leash(request.work_dir),
                allowance=allowance(settings),
            )
            control.say(f"in a container of image {body['Image']}")
            reader = OutputReader(control, settings.log_max_bytes)
            with engine.container(body) as container:
                ending = self._attend(container, reader, request.timeout_s, control)
                code, out_of_memory = container.status()
        finally:
            engine.close()
        if out_of_memory:
            control.say(f"the container reached its memory limit ({settings.container_memory} B)")
        out = request.work_dir / "out" / VERDICT
        return JudgeOutcome(
            ending=ending,
            exit_code=code,
            document=left_document(out, settings.document_max_bytes),
            last_words=reader.last_words,
        )

    def _sweep(self, engine: Engine) -> None:
        """Once: what a killed worker of this name left."""
        with self._sweeping:
            if not self._swept:
                engine.sweep(self._settings.worker_name)
                self._swept = True

    def _attend(
        self, container: Container, reader: OutputReader, timeout_s: float, control: RunControl
    ) -> Ending:
        """Pass output on until the container has ended; stop it when told to or in time."""
        parser = FrameParser()
        with container.attached() as stream:
            os.set_blocking(stream, False)
            container.start()
            control.started(container.pid())
            stop = _Stop(container, stream, self._settings.stop_grace_s)
            deadline = time.monotonic() + timeout_s
            poll = select.poll()
            poll.register(stream, select.POLLIN)
            while True:
                if poll.poll(_STEP_S * 1000):
                    data = os.read(stream, 1 << 16)
                    if not data:
                        break
                    for number, piece in parser.feed(data):
                        (reader.stdout if number == STDOUT else reader.stderr)(piece)
                reader.flush()
                stop.advance(control.why_stop(deadline))
        reader.close()
        return stop.ending


class _Stop:
    """A gentle stop first, then the kill; remembers why."""

    def __init__(self, container: Container, stream: int, grace_s: float) -> None:
        self._container = container
        self._stream = stream
        self._grace_s = grace_s
        self._kill_at = float("inf")
        self.ending = Ending.EXITED

    def advance(self, why: Ending | None) -> None:
        if why is not None and self.ending is Ending.EXITED:
            self.ending = why
            self._kill_at = time.monotonic() + self._grace_s
            self._ask()
        if time.monotonic() >= self._kill_at:
            self._kill_at = float("inf")
            self._container.kill()

    def _ask(self) -> None:
        try:
            os.write(self._stream, b"T")
        except OSError:  # the stream is broken; the kill follows
            self._kill_at = time.monotonic()


def allowance(settings: Settings) -> Allowance:
    return Allowance(
        memory=settings.container_memory,
        pids=settings.container_pids,
        scratch=settings.container_scratch,
        shared_memory=settings.container_shared_memory,
        cpus=settings.container_cpus,
        memory_nodes=settings.container_memory_nodes,
        mounts=settings.container_mounts,
    )


def _leash(work_dir: Path) -> Path:
    """A copy beside the run: the engine sees the data folder, perhaps not our package."""
    try:
        (work_dir / "out").mkdir(mode=0o700)
        return Path(shutil.copyfile(supervisor.__file__, work_dir / "leash.py"))
    except OSError as error:
        raise RunnerError(f"the run's folder cannot be prepared: {error}") from error
