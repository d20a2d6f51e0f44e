"""The tuning table serves every case, within the bound on compiled variants."""

from __future__ import annotations

import json

import pytest

from gdn_kernels import tuning
from gdn_kernels.contract import KEY_HEADS
from gdn_kernels.tune import Timing, select
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
    assert Config("gluon", 1, 16, 4).programs_per_group == 16
    assert Config("gluon", 2, 128, 8, chunks=2).programs_per_group == 1


def test_chunks_in_flight() -> None:
    assert Config("gluon", 1, 64, 8).chunks_in_flight == 1
    assert Config("gluon", 1, 128, 4, chunks=8).chunks_in_flight == 8
    assert Config("gluon", 2, 128, 8, lanes=16, chunks=16, depth=11).chunks_in_flight == 11


def test_scratch_elements() -> None:
    """The portable kernel passes q, k, v and core through memory, Gluon core where V is split."""
    assert Config("triton", 2, 128, 8, chunks=8).scratch_elements == 2 * 128 + 2 * 2 * 128
    # no two programs write to one place: q and k are each program's own
    assert Config("triton", 1, 32, 4).scratch_elements == 8 * 2 * 128 + 2 * 2 * 128
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
    for chunks in (0, -2):
        with pytest.raises(TuningError, match="chunks must divide the rows of each head"):
            Config("gluon", 1, 64, 8, chunks=chunks)
    for rows in (0, -32):
        with pytest.raises(TuningError, match="rows must divide 128"):
            Config("gluon", 1, rows, 4)
    with pytest.raises(TuningError, match="kernel must be triton or gluon"):
        Config("Triton", 1, 64, 4)
    for wrong in ({"warps": 3}, {"warps": 4, "lanes": 24}):
        with pytest.raises(TuningError, match="warps must be a power of 2 up to 32, lanes 8, 16"):
            Config("gluon", 1, 64, **wrong)
    for only_gluon in ({"pdl": True}, {"ticket_first": True}, {"lanes": 16}):
        with pytest.raises(TuningError, match="of the Gluon kernel only"):
            Config("triton", 1, 64, 4, **only_gluon)
    # 8 warps of two rows each, and 4: the same rows would lie in several warps
    with pytest.raises(TuningError, match="a row for each part of a warp that holds one, 16 at"):
        Config("gluon", 2, 128, 8, lanes=16, chunks=32)
    with pytest.raises(TuningError, match="a row for each part of a warp that holds one, 8 at"):
        Config("triton", 1, 64, 4, chunks=16)
    for depth in (0, 3, 9):
        with pytest.raises(TuningError, match="depth must lie between half the chunks and all"):
            Config("gluon", 1, 128, 4, chunks=8, depth=depth)


def test_the_file_round_trips() -> None:
    rule = Rule(4, None, Config("gluon", 2, 128, 4, chunks=16, depth=11, pdl=True))
    text = tuning.to_json({"x": [rule, Rule(8, 3, Config("triton", 1, 32, 4))], "y": [rule]})
    rules = json.loads(text)["rules"]
    assert {arch: [tuning._rule(row) for row in rows] for arch, rows in rules.items()} == {
        "x": [rule, Rule(8, 3, Config("triton", 1, 32, 4))],
        "y": [rule],
    }
    assert text.endswith("}\n")


def test_few_configurations_serve_all_sizes_and_the_nearest_to_the_best_among_equals() -> None:
    first, second, third = (Config("gluon", 1, rows, 4) for rows in (16, 32, 64))

    def took(tokens: int, config: Config, us: float) -> Timing:
        return Timing(tokens, config, us, us, us)

    timings = [took(1, first, 10.0), took(1, second, 10.05), took(1, third, 11.0)]
    timings += [took(2, first, 20.18), took(2, second, 20.0), took(2, third, 20.1)]
    timings += [took(4, first, 50.0), took(4, second, 40.3), took(4, third, 40.0)]
    assert select(timings) == [(1, second), (2, second), (4, second)]
    without = [t for t in timings if t.config != second]
    # of `first`, which is within 1 % at 1 and 2, and `third`, at 2 and 4, the nearer one
    assert select(without) == [(1, first), (2, third), (4, third)]
