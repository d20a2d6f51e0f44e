"""The service's REST interface, one method per request.

Transport faults and problem+json answers become the client's own errors here, so
nothing above this module knows of HTTP.
"""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import httpx

from gdn_client import __version__
from gdn_client.errors import (
    ClientError,
    CommitUnavailable,
    ServerFailure,
    ServerUnreachable,
    UnexpectedAnswer,
    UnknownName,
    UsageError,
)
from gdn_client.models import (
    Device,
    Job,
    Reader,
    ResolvedCommit,
    StoredResult,
    Target,
    read_device,
    read_job,
    read_result,
    read_target,
)
from gdn_client.problems import raise_problem
from gdn_client.text import one_line

T = TypeVar("T")

RETRY_PAUSES_S = (0.2, 1.0)
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_RETRIED_STATUSES = frozenset({502, 503, 504})


class Api:
    """A session with one server. A context manager; close it to free its connections."""

    def __init__(
        self,
        server: str,
        token: str | None,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"User-Agent": f"gdn-client/{__version__}", "Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self.server = server
        self._sleep = sleep
        self._http = httpx.Client(
            base_url=f"{server}/api/v1",
            headers=headers,
            timeout=TIMEOUT,
            transport=transport,
            trust_env=not is_loopback(server),
        )

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def whoami(self) -> tuple[str, str]:
        """The token's (name, scope)."""
        r = Reader(self._json("GET", "/whoami"), "answer to whoami")
        return r.text("name"), r.text("scope")

    def targets(self) -> list[Target]:
        return self._items("/targets", read_target)

    def devices(self) -> list[Device]:
        return self._items("/devices", read_device)

    def resolve(self, target: str, rev: str) -> ResolvedCommit:
        """Raises CommitUnavailable or AmbiguousCommit."""
        data = self._json("GET", "/commits/resolve", params={"target": target, "rev": rev})
        r = Reader(data, "commit")
        return ResolvedCommit(sha=r.text("sha"), subject=r.text("subject", ""))

    def knows(self, target: str, sha: str) -> bool:
        try:
            self.resolve(target, sha)
        except CommitUnavailable:
            return False
        return True

    def upload_bundle(self, target: str, bundle: Path) -> str:
        """Send a git bundle; the id under which the server keeps it."""
        response = self._request(
            "POST",
            "/bundles",
            params={"target": target},
            content=bundle.read_bytes(),
            headers={"Content-Type": "application/octet-stream"},
            timeout=httpx.Timeout(300.0, connect=10.0),
        )
        return Reader(_decoded(response), "bundle").text("id")

    def submit(self, body: Mapping[str, Any], key: str) -> Job:
        """`key` makes a repeat after a lost answer harmless."""
        headers = {"Idempotency-Key": key}
        return read_job(self._json("POST", "/jobs", json=dict(body), headers=headers, safe=True))

    def job(self, job_id: str) -> Job:
        """Raises UnknownName, also for what cannot be a job's id."""
        return read_job(self._json("GET", _job_path(job_id), what=f"job {job_id}"))

    def jobs(self, **filters: str | None) -> list[Job]:
        params = {name: value for name, value in filters.items() if value is not None}
        return self._items("/jobs", read_job, params=params)

    def cancel(self, job_id: str) -> Job:
        path = _job_path(job_id, "/cancel")
        return read_job(self._json("POST", path, what=f"job {job_id}", safe=True))

    def retry(self, job_id: str) -> Job:
        path = _job_path(job_id, "/retry")
        return read_job(self._json("POST", path, what=f"job {job_id}"))

    def document(self, run_id: str) -> dict[str, Any]:
        path = f"/runs/{_quoted(run_id)}/document"
        return Reader(self._json("GET", path, what=f"document of run {run_id}"), "document").data

    def results(self, sha: str, target: str, device_kind: str | None = None) -> list[StoredResult]:
        params = {"target": target}
        if device_kind is not None:
            params["device_kind"] = device_kind
        return self._items(f"/commits/{_quoted(sha)}/results", read_result, params=params)

    def log_text(self, job_id: str) -> str:
        path = _job_path(job_id, "/log")
        headers = {"Accept": "text/plain"}
        return self._request(
            "GET", path, params={"format": "text"}, headers=headers, what=f"job {job_id}"
        ).text

    def log_events(self, job_id: str) -> list[dict[str, Any]]:
        """What there is, one {id, event, data} each, its text exact."""
        path = _job_path(job_id, "/log")
        headers = {"Accept": "application/x-ndjson"}
        text = self._request(
            "GET", path, params={"format": "jsonl"}, headers=headers, what=f"job {job_id}"
        ).text
        try:
            return [Reader(json.loads(line), "log event").data for line in text.split("\n") if line]
        except ValueError as error:
            raise UnexpectedAnswer(
                "the server's log should have one JSON object a line",
                remedy="The client and the server may be of different versions; update the older.",
            ) from error

    @contextmanager
    def log_stream(
        self, job_id: str, *, last_event_id: str | None, read_timeout_s: float
    ) -> Iterator[Iterator[str]]:
        """The lines of the job's event stream, from after `last_event_id` on."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        path = _job_path(job_id, "/log")
        timeout = httpx.Timeout(TIMEOUT.connect, read=read_timeout_s)
        with self._faults():
            with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if response.is_error:
                    response.read()
                    raise_problem(response, f"job {job_id}")
                yield response.iter_lines()

    def _items(
        self, path: str, read: Callable[[Any], T], params: Mapping[str, str] | None = None
    ) -> list[T]:
        return Reader(self._json("GET", path, params=params), f"answer to {path}").objects(
            "items", read
        )

    def _json(self, method: str, path: str, **options: Any) -> Any:
        return _decoded(self._request(method, path, **options))

    def _request(
        self, method: str, path: str, *, what: str = "", safe: bool = False, **options: Any
    ) -> httpx.Response:
        """Send, repeating a request that may be repeated; raise for any error answer."""
        pauses = RETRY_PAUSES_S if safe or method == "GET" else ()
        for pause in (*pauses, None):
            try:
                with self._faults():
                    response = self._http.request(method, path, **options)
                    if response.is_error:
                        raise_problem(response, what)
                    if response.is_redirect:
                        _refuse_redirect(response)
                    return response
            except (ServerUnreachable, ServerFailure) as error:
                if pause is None or not _worth_repeating(error):
                    raise
                self._sleep(pause)
        raise AssertionError("unreachable: the last pass returns or raises")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise ServerUnreachable(
                f"cannot reach the server at {self.server}: {one_line(str(error))}",
                remedy="Check that it runs (`gdn-service serve`) and the address "
                "(`gdn-client config list`, --server, GDN_SERVER).",
            ) from error
        except httpx.TimeoutException as error:
            raise ServerUnreachable(
                f"the server at {self.server} did not answer in time",
                remedy="Try again; if it stays so, ask its operator.",
            ) from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise ServerUnreachable(
                f"the connection to {self.server} broke: {one_line(str(error))}",
                remedy="Try again.",
            ) from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UsageError(f"{self.server} is not a usable address: {error}") from error


def _worth_repeating(error: ClientError) -> bool:
    if isinstance(error, ServerUnreachable):
        return not isinstance(error.__cause__, httpx.ConnectError)
    return isinstance(error, ServerFailure) and error.status in _RETRIED_STATUSES


def is_loopback(server: str) -> bool:
    """A proxy from the environment cannot reach this machine's own loopback."""
    host = urllib.parse.urlsplit(server).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")


def _job_path(job_id: str, rest: str = "") -> str:
    if not re.fullmatch(r"[a-z0-9]{1,20}", job_id):
        raise UnknownName(
            f"{one_line(job_id, 60)!r} is not a job's id",
            remedy="`gdn-client status` lists the latest jobs.",
        )
    return f"/jobs/{job_id}{rest}"


def _decoded(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise UnexpectedAnswer(
            f"{response.request.url.host} answered {response.status_code} with something that "
            "is not JSON",
            remedy="Check that --server names a GDN Lab service.",
        ) from error


def _refuse_redirect(response: httpx.Response) -> NoReturn:
    where = one_line(response.headers.get("Location", "elsewhere"))
    raise UnexpectedAnswer(
        f"the server redirects to {where}",
        remedy="If you trust that address, give it as --server.",
    )
