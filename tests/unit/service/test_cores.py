from __future__ import annotations

import pytest

from gdn_service.runner.cores import parse, share


def test_a_kernel_list_is_its_ranges() -> None:
    assert parse("0-3,8,10-11") == [range(4), range(8, 9), range(10, 12)]
    assert parse("") == []


@pytest.mark.parametrize("text", ["a", "0-", "-1", "3-1", "0-1-2"])
def test_what_is_no_list_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse(text)


def test_hyperthreads_of_a_core_stay_together() -> None:
    """Core n of this host is threads n and n + 128."""
    shares = [share("0-63,128-191", part, 4) for part in range(4)]
    assert shares == ["0-15,128-143", "16-31,144-159", "32-47,160-175", "48-63,176-191"]


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
def test_shares_of_other_lists(cpus: str, parts: int, shares: list[str]) -> None:
    assert [share(cpus, part, parts) for part in range(parts)] == shares
