"""The table of suites: all that a suite is, in one row.

A new suite is a module with `plan` and `judge`, and a row here. Everything that lists suites
reads the table, in its order.
"""

from __future__ import annotations

import enum
import importlib
from dataclasses import dataclass
from types import ModuleType

from gdn_judge.wire.names import Name


class Needs(enum.StrEnum):
    """What a suite does with the device."""

    CALLS = "calls the op"
    TIMES = "times the op against ceilings of the same run"
    COMPILES = "compiles the op, and executes its code where that can be emulated"


class Suite(Name):
    """What is judged in one run; a row of SUITES."""


@dataclass(frozen=True, kw_only=True)
class SuiteSpec:
    """One suite.

    module: has `plan(scope)`, the cases in order, and `judge(planned, session)`, and where
    `compares` also `words(session, cases)`, what the comparison with the baseline amounts to;
    it may need torch, so it is imported when it is asked for. arms: whose processes run, in
    the words of events and evidence. compares: judged against a baseline, an earlier document
    of the same suite and device kind. empty_batch: a batch of no rows is a case. default: part
    of a job that names no suites. Rows stand in the order in which a job runs them.
    """

    name: Suite
    title: str
    module: str
    needs: Needs
    arms: tuple[str, ...] = ("candidate",)
    compares: bool = False
    empty_batch: bool = True
    default: bool = True

    def load(self) -> ModuleType:
        return importlib.import_module(self.module)


SUITES: dict[Suite, SuiteSpec] = {}


def add(row: SuiteSpec) -> Suite:
    """Add a row, at the end: `add(SuiteSpec(name=Suite.add("profile"), ...))`."""
    SUITES[row.name] = row
    return row.name


def remove(suite: Suite) -> None:
    """Take a row out again, for tests."""
    del SUITES[suite]
    Suite.remove(suite)


def spec(suite: Suite) -> SuiteSpec:
    return SUITES[suite]


def defaults() -> list[Suite]:
    """The suites of a job that names none."""
    return [suite for suite, row in SUITES.items() if row.default]


add(
    SuiteSpec(
        name=Suite.add("correctness"),
        title="steps against the reference, the predicate against the op",
        module="gdn_judge.correctness",
        needs=Needs.CALLS,
    )
)
add(
    SuiteSpec(
        name=Suite.add("determinism"),
        title="the same inputs give the same bits",
        module="gdn_judge.determinism",
        needs=Needs.CALLS,
    )
)
add(
    SuiteSpec(
        name=Suite.add("roofline"),
        title="how close to the memory roofline",
        module="gdn_judge.roofline",
        needs=Needs.TIMES,
        empty_batch=False,
    )
)
add(
    SuiteSpec(
        name=Suite.add("codeobject"),
        title="what the compiled kernels use",
        module="gdn_judge.codeobject.suite",
        needs=Needs.COMPILES,
        compares=True,
        empty_batch=False,
        default=False,
    )
)
