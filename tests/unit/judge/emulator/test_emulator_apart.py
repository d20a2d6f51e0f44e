"""Batches in several processes: the same results as in one, whatever the kernel does."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gdn_judge import processes
from gdn_judge.emulator import apart, launch
from gdn_judge.emulator.apart import Workers
from gdn_judge.emulator.errors import GlobalRace, KernelFault, Uninitialised, WorkerDied
from gdn_judge.emulator.launch import Launch, Pointer, Report, Schedule, spread_over
from gdn_judge.emulator.machine import Machine
from gdn_judge.emulator.memory import Buffer, make_buffer
from support.emulator import program

GROUPS = 1200  # of one wave each: three batches of at most 512
START = """
s_mov_b32 s20, s2
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v3, 2, v0
s_lshl_b32 s21, s20, 8
v_add_u32_e32 v4, s21, v3
s_waitcnt lgkmcnt(0)
"""  # s20 workgroup; v3 4 * lane, v4 4 * (64 * workgroup + lane); a at s[4:5], b at s[6:7]
DOUBLE = """
global_load_dword v5, v4, s[4:5]
global_load_dword v6, v3, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32_e32 v5, v5, v6
global_store_dword v4, v5, s[6:7]
"""
BYTES = """
v_lshrrev_b32_e32 v5, 2, v4
global_load_ubyte v6, v5, s[4:5]
s_waitcnt vmcnt(0)
global_store_byte v5, v6, s[6:7]
"""
TICKETS = """
s_lshr_b32 s22, s20, 3
s_lshl_b32 s22, s22, 2
v_mov_b32_e32 v7, s22
v_mov_b32_e32 v8, 1
s_mov_b64 exec, 1
global_atomic_add v9, v7, v8, s[6:7] sc0
s_waitcnt vmcnt(0)
v_lshlrev_b32_e32 v10, 2, v9
v_add_u32_e32 v10, v7, v10
v_mov_b32_e32 v11, s20
v_lshlrev_b32_e32 v12, 2, v11
global_store_dword v12, v9, s[4:5]
"""  # eight neighbours share a counter; each keeps its place
COUNTER = TICKETS.replace("s_lshr_b32 s22, s20, 3", "s_mov_b32 s22, 0")
CHAIN = """
s_mov_b64 exec, 1
v_mov_b32_e32 v7, s20
v_lshlrev_b32_e32 v7, 2, v7
global_load_dword v8, v7, s[6:7]
s_waitcnt vmcnt(0)
v_add_u32_e32 v8, 1, v8
global_store_dword v7, v8, s[6:7] offset:4
"""  # each workgroup adds one to what its neighbour left
SPIN = """
s_mov_b64 exec, 1
v_mov_b32_e32 v7, 0
v_mov_b32_e32 v9, 1
s_cmp_lt_u32 s20, 512
s_cbranch_scc1 first
wait:
global_load_dword v8, v7, s[6:7] sc1
s_waitcnt vmcnt(0)
v_cmp_eq_u32_e32 vcc, 0, v8
s_cbranch_vccnz wait
s_branch end
first:
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 end
global_store_dword v7, v9, s[6:7]
end:
"""  # later batches wait for the first
SAME_BYTE = """
v_mov_b32_e32 v7, s20
global_store_dword v3, v7, s[6:7]
"""
OUTSIDE = DOUBLE + "global_store_dword v4, v5, s[6:7] offset:4\n"
KERNELS = {
    "double": DOUBLE,
    "bytes": BYTES,
    "tickets": TICKETS,
    "counter": COUNTER,
    "chain": CHAIN,
}


@pytest.fixture(params=[2, 3])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    made = spread_over(request.param)
    yield made
    made.close()


def run(
    body: str, workers: Workers | None, seed: int | None = None, **more: Any
) -> tuple[list[Buffer], Report]:
    kernel = program(START + body, pointers=2)
    values = np.arange(GROUPS * 64 + 1, dtype=np.uint32)
    buffers = [make_buffer("a", values), make_buffer("b", np.zeros_like(values), **more)]
    started = Launch(kernel, (GROUPS, 1, 1), 1, (Pointer("a"), Pointer("b")))
    report = launch.run(started, buffers, Schedule(seed=seed), races=False, workers=workers)
    return buffers, report


def same(report: Report) -> dict[str, Any]:
    facts = dataclasses.asdict(report)
    return {name: facts[name] for name in facts if name not in ("seconds", "entangled")}


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("name", KERNELS)
def test_the_results_are_those_of_one_process(
    name: str, seed: int | None, workers: Workers
) -> None:
    alone, expected = run(KERNELS[name], None, seed)
    buffers, report = run(KERNELS[name], workers, seed)
    assert same(report) == same(expected)
    for one, other in zip(alone, buffers, strict=True):
        assert np.array_equal(one.data, other.data)
        assert (one.granule, one.traffic) == (other.granule, other.traffic)
        assert np.array_equal(one.conflicts(), other.conflicts())
        if seed is None:
            assert np.array_equal(one.flags, other.flags)
            assert np.array_equal(one.owner, other.owner)
    apart_for = {"double", "bytes"} | ({"tickets"} if seed is None else set())
    assert (report.entangled == "") == (name in apart_for)


def test_values_come_from_all_batches(workers: Workers) -> None:
    buffers, report = run(DOUBLE, workers)
    expected = np.arange(GROUPS * 64) + np.arange(GROUPS * 64) % 64
    assert np.array_equal(buffers[1].contents().view(np.uint32)[:-1], expected)
    assert report.traffic["a"].distinct_read == GROUPS * 256
    assert report.wave_instructions == GROUPS * 12


def test_what_the_batches_share_is_named(workers: Workers) -> None:
    assert run(COUNTER, workers)[1].entangled == (
        "workgroups of different batches share offset 0 of the buffer 'b', and one writes it"
    )
    places = run(COUNTER, workers)[0][0].contents().view(np.uint32)[:GROUPS]
    assert sorted(places.tolist()) == list(range(GROUPS))


def test_a_batch_that_waits_for_another_ends(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "PATIENCE", 2_000)
    report = run(SPIN, workers)[1]
    assert report.entangled == "a batch may wait for another one"


def test_memory_that_another_batch_defines(workers: Workers) -> None:
    """The first workgroup writes what all later ones read: alone, they read poison."""
    body = CHAIN.replace(
        "global_load_dword v8",
        "v_mov_b32_e32 v8, 0\ns_cmp_eq_u32 s20, 0\ns_cbranch_scc1 skip\nglobal_load_dword v8",
    ).replace("v_add_u32_e32 v8, 1, v8", "skip:\nv_add_u32_e32 v8, 1, v8")
    batched = Schedule(waves_at_once=1)
    results = []
    for some in (None, workers):
        kernel = program(START + body, pointers=2)
        buffers = [
            make_buffer("a", np.zeros(64, np.uint32)),
            make_buffer("b", np.zeros(16, np.uint32), keep_defined=False),
        ]
        started = Launch(kernel, (6, 1, 1), 1, (Pointer("a"), Pointer("b")))
        report = launch.run(started, buffers, batched, races=False, workers=some)
        results.append(buffers[1].contents().view(np.uint32)[:7].tolist())
    assert results[0][1:] == results[1][1:] == [1, 2, 3, 4, 5, 6]
    assert "alone, a batch ends with" in report.entangled


@pytest.mark.parametrize("body", [OUTSIDE, SAME_BYTE])
def test_faults_are_those_of_one_process(body: str, workers: Workers) -> None:
    found = []
    for some in (None, workers):
        kernel = program(START + body, pointers=2)
        values = np.arange(GROUPS * 64, dtype=np.uint32)
        buffers = [make_buffer("a", values), make_buffer("b", values)]
        started = Launch(kernel, (GROUPS, 1, 1), 1, (Pointer("a"), Pointer("b")))
        with pytest.raises(KernelFault) as caught:
            launch.run(started, buffers, workers=some)
        found.append((type(caught.value), str(caught.value)))
    assert found[0] == found[1]
    assert (found[0][0] is GlobalRace) == (body is SAME_BYTE)


def test_a_fault_of_the_emulator_is_that_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Machine.step

    def fail(machine: Machine, quantum: int) -> bool:
        if int(machine.group_of_row.max()) > 1000:
            raise IndexError("what one instruction meets")
        return step(machine, quantum)

    monkeypatch.setattr(Machine, "step", fail)
    for count in (1, 2, 3):
        workers = spread_over(count) if count > 1 else None
        with pytest.raises(IndexError, match="what one instruction meets"):
            run(DOUBLE, workers)
        if workers is not None:
            workers.close()


def test_a_refused_fork_leaves_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    alone, _ = run(DOUBLE, None)
    monkeypatch.setattr(os, "fork", refuse)
    workers = spread_over(2)
    buffers, report = run(DOUBLE, workers)
    assert np.array_equal(buffers[1].data, alone[1].data)
    assert report.entangled == (
        "a process cannot be started: [Errno 11] Resource temporarily unavailable"
    )
    assert not workers._live


def test_blank_memory_that_nobody_wrote_is_still_a_fault(workers: Workers) -> None:
    body = DOUBLE.replace("s[4:5]", "s[6:7]")
    with pytest.raises(Uninitialised, match="of the buffer 'b' was never written"):
        run(body, workers, keep_defined=False)


def test_a_host_without_address_space_runs_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "ARENA", 1 << 62)
    workers = spread_over(2)
    buffers, report = run(DOUBLE, workers)
    alone, _ = run(DOUBLE, None)
    assert np.array_equal(buffers[1].data, alone[1].data)
    assert "bytes of address space cannot be shared" in report.entangled
    assert not workers._live


def test_a_worker_that_is_ended_from_outside_is_named() -> None:
    def build(*arguments: Any) -> list[Any]:
        return launch._rebuilt(*arguments)

    def die(machine: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    workers = Workers(2, build, die)
    batch = r"512 workgroups of kernel \((0 to 511|512 to 1023)\)"  # whichever ends first
    with pytest.raises(WorkerDied, match=f"{batch} ended by SIGKILL"):
        run(DOUBLE, workers)
    assert not workers._live


def test_workers_are_no_part_of_a_candidates_family(
    workers: Workers, started: Callable[[], int]
) -> None:
    pid = started()
    before = frozenset(processes.children()[os.getpid()]) - {pid}
    run(DOUBLE, workers)
    alive = {process.pid for process, _ in workers._live.values()}
    assert len(alive) == workers.count
    assert alive <= set(processes.children()[os.getpid()])
    assert processes.family(pid, before) == [pid]
    workers.close()
    assert not alive & set(processes.children().get(os.getpid(), []))
    assert not processes._own & alive


@pytest.fixture
def started() -> Iterator[Callable[[], int]]:
    import subprocess

    made: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        made.append(subprocess.Popen(["sleep", "60"]))
        return made[-1].pid

    yield start
    for process in made:
        process.kill()
        process.wait()
