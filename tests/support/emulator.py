"""Runs a few lines of gfx950 assembly on given registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gdn_judge.emulator import launch as launching
from gdn_judge.emulator.assembly import EXEC, SCC, SGPR, VCC, Program, parse
from gdn_judge.emulator.front import Front
from gdn_judge.emulator.launch import Launch, Pointer, Report, Schedule
from gdn_judge.emulator.machine import Machine, compile_program
from gdn_judge.emulator.memory import AddressSpace, Buffer, make_buffer
from gdn_judge.emulator.races import Order

_FRAME = """\
	.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
	.text
	.file	1 "/src" "kernel.py"
	.p2align	8
kernel:
{body}
	s_endpgm
.Lfunc_end0:
	.amdhsa_kernel kernel
		.amdhsa_user_sgpr_count 2
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_accum_offset 128
	.end_amdhsa_kernel
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
{arguments}
    .group_segment_fixed_size: {lds}
    .kernarg_segment_size: {kernarg}
    .max_flat_workgroup_size: 1024
    .name:           kernel
    .private_segment_fixed_size: {scratch}
    .sgpr_count:     100
    .vgpr_count:     128
    .wavefront_size: 64
...
	.end_amdgpu_metadata
"""


def program(body: str, *, pointers: int = 0, lds: int = 0, scratch: int = 0) -> Program:
    """A kernel with this body and `pointers` pointer arguments."""
    arguments = "\n".join(
        f"      - .offset:         {8 * i}\n        .size:           8\n"
        "        .value_kind:     global_buffer"
        for i in range(pointers)
    )
    text = _FRAME.format(
        body=body, arguments=arguments, lds=lds, scratch=scratch, kernarg=max(8, 8 * pointers)
    )
    return parse(text)


@dataclass
class State:
    """Registers after a run of one workgroup."""

    front: Front
    machine: Machine

    def v(self, index: int) -> Any:
        """[64] of the first wave (uint32)."""
        return self.front.lanes(self.front.regs[index])[0]

    def f(self, index: int) -> Any:
        return self.v(index).view(np.float32)

    def d(self, index: int) -> Any:
        low, high = self.v(index).astype(np.uint64), self.v(index + 1).astype(np.uint64)
        return (low | high << np.uint64(32)).view(np.float64)

    def s(self, index: int) -> int:
        return int(self.front.per_wave(self.front.regs[SGPR + index])[0])

    def s64(self, index: int) -> int:
        return self.s(index) | self.s(index + 1) << 32

    @property
    def vcc(self) -> int:
        return self.s64(VCC - SGPR)

    @property
    def exec(self) -> int:
        return self.s64(EXEC - SGPR)

    @property
    def scc(self) -> int:
        return self.s(SCC - SGPR)


def execute(
    body: str,
    v: dict[int, Any] | None = None,
    s: dict[int, int] | None = None,
    *,
    mask: int = 2**64 - 1,
    vcc: int = 0,
    scc: int = 0,
    waves: int = 1,
    lds: int = 0,
    scratch: int = 0,
    mode: int = 0,
    buffers: list[Buffer] | None = None,
) -> State:
    """Run `body` in one workgroup; `v` and `s` give registers, as 32 bit arrays and integers."""
    kernel = program(body, lds=lds, scratch=scratch)
    space = AddressSpace(buffers or [])
    machine = Machine(
        compile_program(kernel),
        space,
        Order(waves),
        np.array([0]),
        waves,
        lds,
        0,
        100_000,
    )
    front = Front(machine, np.arange(waves), 0)
    front.mode = mode
    pairs = {EXEC: mask, VCC: vcc}
    values = {r + i: x >> 32 * i & 0xFFFFFFFF for r, x in pairs.items() for i in range(2)}
    values |= {SCC: scc} | {SGPR + i: x & 0xFFFFFFFF for i, x in (s or {}).items()}
    for register, value in values.items():
        _define(front, register, np.full((1, 1), value, np.uint32))
    for register, array in (v or {}).items():
        bits = np.asarray(array).view(np.uint32).reshape(-1, 64)
        _define(front, register, bits)
    front.refresh_exec()
    front.refresh_trouble()
    machine.fronts.append(front)
    last = _run(machine)
    return State(last, machine)


def _define(front: Front, register: int, value: Any) -> None:
    front.regs[register] = value
    front.undefined.pop(register, None)


def _run(machine: Machine) -> Front:
    """The front that reached the end last."""
    ended: list[Front] = []
    original = machine._event

    def watch(front: Front, outcome: Any) -> None:
        if outcome == "end":
            ended.append(front)
        original(front, outcome)

    machine._event = watch  # type: ignore[method-assign]
    with np.errstate(all="ignore"):
        while not launching._run_machine(machine, 1 << 40):
            pass
    return ended[-1]


def lanes(seed: int, low: float = -100.0, high: float = 100.0) -> Any:
    """[64] float32."""
    return np.random.default_rng(seed).uniform(low, high, 64).astype(np.float32)


def words(seed: int) -> Any:
    """[64] uint32 over the whole range."""
    return np.random.default_rng(seed).integers(0, 2**32, 64, dtype=np.uint32)


def launch(
    kernel: Program,
    arrays: dict[str, Any],
    *,
    grid: int = 1,
    waves: int = 1,
    schedule: Schedule | None = None,
    blank: tuple[str, ...] = (),
) -> tuple[dict[str, Any], Report]:
    """Run a kernel whose arguments are pointers to `arrays`; the arrays after it."""
    buffers = [make_buffer(k, a, keep_defined=k not in blank) for k, a in arrays.items()]
    started = Launch(kernel, (grid, 1, 1), waves, tuple(Pointer(name) for name in arrays))
    report = launching.run(started, buffers, schedule)
    after = {
        b.name: b.contents().view(arrays[b.name].dtype).reshape(arrays[b.name].shape)
        for b in buffers
    }
    return after, report
