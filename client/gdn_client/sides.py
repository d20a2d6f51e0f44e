"""Fetches what `compare` sets side by side."""

from __future__ import annotations

import json
from pathlib import Path

from gdn_client.comparison import CAUTION, Side, compare
from gdn_client.document import read_document
from gdn_client.errors import CommitUnavailable
from gdn_client.models import Target
from gdn_client.report.table import Section
from gdn_client.session import Session
from gdn_client.submission import choose_target, find_commit

SUITE = "roofline"


def comparisons(session: Session, a: str, b: str, device_kind: str | None) -> list[Section]:
    """One section for each device kind on which both commits have a roofline result."""
    target = choose_target(session.api, session.settings.get("target"))
    left, right = (_sides(session, name, target, device_kind) for name in (a, b))
    if not left and not right:
        raise CommitUnavailable(
            f"neither {a} nor {b} has a stored roofline result",
            remedy="Submit both, with --suite roofline.",
        )
    kinds = sorted(set(left) & set(right))
    if not kinds:
        raise CommitUnavailable(
            f"{a} and {b} have no roofline result on the same device kind "
            f"({', '.join(sorted(left)) or 'none'} against {', '.join(sorted(right)) or 'none'})",
            remedy="Submit the one that lacks it, with --suite roofline.",
        )
    return [compare(left[kind], right[kind]) for kind in kinds]


def _sides(session: Session, name: str, target: Target, device_kind: str | None) -> dict[str, Side]:
    commit = find_commit(session.api, name, target, Path.cwd()).commit
    return {
        result.device_kind: Side(
            commit.sha[:9],
            result.environment_id,
            result.kernel_digest,
            read_document(session.api.document(result.run_id)),
        )
        # the widest plan comes first from the server, and is to remain
        for result in reversed(session.api.results(commit.sha, target.name, device_kind))
        if result.suite == SUITE
    }


def comparisons_json(sections: list[Section]) -> str:
    items = [
        {
            "device_kind": section.device_kind,
            "facts": section.facts,
            "environment_differences": section.notes,
            "rows": [
                dict(zip([c.title for c in table.columns], [c.text for c in row], strict=True))
                for table in section.tables
                for row in table.rows
            ],
        }
        for section in sections
    ]
    return json.dumps({"caution": CAUTION, "items": items}, indent=2)
