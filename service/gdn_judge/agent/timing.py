"""Timed replay of the op's graphs, as the judge asks for it.

The candidate's process holds the pools and the graphs; the judge decides the
schedule, keeps its own clock and checks the state afterwards. Every call of a
graph has its own rows and its own slots, so that nothing stays in cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gdn_judge.agent import launches, staging
from gdn_judge.contract import OPERANDS, POOLS

Message = dict[str, Any]
_SLEEP_CYCLES = 400_000  # the queue fills while the device sleeps, so no launch gap is timed


class Arm:
    """One op with its own pools and its own graph of `calls` calls."""

    def __init__(
        self,
        op: Callable[..., Any],
        pools: dict[str, torch.Tensor],
        calls: list[dict[str, Any]],
        keywords: Mapping[str, Any],
    ) -> None:
        self.op, self.pools, self.calls, self.keywords = op, pools, calls, dict(keywords)
        self.results: list[Any] = []
        self.graph: Any = None

    def run(self) -> None:
        self.results = [self.call(index) for index in range(len(self.calls))]

    def call(self, index: int) -> Any:
        values = {**self.calls[index], **self.pools}
        return self.op(*(values[name] for name in OPERANDS), **self.keywords)

    def capture(self) -> None:
        cuda: Any = torch.cuda
        stream = cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.call(0)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run()
        torch.cuda.synchronize()
        self.graph = graph

    def replay(self, count: int) -> None:
        for _ in range(count):
            self.graph.replay()


class Bench:
    """State of the timed windows of one case."""

    def __init__(
        self, device: str, ops: Mapping[str, Callable[..., Any]], quant: torch.dtype | None
    ) -> None:
        self.device, self.ops, self.quant = device, ops, quant
        self.arms: dict[str, Arm] = {}
        self.bank: dict[str, torch.Tensor] = {}
        self.slots = 0

    def handle(self, message: Message, fds: list[int]) -> Message:
        handlers: dict[str, Callable[[Message, list[int]], Message]] = {
            "bench": self.prepare,
            "bench_reset": self.reset,
            "bench_replay": self.replay,
            "bench_samples": self.samples,
            "bench_state": self.state,
            "bench_host": self.host,
            "bench_profile": self.profile,
        }
        return handlers[message["do"]](message, fds)

    def prepare(self, message: Message, fds: list[int]) -> Message:
        """Build pools and calls, warm up, capture. The pools are then as at the start."""
        tensors = staging.pull(fds[0], message["layout"], self.device)
        self.bank = {name: tensors.pop(name) for name in POOLS}
        self.slots = message["slots"]
        keywords = {
            "scale": message["scale"],
            "norm_eps": message["norm_eps"],
            "pad_slot_id": message["pad_slot_id"],
            "quant_dtype": self.quant,
        }
        calls = self._calls(tensors, message["calls"])
        for name, op in self.ops.items():
            arm = Arm(op, self._pools(), calls, keywords)
            arm.capture()
            self.arms[name] = arm
        self.reset(message, fds)
        return {"arms": list(self.arms), "memory": torch.cuda.memory_allocated()}

    def reset(self, message: Message, fds: list[int]) -> Message:
        """Every slot as the bank has it: slot s holds entry s modulo the bank's size."""
        for arm in self.arms.values():
            for name, pool in arm.pools.items():
                self._tile(pool, self.bank[name])
        torch.cuda.synchronize()
        return {}

    def replay(self, message: Message, fds: list[int]) -> Message:
        """Replay and wait; the judge times the exchange with its own clock."""
        torch.cuda.synchronize()
        self.arms[message["arm"]].replay(message["count"])
        torch.cuda.synchronize()
        return {}

    def samples(self, message: Message, fds: list[int]) -> Message:
        """Event times in us of the samples in `schedule`, a list of arms."""
        cuda: Any = torch.cuda
        pairs = []
        for name in message["schedule"]:
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
            cuda._sleep(_SLEEP_CYCLES)
            begin.record()
            self.arms[name].replay(message["replays"][name])
            end.record()
            pairs.append((begin, end))
        torch.cuda.synchronize()
        return {"us": [begin.elapsed_time(end) * 1e3 for begin, end in pairs]}

    def state(self, message: Message, fds: list[int]) -> Message:
        """Pools of the given slots, and out of the given (call, row) in the last replay."""
        arm = self.arms[message["arm"]]
        slots = torch.tensor(message["take"], device=self.device)
        after = message["after"]
        for name in POOLS:
            picked = arm.pools[name][slots]
            staging.push(fds[1], picked, after[name]["at"], after[name]["bytes"])
        outs = torch.stack([arm.results[call][0][row] for call, row in message["rows"]])
        staging.push(fds[1], outs, after["out"]["at"], after["out"]["bytes"])
        return {}

    def host(self, message: Message, fds: list[int]) -> Message:
        """us that the Python call takes before it returns, outside a capture.

        Means over blocks of calls, each begun with an idle device, so that no
        call waits for the queue.
        """
        arm, block, times = self.arms[message["arm"]], message["block"], []
        for _ in range(message["count"]):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for index in range(block):
                arm.call(index % len(arm.calls))
            times.append((time.perf_counter() - begin) * 1e6 / block)
        torch.cuda.synchronize()
        return {"us": times}

    def profile(self, message: Message, fds: list[int]) -> Message:
        arm = self.arms[message["arm"]]
        with launches.profiled() as kernels:
            arm.call(0)
        return {"kernels": kernels}

    def _pools(self) -> dict[str, torch.Tensor]:
        return {
            name: torch.empty((self.slots, *bank.shape[1:]), dtype=bank.dtype, device=self.device)
            for name, bank in self.bank.items()
        }

    def _tile(self, pool: torch.Tensor, bank: torch.Tensor) -> None:
        for start in range(0, len(pool), len(bank)):
            stop = min(start + len(bank), len(pool))
            pool[start:stop] = bank[: stop - start]

    def _calls(self, tensors: Mapping[str, torch.Tensor], count: int) -> list[dict[str, Any]]:
        """One set of row operands per call: the leading dimension of the three is the call.

        Copies, so that every call has the alignment of an ordinary allocation.
        """
        per_call = ("projected_qkvz", "projected_ba", "ssm_state_indices")
        shared = {name: tensor for name, tensor in tensors.items() if name not in per_call}
        return [
            {**shared, **{name: tensors[name][index].clone() for name in per_call}}
            for index in range(count)
        ]
