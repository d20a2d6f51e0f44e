"""Which kernel of a baseline a kernel is held against, and what is said of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gdn_judge import JUDGE_VERSION, cli
from gdn_judge.cases import Planned
from gdn_judge.codeobject import baseline, suite
from gdn_judge.codeobject.baseline import Compiled, Held
from gdn_judge.contract import Heads
from gdn_judge.document import Case, DeviceKind, Document, Kernel, Outcome, Suite, Verdict
from gdn_judge.prepare import prepare
from gdn_judge.run import describe
from gdn_judge.session import Session

PLANNED = ["gfx950-4x8-T1", "gfx950-4x8-T16"]


def kernel(name: str, digest: str, batches: str, groups: int = 8, **used: Any) -> Kernel:
    arch = used.pop("arch", "gfx950")
    resources = {"batches": batches, "groups_per_cu": groups, **used}
    return Kernel(name=name, digest=digest, arch=arch, resources=resources)


def now(name: str, digest: str, groups: int = 8, **used: Any) -> Compiled:
    return Compiled(name, digest, {"groups_per_cu": groups, **used})


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


def found(before: Document, name: str, digest: str, rows: int) -> str | None:
    """The digest of the kernel that the only kernel of a call is held against."""
    held = baseline.hold(
        before, f"gfx950-4x8-T{rows}", "gfx950", rows, [now(name, digest)], "groups_per_cu"
    )
    if held is None:
        return None
    ((_, entry),) = held.pairs
    return entry.digest if entry else None


def session(before: Document | None, **place: Any) -> Session:
    return Session(
        factory=lambda: pytest.fail("not started"),
        device=DeviceKind.GFX950_EMULATED,
        baseline=before,
        **place,
    )


def judged(before: Document, *kernels: Compiled) -> tuple[list[tuple[str, Any, Any]], str]:
    """The checks of the case of one row that failed (name, value, bound), and the words."""
    planned = Planned(
        id=PLANNED[0], kind="codeobject", heads=Heads(4, 8), rows=1, arch="gfx950", fp8=True
    )
    held = session(before)
    checks = list(suite._compared(planned, list(kernels), held))
    case = Case(id=PLANNED[0], params={}, outcome=Outcome.PASSED, checks=checks)
    failed = [(c.name, c.value, c.bound) for c in checks if not c.passed]
    return failed, baseline.words(held, [case])


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


def test_a_new_name_hides_nothing() -> None:
    one = document(kernel("gdn", "d1", "1"))
    assert found(one, "renamed", "x", 1) == "d1"
    lost = ("resident workgroups of new", 1, 8)
    fewest = ("fewest resident workgroups of the call", 1, 8)
    assert judged(one, now("new", "x", 1))[0] == [lost, fewest]
    assert judged(one, now("new", "x", 1), now("nop", "y", 16))[0] == [lost, fewest]
    assert judged(one, now("gdn", "nop", 16), now("new", "x", 1))[0] == [fewest]
    two = document(kernel("a", "da", "1"), kernel("b", "db", "1", 4))
    assert judged(two, now("c", "x", 2))[0] == [
        ("resident workgroups of c", 2, 4),
        ("fewest resident workgroups of the call", 2, 4),
    ]
    assert judged(two, now("c", "x", 4)) == (
        [],
        "no worse than the baseline (aaaaaaaaaaaa) (1 kernels of it are gone)",
    )
    assert judged(two, now("b", "db", 4), now("c", "x", 5))[0] == [
        ("resident workgroups of c", 5, 8)
    ]


def reasons(before: Document, arch: str, *kernels: Compiled) -> list[str]:
    planned = Planned(id=PLANNED[0], kind="codeobject", heads=Heads(4, 8), rows=1, arch=arch)
    checks = suite._compared(planned, list(kernels), session(before))
    return [describe(check) for check in checks if not check.passed]


def test_a_reason_gives_the_baseline_and_both_figures() -> None:
    before = document(kernel("gdn", "d1", "1", 8, vgpr_spills=1, scratch=4))
    worse = now("gdn", "x", 5, vgpr_spills=2, sgpr_spills=3, scratch=16)
    assert reasons(before, "gfx950", worse) == [
        "spills of gdn is 5, should be <= 1 (5 spilled registers, baseline aaaaaaaaaaaa has 1)",
        "scratch bytes of gdn is 16, should be <= 4 "
        "(16 bytes of scratch, baseline aaaaaaaaaaaa has 4)",
        "resident workgroups of gdn is 5, should be >= 8 "
        "(5 workgroups per CU, baseline aaaaaaaaaaaa has 8)",
    ]
    assert reasons(before, "gfx950", now("gdn", "d1", 8, scratch=4), now("gdn", "x", 5)) == [
        "fewest resident workgroups of the call is 5, should be >= 8 "
        "(5 workgroups per CU, baseline aaaaaaaaaaaa has 8)"
    ]
    hopper = document(
        Kernel(
            name="gdn", digest="d1", arch="sm90", resources={"batches": "1", "blocks_per_sm": 4}
        ),
        commit=None,
    )
    fewer = Compiled("gdn", "x", {"blocks_per_sm": 3, "spill_stores": 8})
    assert reasons(hopper, "sm90", fewer) == [
        "spills of gdn is 8, should be <= 0 (8 bytes of spills, the baseline has 0)",
        "resident workgroups of gdn is 3, should be >= 4 (3 blocks per SM, the baseline has 4)",
    ]


def test_a_spill_without_a_baseline_names_none() -> None:
    planned = Planned(id=PLANNED[0], kind="codeobject", heads=Heads(4, 8), rows=1, arch="gfx950")
    spilling = now("gdn", "x", vgpr_spills=2)
    checks = suite._compared(planned, [spilling], session(None))
    assert [describe(check) for check in checks if not check.passed] == [
        "spills of gdn is 2, should be <= 0"
    ]


def test_a_new_name_may_spill_what_the_old_one_did() -> None:
    spilling = document(kernel("gdn", "d1", "1", vgpr_spills=40))
    assert judged(spilling, now("new", "x", vgpr_spills=39))[0] == []
    assert judged(spilling, now("new", "x", vgpr_spills=41))[0] == [("spills of new", 41, 40)]
    beside = now("new", "x", vgpr_spills=40), now("more", "y", 16, vgpr_spills=1)
    assert judged(spilling, *beside)[0] == [("spills of more", 1, 0)]


def test_variants_of_one_name_are_held_against_each_other_worst_first() -> None:
    before = document(kernel("gdn", "d1", "1", 2), kernel("gdn", "d2", "1", 8))
    lost = ("resident workgroups of gdn", 2, 8)
    assert judged(before, now("gdn", "n1", 2), now("gdn", "n2", 2))[0] == [lost]
    assert judged(before, now("gdn", "n1", 8), now("gdn", "n2", 2))[0] == []
    assert judged(before, now("gdn", "d1", 2), now("gdn", "n2", 2))[0] == [lost]
    one = document(kernel("gdn", "d1", "1", 8))
    assert judged(one, now("gdn", "x", 1), now("gdn", "d1", 8))[0] == [
        ("fewest resident workgroups of the call", 1, 8)
    ]


def test_the_same_binary_is_preferred_among_equal_names() -> None:
    before = document(kernel("gdn", "d1", "1"), kernel("gdn", "d2", "1"))
    assert found(before, "gdn", "d2", 1) == "d2"


def test_a_kernel_that_is_gone_leaves_no_same_binary() -> None:
    before = document(kernel("a", "da", "1"), kernel("b", "db", "1"), kernel("c", "dc", "16"))
    assert judged(before, now("a", "da"), now("b", "db")) == (
        [],
        "same binary as the baseline (aaaaaaaaaaaa)",
    )
    assert judged(before, now("a", "da")) == (
        [],
        "no worse than the baseline (aaaaaaaaaaaa) (1 kernels of it are gone)",
    )
    assert judged(before) == (
        [],
        "nothing as in the baseline (aaaaaaaaaaaa) (2 kernels of it are gone)",
    )


def words(*digests: tuple[str, Kernel | None], commit: str | None = "a" * 40, **place: Any) -> str:
    cases = [
        Case(
            id=str(number),
            params={},
            outcome=Outcome.PASSED,
            checks=list(
                baseline.told(Held([(Compiled("gdn", digest, {}), before)], gone=[], fewest=None))
            ),
        )
        for number, (digest, before) in enumerate(digests)
    ]
    return baseline.words(session(document(commit=commit), **place), cases)


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
    assert baseline.words(session(None), []) == "no baseline to compare with"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text("def f(): ...\n")
    return tmp_path


def prepared(checkout: Path, before: Document | dict[str, Any] | str, **changed: str) -> Any:
    path = checkout / "before.json"
    text = before.to_json() if isinstance(before, Document) else before
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    asked = {"suite": "codeobject", "device": "gfx950-emulated", **changed}
    words = ["run", "--target", str(checkout), "--import-path", "m:f", "--out", "/none"]
    for name, value in asked.items():
        words += [f"--{name}", value]
    options = cli.parser().parse_args([*words, "--baseline", str(path), "--commits-behind", "4"])
    return prepare(options, None)


def test_a_baseline_of_another_run_is_refused(checkout: Path) -> None:
    refusals = {
        r"is for a suite that compares \(codeobject\), not roofline": (
            document(),
            {"suite": "roofline"},
        ),
        "codeobject on gfx950-emulated, this run is codeobject on sm90": (
            document(),
            {"device": "sm90"},
        ),
        "is partial": (document(partial=True), {}),
    }
    for message, (before, changed) in refusals.items():
        with pytest.raises(cli.UsageError, match=message):
            prepared(checkout, before, **changed)


def test_a_document_of_another_judge_is_no_baseline(checkout: Path) -> None:
    data = json.loads(document().to_json())
    request, held = prepared(checkout, data | {"later": 1})
    assert held.baseline is None
    (note,) = [note for note in request.notes if note.startswith("Not compared")]
    assert note == (
        f"Not compared with the baseline: this judge, {JUDGE_VERSION}, cannot read its document: "
        "document has an unknown field 'later'"
    )


def test_what_is_no_document_is_refused(checkout: Path) -> None:
    for text in ("{", "{}", "[]"):
        with pytest.raises(cli.UsageError, match="is no verdict document"):
            prepared(checkout, text)


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
