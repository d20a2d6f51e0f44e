"""The determinism suite: the same inputs give the same bits, every time.

Twenty calls in one process (fewer where it is emulated) and one in a fresh
process. Invariance of a row's bits to its position and to the batch size is
measured and reported.
"""

from __future__ import annotations

import hashlib

import numpy as np

from gdn_judge import cases, correctness, generate
from gdn_judge.cases import Planned
from gdn_judge.contract import POOLS, RESULTS
from gdn_judge.document import Check
from gdn_judge.judged import Judged
from gdn_judge.operands import CallOptions, CallResult, Operands
from gdn_judge.session import Session

REPEATS = 20
REPEATS_EMULATED = 8  # each with the workgroups in another order


plan = cases.determinism


def judge(planned: Planned, session: Session) -> Judged:
    """Run one planned case. Raises CandidateError and OutOfTime."""
    return {"repeat": _repeat, "invariance": _invariance}[planned.kind](planned, session)


def _repeat(planned: Planned, session: Session) -> Judged:
    rng = session.seed.rng(planned.id)
    operands = generate.operands(
        rng, planned.heads, planned.rows, slots=planned.slots, pads=planned.pads
    )
    options = CallOptions(fp8=planned.fp8)
    first = session.call(operands, options)
    checks = correctness.judge_once(operands, options, first, session)
    checks.append(correctness.launches(first, operands, session))
    digests = [digest(first)]
    emulated = session.device_spec.emulated
    for _ in range((REPEATS_EMULATED if emulated else REPEATS) - 1):
        digests.append(digest(session.call(operands, options)))
    session.drop()
    again = session.call(operands, options)
    checks.append(
        Check(
            name="distinct_results",
            passed=len(set(digests)) == 1,
            value=len(set(digests)),
            bound=1,
            detail="" if len(set(digests)) == 1 else _spread(session, operands, options, first),
        )
    )
    fresh = int(digest(again) != digests[0])
    checks.append(Check(name="fresh_process_differs", passed=not fresh, value=fresh, bound=0))
    return Judged(checks, [kernel.name for kernel in first.kernels])


def digest(result: CallResult) -> str:
    """Of every byte that the op wrote: results and both pools."""
    hasher = hashlib.sha256()
    for name in RESULTS:
        array = result.results.get(name)
        hasher.update(b"-" if array is None else array.tobytes())
    for name in POOLS:
        hasher.update(result.after[name].tobytes())
    return hasher.hexdigest()


def _spread(session: Session, operands: Operands, options: CallOptions, first: CallResult) -> str:
    """How far two calls with the same inputs lie apart."""
    again = session.call(operands, options)
    state = float(np.abs(first.after["ssm_state"] - again.after["ssm_state"]).max())
    return f"the state differs by up to {state:.3g} between two calls"


def _invariance(planned: Planned, session: Session) -> Judged:
    """Rows in another order, and one row alone: how many rows change their bits."""
    rng = session.seed.rng(planned.id)
    operands = generate.operands(rng, planned.heads, planned.rows, slots=planned.slots)
    options = CallOptions(fp8=planned.fp8)
    base = _rows_of(operands, session.call(operands, options))
    order = np.roll(rng.permutation(planned.rows), 1)
    permuted = _pick(operands, order)
    moved = _rows_of(permuted, session.call(permuted, options))
    changed = sum(base[row] != moved[place] for place, row in enumerate(order))
    alone = _pick(operands, np.array([int(rng.integers(planned.rows))]))
    row = int(np.flatnonzero(operands.ssm_state_indices == alone.ssm_state_indices[0])[0])
    single = int(_rows_of(alone, session.call(alone, options))[0] != base[row])
    return Judged(
        [
            _measured("rows_changed_by_permutation", int(changed)),
            _measured("row_changed_when_alone", single),
        ]
    )


def _pick(operands: Operands, rows: np.ndarray) -> Operands:
    names = ("projected_qkvz", "projected_ba", "ssm_state_indices")
    return operands.replace(**{name: operands.arrays()[name][rows].copy() for name in names})


def _rows_of(operands: Operands, result: CallResult) -> list[str]:
    """A digest of each row's outputs and of its slot in both pools."""
    rows = []
    for row, slot in enumerate(operands.ssm_state_indices):
        hasher = hashlib.sha256()
        for name in RESULTS:
            array = result.results.get(name)
            hasher.update(b"-" if array is None else np.ascontiguousarray(array[row]).tobytes())
        for name in POOLS:
            hasher.update(result.after[name][operands.guard + slot].tobytes())
        rows.append(hasher.hexdigest())
    return rows


def _measured(name: str, value: int) -> Check:
    return Check(name=name, passed=True, value=value, relation="measured")
