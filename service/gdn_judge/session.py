"""One run's state: the secret, the executor of the moment, the clock, what was seen.

A candidate that died is replaced before the next case; what it did is kept.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gdn_judge import generate
from gdn_judge.contract import check_indices
from gdn_judge.document import DeviceKind, Document, Scalar
from gdn_judge.errors import CandidateError, CandidateRaised
from gdn_judge.execution import Damage as Damage
from gdn_judge.execution import Executor, ExecutorFactory, Hello, PredicateAnswer
from gdn_judge.numerics import Rounding
from gdn_judge.operands import CallOptions, CallResult, KernelRun, Operands
from gdn_judge.telemetry import NoProbe, Probe
from gdn_judge.wire import devices
from gdn_judge.wire.devices import DeviceSpec
from gdn_judge.yardsticks import Yardsticks

_MAX_STARTS_IN_VAIN = 2
_LOG_LIMIT = 64 << 10
_DEVICE_FAULT = ("CUDA error", "HIP error", "AcceleratorError")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a timed run knows of its device; no yardsticks where it has no event timers."""

    yardsticks: Yardsticks | None = None
    probe: Probe = field(default_factory=NoProbe)


class OutOfTime(Exception):
    """The run's own deadline has passed; not the candidate's fault."""


class CannotStart(CandidateError):
    """The op could not be imported in a fresh process, more than once."""


@dataclass
class Session:
    """Shared by the cases of one run. Used by one thread."""

    factory: ExecutorFactory
    device: DeviceKind
    roundings: Sequence[Rounding] = (Rounding.NEAREST,)
    deadline: float | None = None  # time.monotonic()
    call_timeout: float = 120.0  # seconds of one call, compiling included, beside its work
    launches: int | None = 1  # kernels that one call may launch; None: any number
    chain: bool = False  # whether the target has an unfused op beside it
    quick: bool = False
    baseline: Document | None = None  # of the same suite, to compare with
    commits_behind: int | None = None  # from the judged commit back to the baseline's
    compared: str = ""  # what the comparison amounts to, in words
    seed: generate.Seed = field(default_factory=lambda: generate.Seed(secrets.token_bytes(32)))
    hello: Hello | None = None
    setting: Setting = field(default_factory=Setting)
    kernels: dict[tuple[str, str], KernelRun] = field(default_factory=dict)
    roundings_seen: set[Rounding] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    log: str = ""
    left_behind: list[int] = field(default_factory=list)  # pids that could not be ended
    facts: dict[str, Scalar] = field(default_factory=dict)
    _executor: Executor | None = None
    _in_vain: CandidateError | None = None
    _failed_starts: int = 0

    def executor(self) -> Executor:
        """The live executor; a fresh one where there is none. Raises CandidateError, HostError."""
        if self._executor is not None:
            return self._executor
        if self._in_vain is not None and self._failed_starts >= _MAX_STARTS_IN_VAIN:
            raise self._in_vain
        executor = self.factory()
        self._executor = executor
        try:
            self.hello = executor.start()
        except CandidateError as error:
            self._failed_starts += 1
            self._in_vain = error
            self.drop()
            raise
        self._failed_starts = 0
        return executor

    def call(self, operands: Operands, options: CallOptions) -> CallResult:
        """Run the op; no launch for an index vector that the contract forbids."""
        check_indices(operands.ssm_state_indices, operands.slots, options.pad_slot_id)
        executor = self.executor()
        limit = self.limit(operands)
        result = self.guarded(lambda: executor.call(operands, options, deadline_s=limit))
        self.saw(result.kernels)
        self.notes += [note for note in result.notes if note not in self.notes]
        return result

    def saw(self, kernels: Iterable[KernelRun]) -> None:
        """Remember code objects that ran."""
        for kernel in kernels:
            self.kernels.setdefault((kernel.name, kernel.digest), kernel)

    def predicate(
        self, operands: Operands, options: CallOptions, damages: tuple[Damage, ...] = ()
    ) -> PredicateAnswer:
        executor = self.executor()
        limit = self.limit(operands)
        return self.guarded(
            lambda: executor.predicate(operands, options, damages, deadline_s=limit)
        )

    def guarded(self, ask: Callable[[], T]) -> T:
        """Do `ask`; drop the candidate after an error that it cannot go on from."""
        try:
            return ask()
        except CandidateError as error:
            if self.left() == 0:
                self.drop()
                raise OutOfTime("the run's deadline passed") from error
            if error.fatal or _is_device_fault(error):
                self.drop()
            raise

    def drop(self) -> None:
        """End the candidate; the next call gets a fresh one."""
        executor, self._executor = self._executor, None
        if executor is not None:
            self.left_behind += executor.close()
            self.log = (self.log + executor.log_tail())[-_LOG_LIMIT:]

    def limit(self, operands: Operands) -> float:
        """Seconds that one call may take: more for more rows, most where it is interpreted."""
        work = operands.rows * operands.heads.value
        needed = self.call_timeout + (2.0 * work if self.device_spec.on_cpu else 0.01 * work)
        return min(needed, self.left())

    def left(self) -> float:
        """Seconds until the run's deadline."""
        if self.deadline is None:
            return float("inf")
        return max(0.0, self.deadline - time.monotonic())

    @property
    def device_spec(self) -> DeviceSpec:
        return devices.spec(self.device)

    @property
    def declarations(self) -> dict[str, str]:
        return dict(self.hello.declarations) if self.hello is not None else {}


def _is_device_fault(error: CandidateError) -> bool:
    """After a device fault the process cannot go on, though it still answers."""
    text = str(error)
    return isinstance(error, CandidateRaised) and any(mark in text for mark in _DEVICE_FAULT)
