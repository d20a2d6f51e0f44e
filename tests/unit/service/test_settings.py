from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gdn_service.errors import SettingsError
from gdn_service.ids import new_id
from gdn_service.settings import best_kind, load_settings

LADDER = ("kernel_timeout_s", "suite_timeout_s", "job_timeout_s", "client_wait_s")


@pytest.mark.parametrize(("inner", "outer"), list(itertools.pairwise(LADDER)))
def test_timeouts_must_nest(inner: str, outer: str) -> None:
    values = dict(zip(LADDER, (1.0, 2.0, 3.0, 4.0), strict=True))
    load_settings(**values)
    equal = values | {inner: values[outer]}
    with pytest.raises(SettingsError, match=rf"{inner} \(\d s\) must be smaller than {outer}"):
        load_settings(**equal)


def test_the_least_canary_range_is_within_the_largest() -> None:
    load_settings(canary_margin=0.1, canary_limit=0.1)
    with pytest.raises(SettingsError, match=r"canary_margin \(0.2\) must not be larger than"):
        load_settings(canary_margin=0.2)


def test_words_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDN_DEVICE_KINDS", "interpreter, sm90")
    assert load_settings().device_kinds == ("interpreter", "sm90")


def test_an_unknown_device_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDN_DEVICE_KINDS", "interpreter,h100")
    with pytest.raises(SettingsError, match=r"GDN_DEVICE_KINDS: .*unknown device kind 'h100'"):
        load_settings()


def test_store_and_queue_urls(tmp_path: Path) -> None:
    local = load_settings(data_dir=tmp_path, database_url="")
    assert local.store_url == f"sqlite:///{tmp_path}/gdn.sqlite"
    assert local.queue_url == f"sqlite:///{tmp_path}/gdn-queue.sqlite"
    shared = load_settings(database_url="postgresql://u@h/d")
    assert shared.store_url == "postgresql+psycopg://u@h/d"
    assert shared.queue_url == "postgresql://u@h/d"


def test_ids_sort_by_time_and_do_not_repeat() -> None:
    ids = [new_id("j") for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(len(text) == 17 and text.startswith("j") for text in ids)
    assert [text[:9] for text in ids] == sorted(text[:9] for text in ids)


def test_the_best_kind_is_hardware_before_emulation() -> None:
    assert best_kind(["interpreter", "gfx950-emulated"]) == "gfx950-emulated"
    assert best_kind(["gfx950-emulated", "sm90"]) == "sm90"
    assert best_kind([]) is None
