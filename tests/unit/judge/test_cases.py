from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gdn_judge import cases, compare, damages, generate, reference, truth, twists
from gdn_judge.cases import Planned, Scope
from gdn_judge.contract import OPERANDS, Heads, check_indices
from gdn_judge.document import DeviceKind
from gdn_judge.generate import Seed
from gdn_judge.numerics import bf16_nearest
from gdn_judge.operands import CallOptions
from gdn_judge.twists import _WAYS
from support import fp32_step

KINDS = list(DeviceKind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("batches", [None, [2], [8, 1]])
@pytest.mark.parametrize("plan", [cases.correctness, cases.determinism, cases.roofline])
def test_ids_are_unique_and_the_plan_is_stable(
    plan, batches: list[int] | None, quick: bool, kind: DeviceKind
) -> None:  # type: ignore[no-untyped-def]
    scope = Scope(device=kind, quick=quick, batches=batches)
    ids = [planned.id for planned in plan(scope)]
    assert len(ids) == len(set(ids)) > 0
    assert ids == [planned.id for planned in plan(scope)]


def sizes(plan: list[Planned], prefix: str) -> set[int]:
    return {planned.rows for planned in plan if planned.id.startswith(prefix)}


def test_a_gpu_gets_every_regime_its_borders_and_sizes_between() -> None:
    plan = cases.correctness(Scope(device=DeviceKind.SM90))
    wanted = {0, 1, 2, 3, 8, 31, 32, 33, 64, 65, 96, 127, 128, 129, 192, 256, 1000}
    assert wanted <= sizes(plan, "step-4x8")
    assert {str(planned.heads) for planned in plan} == {"1x2", "2x4", "4x8", "8x16", "16x32"}
    assert {planned.state for planned in plan} == {"unit", "small", "zero"}
    assert {planned.fp8 for planned in plan} == {True, False}
    assert {planned.pads for planned in plan} == {"none", "first", "last", "mixed", "all"}
    assert max(planned.steps for planned in plan) == 64
    assert {planned.twist for planned in plan if planned.id.startswith("extreme")} == set(_WAYS)
    assert {p.twist for p in plan if p.kind == "predicate"} >= {*OPERANDS, "quant_dtype", "pairs"}


def test_batch_sizes_and_heads_narrow_the_plan() -> None:
    scope = Scope(device=DeviceKind.SM90, batches=[7], heads=Heads(2, 4))
    plan = cases.correctness(scope)
    assert sizes(plan, "step-") == {7}
    assert {str(planned.heads) for planned in plan} == {"2x4"}
    assert [planned.rows for planned in cases.roofline(scope)] == [7, 7]


def test_params_say_what_a_case_is() -> None:
    planned = Planned(id="x", kind="step", heads=Heads(4, 8), rows=3, pads="mixed")
    shown = planned.params()
    assert (shown["T"], shown["KH"], shown["VH"], shown["fp8"]) == (3, 4, 8, True)


@pytest.mark.parametrize("rows", [1, 2, 3, 50])
@pytest.mark.parametrize("pads", ["none", "first", "last", "mixed", "all"])
@pytest.mark.parametrize("pad_slot_id", [-1, 0])
def test_index_vectors_are_legal_and_as_named(rows: int, pads: str, pad_slot_id: int) -> None:
    for number in range(20):
        rng = Seed(b"s").rng(rows, pads, number)
        indices = generate.slot_vector(rng, rows, rows + 3, pads, pad_slot_id)
        check_indices(indices, rows + 3, pad_slot_id)
        count = int((indices == pad_slot_id).sum())
        few = {"none": 0, "first": 1, "last": 1, "all": rows}
        if pads == "mixed":
            assert (1 <= count < rows) if rows > 1 else count == 0
        else:
            assert count == few[pads]
        assert pads != "first" or indices[0] == pad_slot_id


def test_the_seed_decides_everything_and_names_part_streams() -> None:
    a, b = Seed(b"a"), Seed(b"b")
    assert a.rng("x").random() == a.rng("x").random()
    assert len({s.rng(n).random() for s in (a, b) for n in ("x", "y")}) == 4


def test_every_operand_is_spoiled_in_every_way() -> None:
    rng = Seed(b"d").rng("d")
    operands = generate.operands(rng, Heads(1, 2), 2, slots=4)
    for name in OPERANDS:
        every = damages.of_operand(name, operands, rng, few=False)
        ways = {damage.how for damage in every}
        assert ways == {"none", "type", "device", "strided", "dtype", "shape"}, name
        shapes = {damage.value for damage in every if damage.how == "shape"}
        true = list(operands.arrays()[name].shape)
        if name in ("conv_state", "ssm_state"):
            true[0] = operands.slots
        assert "" in shapes  # 0-d
        assert ",".join(map(str, true)) not in shapes


def test_reasons_must_name_what_is_wrong() -> None:
    damage = damages.Damage(operand="A_log", how="dtype", value="float16")
    assert damages.names_operand("A_log must be float32", (damage,))
    assert not damages.names_operand("dt_bias must be bfloat16", (damage,))
    assert not damages.names_operand("unsupported", (damage,))


def test_tiny_inputs_lie_near_the_eps() -> None:
    operands = generate.operands(Seed(b"t").rng("t"), Heads(1, 2), 4, slots=6, inputs="tiny")
    rows = np.arange(4)
    history = operands.pool("conv_state")[operands.ssm_state_indices]
    side = reference.front(operands, CallOptions(), rows, history)
    norms = np.square(side.k).sum(-1)
    assert (norms < 0.995).all()
    assert (norms > 0.3).all()


def orthogonal_to_q(rows: int) -> generate.Operands:
    """Row 0's state holds nothing that q sees, and its step adds next to nothing."""
    operands = generate.operands(Seed(b"o").rng("o"), Heads(2, 4), rows, slots=rows)
    ba = operands.projected_ba.reshape(rows, 2, 2, 2)
    ba[0, 0, 0] = bf16_nearest(np.array(-25.0))
    every = np.arange(rows)
    history = operands.pool("conv_state")[operands.ssm_state_indices]
    q = reference.front(operands, CallOptions(), every, history).q[0, :2]
    state = operands.pool("ssm_state")[operands.ssm_state_indices[0], :2]
    seen = np.matmul(state.astype(np.float64), q[..., None])
    state -= (seen * q[:, None] / np.square(q).sum(-1)[:, None, None]).astype(np.float32)
    return operands


@pytest.mark.parametrize("order", ["sequential", "tree, shuffled"])
@pytest.mark.parametrize("algebra", ["fused", "chain"])
def test_a_head_that_is_all_cancellation_accuses_no_order(order: str, algebra: str) -> None:
    """There fp32 error alone moves core across many ties, whatever the order."""
    right = truth.of(orthogonal_to_q(3), CallOptions())
    bits = right.limits.out_high.astype(int) - right.limits.out_low
    assert np.abs(bits[0, 0]).max() > 20  # bfloat16 steps that an element may legally move
    result = fp32_step.call(right.before, right.options, fp32_step.Style(order, algebra=algebra))
    checks = compare.judge(right, result, compare.Rules())
    assert [check for check in checks if not check.passed] == []


def test_ties_that_a_twist_makes_are_drawn_again() -> None:
    """Without its bias a convolution's output lies elsewhere."""
    rng, heads = Seed(b"w").rng("w"), Heads(16, 32)
    base = generate.operands(rng, heads, 8, slots=8)
    twisted = twists.apply("zero-inputs", base, rng)
    assert generate._tie_columns(twisted)[0].any()
    settled = generate.without_ties(rng, twisted)
    assert not generate._tie_columns(settled)[0].any()
    assert (settled.projected_qkvz[0] == 0).all()


def test_sizes_are_drawn_that_no_plan_names() -> None:
    scope = cases.Scope(device=DeviceKind.SM90)
    rng = np.random.default_rng(7)
    drawn = [cases.draw(scope, rng) for _ in range(50)]
    assert all(len(set(sizes)) == 3 for sizes in drawn)
    assert not {rows for sizes in drawn for rows in sizes} & set(cases.GPU_BATCHES)
    assert len(set(drawn)) > 40
    plan = cases.correctness(dataclasses.replace(scope, drawn=drawn[0]))
    assert [p.rows for p in plan if p.id.startswith("step-drawn-")] == list(drawn[0])


def test_a_narrowed_plan_draws_nothing() -> None:
    scope = cases.Scope(device=DeviceKind.SM90, batches=[3])
    assert cases.draw(scope, np.random.default_rng(7)) == ()


def test_scale_and_eps_are_not_always_the_models() -> None:
    plan = cases.correctness(cases.Scope(device=DeviceKind.INTERPRETER, quick=True))
    other = next(p for p in plan if p.id == "options-other")
    assert (other.scale, other.norm_eps) == (0.125, 1e-3)
    assert other.params()["norm_eps"] == 1e-3


@pytest.mark.parametrize("quick", [True, False])
def test_no_rows_are_not_timed(quick: bool) -> None:
    scope = Scope(device=DeviceKind.SM90, batches=(0, 7), quick=quick)
    assert {planned.rows for planned in cases.roofline(scope)} == {7}
    assert cases.roofline(dataclasses.replace(scope, batches=(0,))) == []


def test_the_whole_roofline_plan_of_a_gpu_has_every_serving_head_count() -> None:
    whole = cases.roofline(Scope(device=DeviceKind.SM90))
    assert {str(planned.heads) for planned in whole} == {"2x4", "4x8", "8x16", "16x32"}
    main = {(p.rows, p.fp8) for p in whole if p.heads == Heads(4, 8)}
    assert main == {(rows, fp8) for rows in cases.ROOFLINE_BATCHES for fp8 in (True, False)}
    quick = cases.roofline(Scope(device=DeviceKind.SM90, quick=True))
    assert {str(planned.heads) for planned in quick} == {"4x8"}
    narrowed = cases.roofline(Scope(device=DeviceKind.SM90, heads=Heads(16, 32)))
    assert {str(planned.heads) for planned in narrowed} == {"16x32"}
