"""Fetches what `compare` sets side by side."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdn_client.comparison import CAUTION, Side, compare
from gdn_client.document import read_document
from gdn_client.errors import CommitUnavailable
from gdn_client.kernel_comparison import compare_kernels
from gdn_client.models import Target
from gdn_client.report.table import Section
from gdn_client.session import Session
from gdn_client.submission import choose_target, find_commit

SUITES = ("roofline", "codeobject")
_NAMES = " or ".join(SUITES)
_REMEDY = " or ".join(f"--suite {suite}" for suite in SUITES)


@dataclass(frozen=True)
class Comparison:
    """One suite on one device kind, to print and as JSON."""

    section: Section
    item: dict[str, Any]


def comparisons(session: Session, a: str, b: str, device_kind: str | None) -> list[Comparison]:
    """One for each device kind and suite of SUITES of which both commits have a result."""
    target = choose_target(session.api, session.settings.get("target"))
    left, right = (_sides(session, name, target, device_kind) for name in (a, b))
    if not left and not right:
        raise CommitUnavailable(
            f"neither {a} nor {b} has a stored {_NAMES} result",
            remedy=f"Submit both, with {_REMEDY}.",
        )
    common = sorted(set(left) & set(right), key=lambda key: (key[0], SUITES.index(key[1])))
    if not common:
        raise CommitUnavailable(
            f"{a} and {b} have no {_NAMES} result on the same device kind "
            f"({_listed(left)} against {_listed(right)})",
            remedy=f"Submit the one that lacks it, with {_REMEDY}.",
        )
    return [_compared(suite, left[kind, suite], right[kind, suite]) for kind, suite in common]


def _listed(sides: dict[tuple[str, str], Side]) -> str:
    """`roofline on sm90, codeobject on sm90`, or `none`."""
    return ", ".join(f"{suite} on {kind}" for kind, suite in sorted(sides)) or "none"


def _compared(suite: str, a: Side, b: Side) -> Comparison:
    if suite == "codeobject":
        kernels = compare_kernels(a, b)
        return Comparison(kernels.section(), kernels.as_json())
    section = compare(a, b)
    return Comparison(section, _item(section))


def _sides(
    session: Session, name: str, target: Target, device_kind: str | None
) -> dict[tuple[str, str], Side]:
    """By device kind and suite."""
    commit = find_commit(session.api, name, target, Path.cwd()).commit
    return {
        (result.device_kind, result.suite): Side(
            commit.sha[:9],
            result.environment_id,
            result.kernel_digest,
            read_document(session.api.document(result.run_id)),
        )
        # the widest plan comes first from the server, and is to remain
        for result in reversed(session.api.results(commit.sha, target.name, device_kind))
        if result.suite in SUITES
    }


def _item(section: Section) -> dict[str, Any]:
    return {
        "suite": section.suite,
        "device_kind": section.device_kind,
        "facts": section.facts,
        "environment_differences": section.notes,
        "rows": [
            dict(zip([c.title for c in table.columns], [c.text for c in row], strict=True))
            for table in section.tables
            for row in table.rows
        ],
    }


def comparisons_json(found: list[Comparison]) -> str:
    return json.dumps({"caution": CAUTION, "items": [each.item for each in found]}, indent=2)
