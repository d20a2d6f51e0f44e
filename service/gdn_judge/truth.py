"""One step as the contract has it, and how far a right kernel may lie from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gdn_judge import bounds, numerics, reference
from gdn_judge.bounds import Magnitudes, StateBound
from gdn_judge.contract import V
from gdn_judge.numerics import Bf16, Rounding
from gdn_judge.operands import CallOptions, Operands
from gdn_judge.reference import Expected, Stages


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of live rows, in their order: of the state, and the least and greatest out.

    out_low and out_high [live, VH, V] are bfloat16, rounded as out is.
    """

    state: StateBound
    out_low: Bf16
    out_high: Bf16


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Operands before, pools after, outputs, and the limits of a right kernel."""

    before: Operands
    after: Operands
    expected: Expected
    options: CallOptions
    limits: Limits
    rounding: Rounding


def of(before: Operands, options: CallOptions, rounding: Rounding = Rounding.NEAREST) -> Truth:
    """Step a copy of `before`. Raises IllegalIndices where the contract forbids its indices."""
    after = before.copy()
    expected, parts = reference.step_and_look(
        after, options, rounding, lambda stages: _limits(stages, before, options, rounding)
    )
    return Truth(
        before=before,
        after=after,
        expected=expected,
        options=options,
        limits=_joined(parts, before),
        rounding=rounding,
    )


def _limits(stages: Stages, operands: Operands, options: CallOptions, rounding: Rounding) -> Limits:
    side, new = stages.front, stages.new
    with np.errstate(all="ignore"):
        sums = Magnitudes.of(stages.before, side.decay, side.k, side.q)
        residual_error = bounds.residual_error(
            side.v, new.predicted, side.beta, side.decay_error, sums
        )
        core_error = bounds.core_error(
            new.core, new.residual, residual_error, side.decay_error, sums
        )
        factor = reference.gate_factor(side.z, operands.norm_weight)
        low, high = bounds.out_interval(
            new.core, core_error, side.z, factor, options.norm_eps, rounding
        )
        return Limits(
            state=StateBound.of(side.decay, side.decay_error, new.residual, residual_error, side.k),
            out_low=numerics.to_bf16(low, rounding),
            out_high=numerics.to_bf16(high, rounding),
        )


def _joined(parts: Sequence[Limits], operands: Operands) -> Limits:
    """The limits of all live rows; of none where there are no parts."""
    heads = operands.heads.value
    none = np.zeros((0, heads, V))
    states = [part.state for part in parts]
    return Limits(
        state=StateBound(
            kept=np.concatenate([np.zeros((0, heads)), *[s.kept for s in states]]),
            added=np.concatenate([none, *[s.added for s in states]]),
            k=np.concatenate([none, *[s.k for s in states]]),
        ),
        out_low=np.concatenate([none.astype(np.uint16), *[part.out_low for part in parts]]),
        out_high=np.concatenate([none.astype(np.uint16), *[part.out_high for part in parts]]),
    )
