"""Error answers of the service (problem+json) as the client's own errors.

`code` is a stable word; the sentence told to the user is the server's own detail.
"""

from __future__ import annotations

from typing import Any, NoReturn

import httpx

from gdn_client.errors import (
    AmbiguousCommit,
    BundleRefused,
    ClientError,
    CommitUnavailable,
    InfrastructureError,
    NotAuthorised,
    NotCancellable,
    ServerFailure,
    UnexpectedAnswer,
    UnknownName,
    UsageError,
)
from gdn_client.text import listed, one_line


def _read(response: httpx.Response) -> dict[str, Any]:
    try:
        data = response.json()
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def raise_problem(response: httpx.Response, what: str) -> NoReturn:
    """Raise what the answer means; `what` names the thing asked for ("job j1")."""
    problem = _read(response)
    code = str(problem.get("code", ""))
    detail = one_line(str(problem.get("detail") or problem.get("title") or ""))
    status = response.status_code
    if status >= 500 or status == 429:
        raise _server_failure(status, detail, response)
    if status == 401 or code == "unauthorised":
        raise NotAuthorised(
            f"the server does not accept the token{_after(detail)}",
            remedy="Run `gdn-client login` with a valid one, or correct GDN_TOKEN.",
        )
    if status == 403 or code == "forbidden":
        raise NotAuthorised(
            f"the token may not do this{_after(detail)}",
            remedy="Ask an operator for a token with a wider scope "
            "(read < submit < manage < admin).",
        )
    raise _known_problem(code, detail, problem, status, what)


def _after(detail: str) -> str:
    return f": {detail}" if detail else ""


def _server_failure(status: int, detail: str, response: httpx.Response) -> ServerFailure:
    if status == 429:
        pause = response.headers.get("Retry-After", "")
        when = f"in {pause} s" if pause.isdigit() else "later"
        return ServerFailure(
            "the server is refusing more requests for now",
            status=status,
            remedy=f"Try again {when}.",
        )
    return ServerFailure(
        f"the server failed ({status}){_after(detail)}",
        status=status,
        remedy="Try again; if it stays so, ask its operator to look at the service's log.",
    )


def _known_problem(
    code: str, detail: str, problem: dict[str, Any], status: int, what: str
) -> ClientError:
    match code:
        case "unknown_commit":
            return CommitUnavailable(
                detail or "the server does not know that commit",
                remedy="Push it, or submit from the repository that has it.",
            )
        case "ambiguous_commit":
            return AmbiguousCommit(
                (detail or "that commit is ambiguous") + _candidates(problem),
                remedy="Give more digits.",
            )
        case "unknown_target" | "unknown_suite" | "unknown_device_kind":
            return UnknownName(detail or code.replace("_", " "), remedy=_known_names(problem, code))
        case "device_kind_not_served":
            return InfrastructureError(
                detail or "no worker serves that device kind now",
                remedy="`gdn-client devices` lists what can run; "
                "ask the operator whether the host's worker is up.",
            )
        case "bundle_invalid":
            return BundleRefused(
                f"the server refused the bundle{_after(detail)}",
                remedy="Push the commit instead, then submit again.",
            )
        case "payload_too_large":
            return BundleRefused(
                f"the commit is too large to send{_after(detail)}",
                remedy="Push it to a branch that the server fetches, then submit again.",
            )
        case "not_cancellable":
            return NotCancellable(detail or "the job has already ended", remedy="Nothing to do.")
        case "not_found":
            return UnknownName(
                detail or f"there is no {what or 'such thing'}",
                remedy="`gdn-client status` lists the latest jobs.",
            )
    if status == 404:
        return UnexpectedAnswer(
            f"the server has no such page{_after(what)}",
            remedy="Check that --server names a GDN Lab service and that versions match.",
        )
    if detail:
        return UsageError(f"the server refused: {detail}")
    return UsageError(
        f"the server refused the request ({status} {code})".replace(" )", ")"),
        remedy="The client and the server may be of different versions; update the older.",
    )


def _candidates(problem: dict[str, Any]) -> str:
    lines = []
    for item in problem.get("candidates") or []:
        if isinstance(item, dict):
            lines.append(
                f"\n  {str(item.get('sha', ''))[:16]}  {one_line(str(item.get('subject', '')), 60)}"
            )
    return "".join(lines[:10])


def _known_names(problem: dict[str, Any], code: str) -> str:
    known = problem.get("known") or problem.get("available") or problem.get("candidates")
    if isinstance(known, list) and known:
        return f"Known: {listed([str(name) for name in known])}."
    if code == "unknown_device_kind":
        return "`gdn-client devices` lists what can run."
    return "Check the spelling."
