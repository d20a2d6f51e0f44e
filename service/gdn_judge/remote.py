"""The executor that runs the op in a candidate process: on a GPU, or interpreted."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gdn_judge import memory, replies
from gdn_judge.candidate import Candidate, Launch
from gdn_judge.contract import DTYPES, OPERANDS, RESULT_DTYPES, result_shapes
from gdn_judge.execution import Damage, Hello, PredicateAnswer
from gdn_judge.operands import (
    Array,
    CallOptions,
    CallResult,
    Operands,
)

_START_S = 180.0


class RemoteExecutor:
    """`execution.Executor` over a candidate process."""

    def __init__(self, launch: Launch, notes: Sequence[str] = ()) -> None:
        self.launch, self.notes = launch, tuple(notes)
        self._candidate: Candidate | None = None
        self._log = ""

    @property
    def candidate(self) -> Candidate:
        assert self._candidate is not None, "start() first"
        return self._candidate

    def start(self) -> Hello:
        self._candidate = Candidate(self.launch)
        reply = self._candidate.hello(_START_S)
        return Hello(
            op=self.launch.import_path,
            has_predicate=bool(reply.get("has_predicate")),
            declarations=replies.strings(reply.get("declarations")),
            device=replies.scalars(reply.get("device")),
            notes=self.notes,
        )

    def call(
        self, operands: Operands, options: CallOptions, *, deadline_s: float = 60.0
    ) -> CallResult:
        message = request("call", operands, options)
        after, results = Plan(operands, options).outputs()
        message |= {"after": after.to_dict(), "results": results.to_dict()}
        with _files(operands, results.size) as (given, returned):
            reply = self.candidate.ask(message, [given, returned], deadline_s=deadline_s)
            return _call_result(reply, returned, after, results)

    def predicate(
        self,
        operands: Operands,
        options: CallOptions,
        damages: tuple[Damage, ...] = (),
        *,
        deadline_s: float = 60.0,
    ) -> PredicateAnswer:
        message = request("predicate", operands, options)
        after, results = Plan(operands, options).outputs()
        whole = all(damage.how == "strided" for damage in damages)
        message |= {
            "damages": [vars(damage) for damage in damages],
            "after": after.to_dict(),
            "results": results.to_dict() if whole else {},
        }
        with _files(operands, results.size) as (given, returned):
            reply = self.candidate.ask(message, [given, returned], deadline_s=deadline_s)
            ran = whole and reply.get("raised") == ""
            result = _call_result(reply, returned, after, results) if ran else None
        return answer(reply, result)

    def profile(
        self, operands: Operands, options: CallOptions, *, deadline_s: float = 120.0
    ) -> list[str]:
        """Names of the kernels of one call as the device's tracer saw them."""
        with _files(operands, 0) as (given, _):
            message = request("profile", operands, options)
            reply = self.candidate.ask(message, [given], deadline_s=deadline_s)
        return [
            replies.text(kernel.get("name", "?"), 200)
            for kernel in replies.dicts(reply.get("kernels"))
        ]

    def log_tail(self) -> str:
        return self._candidate.log_tail() if self._candidate is not None else ""

    def close(self) -> list[int]:
        return self._candidate.close() if self._candidate is not None else []


class Plan:
    """Where operands and results of a call lie in the shared files."""

    def __init__(self, operands: Operands, options: CallOptions) -> None:
        self.operands, self.options = operands, options

    def inputs(self) -> memory.Layout:
        arrays = self.operands.arrays()
        return memory.Layout.of({name: (DTYPES[name], arrays[name].shape) for name in OPERANDS})

    def outputs(self) -> tuple[memory.Layout, memory.Layout]:
        """(the operands after the call, the results behind them)."""
        after = self.inputs()
        shapes = result_shapes(self.operands.heads, self.operands.rows)
        wanted = RESULT_DTYPES if self.options.fp8 else {"out": RESULT_DTYPES["out"]}
        forms = {name: (dtype, shapes[name]) for name, dtype in wanted.items()}
        return after, memory.Layout.of(forms, start=after.size)


def request(do: str, operands: Operands, options: CallOptions) -> dict[str, Any]:
    shapes = result_shapes(operands.heads, operands.rows)
    plan = Plan(operands, options)
    return {
        "do": do,
        "layout": plan.inputs().to_dict(),
        "guard": operands.guard,
        "scale": options.scale,
        "norm_eps": options.norm_eps,
        "fp8": options.fp8,
        "pad_slot_id": options.pad_slot_id,
        "poison": options.poison,
        "chain": options.chain,
        "spread": None if options.spread is None else dataclasses.asdict(options.spread),
        "result_bytes": [_product(shape) * 2 for shape in shapes.values()],
    }


@contextlib.contextmanager
def _files(operands: Operands, size: int) -> Iterator[tuple[int, int]]:
    given = memory.publish(Plan(operands, CallOptions()).inputs(), operands.arrays())
    try:
        returned = memory.blank(size)
        try:
            yield given, returned
        finally:
            os.close(returned)
    finally:
        os.close(given)


def _call_result(
    reply: Mapping[str, Any], fd: int, after: memory.Layout, results: memory.Layout
) -> CallResult:
    forms = {
        name: replies.form(replies.mapping(reply.get("forms")).get(name)) for name in RESULT_DTYPES
    }
    arrays: dict[str, Array | None] = dict.fromkeys(RESULT_DTYPES)
    for name, entry in results.entries.items():
        if (forms[name].dtype, forms[name].shape) == (entry.dtype, entry.shape):
            arrays[name] = memory.read(fd, entry)
    return CallResult(
        form_error=replies.text(reply.get("form_error", "no form was given"), 500),
        forms=forms,
        results=arrays,
        after={name: memory.read(fd, entry) for name, entry in after.entries.items()},
        kernels=replies.kernel_runs(reply.get("kernels")),
        seconds=replies.seconds(reply.get("seconds")),
        counters=replies.counts(reply.get("counters")),
    )


def answer(reply: Mapping[str, Any], result: CallResult | None) -> PredicateAnswer:
    asked = reply.get("asked")
    rest: dict[str, Any] = {
        "raised": replies.text(reply.get("raised", ""), 100),
        "message": replies.text(reply.get("message", ""), 8000),
        "unchanged": reply.get("unchanged") is True,
    }
    if isinstance(asked, list) and len(asked) == 2 and isinstance(asked[0], bool):
        return PredicateAnswer(
            supported=asked[0], reason=replies.text(asked[1], 8000), result=result, **rest
        )
    return PredicateAnswer(
        supported=False,
        reason="",
        form_error=f"the predicate gave {replies.text(asked, 300)}",
        **rest,
    )


def _product(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
