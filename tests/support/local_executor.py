"""An executor that runs an op in this process: a fake at the judge's seam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gdn_judge.errors import CandidateError
from gdn_judge.execution import Damage, Hello, PredicateAnswer
from gdn_judge.operands import CallOptions, CallResult, Operands
from support import local_call


class LocalExecutor:
    """Runs `op`; `deaths` is a list of errors to raise instead, one a call, None for none."""

    def __init__(
        self,
        op: Callable[..., Any],
        deaths: list[CandidateError | None] | None = None,
        declarations: dict[str, str] | None = None,
    ) -> None:
        self.op, self.deaths = op, deaths if deaths is not None else []
        self.declarations = declarations or {}
        self.calls, self.starts, self.closes = 0, 0, 0
        self.left: list[int] = []  # pids that close() says it could not end

    def start(self) -> Hello:
        self.starts += 1
        return Hello(op="fake:op", has_predicate=True, declarations=self.declarations)

    def call(
        self, operands: Operands, options: CallOptions, *, deadline_s: float = 60.0
    ) -> CallResult:
        self.calls += 1
        death = self.deaths.pop(0) if self.deaths else None
        if death is not None:
            raise death
        return local_call.call(self.op, operands, options)

    def predicate(
        self,
        operands: Operands,
        options: CallOptions,
        damages: tuple[Damage, ...] = (),
        *,
        deadline_s: float = 60.0,
    ) -> PredicateAnswer:
        if not damages:
            return PredicateAnswer(supported=True, reason="")
        reason = f"{damages[0].operand} is wrong"
        return PredicateAnswer(supported=False, reason=reason, raised="ValueError", message=reason)

    def log_tail(self) -> str:
        return f"log of start {self.starts}\n"

    def close(self) -> list[int]:
        self.closes += 1
        return self.left
