"""The executor over a real candidate process, with a right op in plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gdn_judge import generate
from gdn_judge.candidate import Launch
from gdn_judge.contract import Heads
from gdn_judge.errors import CandidateRaised, CandidateRefused
from gdn_judge.execution import Damage
from gdn_judge.generate import Seed
from gdn_judge.operands import CallOptions, Spread
from gdn_judge.remote import RemoteExecutor
from support import local_call, plain_op

SUPPORT = Path(plain_op.__file__).parent
OPTIONS = CallOptions(fp8=True)


@pytest.fixture(scope="module")
def executor() -> Iterator[RemoteExecutor]:
    launch = Launch(
        root=SUPPORT, import_path="plain_op:fused_gdn_decode_qkvz", python_path=[SUPPORT]
    )
    made = RemoteExecutor(launch)
    hello = made.start()
    assert hello.has_predicate
    yield made
    made.close()


def operands(name: str, rows: int = 3, **more: object) -> generate.Operands:
    return generate.operands(
        Seed(b"remote").rng(name),
        Heads(1, 2),
        rows,
        slots=rows + 3,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("fp8", [True, False])
def test_all_bytes_come_back(executor: RemoteExecutor, rows: int, fp8: bool) -> None:
    given = operands(f"bytes{rows}", rows)
    options = CallOptions(fp8=fp8)
    here = local_call.call(plain_op.fused_gdn_decode_qkvz, given, options)
    there = executor.call(given, options)
    assert there.form_error == ""
    assert there.forms == here.forms
    for name, array in here.after.items():
        assert there.after[name].tobytes() == array.tobytes(), name
    for name, result in here.results.items():
        back = there.results[name]
        assert (back is None) == (result is None)
        assert back is None or back.tobytes() == result.tobytes(), name  # type: ignore[union-attr]


def test_pools_far_apart_give_the_same(executor: RemoteExecutor) -> None:
    given = operands("far", pads="last")
    here = executor.call(given, OPTIONS)
    spread = Spread(slots=700, places=(0, 699, 128, 3, 500, 256))
    there = executor.call(given, CallOptions(fp8=True, spread=spread))
    assert there.counters == {"stray_elements": 0}
    for name, array in here.after.items():
        assert there.after[name].tobytes() == array.tobytes(), name
    out, right = there.results["out"], here.results["out"]
    assert out is not None
    assert right is not None
    assert out.tobytes() == right.tobytes()


def test_a_good_predicate_call_runs_the_op(executor: RemoteExecutor) -> None:
    given = operands("good")
    answer = executor.predicate(given, OPTIONS)
    assert (answer.supported, answer.reason, answer.raised) == (True, "", "")
    assert answer.result is not None
    here = executor.call(given, OPTIONS)
    assert answer.result.after["ssm_state"].tobytes() == here.after["ssm_state"].tobytes()


@pytest.mark.parametrize(
    "damage",
    [
        Damage(operand="A_log", how="dtype", value="float16"),
        Damage(operand="conv_bias", how="none"),
        Damage(operand="conv_bias", how="type"),
        Damage(operand="conv_state", how="strided"),
        Damage(operand="dt_bias", how="device", value="meta"),
        Damage(operand="norm_weight", how="shape", value="127"),
        Damage(operand="projected_qkvz", how="shape", value=""),
        Damage(operand="quant_dtype", how="quant", value="float8_e5m2"),
    ],
    ids=str,
)
def test_a_refusal_is_told_with_its_reason(executor: RemoteExecutor, damage: Damage) -> None:
    answer = executor.predicate(operands("bad"), OPTIONS, (damage,))
    assert not answer.supported
    assert damage.operand in answer.reason
    assert (answer.raised, answer.message) == ("ValueError", answer.reason)
    assert answer.unchanged
    assert answer.result is None


def test_what_the_op_raises_comes_back(executor: RemoteExecutor) -> None:
    given = operands("raises")
    with pytest.raises(CandidateRefused, match="ssm_state_indices"):
        executor.call(given.replace(ssm_state_indices=np.zeros(2, np.int32)), OPTIONS)
    wild = given.replace(ssm_state_indices=np.array([0, 1, 10_000], np.int32))
    with pytest.raises(CandidateRaised, match="IndexError"):
        executor.call(wild, OPTIONS)
    executor.call(given, OPTIONS)


def started(folder: Path, text: str) -> RemoteExecutor:
    (folder / "odd.py").write_text("import torch\n" + text)
    made = RemoteExecutor(Launch(root=folder, import_path="odd:op", python_path=[folder]))
    made.start()
    return made


def test_fresh_memory_is_poisoned(tmp_path: Path) -> None:
    made = started(
        tmp_path,
        "def op(*args, **kwargs):\n"
        "    return torch.empty((3, 2, 128), dtype=torch.bfloat16), None, None\n",
    )
    try:
        for poison in (0xFF, 0x42):
            result = made.call(operands("poison"), CallOptions(poison=poison))
            out = result.results["out"]
            assert out is not None
            assert (out == poison * 0x101).all()
    finally:
        made.close()


ODD = {
    "[None, None, None]": "returned a list of 3",
    "(None, None)": "returned a tuple of 2",
    "None": "returned a NoneType",
    "(1.0, None, None)": "out should be a tensor, got float",
    "(torch.zeros(1, device='meta'), None, None)": "out is on meta",
}


def test_a_wrong_return_is_a_form_error(tmp_path: Path) -> None:
    made = started(
        tmp_path,
        f"RETURNS = iter([{', '.join(ODD)}])\ndef op(*args, **kwargs):\n    return next(RETURNS)\n",
    )
    try:
        for returned, message in ODD.items():
            assert message in made.call(operands("odd"), OPTIONS).form_error, returned
    finally:
        made.close()
