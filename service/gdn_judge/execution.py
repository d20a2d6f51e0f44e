"""The seam between the suites and whatever runs the op.

Two implementations: the candidate process (a GPU, or Triton's interpreter) in
`gdn_judge.candidate`, and the emulator, whose candidate process hands over code
objects only and which executes them in the judge.

All methods raise CandidateError for what the candidate did; `fatal` says whether
the executor must be closed and a fresh one started. HostError means the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gdn_judge.document import Scalar
from gdn_judge.operands import CallOptions, CallResult, Operands


@dataclass(frozen=True, kw_only=True)
class Hello:
    """What the executor found when it imported the op."""

    op: str  # "module:attribute"
    has_predicate: bool
    declarations: Mapping[str, str] = field(default_factory=dict)
    device: Mapping[str, Scalar] = field(default_factory=dict)  # facts for the environment
    notes: tuple[str, ...] = ()  # fidelity statements for the document


@dataclass(frozen=True, kw_only=True)
class Damage:
    """One way to spoil a good set of operands, applied where the tensors are made.

    `operand` is one of the ten, or "quant_dtype". `how` and `value`:

    - "none": pass None
    - "dtype": cast to the torch dtype named by `value`
    - "shape": a fresh zero tensor of shape `value`, a comma-separated list
    - "strided": a non-contiguous view of equal shape and values
    - "device": on another device, `value` names it ("meta" always exists)
    - "type": pass a Python list
    - "quant": quant_dtype as the torch dtype or plain string `value`
    """

    operand: str
    how: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.operand}:{self.how}" + (f"={self.value}" if self.value else "")


@dataclass(frozen=True, kw_only=True)
class PredicateAnswer:
    """What `<op>_supported` answered, and what the op then did with the same operands.

    `raised` is "" when the op returned, else the exception's class name.
    `unchanged` says that every operand has its bytes after the call.
    """

    supported: bool
    reason: str
    raised: str = ""
    message: str = ""
    unchanged: bool = True
    form_error: str = ""  # the predicate did not give (bool, str), or raised
    result: CallResult | None = None  # where the op ran on operands of the right form


class Executor(Protocol):
    """Runs the op on operands that the judge made. Used by one thread."""

    def start(self) -> Hello:
        """Start, import the op, say what was found. Called once, before all else."""
        ...

    def call(
        self, operands: Operands, options: CallOptions, *, deadline_s: float = 60.0
    ) -> CallResult:
        """Run the op once on a fresh copy of the operands and bring all bytes back."""
        ...

    def predicate(
        self,
        operands: Operands,
        options: CallOptions,
        damages: tuple[Damage, ...] = (),
        *,
        deadline_s: float = 60.0,
    ) -> PredicateAnswer:
        """Ask the predicate about the operands after `damages`, then call the op with them."""
        ...

    def log_tail(self) -> str:
        """The candidate's stdout and stderr, cut; untrusted text. Whole only after close()."""
        ...

    def close(self) -> Sequence[int]:
        """End every process of the candidate; the pids that could not be. Safe to call twice."""
        ...


class ExecutorFactory(Protocol):
    """Makes a fresh executor; called again after one whose candidate died."""

    def __call__(self) -> Executor: ...
