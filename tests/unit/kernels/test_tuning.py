"""The tuning table serves every case, within the bound on compiled variants."""

from __future__ import annotations

import pytest

from gdn_kernels import tuning
from gdn_kernels.contract import KEY_HEADS
from gdn_kernels.tuning import Config, Rule, TuningError

ARCHITECTURES = sorted(tuning.table())


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("key_heads", KEY_HEADS)
def test_every_batch_size_has_a_rule(arch: str, key_heads: int) -> None:
    for tokens in [*range(1, 1026), 1 << 20]:
        assert isinstance(tuning.choose(arch, True, key_heads, tokens), Config)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("key_heads", KEY_HEADS)
def test_variants_over_all_batch_sizes_are_at_most_twelve(arch: str, key_heads: int) -> None:
    configs = {r.config for r in tuning.table()[arch] if r.key_heads == key_heads}
    assert 1 <= len(configs) * 2 <= 12  # with and without the FP8 epilogue


def test_rules_stand_in_order_with_an_open_end() -> None:
    for arch, rules in tuning.table().items():
        for key_heads in KEY_HEADS:
            limits = [r.max_tokens for r in rules if r.key_heads == key_heads]
            assert limits[-1] is None, arch
            assert limits[:-1] == sorted(set(limits[:-1])), arch


def test_without_gluon_the_portable_rules_run() -> None:
    assert tuning.choose("gfx950", False, 4, 8).kernel == "triton"
    assert tuning.choose("sm80", True, 4, 8).kernel == "triton"
    assert tuning.choose("gfx950", True, 4, 8).kernel == "gluon"


def test_an_unknown_head_count_is_an_error_that_names_it() -> None:
    with pytest.raises(TuningError, match="no rule for sm90, 3 key heads, T = 5"):
        tuning.choose("sm90", True, 3, 5)


def test_programs_per_group() -> None:
    assert Config("gluon", 1, 128, 8).programs_per_group == 2
    assert Config("gluon", 1, 16, 8).programs_per_group == 16
    assert Config("gluon", 2, 128, 8, chunks=2).programs_per_group == 1


def test_chunks_in_flight() -> None:
    assert Config("gluon", 1, 64, 8).chunks_in_flight == 1
    assert Config("gluon", 1, 128, 8, chunks=8).chunks_in_flight == 8
    assert Config("gluon", 2, 128, 8, chunks=16, depth=11).chunks_in_flight == 11


def test_scratch_elements() -> None:
    """The portable kernel passes q, k, v and core through memory, Gluon core where V is split."""
    assert Config("triton", 2, 128, 8, chunks=8).scratch_elements == 2 * 128 + 2 * 2 * 128
    assert Config("gluon", 1, 64, 8).scratch_elements == 2 * 128
    assert Config("gluon", 2, 128, 8, chunks=2).scratch_elements == 0


def test_impossible_configurations_are_refused() -> None:
    with pytest.raises(TuningError, match="rows must divide 128"):
        Config("gluon", 1, 48, 4)
    with pytest.raises(TuningError, match="several heads a program"):
        Config("gluon", 2, 64, 4)
    with pytest.raises(TuningError, match="chunks must divide the rows of each head"):
        Config("gluon", 2, 128, 8)
    with pytest.raises(TuningError, match="chunks must divide the rows of each head"):
        Config("gluon", 1, 64, 8, chunks=3)
    for depth in (0, 3, 9):
        with pytest.raises(TuningError, match="depth must lie between half the chunks and all"):
            Config("gluon", 1, 128, 8, chunks=8, depth=depth)


def test_the_file_round_trips() -> None:
    text = tuning.to_json({"x": [Rule(4, None, Config("gluon", 1, 128, 8, pdl=True))]})
    assert '"max_tokens": null' in text
    assert text.endswith("}\n")
