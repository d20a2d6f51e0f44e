from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdn_service.runner.cores import divide, parse


def cores_of(text: str) -> set[int]:
    return {core for each in parse(text) for core in each}


def test_a_kernel_list_is_its_ranges() -> None:
    assert parse("0-3,8,10-11") == [range(4), range(8, 9), range(10, 12)]
    assert parse("") == []


@pytest.mark.parametrize("text", ["a", "0-", "-1", "3-1", "0-1-2"])
def test_what_is_no_list_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse(text)


def test_hyperthreads_of_a_core_stay_together() -> None:
    """Core n of this host is threads n and n + 128."""
    shares = ["0-15,128-143", "16-31,144-159", "32-47,160-175", "48-63,176-191"]
    assert divide(["0-63,128-191"] * 4) == shares


@pytest.mark.parametrize(
    ("cpus", "parts", "shares"),
    [
        ("0-7", 1, ["0-7"]),
        ("0-4", 2, ["0-1", "2-4"]),
        ("0,2,4,6", 2, ["0,2", "4,6"]),
        ("0-1", 3, ["0-1", "0-1", "0-1"]),
        ("", 2, ["", ""]),
    ],
)
def test_shares_of_one_list(cpus: str, parts: int, shares: list[str]) -> None:
    assert divide([cpus] * parts) == shares


@pytest.mark.parametrize(
    ("lists", "shares"),
    [
        (["0-15", "0-31"], ["0-15", "16-31"]),
        (["0-31", "0-15"], ["16-31", "0-15"]),
        (["0-7", "4-11"], ["0-5", "6-11"]),
        (["0-11", "0-11", "8-15"], ["0-3,8", "4-7,9", "10-15"]),
        (["0-7", "0-7", ""], ["0-3", "4-7", ""]),
        (["0-3", "8-11"], ["0-3", "8-11"]),
        (["0-63,128-191", "0-31,128-159"], ["32-63,160-191", "0-31,128-159"]),
        (["0-15,32-47", "8-23,40-55"], ["0-11,32-43", "12-23,44-55"]),
        (["0,1-8", "0,1-8", "1-8"], ["1-3", "0,4-5", "6-8"]),
    ],
)
def test_unequal_lists_that_overlap_are_divided_too(lists: list[str], shares: list[str]) -> None:
    assert divide(lists) == shares


@given(st.lists(st.sets(st.integers(0, 40), min_size=5), min_size=1, max_size=5))
def test_no_core_goes_to_two_devices_and_none_is_lost(near: list[set[int]]) -> None:
    lists = [",".join(map(str, sorted(cores))) for cores in near]
    shares = [cores_of(text) for text in divide(lists)]
    assert all(share and share <= cores for share, cores in zip(shares, near, strict=True))
    assert set().union(*shares) == set().union(*near)
    assert not any(a & b for a, b in itertools.combinations(shares, 2))


@given(st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=6))
def test_every_device_has_a_core_of_its_list(near: list[set[int]]) -> None:
    shares = [cores_of(t) for t in divide([",".join(map(str, sorted(c))) for c in near])]
    for share, cores in zip(shares, near, strict=True):
        assert share <= cores
        assert bool(share) == bool(cores)
