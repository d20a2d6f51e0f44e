"""The reference against every case that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gdn_judge.contract import check_indices
from gdn_judge.errors import IllegalIndices
from gdn_judge.reference import fused_gdn_decode_qkvz, fused_gdn_decode_qkvz_supported
from support import hand_cases

RUN = list(hand_cases.by_mode("right", "refuse_or_right", "refuse"))
VALIDATOR = list(hand_cases.by_mode("validator"))


def test_every_case_has_a_test() -> None:
    assert len(RUN) + len(VALIDATOR) == len(hand_cases.CASES) == 44


@pytest.mark.parametrize("case", RUN, ids=lambda case: case["id"])
def test_reference_is_right(case: dict) -> None:  # type: ignore[type-arg]
    got = hand_cases.outcome(case, fused_gdn_decode_qkvz)
    assert got == ("right" if case["mode"] == "right" else got)


@pytest.mark.parametrize("case", RUN, ids=lambda case: case["id"])
def test_predicate_agrees_with_the_reference(case: dict) -> None:  # type: ignore[type-arg]
    driver = hand_cases.Case(case)
    tensors = driver.build()
    supported, reason = fused_gdn_decode_qkvz_supported(*tensors.values.values())
    assert supported == (hand_cases.outcome(case, fused_gdn_decode_qkvz) == "right")
    assert bool(reason) != supported


@pytest.mark.parametrize("case", VALIDATOR, ids=lambda case: case["id"])
def test_validator_of_index_vectors(case: dict) -> None:  # type: ignore[type-arg]
    indices = np.array(case["idx"], np.int32)
    pad = case.get("pad_slot_id", -1)
    if case["legal"]:
        check_indices(indices, case["N"], pad)
    else:
        with pytest.raises(IllegalIndices, match="slot"):
            check_indices(indices, case["N"], pad)
