"""Bodies at the door: who may send one and how long it may be, before any of it is read."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gdn_service import application
from gdn_service.api.app import build_app
from gdn_service.auth import Scope, create_token
from support.service_bench import Bench, Repo, bench, bench_settings

MIB = 1 << 20
SENT = 400 * MIB
ALLOWED = 3 << 30  # address space of the service under test


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The API in a process of its own, under a limit on its memory."""
    folder = tmp_path_factory.mktemp("door")
    url = f"sqlite:///{folder}/data/gdn.sqlite"
    with bench(folder / "data", url, Repo(folder / "repo")) as made:
        made.start("api")
        assert made.process is not None
        resource.prlimit(made.process.pid, resource.RLIMIT_AS, (ALLOWED, ALLOWED))
        yield made


def peak(service: Bench, *, afresh: bool = False) -> int:
    """Most bytes that the service had resident, since the last call with `afresh`."""
    assert service.process is not None
    folder = Path(f"/proc/{service.process.pid}")
    if afresh:
        (folder / "clear_refs").write_text("5")  # proc(5): resets the peak
    return int(re.findall(r"VmHWM:\s+(\d+) kB", (folder / "status").read_text())[0]) * 1024


def post(
    service: Bench, path: str, *, token: bool, chunked: bool
) -> tuple[int, dict[str, Any], int]:
    """Status, problem, and bytes sent until the answer came; all of SENT is offered, or as
    much as is taken before the connection ends."""
    head = f"POST /api/v1{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    if token:
        head += f"Authorization: Bearer {service.token}\r\n"
    head += "Transfer-Encoding: chunked\r\n" if chunked else f"Content-Length: {SENT}\r\n"
    block = b" " * MIB
    piece = b"%x\r\n%s\r\n" % (len(block), block) if chunked else block
    answer, sent, at_answer = b"", 0, 0
    with socket.create_connection(("127.0.0.1", service.settings.port), timeout=30) as connection:
        connection.sendall(head.encode() + b"\r\n")
        try:
            while sent < SENT:
                if select.select([connection], [], [], 0)[0]:
                    got = connection.recv(1 << 16)
                    if not got:
                        break
                    answer += got
                    at_answer = at_answer or sent
                connection.sendall(piece)
                sent += len(block)
        except (BrokenPipeError, ConnectionResetError):
            pass
        while b"\r\n\r\n" not in answer or not answer.rstrip().endswith(b"}"):
            got = connection.recv(1 << 16)
            assert got, answer
            answer += got
    status = int(answer.split()[1])
    return status, json.loads(answer.partition(b"\r\n\r\n")[2]), at_answer or sent


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("path", ["/jobs", "/bundles?target=demo", "/jobs/j0/cancel", "/nowhere"])
def test_400_mb_without_a_token_are_refused_and_leave_nothing(
    service: Bench, path: str, chunked: bool
) -> None:
    before = peak(service, afresh=True)
    status, problem, _ = post(service, path, token=False, chunked=chunked)
    assert (status, problem["code"]) == (401, "unauthorised")
    assert peak(service) - before < 24 * MIB


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(
    ("path", "setting"),
    [("/jobs", "GDN_REQUEST_MAX_BYTES"), ("/bundles?target=demo", "GDN_BUNDLE_MAX_BYTES")],
)
def test_400_mb_with_a_token_are_refused_by_name_of_the_limit(
    service: Bench, path: str, setting: str, chunked: bool
) -> None:
    settings = service.settings
    limit = settings.bundle_max_bytes if "bundle" in path else settings.request_max_bytes
    before = peak(service, afresh=True)
    status, problem, sent = post(service, path, token=True, chunked=chunked)
    assert (status, problem["code"]) == (413, "payload_too_large")
    assert f"may have {limit} bytes ({setting})" in problem["detail"]
    taken = limit if chunked and "bundle" in path else 0  # a bundle is kept while it comes
    assert peak(service) - before < 24 * MIB + 2 * taken
    assert sent < SENT


def test_the_service_works_on(service: Bench) -> None:
    answer = service.http.post("/jobs", json={"target": "nope", "commit": "1234"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_target")
    padded = json.dumps({"target": "nope", "commit": "1234"})
    as_json = {"Content-Type": "application/json"}
    for size, status in ((60_000, 404), (70_000, 413)):
        answer = service.http.post("/jobs", content=padded.ljust(size), headers=as_json)
        assert answer.status_code == status


def test_without_a_token_no_byte_of_a_body_is_asked_for(tmp_path: Path) -> None:
    settings = bench_settings(tmp_path / "data", "")
    application.migrate(settings)
    asked: list[str] = []

    async def call(path: str, token: str | None) -> int:
        told: list[Any] = []

        async def receive() -> dict[str, Any]:
            asked.append(path)
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: Any) -> None:
            told.append(message)

        headers = [(b"content-type", b"application/json")]
        headers += [(b"authorization", f"Bearer {token}".encode())] if token else []
        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/api/v1{path}",
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"target=demo",
            "headers": headers,
            "http_version": "1.1",
            "scheme": "http",
            "server": ("x", 80),
        }
        await app(scope, receive, send)
        status: int = told[0]["status"]
        return status

    with application.open_store(settings) as store:
        app = build_app(application.build_context(settings, store))
        good = create_token(store, "reader", Scope.READ)
        for path in ("/jobs", "/bundles", "/jobs/j0/cancel", "/jobs/j0/retry"):
            assert asyncio.run(call(path, None)) == 401
            assert asyncio.run(call(path, "gdn_wrong")) == 401
        assert asked == []
        assert asyncio.run(call("/bundles", good)) == 403
        assert asked == []
        assert asyncio.run(call("/jobs", good)) == 403
        assert asked == ["/jobs"]
