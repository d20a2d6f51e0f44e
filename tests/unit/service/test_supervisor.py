"""The supervisor alone: what it inherits, what it ends, and when."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdn_service.errors import DeviceBusy
from gdn_service.runner import supervisor
from gdn_service.runner.locks import device_lock
from support import chains
from support.service_bench import processes_under


def _spawn(
    code: str, cwd: Path, *words: str, pass_fds: tuple[int, ...] = (), hand_on: bool = False
) -> subprocess.Popen[bytes]:
    option = ["--hand-on", str(pass_fds[0])] if hand_on else []
    return subprocess.Popen(
        [sys.executable, "-I", supervisor.__file__, *option, sys.executable, "-c", code, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=cwd,
        pass_fds=pass_fds,
    )


def _close(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    status = process.wait(timeout=30)
    process.stdout.close()
    return status


def test_the_judges_status_is_passed_on(tmp_path: Path) -> None:
    process = _spawn("raise SystemExit(7)", tmp_path)
    assert process.wait(timeout=30) == 7
    _close(process)


def test_closing_stdin_ends_a_forking_tree(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0: os.setsid()\n"
        "        time.sleep(600)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = _spawn(code, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    assert len(processes_under(tmp_path)) > 20
    assert _close(process) == 128 + 9
    assert processes_under(tmp_path) == []


def test_the_device_lock_outlives_its_taker_until_the_tree_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "device.lock"
    with device_lock(path, "run 1") as descriptor:
        process = _spawn("import time; print(flush=True); time.sleep(600)", tmp_path,
                         pass_fds=(descriptor,))  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
    with pytest.raises(DeviceBusy, match=r"locked by run 1 \(pid \d+\)"), device_lock(path, "2"):
        pass
    _close(process)
    with device_lock(path, "run 2"), open(path) as again, pytest.raises(BlockingIOError):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_is_free_when_its_holder_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib\n"
        "from gdn_service.runner.locks import device_lock\n"
        "with device_lock(pathlib.Path(sys.argv[1]), 'victim'):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(600)\n"
    )
    path = tmp_path / "device.lock"
    victim = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, cwd=tmp_path
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"held\n"
    with pytest.raises(DeviceBusy, match="victim"), device_lock(path, "me"):
        pass
    victim.kill()
    victim.wait()
    victim.stdout.close()
    started = time.monotonic()
    with device_lock(path, "me"):
        assert time.monotonic() - started < 30


def test_the_judge_alone_holds_what_is_handed_on(tmp_path: Path) -> None:
    """The pipe ends when the judge closes it, with judge and supervisor still there."""
    reader, writer = os.pipe()
    code = (
        "import os, sys, time\n"
        "os.write(int(sys.argv[1]), b'said')\n"
        "os.close(int(sys.argv[1]))\n"
        "time.sleep(600)\n"
    )
    process = _spawn(code, tmp_path, str(writer), pass_fds=(writer,), hand_on=True)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"said"
    assert process.poll() is None
    _close(process)


def test_a_lock_that_is_not_handed_on_stays_with_the_supervisor(tmp_path: Path) -> None:
    with device_lock(tmp_path / "device.lock", "run 1") as descriptor:
        code = "import os, sys; os.fstat(int(sys.argv[1]))"
        process = _spawn(code, tmp_path, str(descriptor), pass_fds=(descriptor,))
        assert process.wait(timeout=30) == 1  # the judge has no such descriptor
        _close(process)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's processes")
def test_a_chain_of_forks_of_another_user_is_ended(tmp_path: Path) -> None:
    program = chains.compiled(tmp_path)
    chain = chains.Chain(program, 64903)
    code = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(600)"
    process = _spawn(code, tmp_path, *chain.command)
    chain.await_going()
    assert _close(process) == 128 + 9
    assert not chain.goes_on()
