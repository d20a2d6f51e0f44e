"""A service of the same REST interface, in memory, over a real socket.

It holds what a test gives it and records what it was asked. The log can be cut
after any event, as a proxy does.
"""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "gdn_abc123_s3cr3t"

TARGET = {
    "name": "gdn-lab",
    "import_path": "gdn_kernels:fused_gdn_decode_qkvz",
    "chain_import_path": None,
    "default_device_kind": "sm90",
    "suites": ["correctness", "determinism", "roofline", "codeobject"],
}


def job(job_id: str = "j1", state: str = "passed", **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": job_id,
        "target": "gdn-lab",
        "commit": "1" * 40,
        "subject": "A subject",
        "worktree": False,
        "device_kind": "sm90",
        "suites": ["correctness"],
        "batch_sizes": None,
        "heads": None,
        "quick": False,
        "state": state,
        "failure_class": None,
        "reason": "",
        "from_store": False,
        "joined": False,
        "attempt": 1,
        "created_at": "2026-01-02T03:04:05Z",
        "started_at": None,
        "finished_at": None,
        "duration_s": None,
        "queue_position": None,
        "client_wait_s": 21600.0,
        "runs": [],
        "links": {},
    }
    return {**base, **changes}


@dataclass
class Event:
    id: int
    kind: str
    data: dict[str, Any]

    def encoded(self) -> bytes:
        text = f"id: {self.id}\nevent: {self.kind}\ndata: {json.dumps(self.data)}\n\n"
        return text.encode()


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class FakeService:
    """`known` maps full SHA to subject; `job_answer` is what POST /jobs gives."""

    known: dict[str, str] = field(default_factory=dict)
    targets: list[dict[str, Any]] = field(default_factory=lambda: [TARGET])
    devices: list[dict[str, Any]] = field(default_factory=list)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    after_log: dict[str, dict[str, Any]] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # break off after so many events, in turn
    endless: bool = False  # keep the log open after its events
    problems: dict[tuple[str, str], list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    job_answer: dict[str, Any] | None = None
    job_status: int = 201
    requests: list[Request] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    streaming: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def asked(self, method: str, pattern: str) -> list[Request]:
        return [r for r in self.requests if r.method == method and re.fullmatch(pattern, r.path)]

    def __enter__(self) -> FakeService:
        handler = type("Bound", (_Handler,), {"service": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def problem(status: int, code: str, detail: str = "", **extra: Any) -> tuple[int, dict[str, Any]]:
    return status, {
        "type": "about:blank",
        "title": code,
        "status": status,
        "code": code,
        "detail": detail,
        **extra,
    }


class _Handler(BaseHTTPRequestHandler):
    service: FakeService
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        parts = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(
            method,
            urllib.parse.unquote(parts.path).removeprefix("/api/v1"),
            dict(urllib.parse.parse_qsl(parts.query)),
            dict(self.headers.items()),
            self.rfile.read(length),
        )
        self.service.requests.append(request)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json(*problem(401, "unauthorised", "unknown token"))
            return
        planned = self.service.problems.get((method, request.path))
        if planned:
            self._json(*planned.pop(0))
            return
        self._route(request)

    def _route(self, r: Request) -> None:
        s = self.service
        match (r.method, *r.path.strip("/").split("/")):
            case ("GET", "whoami"):
                self._json(200, {"name": "ada", "scope": "submit"})
            case ("GET", "targets"):
                self._json(200, {"items": s.targets})
            case ("GET", "devices"):
                self._json(200, {"items": s.devices})
            case ("GET", "commits", "resolve"):
                self._resolve(r.query["rev"])
            case ("POST", "bundles"):
                self._json(201, {"id": "b1", "heads": []})
            case ("POST", "jobs"):
                answer = s.job_answer or job("j1", "queued", commit=r.json["commit"])
                s.jobs.setdefault(answer["id"], answer)
                self._json(s.job_status, answer)
            case ("GET", "jobs"):
                self._json(200, {"items": list(s.jobs.values()), "next_cursor": None})
            case ("GET", "jobs", job_id):
                self._found(s.jobs, job_id)
            case ("POST", "jobs", job_id, "cancel"):
                if job_id in s.jobs:
                    s.jobs[job_id] = {**s.jobs[job_id], "state": "cancelled"}
                self._found(s.jobs, job_id)
            case ("POST", "jobs", job_id, "retry"):
                again = job("j2", "queued", attempt=2)
                s.jobs.setdefault("j2", again)
                self._json(201, again)
            case ("GET", "jobs", job_id, "log") if r.query.get("format") == "text":
                self._text("\n".join(str(e.data.get("text", "")) for e in s.events))
            case ("GET", "jobs", job_id, "log") if r.query.get("format") == "jsonl":
                lines = [{"id": e.id, "event": e.kind, "data": e.data} for e in s.events]
                self._text("".join(json.dumps(line) + "\n" for line in lines))
            case ("GET", "jobs", job_id, "log"):
                self._stream(job_id, int(r.headers.get("Last-Event-ID") or 0))
            case ("GET", "runs", run_id, "document"):
                self._found(s.documents, run_id)
            case ("GET", "commits", sha, "results"):
                items = s.results.get(sha, [])
                kind = r.query.get("device_kind")
                kept = [i for i in items if kind in (None, i["device_kind"])]
                self._json(200, {"commit": sha, "target": "gdn-lab", "items": kept})
            case _:
                self._json(*problem(404, "not_found", f"no such page {r.path}"))

    def _resolve(self, rev: str) -> None:
        found = [sha for sha in self.service.known if sha.startswith(rev)]
        if len(found) == 1:
            subject = self.service.known[found[0]]
            self._json(200, {"sha": found[0], "subject": subject, "author_date": "2026-01-01"})
        elif found:
            candidates = [{"sha": sha, "subject": self.service.known[sha]} for sha in found]
            self._json(
                *problem(422, "ambiguous_commit", f"{rev} is ambiguous", candidates=candidates)
            )
        else:
            self._json(*problem(404, "unknown_commit", f"commit {rev} is not in the repository"))

    def _found(self, things: dict[str, dict[str, Any]], name: str) -> None:
        if name in things:
            self._json(200, things[name])
        else:
            self._json(*problem(404, "not_found", f"there is no {name}"))

    def _stream(self, job_id: str, after: int) -> None:
        s = self.service
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        events = [event for event in s.events if event.id > after]
        if s.cuts:
            kept = events[: s.cuts.pop(0)]
            for event in kept:
                self.wfile.write(event.encoded())
            if len(kept) < len(events):  # the next one arrives in half
                self.wfile.write(events[len(kept)].encoded()[:-3])
            return
        for event in events:
            self.wfile.write(event.encoded())
        self.wfile.flush()
        if s.endless:
            s.streaming.set()
            s.release.wait()
        s.jobs.update(s.after_log)

    def _json(self, status: int, data: Any) -> None:
        kind = "application/json" if status < 400 else "application/problem+json"
        self._send(status, json.dumps(data).encode(), kind)

    def _text(self, text: str) -> None:
        self._send(200, text.encode(), "text/plain; charset=utf-8")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
