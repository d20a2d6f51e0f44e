"""Pinning by the real kernel: what the command finds of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gdn_service.runner import pinning

CORES = sorted(os.sched_getaffinity(0))
TELL = "import os; print(sorted(os.sched_getaffinity(0)), end='')"
POLICY = "print(open('/proc/self/numa_maps').readline().split()[1], end='')"


def run(cpus: str, nodes: str, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", pinning.__file__, cpus, nodes, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_the_command_runs_on_the_cores_that_it_is_given() -> None:
    ended = run(str(CORES[-1]), "", TELL)
    assert (ended.stdout, ended.stderr) == (str([CORES[-1]]), "")
    assert run("", "", TELL).stdout == str(CORES)


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="a kernel without NUMA")
def test_the_memory_of_the_command_is_bound() -> None:
    assert run("", "", POLICY).stdout == "default"
    ended = run("", "0", POLICY)
    if ended.stderr:
        pytest.skip(f"this sandbox refuses: {ended.stderr.strip()}")
    assert ended.stdout == "bind:0"


def test_what_the_kernel_refuses_is_said_and_the_command_runs() -> None:
    ended = run("", "1000", TELL)
    assert ended.stdout == str(CORES)
    assert ended.stderr.startswith("not kept on memory nodes 1000: ")
    assert len(ended.stderr.splitlines()) == 1


def test_the_exit_status_is_that_of_the_command() -> None:
    command = [sys.executable, "-I", pinning.__file__, "", "", "sh", "-c", "exit 7"]
    assert subprocess.run(command, check=False).returncode == 7
