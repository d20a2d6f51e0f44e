"""`show --environment`: where results were measured, and in what two places differ."""

from __future__ import annotations

import json

from gdn_client.comparison import difference
from gdn_client.document import Document, Scalar
from gdn_client.errors import CommitUnavailable
from gdn_client.report.figures import scalar
from gdn_client.results import Result
from gdn_client.text import counted, one_line, printable

Key = tuple[str, str]  # (suite, device kind)


def described(result: Result, *, as_json: bool) -> str:
    """Each distinct environment of the result's runs, with the suites that ran in it."""
    distinct: list[tuple[list[str], dict[str, Scalar]]] = []
    for (suite, kind), document in _documents(result).items():
        label = f"{suite} on {kind}"
        for labels, environment in distinct:
            if environment == document.environment:
                labels.append(label)
                break
        else:
            distinct.append(([label], document.environment))
    if as_json:
        return json.dumps([{"runs": runs, "environment": e} for runs, e in distinct], indent=2)
    return "\n\n".join(f"{', '.join(labels)}\n{_listing(e)}" for labels, e in distinct)


def _listing(environment: dict[str, Scalar]) -> str:
    width = max((len(key) for key in environment), default=0)
    lines = [
        f"  {printable(key):<{width}}  {one_line(scalar(value), 200)}"
        for key, value in sorted(environment.items())
    ]
    return "\n".join(lines) or "  nothing stated"


def differences(names: list[str], found: list[Result], *, as_json: bool) -> str:
    """The differences of A and B for each suite and device kind that both have."""
    a, b = (_documents(result) for result in found)
    shared = [key for key in a if key in b]
    if not shared:
        raise CommitUnavailable(
            f"{names[0]} and {names[1]} have no suite on the same device kind in common",
            remedy="Submit the one that lacks it.",
        )
    said = {key: difference(a[key].environment, b[key].environment) for key in shared}
    if as_json:
        items = [{"suite": s, "device_kind": d, "differences": w} for (s, d), w in said.items()]
        return json.dumps({"a": names[0], "b": names[1], "items": items}, indent=2)
    blocks = [f"A is {names[0]}, B is {names[1]}"]
    for (suite, kind), sentences in said.items():
        equal = sum(
            value == b[suite, kind].environment.get(name)
            for name, value in a[suite, kind].environment.items()
        )
        blocks.append(
            "\n".join(
                [
                    f"{suite} on {kind}: {counted(len(sentences), 'difference')}, {equal} equal",
                    *(f"  {sentence}" for sentence in sentences),
                ]
            )
        )
    return "\n\n".join(blocks)


def _documents(result: Result) -> dict[Key, Document]:
    return {
        (outcome.suite, outcome.device_kind): outcome.document
        for outcome in result.outcomes
        if outcome.document is not None
    }
