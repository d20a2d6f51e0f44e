"""Serve the judge's requests, one after another, until the connection closes."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gdn_judge.agent import (
    capture,
    confine,
    damage,
    importing,
    launches,
    presented,
    staging,
    timing,
    wire,
)
from gdn_judge.contract import OPERANDS, POOLS, RESULTS

_TRACE_LIMIT = 8000
_LASTING_CALLS = 3  # results of so many calls are kept and looked at again

Message = dict[str, Any]


def serve(fd: int) -> None:
    """Run until the judge closes the connection."""
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    first, _ = wire.receive_with_fds(connection)
    confine.confine(first["limits"])
    agent = Agent(first)
    _answer(connection, first, [], lambda message, fds: agent.start())
    while True:
        try:
            message, fds = wire.receive_with_fds(connection)
        except wire.Closed:
            return
        _answer(connection, message, fds, agent.handle)
        for received in fds:
            os.close(received)


def _answer(
    connection: socket.socket,
    message: Message,
    fds: list[int],
    handle: Callable[[Message, list[int]], Message],
) -> None:
    try:
        reply = {"status": "ok", **handle(message, fds)}
    except Exception as error:  # noqa: BLE001 - the border of the process: reported to the judge
        reply = _failure(error)
    sys.stdout.flush()
    sys.stderr.flush()
    wire.send(connection, {"id": message["id"], **reply})


def _failure(error: Exception) -> Message:
    return {
        "status": "refused" if type(error) is ValueError else "raised",
        "kind": type(error).__name__,
        "message": str(error)[:_TRACE_LIMIT],
        "traceback": "".join(traceback.format_exception(error))[-_TRACE_LIMIT:],
    }


class Agent:
    """The op, once imported, and what is needed to call it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.device = str(config["device"])
        self.capture: capture.Capture | None = None
        if self.device in capture.TARGETS:
            self.device, self.capture = "cpu", capture.Capture(self.device)
        self.recorder, self.poison = launches.Recorder(), staging.Poison()
        self.ops: list[Callable[..., Any]] = []  # the op, and the unfused one if there is one
        self.supported: Callable[..., Any] | None = None
        # what the last calls returned, and its bytes: a caller may be using it
        self.returned: deque[list[tuple[str, torch.Tensor, Any]]] = deque(maxlen=_LASTING_CALLS)
        self.bench: timing.Bench | None = None

    def start(self) -> Message:
        paths = [str(path) for path in (self.config["import_path"], self.config["chain"]) if path]
        if self.device != "cpu":
            torch.cuda.set_device(self.device)
            torch.zeros(1, device=self.device)
        if self.capture is not None:
            self.capture.install()
        else:
            self.recorder.install(interpret=self.device == "cpu")
            self.poison.install()
        importing.prepare(paths, self.config["python_path"])
        with presented.Presented() if self.capture is not None else contextlib.nullcontext():
            self.ops = [importing.load(path, self.config["root"]) for path in paths]
            self.supported = importing.predicate(paths[0])
        return {
            "has_predicate": self.supported is not None,
            "declarations": importing.declarations(paths[0]),
            "device": self._facts(),
        }

    def handle(self, message: Message, fds: list[int]) -> Message:
        handlers = {"call": self.call, "predicate": self.predicate, "profile": self.profile}
        if self.capture is not None:
            handlers = {"capture": self.captured, "predicate": self.captured_predicate}
        if message["do"] in handlers:
            return handlers[message["do"]](message, fds)
        return self.timed(message, fds)

    def call(self, message: Message, fds: list[int]) -> Message:
        tensors = staging.pull(fds[0], message["layout"], self.device)
        return self._call(tensors, message, fds[1])

    def _call(self, tensors: dict[str, torch.Tensor], message: Message, fd: int) -> Message:
        values = self._cut(tensors, message["guard"])
        if message["spread"] is not None:
            return self._call_spread(tensors, values, message, fd)
        self.recorder.take()
        staging.spoil_free_memory(self.device, message["result_bytes"], message["poison"])
        self.poison.byte = message["poison"]
        started = time.perf_counter()
        try:
            results = self._run(values, message)
        finally:
            self.poison.byte = None
        seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "kernels": self.recorder.take(),
            **self._bring_back(results, tensors, message, fd),
        }

    def _call_spread(
        self, tensors: dict[str, torch.Tensor], values: dict[str, Any], message: Message, fd: int
    ) -> Message:
        """The same with the slots far apart in big pools; counts what strayed elsewhere."""
        spread = staging.Spread(values, message["spread"], message["pad_slot_id"])
        results = self._run(spread.values, message)
        strays = spread.gather(values)
        kernels = self.recorder.take()
        reply = self._bring_back(results, tensors, message, fd)
        return {**reply, "kernels": kernels, "counters": {"stray_elements": strays}}

    def _run(self, values: Mapping[str, Any], message: Message) -> Any:
        op = self.ops[1 if message["chain"] else 0]
        results = op(
            *(values[name] for name in OPERANDS),
            scale=message["scale"],
            norm_eps=message["norm_eps"],
            quant_dtype=values.get("quant_dtype", self._quant(message)),
            pad_slot_id=message["pad_slot_id"],
        )
        self._synchronise()
        return results

    def _bring_back(
        self, results: Any, tensors: Mapping[str, torch.Tensor], message: Message, fd: int
    ) -> Message:
        for name, entry in message["after"].items():
            staging.push(fd, tensors[name], entry["at"], entry["bytes"])
        if not isinstance(results, tuple) or len(results) != len(RESULTS):
            what = f"{type(results).__name__}" + (
                f" of {len(results)}" if isinstance(results, tuple | list) else ""
            )
            return {"form_error": f"should return a tuple of three, returned a {what}"}
        forms: Message = {}
        for name, result in zip(RESULTS, results, strict=True):
            if result is not None and not isinstance(result, torch.Tensor):
                return {"form_error": f"{name} should be a tensor, got {type(result).__name__}"}
            if result is not None and result.device.type != torch.device(self.device).type:
                return {"form_error": f"{name} is on {result.device}, not {self.device}"}
            forms[name] = _form(result)
            entry = message["results"].get(name)
            if entry and forms[name] == {"dtype": entry["dtype"], "shape": entry["shape"]}:
                assert result is not None
                staging.push(fd, result, entry["at"], entry["bytes"])
        return {"form_error": self._lasting(results), "forms": forms}

    def _lasting(self, results: tuple[torch.Tensor | None, ...]) -> str:
        """What is wrong with how long results last: those of the last calls and these, or ""."""
        now = [
            (name, result, _snapshot(result))
            for name, result in zip(RESULTS, results, strict=True)
            if result is not None
        ]
        earlier = [held for call in self.returned for held in call]
        self.returned.append(now)
        for name, result, _ in now:
            if any(_share(result, held) for _, held, _ in earlier):
                return f"{name} lies in memory that an earlier call returned"
        for name, held, was in earlier:
            if _snapshot(held) != was:
                return f"{name} of an earlier call was changed by a later one"
        return ""

    def predicate(self, message: Message, fds: list[int]) -> Message:
        """Ask, then call with the same operands, and say what happened."""
        assert self.supported is not None
        tensors = staging.pull(fds[0], message["layout"], self.device)
        good: dict[str, Any] = {
            **self._cut(tensors, message["guard"]),
            "quant_dtype": self._quant(message),
        }
        values = damage.apply(good, message["damages"])
        before = {name: _snapshot(value) for name, value in values.items()}
        reply: Message = {"asked": _shown(self._ask(values)), "raised": "", "message": ""}
        try:
            results = self._run(values, message)
        except Exception as error:  # noqa: BLE001 - what it raised is the answer
            reply |= {"raised": type(error).__name__, "message": str(error)[:_TRACE_LIMIT]}
        else:
            if message["results"]:
                for name in POOLS:
                    staging.cut(tensors[name], message["guard"]).copy_(values[name])
                reply |= self._bring_back(results, tensors, message, fds[1])
        after = {name: _snapshot(value) for name, value in values.items()}
        return {**reply, "unchanged": before == after}

    def captured(self, message: Message, fds: list[int]) -> Message:
        """What a call on blank operands of these shapes would launch."""
        assert self.capture is not None
        values = damage.apply(self._blank(message), message["damages"])
        operands = {name: values[name] for name in OPERANDS}
        return self.capture.record(lambda: self._run(values, message), operands)

    def captured_predicate(self, message: Message, fds: list[int]) -> Message:
        """Ask, then call on blank operands, and say what it raised."""
        assert self.capture is not None
        assert self.supported is not None
        values = damage.apply(self._blank(message), message["damages"])
        before = {name: _snapshot(value) for name, value in values.items()}
        with presented.Presented():
            asked = self._ask(values)
        reply: Message = {"asked": _shown(asked), "raised": "", "message": ""}
        tensors = {name: v for name, v in values.items() if isinstance(v, torch.Tensor)}
        try:
            reply["recording"] = self.capture.record(lambda: self._run(values, message), tensors)
        except Exception as error:  # noqa: BLE001 - what it raised is the answer
            reply |= {"raised": type(error).__name__, "message": str(error)[:_TRACE_LIMIT]}
        after = {name: _snapshot(value) for name, value in values.items()}
        return {**reply, "unchanged": before == after}

    def _blank(self, message: Message) -> dict[str, Any]:
        """Zeroed operands; the pools without guard slots, since nothing is executed on them."""
        values: dict[str, Any] = {"quant_dtype": self._quant(message)}
        for name, entry in message["layout"].items():
            shape = list(entry["shape"])
            if name in POOLS:
                shape[0] -= 2 * message["guard"]
            values[name] = torch.zeros(shape, dtype=getattr(torch, entry["dtype"]))
        return values

    def _ask(self, values: Mapping[str, Any]) -> Any:
        assert self.supported is not None
        operands = [values[name] for name in OPERANDS]
        try:
            return self.supported(*operands, quant_dtype=values["quant_dtype"])
        except Exception as error:  # noqa: BLE001 - a predicate never raises: reported as wrong
            return f"raised {type(error).__name__}: {error}"[:500]

    def profile(self, message: Message, fds: list[int]) -> Message:
        """Names and times of the kernels of one call, as the device's tracer saw them."""
        tensors = staging.pull(fds[0], message["layout"], self.device)
        values = self._cut(tensors, message["guard"])
        with launches.profiled() as kernels:
            self._run(values, message)
        return {"kernels": kernels}

    def timed(self, message: Message, fds: list[int]) -> Message:
        if message["do"] == "bench":
            self.bench = None
            self.recorder.install(interpret=False)
            self.recorder.take()
            ops = dict(zip(("fused", "chain"), self.ops, strict=False))
            self.bench = timing.Bench(self.device, ops, self._quant(message))
            reply = self.bench.handle(message, fds)
            self.poison.remove()
            self.recorder.remove()
            return {**reply, "kernels": self.recorder.distinct()}
        assert self.bench is not None
        return self.bench.handle(message, fds)

    def _cut(self, tensors: Mapping[str, torch.Tensor], guard: int) -> dict[str, Any]:
        values: dict[str, Any] = dict(tensors)
        return values | {name: staging.cut(tensors[name], guard) for name in POOLS}

    def _quant(self, message: Message) -> torch.dtype | None:
        return torch.float8_e4m3fn if message["fp8"] else None

    def _synchronise(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def _facts(self) -> Message:
        facts: Message = {"candidate.torch": torch.__version__, "candidate.uid": os.getuid()}
        triton = sys.modules.get("triton")
        return facts | {"candidate.triton": getattr(triton, "__version__", None)}


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the memory of both overlaps; never so where either is empty."""
    first, second = one.untyped_storage(), other.untyped_storage()
    before = first.data_ptr() + first.nbytes() <= second.data_ptr()
    after = second.data_ptr() + second.nbytes() <= first.data_ptr()
    return bool(first.nbytes() and second.nbytes()) and not (before or after)


def _form(value: torch.Tensor | None) -> Message | None:
    if value is None:
        return None
    return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}


def _shown(answer: Any) -> Any:
    """A (bool, str) as it is; anything else as text."""
    if isinstance(answer, tuple) and len(answer) == 2:
        yes, reason = answer
        if isinstance(yes, bool) and isinstance(reason, str):
            return [yes, reason[:_TRACE_LIMIT]]
    return repr(answer)[:500]


def _snapshot(value: Any) -> Any:
    """Bytes of a tensor's values, for comparison before and after."""
    if not isinstance(value, torch.Tensor) or value.device.type == "meta":
        return repr(value)[:200]
    flat = value.detach().contiguous().view(-1)
    return flat.view(torch.uint8).cpu().numpy().tobytes() if flat.numel() else b""
