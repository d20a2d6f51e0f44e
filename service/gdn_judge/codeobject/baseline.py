"""Holds the kernels of a run against those of an earlier run, its baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gdn_judge.document import Case, Check, Document, Kernel, Scalar
from gdn_judge.session import Session

SAME, CHANGED, NEW = "same binary", "changed", "not in the baseline"
GONE = "in the baseline only"
_TOLD = "against the baseline: "


@dataclass(frozen=True)
class Compiled:
    """One kernel of a call, named, hashed, and measured."""

    name: str
    digest: str
    resources: Mapping[str, Scalar]


@dataclass(frozen=True)
class Held:
    """The kernels of one case held against those that the case had in the baseline.

    pairs: each kernel of now with the one it is held against, or None. gone: kernels of
    then that nothing is held against. fewest: fewest resident workgroups then and now,
    where the two are not the same number of kernels with the same names; else None.
    """

    pairs: list[tuple[Compiled, Kernel | None]]
    gone: list[Kernel]
    fewest: tuple[int, int] | None


def hold(
    baseline: Document, case: str, arch: str, rows: int, now: Sequence[Compiled], resident: str
) -> Held | None:
    """None where the baseline did not plan the case. `resident`: the resource to order by.

    Kernels are paired by digest, then by name, then, since a new name hides nothing, with
    what is left; the fewest resident workgroups with the fewest each time.
    """
    if case not in baseline.planned:
        return None
    then = [
        entry
        for entry in baseline.kernels
        if entry.arch == arch and str(rows) in str(entry.resources.get("batches", "")).split(",")
    ]
    left, gone = sorted(now, key=_by(resident)), sorted(then, key=_by(resident))
    pairs: list[tuple[Compiled, Kernel | None]] = []
    for same in (_same_binary, _same_name, lambda kernel, entry: True):
        for kernel in list(left):
            entry = next((entry for entry in gone if same(kernel, entry)), None)
            if entry is not None:
                pairs.append((kernel, entry))
                left.remove(kernel)
                gone.remove(entry)
    pairs += [(kernel, None) for kernel in left]
    alike = Counter(kernel.name for kernel in now) == Counter(entry.name for entry in then)
    fewest = None
    if now and then and not alike:
        fewest = min(map(_by(resident), then)), min(map(_by(resident), now))
    return Held(pairs, gone, fewest)


def _by(resident: str) -> Callable[[Compiled | Kernel], int]:
    return lambda kernel: whole(kernel.resources, resident)


def whole(resources: Mapping[str, Scalar], name: str) -> int:
    """A resource as a number; 0 where it is none."""
    value = resources.get(name)
    return int(value) if isinstance(value, int | float) else 0


def _same_binary(kernel: Compiled, entry: Kernel) -> bool:
    return (kernel.name, kernel.digest) == (entry.name, entry.digest)


def _same_name(kernel: Compiled, entry: Kernel) -> bool:
    return kernel.name == entry.name


def told(held: Held) -> Iterator[Check]:
    """How each kernel stands to the baseline; judges nothing."""
    for kernel, before in held.pairs:
        value = NEW
        if before is not None:
            value = SAME if before.digest == kernel.digest else CHANGED
        yield _measured(kernel.name, value)
    for entry in held.gone:
        yield _measured(entry.name, GONE)


def _measured(name: str, value: str) -> Check:
    return Check(name=_TOLD + name, passed=True, value=value, relation="measured")


def name(session: Session) -> str:
    """How a reason calls what a kernel is held against: "baseline 1a2b3c4d5e6f"."""
    commit = session.baseline.commit if session.baseline is not None else None
    return f"baseline {commit[:12]}" if commit else "the baseline"


def words(session: Session, cases: Iterable[Case]) -> str:
    """What comparing amounts to, for a run whose `cases` all passed."""
    if session.baseline is None:
        return "no baseline to compare with"
    called = f"the baseline{_place(session.baseline.commit, session.commits_behind)}"
    found = Counter(
        str(check.value) for case in cases for check in case.checks if check.name.startswith(_TOLD)
    )
    if set(found) == {SAME}:
        return f"same binary as {called}"
    alike = found[SAME] or found[CHANGED]
    said = f"no worse than {called}" if alike else f"nothing as in {called}"
    said += f" ({found[NEW]} kernels are not in it)" if found[NEW] else ""
    return said + (f" ({found[GONE]} kernels of it are gone)" if found[GONE] else "")


def _place(commit: str | None, behind: int | None) -> str:
    said: Sequence[str] = [
        *([commit[:12]] if commit else []),
        *([f"{behind} commit{'s' * (behind != 1)} behind"] if behind is not None else []),
    ]
    return f" ({', '.join(said)})" if said else ""
