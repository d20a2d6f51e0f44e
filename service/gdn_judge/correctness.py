"""The correctness suite: steps against the reference, the predicate against the op.

Each step draws fresh contents; the reference runs after the candidate's bytes
are back. Where the device's bfloat16 cast is not the contract's (Triton's
interpreter), the reference is run with that cast and held to the same bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gdn_judge import cases, compare, damages, generate, reference, truth, twists
from gdn_judge.cases import FAR_PLACES, FAR_SLOTS, Planned
from gdn_judge.contract import POOLS, Heads
from gdn_judge.document import Check
from gdn_judge.execution import PredicateAnswer
from gdn_judge.judged import Judged
from gdn_judge.numerics import Rounding
from gdn_judge.operands import Array, CallOptions, CallResult, Operands, Spread
from gdn_judge.session import Damage, Session
from gdn_judge.truth import Truth

_FEW_STEPS = 2  # bounds of single steps say all; beyond, errors could add up
_POISONS = (0xFF, 0x42)  # NaN in every dtype, and a finite number that could pass as data


@dataclass
class _Track:
    """One rounding, and in a case of many steps the reference's own trajectory under it."""

    rounding: Rounding
    pools: Operands | None = None


plan = cases.correctness


def judge(planned: Planned, session: Session) -> Judged:
    """Run one planned case. Raises CandidateError and OutOfTime."""
    if planned.kind == "predicate":
        return Judged(_predicate(planned, session))
    return steps(planned, session)


def steps(planned: Planned, session: Session) -> Judged:
    """One or more steps, each judged from the pools that the candidate itself left.

    Over many steps the states are also held against the reference's own trajectory.
    """
    rng = session.seed.rng(planned.id)
    operands = _first(planned, rng)
    tracks = [_Track(rounding) for rounding in session.roundings]
    found: list[list[Check]] = []
    names: list[str] = []
    for number in range(planned.steps):
        options = CallOptions(
            scale=planned.scale,
            norm_eps=planned.norm_eps,
            fp8=planned.fp8,
            pad_slot_id=planned.pad_slot_id,
            poison=_POISONS[number % len(_POISONS)],
            spread=_far(operands) if planned.far else None,
        )
        result = session.call(operands, options)
        names += [kernel.name for kernel in result.kernels]
        far = planned.steps > _FEW_STEPS
        checks, tracks = _judge_step(operands, options, result, tracks, session, far)
        checks.append(launches(result, operands, session))
        checks += _strays(result) if planned.far else []
        found.append(checks)
        if not all(check.passed for check in checks):
            break
        if number + 1 < planned.steps:
            operands = _next(planned, rng, operands, result)
    if planned.rows and all(check.passed for check in found[-1]):
        session.roundings_seen |= {track.rounding for track in tracks[:1]}
    return Judged(merge(found), list(dict.fromkeys(names)))


def judge_once(
    operands: Operands, options: CallOptions, result: CallResult, session: Session
) -> list[Check]:
    """The checks of a single call under the rounding that fits best."""
    tracks = [_Track(rounding) for rounding in session.roundings]
    checks, alive = _judge_step(operands, options, result, tracks, session)
    if all(check.passed for check in checks):
        session.roundings_seen.add(alive[0].rounding)
    return checks


def _first(planned: Planned, rng: np.random.Generator) -> Operands:
    operands = generate.operands(
        rng,
        planned.heads,
        planned.rows,
        slots=planned.slots,
        state=planned.state,
        pads=planned.pads,
        pad_slot_id=planned.pad_slot_id,
        inputs=planned.inputs,
    )
    twisted = twists.apply(planned.twist, operands, rng)
    return generate.without_ties(rng, twisted, planned.inputs)


def _far(operands: Operands) -> Spread:
    """Live slots at FAR_PLACES, the others at the start of the pool."""
    places = np.arange(operands.slots)
    places[operands.ssm_state_indices] = FAR_PLACES
    return Spread(slots=FAR_SLOTS, places=tuple(int(place) for place in places))


def _strays(result: CallResult) -> list[Check]:
    count = result.counters.get("stray_elements")
    fine = count == 0
    return [Check(name="stray_elements", passed=fine, value=count, bound=0)]


def _next(
    planned: Planned, rng: np.random.Generator, operands: Operands, result: CallResult
) -> Operands:
    """Fresh rows on the candidate's own pools, slots and pads drawn again."""
    indices = generate.slot_vector(
        rng, planned.rows, planned.slots, planned.pads, planned.pad_slot_id
    )
    return generate.rows(rng, operands.replace(**_pools(result)), indices, planned.inputs)


def _judge_step(
    operands: Operands,
    options: CallOptions,
    result: CallResult,
    tracks: Sequence[_Track],
    session: Session,
    drifts: bool = False,
) -> tuple[list[Check], list[_Track]]:
    """The checks under the best rounding, and the roundings under which all passed."""
    rules = compare.Rules(declarations=session.declarations, casts=session.roundings)
    outcomes = []
    for track in tracks:
        right = truth.of(operands, options, track.rounding)
        checks = compare.judge(right, result, rules)
        pools = right.after
        if drifts and checks[0].passed:
            pools = _trajectory(track, right)
            checks.append(compare.drift(operands.replace(**_pools(result)), pools, _live(right)))
        failed = sum(not check.passed for check in checks)
        outcomes.append((failed, checks, _Track(track.rounding, pools)))
    best = min(outcomes, key=lambda outcome: outcome[0])
    alive = [track for failed, _, track in outcomes if not failed]
    return best[1], alive or [best[2]]


def _trajectory(track: _Track, right: Truth) -> Operands:
    """The reference's own pools after this step's rows; the first step's are the candidate's."""
    if track.pools is None:
        return right.after
    own = right.before.replace(
        conv_state=track.pools.conv_state.copy(), ssm_state=track.pools.ssm_state.copy()
    )
    reference.step(own, right.options, track.rounding)
    return own


def _live(right: Truth) -> NDArray[np.int32]:
    """The slots that live rows name."""
    rows = right.before.live_rows(right.options.pad_slot_id)
    slots: NDArray[np.int32] = right.before.ssm_state_indices[rows]
    return slots


def _pools(result: CallResult) -> dict[str, Array]:
    return {name: result.after[name] for name in POOLS}


def launches(result: CallResult, operands: Operands, session: Session) -> Check:
    """How many kernels the call launched, where the executor can see them."""
    seen = len(result.kernels)
    allowed = 0 if operands.rows == 0 else session.launches
    if allowed is None:
        return Check(name="launches", passed=True, value=seen, relation="measured")
    exact = operands.rows == 0 or seen == allowed
    return Check(
        name="launches",
        passed=exact and seen <= allowed,
        value=seen,
        bound=allowed,
        relation="==",
        detail="" if exact else "; ".join(kernel.name for kernel in result.kernels)[:300],
    )


def merge(steps: Sequence[Sequence[Check]]) -> list[Check]:
    """One check per name over all steps: the failed one, else the worst value."""
    worst: dict[str, Check] = {}
    for number, checks in enumerate(steps):
        for check in checks:
            if len(steps) > 1 and not check.passed:
                check = _in_step(check, number)
            known = worst.get(check.name)
            if known is None or _is_worse(check, known):
                worst[check.name] = check
    return list(worst.values())


def _in_step(check: Check, number: int) -> Check:
    detail = f"step {number + 1}" + (f": {check.detail}" if check.detail else "")
    return Check(
        name=check.name,
        passed=check.passed,
        value=check.value,
        bound=check.bound,
        relation=check.relation,
        detail=detail,
    )


def _is_worse(check: Check, known: Check) -> bool:
    if check.passed != known.passed:
        return known.passed
    if not isinstance(check.value, int | float) or not isinstance(known.value, int | float):
        return False
    return check.value < known.value if check.relation == ">=" else check.value > known.value


def _predicate(planned: Planned, session: Session) -> list[Check]:
    rng = session.seed.rng(planned.id)
    session.executor()
    if session.hello is not None and not session.hello.has_predicate:
        return [
            Check(
                name="predicate",
                passed=False,
                relation="exists",
                detail=f"there is no {session.hello.op}_supported",
            )
        ]
    if planned.twist == "good":
        return _good_operands(planned, session, rng)
    operands = _first_plain(planned.heads, planned.rows, rng)
    if planned.twist == "pairs":
        sets = damages.pairs(operands, rng, 8 if session.quick else 40)
    else:
        others = ("meta",) if session.device_spec.on_cpu else ("meta", "cpu")
        singles = damages.of_operand(planned.twist, operands, rng, session.quick, others)
        sets = [(damage,) for damage in singles]
    return [_bad_operands(operands, each, session) for each in sets]


def _first_plain(heads: Heads, rows: int, rng: np.random.Generator) -> Operands:
    return generate.operands(rng, heads, rows, slots=rows + 2)


def _good_operands(planned: Planned, session: Session, rng: np.random.Generator) -> list[Check]:
    """Yes means it runs: every head count, with and without FP8."""
    checks = []
    on_cpu = session.device_spec.on_cpu
    keys = (1, 2, 4) if on_cpu else (1, 2, 4, 8, 16)
    for key in keys:
        for fp8 in (True, False):
            rows = 1 if on_cpu else planned.rows
            operands = _first_plain(Heads(key, 2 * key), rows, rng)
            answer = session.predicate(operands, CallOptions(fp8=fp8))
            wrong = _wrong_about_good(answer)
            name = f"takes {key}x{2 * key} {'fp8' if fp8 else 'bf16'}"
            checks.append(Check(name=name, passed=not wrong, relation="holds", detail=wrong))
    return checks


def _wrong_about_good(answer: PredicateAnswer) -> str:
    if answer.form_error:
        return answer.form_error
    if not answer.supported:
        return f"refused: {answer.reason}"
    if answer.reason:
        return f"yes came with a reason: {answer.reason}"
    return f"said yes, then raised {answer.raised}: {answer.message}" if answer.raised else ""


def _bad_operands(operands: Operands, spoiled: tuple[Damage, ...], session: Session) -> Check:
    """No means ValueError with that reason and nothing changed; yes means right values."""
    options = CallOptions(fp8=True)
    answer = session.predicate(operands, options, spoiled)
    wrong = _wrong_about_bad(answer, spoiled)
    if answer.supported and not wrong:
        wrong = _wrong_result(operands, options, answer, spoiled, session)
    name = "refuses " + " and ".join(map(str, spoiled))
    return Check(name=name, passed=not wrong, relation="holds", detail=wrong[:500])


def _wrong_about_bad(answer: PredicateAnswer, spoiled: tuple[Damage, ...]) -> str:
    if answer.form_error:
        return answer.form_error
    if answer.supported:
        return f"said yes, then raised {answer.raised}: {answer.message}" if answer.raised else ""
    if not damages.names_operand(answer.reason, spoiled):
        return f"the reason names no operand: {answer.reason!r}"
    if answer.raised != "ValueError":
        return f"said no ({answer.reason}), but the op " + (
            f"raised {answer.raised}: {answer.message}" if answer.raised else "ran"
        )
    if answer.message != answer.reason:
        return f"predicate: {answer.reason!r}, op: {answer.message!r}"
    return "" if answer.unchanged else "refused, but an operand has changed"


def _wrong_result(
    operands: Operands,
    options: CallOptions,
    answer: PredicateAnswer,
    spoiled: tuple[Damage, ...],
    session: Session,
) -> str:
    """Only another stride may be taken, and then honoured."""
    if answer.result is None:
        return "took operands that the contract forbids"
    checks = judge_once(operands, options, answer.result, session)
    failed = [check.name for check in checks if not check.passed]
    return f"took it and was wrong in {', '.join(failed)}" if failed else ""
