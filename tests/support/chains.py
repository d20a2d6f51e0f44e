"""Chains of forks: each process lives until it has started the next, some 0.1 ms."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# A keeper, of the user who starts it, collects the dead links. Each link counts itself in a
# file that all have mapped, so that a chain that goes on is seen though no list shows it.
_SOURCE = """
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words) {
    time_t end = time(0) + 20;
    int uid = atoi(words[1]), file = open(words[2], O_RDWR);
    volatile long *beats = mmap(0, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    signal(SIGCHLD, SIG_IGN);
    if (fork() > 0) {
        sleep(20);
        return 0;
    }
    if (uid && setresuid(uid, uid, uid))
        return 1;
    while (time(0) < end) {
        if (fork() > 0)
            _exit(0);
        ++*beats;
    }
}
"""


class Chain:
    """One that runs under user `uid`; it ends by itself after 20 s."""

    def __init__(self, program: Path, uid: int) -> None:
        self._beats = program.with_name(f"beats-{time.monotonic_ns()}")
        self._beats.write_bytes(bytes(8))
        self.command = [str(program), str(uid), str(self._beats)]  # of the keeper

    def await_going(self) -> None:
        deadline = time.monotonic() + 10
        while self.links() < 50:
            assert time.monotonic() < deadline, "the chain does not get going"
            time.sleep(0.01)

    def links(self) -> int:
        return int(struct.unpack("<q", self._beats.read_bytes())[0])

    def goes_on(self) -> bool:
        before = self.links()
        time.sleep(0.2)
        return self.links() > before


def compiled(folder: Path) -> Path:
    """The program of a chain's keeper."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc, which a chain that is fast enough needs")
    program = folder / "chain"
    words = ["gcc", "-O2", "-x", "c", "-", "-o", str(program)]
    subprocess.run(words, input=_SOURCE.encode(), check=True)
    return program


@contextmanager
def running(folder: Path, uid: int, count: int = 3) -> Iterator[list[Chain]]:
    """Chains under user `uid`, going."""
    program = compiled(folder)
    chains = [Chain(program, uid) for _ in range(count)]
    keepers = [subprocess.Popen(chain.command) for chain in chains]
    try:
        for chain in chains:
            chain.await_going()
        yield chains
    finally:
        for keeper in keepers:
            keeper.kill()
            keeper.wait()
