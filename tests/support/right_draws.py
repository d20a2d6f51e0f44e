"""One draw of a right kernel and its judgement, by number: what the derived bounds must allow."""

from __future__ import annotations

import functools

import numpy as np

from gdn_judge import compare, truth
from gdn_judge.contract import Heads
from gdn_judge.document import Check
from gdn_judge.generate import Seed, operands
from gdn_judge.operands import CallOptions, CallResult, Operands
from support import fp32_step, local_call, plain_op

HEADS = (Heads(1, 2), Heads(1, 2), Heads(1, 2), Heads(2, 4), Heads(2, 4), Heads(4, 8))
_STATES = ("unit", "unit", "small", "zero")
_ELEMENTS = 48  # rows times value heads of a draw, at most; now and then _MANY
_MANY = 1024
STYLES = fp32_step.styles()


def drawn(seed: Seed, number: int) -> tuple[Operands, CallOptions]:
    rng = seed.rng("right", number)
    heads = HEADS[rng.integers(len(HEADS))]
    most = _MANY if number % 400 == 399 else _ELEMENTS
    rows = int(np.exp(rng.uniform(0, np.log(most / heads.value + 0.99))))
    before = operands(
        rng,
        heads,
        rows,
        slots=rows + 2,
        state=_STATES[rng.integers(len(_STATES))],
        pads="mixed" if rows > 2 and rng.random() < 0.25 else "none",
        inputs="tiny" if rng.random() < 0.1 else "unit",
    )
    return before, CallOptions(fp8=bool(rng.integers(2)))


def result(before: Operands, options: CallOptions, number: int) -> CallResult:
    """Every style of fp32 in turn, and torch's own order now and then."""
    which = number % (len(STYLES) + 2)
    if which >= len(STYLES):
        return local_call.call(functools.partial(plain_op.fused_gdn_decode_qkvz), before, options)
    return fp32_step.call(before, options, STYLES[which], number)


def judged(seed: Seed, number: int) -> list[Check]:
    before, options = drawn(seed, number)
    right = truth.of(before, options)
    return compare.judge(right, result(before, options, number), compare.Rules())
