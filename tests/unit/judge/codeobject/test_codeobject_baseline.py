"""Which kernel of a baseline a kernel is held against, and what is said of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gdn_judge import cli
from gdn_judge.codeobject import baseline
from gdn_judge.codeobject.baseline import Compiled
from gdn_judge.document import Case, DeviceKind, Document, Kernel, Outcome, Suite, Verdict
from gdn_judge.prepare import prepare
from gdn_judge.session import Session

PLANNED = ["gfx950-4x8-T1", "gfx950-4x8-T16"]


def kernel(name: str, digest: str, batches: str, arch: str = "gfx950") -> Kernel:
    return Kernel(name=name, digest=digest, arch=arch, resources={"batches": batches})


def document(*kernels: Kernel, **changes: Any) -> Document:
    values: dict[str, Any] = {
        "suite": Suite.CODEOBJECT,
        "device_kind": DeviceKind.GFX950_EMULATED,
        "verdict": Verdict.PASSED,
        "reason": "",
        "planned": PLANNED,
        "cases": [Case(id=name, params={}, outcome=Outcome.PASSED) for name in PLANNED],
        "judge_version": "1",
        "target": "t",
        "import_path": "m:f",
        "commit": "a" * 40,
        "started_at": "2026-01-01T00:00:00.000Z",
        "duration_s": 1.0,
        "kernels": list(kernels),
    }
    return Document(**values | changes)


def found(before: Document, name: str, digest: str, rows: int, *, alone: bool = True) -> str | None:
    case, compiled = f"gfx950-4x8-T{rows}", Compiled(name, digest, {})
    entry = baseline.counterpart(before, case, "gfx950", rows, compiled, alone=alone)
    return entry.digest if entry else None


def test_a_kernel_is_held_against_the_one_of_its_size_and_name() -> None:
    before = document(
        kernel("gdn", "sm", "1,16", arch="sm90"),
        kernel("gdn", "d1", "1"),
        kernel("gdn", "d16", "16"),
    )
    assert found(before, "gdn", "x", 1) == "d1"
    assert found(before, "gdn", "x", 16) == "d16"
    assert found(before, "gdn", "x", 6) is None  # not planned there, and "16" is not 6


def test_a_case_of_other_heads_has_no_counterpart() -> None:
    before = document(kernel("gdn", "d1", "1"), planned=["gfx950-1x2-T1"], cases=[])
    assert found(before, "gdn", "d1", 1) is None


def test_a_new_name_hides_nothing_where_a_call_has_one_kernel() -> None:
    assert found(document(kernel("gdn", "d1", "1")), "renamed", "x", 1) == "d1"
    assert found(document(kernel("gdn", "d1", "1")), "renamed", "x", 1, alone=False) is None
    two = document(kernel("a", "da", "1"), kernel("b", "db", "1"))
    assert found(two, "renamed", "x", 1) is None


def test_the_same_binary_is_preferred_among_equal_names() -> None:
    before = document(kernel("gdn", "d1", "1"), kernel("gdn", "d2", "1"))
    assert found(before, "gdn", "d2", 1) == "d2"


def words(*digests: tuple[str, Kernel | None], commit: str | None = "a" * 40, **place: Any) -> str:
    cases = [
        Case(
            id=str(number),
            params={},
            outcome=Outcome.PASSED,
            checks=[baseline.told(Compiled("gdn", digest, {}), before)],
        )
        for number, (digest, before) in enumerate(digests)
    ]
    session = Session(
        factory=lambda: pytest.fail("not started"),
        device=DeviceKind.GFX950_EMULATED,
        baseline=document(commit=commit),
        **place,
    )
    return baseline.words(session, cases)


def test_words_say_what_was_compared() -> None:
    old = kernel("gdn", "d1", "1")
    assert words(("d1", old), commits_behind=1) == (
        "same binary as the baseline (aaaaaaaaaaaa, 1 commit behind)"
    )
    assert words(("d1", old), ("d2", old), commits_behind=2) == (
        "no worse than the baseline (aaaaaaaaaaaa, 2 commits behind)"
    )
    assert words(("d1", old), ("d2", None)) == (
        "no worse than the baseline (aaaaaaaaaaaa) (1 kernels are not in it)"
    )
    assert words(("d2", None), commit=None) == (
        "nothing as in the baseline (1 kernels are not in it)"
    )
    alone = Session(factory=lambda: pytest.fail("not started"), device=DeviceKind.GFX950)
    assert baseline.words(alone, []) == "no baseline to compare with"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text("def f(): ...\n")
    return tmp_path


def prepared(checkout: Path, before: Document, **changed: str) -> Any:
    path = checkout / "before.json"
    path.write_text(before.to_json())
    asked = {"suite": "codeobject", "device": "gfx950-emulated", **changed}
    words = ["run", "--target", str(checkout), "--import-path", "m:f", "--out", "/none"]
    for name, value in asked.items():
        words += [f"--{name}", value]
    options = cli.parser().parse_args([*words, "--baseline", str(path), "--commits-behind", "4"])
    return prepare(options, None)


def test_a_baseline_of_another_run_is_refused(checkout: Path) -> None:
    refusals = {
        "is for the suite codeobject, not roofline": (document(), {"suite": "roofline"}),
        "codeobject on gfx950-emulated, this run is codeobject on sm90": (
            document(),
            {"device": "sm90"},
        ),
        "is partial": (document(partial=True), {}),
    }
    for message, (before, changed) in refusals.items():
        with pytest.raises(cli.UsageError, match=message):
            prepared(checkout, before, **changed)


def test_another_compiler_is_not_compared_with(checkout: Path) -> None:
    request, session = prepared(checkout, document(environment={"triton": "2.1.0"}))
    assert session.baseline is None
    assert any("Triton 2.1.0 compiled it" in note for note in request.notes)
    current = request.environment["triton"]
    for environment in ({"triton": current}, {}):
        request, session = prepared(checkout, document(environment=environment))
        assert (session.baseline.commit, session.commits_behind) == ("a" * 40, 4)
        assert not any("compiled it" in note for note in request.notes)


def test_a_document_without_the_field_reads_as_before() -> None:
    data = json.loads(document().to_json())
    del data["baseline"]
    assert Document.from_dict(data) == dataclasses.replace(document(), baseline=None)
