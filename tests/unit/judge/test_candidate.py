"""Real candidate processes: how they end, what they may take, what is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gdn_judge import accounts, processes
from gdn_judge.candidate import Candidate, Launch, Limits, Log
from gdn_judge.errors import (
    CandidateCrashed,
    CandidateOverLimit,
    CandidateRaised,
    CandidateRefused,
    CandidateTimedOut,
    HostError,
)
from support import chains

Start = Callable[..., Candidate]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a candidate whose module runs `code` when it is imported."""
    live: list[Candidate] = []

    def begin(code: str, limits: Limits | None = None) -> Candidate:
        text = textwrap.dedent(code) + "\ndef op(*args, **kwargs): ...\n"
        (tmp_path / "attack.py").write_text(text)
        launch = Launch(
            root=tmp_path,
            import_path="attack:op",
            python_path=[tmp_path],
            limits=limits or Limits(),
        )
        live.append(Candidate(launch))
        return live[-1]

    yield begin
    for each in live:
        each.close()


def test_a_candidate_says_hello(start: Start) -> None:
    reply = start("GDN_DECLARATIONS = {'pad_output': 'unspecified'}").hello(60)
    assert reply["declarations"] == {"pad_output": "unspecified"}
    assert reply["has_predicate"] is False


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("import os; os._exit(0)", CandidateCrashed, "exited with 0"),
        ("import os; os._exit(7)", CandidateCrashed, "exited with 7"),
        ("import os; os.kill(os.getpid(), 9)", CandidateCrashed, "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", CandidateCrashed, "SIGSEGV"),
        ("raise KeyError('missing')", CandidateRaised, "KeyError: 'missing'"),
        ("raise ValueError('no')", CandidateRefused, "no"),
        ("import gdn_judge.reference", CandidateRaised, "not available to a candidate"),
        ("import socket_not_there", CandidateRaised, "socket_not_there"),
    ],
)
def test_each_way_to_end_has_its_own_error(
    code: str, error: type[Exception], message: str, start: Start
) -> None:
    with pytest.raises(error, match=message):
        start(code).hello(60)


def test_a_hang_is_a_timeout(start: Start) -> None:
    process = start("import time; time.sleep(1e6)")
    with pytest.raises(CandidateTimedOut, match="within 6 s"):
        process.hello(6)


def test_quota_of_memory(start: Start) -> None:
    code = "x = bytearray(3 << 30)\nx[::4096] = b'x' * len(x[::4096])\nimport time; time.sleep(60)"
    process = start(code, Limits(memory=2 << 30))
    with pytest.raises(CandidateOverLimit, match="bytes of memory"):
        process.hello(60)


def test_quota_of_disk(start: Start) -> None:
    code = """
        import time
        for i in range(64):
            open(f"file{i}", "wb").write(b"x" * (1 << 20))
        time.sleep(60)
    """
    process = start(code, Limits(disk=16 << 20))
    with pytest.raises(CandidateOverLimit, match="bytes on disk"):
        process.hello(60)


def test_quota_of_one_file(start: Start) -> None:
    process = start("open('file', 'wb').write(b'x' * (2 << 20))", Limits(file=1 << 20))
    with pytest.raises((CandidateRaised, CandidateCrashed), match=r"File too large|SIGXFSZ"):
        process.hello(60)


def test_quota_of_processes(start: Start) -> None:
    code = """
        import os, time
        for _ in range(30):
            if os.fork() == 0:
                time.sleep(1e6)
        time.sleep(60)
    """
    process = start(code, Limits(processes=20))
    with pytest.raises(CandidateOverLimit, match="processes"):
        process.hello(60)
    process.close()
    assert processes.descendants(process.process.pid) == []


def test_the_whole_tree_is_gone_after_close(start: Start) -> None:
    processes_before = set(processes.descendants(os.getpid()))
    code = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                print(f"DAEMON {os.getpid()}", flush=True)
                time.sleep(1e6)
            time.sleep(1e6)
        time.sleep(0.5)
    """
    process = start(code)
    process.hello(60)
    process.close()
    pid = int(process.log_tail().split("DAEMON ")[1].split()[0])
    assert processes._is_gone(pid)
    assert set(processes.descendants(os.getpid())) <= processes_before


def test_the_environment_is_nearly_empty(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDN_TOKEN", "s3cret")
    process = start("import os; print(sorted(os.environ), os.environ.get('GDN_TOKEN'))")
    process.hello(60)
    process.close()
    assert "GDN_TOKEN" not in process.log_tail()
    assert "TRITON_CACHE_DIR" in process.log_tail()


def test_torch_computes_on_one_core(start: Start) -> None:
    process = start("import torch; print('threads', torch.get_num_threads())")
    process.hello(60)
    process.close()
    assert "threads 1\n" in process.log_tail()


def test_only_three_descriptors_and_the_socket(start: Start) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    code = """
        import os
        links = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(200)
                 if os.path.islink(f"/proc/self/fd/{fd}")]
        print("SOCKETS", sum(link.startswith("socket") for link in links))
        print("PIPES", len({link for link in links if link.startswith("pipe")}))
    """
    process = start(code)
    process.hello(60)
    os.close(reader)
    os.close(writer)
    process.close()
    assert "SOCKETS 1" in process.log_tail()
    assert "PIPES 1" in process.log_tail()


def test_it_has_no_capability_and_gains_none(start: Start) -> None:
    process = start("print(open('/proc/self/status').read())")
    process.hello(60)
    process.close()
    status = dict(line.split(":\t") for line in process.log_tail().splitlines() if ":\t" in line)
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"] == "1"


def test_it_dies_with_the_judge(start: Start) -> None:
    process = start("")
    process.hello(60)
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    assert f"PPid:\t{os.getpid()}" in status
    os.kill(process.process.pid, signal.SIGSTOP)
    with pytest.raises(CandidateTimedOut):
        process.ask({"do": "nothing"}, deadline_s=0.3)
    begin = time.monotonic()
    process.close()
    assert time.monotonic() - begin < 10


def test_its_folder_is_removed(start: Start) -> None:
    process = start("open('left', 'w').write('x')")
    process.hello(60)
    assert (process.work / "left").exists()
    process.close()
    assert not process.work.exists()


def test_a_python_that_is_not_there_is_the_hosts_fault(tmp_path: Path) -> None:
    launch = Launch(root=tmp_path, import_path="a:b", python="/no/such/python")
    with pytest.raises(HostError, match="cannot start a candidate"):
        Candidate(launch)


def test_the_log_keeps_both_ends() -> None:
    log = Log(20)
    for number in range(10):
        log.add(f"<line {number}>")
    assert log.text().startswith("<line 0><")
    assert log.text().endswith("<line 9>")
    assert "[judge] 60 bytes cut here" in log.text()
    log.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user")
def test_a_candidate_ends_with_all_processes_of_its_user(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "fine.py").write_text("def op(*args, **kwargs): ...\n")
    shown = accounts.shown_folders(checkout, sys.executable)
    launch = Launch(root=checkout, import_path="fine:op", python_path=[checkout], uid=64902)
    process = Candidate(dataclasses.replace(launch, shown=shown))
    with contextlib.closing(process), chains.running(tmp_path, 64902, count=1) as (chain,):
        assert process.hello(60)["has_predicate"] is False
        assert chain.goes_on()
        assert process.close() == []
        assert not chain.goes_on()
