"""Holds the kernels of a run against those of an earlier run, its baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gdn_judge.document import Case, Check, Document, Kernel, Scalar
from gdn_judge.session import Session

SAME, CHANGED, NEW = "same binary", "changed", "not in the baseline"
_TOLD = "against the baseline: "


@dataclass(frozen=True)
class Compiled:
    """One kernel of a call, named, hashed, and measured."""

    name: str
    digest: str
    resources: Mapping[str, Scalar]


def counterpart(
    baseline: Document, case: str, arch: str, rows: int, kernel: Compiled, *, alone: bool
) -> Kernel | None:
    """The kernel that ran for the same case in the baseline, or None.

    It has the same name; where a call has one kernel (`alone`) and had one then, a new
    name does not hide what was lost.
    """
    if case not in baseline.planned:
        return None
    there = [
        entry
        for entry in baseline.kernels
        if entry.arch == arch and str(rows) in str(entry.resources.get("batches", "")).split(",")
    ]
    named = [entry for entry in there if entry.name == kernel.name]
    if named:
        return next((entry for entry in named if entry.digest == kernel.digest), named[0])
    return there[0] if alone and len(there) == 1 else None


def told(kernel: Compiled, before: Kernel | None) -> Check:
    """How the kernel stands to its counterpart; judges nothing."""
    value = NEW
    if before is not None:
        value = SAME if before.digest == kernel.digest else CHANGED
    return Check(name=_TOLD + kernel.name, passed=True, value=value, relation="measured")


def words(session: Session, cases: Iterable[Case]) -> str:
    """What comparing amounts to, for a run whose `cases` all passed."""
    if session.baseline is None:
        return "no baseline to compare with"
    name = f"the baseline{_place(session.baseline.commit, session.commits_behind)}"
    found = Counter(
        str(check.value) for case in cases for check in case.checks if check.name.startswith(_TOLD)
    )
    if set(found) == {SAME}:
        return f"same binary as {name}"
    said = f"no worse than {name}" if found[SAME] or found[CHANGED] else f"nothing as in {name}"
    return said + (f" ({found[NEW]} kernels are not in it)" if found[NEW] else "")


def _place(commit: str | None, behind: int | None) -> str:
    said: Sequence[str] = [
        *([commit[:12]] if commit else []),
        *([f"{behind} commit{'s' * (behind != 1)} behind"] if behind is not None else []),
    ]
    return f" ({', '.join(said)})" if said else ""
