"""Which earlier result a codeobject run is held against through the service, and its effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from gdn_service import application
from gdn_service.store.models import Run
from support.service_bench import Bench, Repo, bench


@pytest.fixture
def service(database_url: str, tmp_path: Path, repo: Repo) -> Iterator[Bench]:
    with bench(tmp_path / "data", database_url, repo) as made:
        made.start()
        yield made


def judged(service: Bench, sha: str, **body: Any) -> dict[str, Any]:
    """The document of a codeobject run of `sha`."""
    job = service.wait(service.submit(sha, suites=["codeobject"], **body)["id"], timeout_s=240)
    answer = service.http.get(f"/runs/{job['runs'][0]['id']}/document")
    assert answer.status_code == 200, (job["reason"], service.text(job["id"]))
    document: dict[str, Any] = answer.json()
    return document | {"run": job["runs"][0]["id"], "log": service.text(job["id"])}


def compared(document: dict[str, Any]) -> tuple[str, int] | None:
    """The baseline's commit and how many commits it is behind."""
    found = document["baseline"]
    return None if found is None else (found["commit"], found["commits_behind"])


def test_the_nearest_complete_ancestor_is_the_baseline(service: Bench) -> None:
    repo = service.repo
    root = repo.behave(all="pass")
    assert compared(judged(service, root)) is None
    failed = repo.behave(all="fail")
    partial = repo.behave(all="partial")
    gone = repo.behave(all="crash")
    head = repo.behave(all="pass")
    document = judged(service, head)
    assert compared(document) == (root, 4)
    assert f"compared with {root}" in document["log"]
    judged(service, partial)
    service.wait(service.submit(gone, suites=["codeobject"])["id"])
    assert compared(judged(service, head, force=True)) == (root, 4)
    run = judged(service, failed)["run"]
    assert compared(judged(service, head, force=True)) == (root, 4)
    with application.open_store(service.settings) as store, store.write() as tx:
        assert tx.results.accept(run, "16 waves are meant")
    assert compared(judged(service, head, force=True)) == (failed, 3)
    assert service.http.get(f"/runs/{run}").json()["accepted"] == "16 waves are meant"
    with application.open_store(service.settings) as store, store.write() as tx:
        tx.session.execute(update(Run).where(Run.id == run).values(valid=False))
    assert compared(judged(service, head, force=True)) == (root, 4)


def test_order_is_that_of_first_parents_not_of_dates_or_merges(service: Bench) -> None:
    """The merged side is nearer and younger, and is not the baseline."""
    repo = service.repo
    base = repo.behave(all="pass")
    repo.git("checkout", "--quiet", "-b", "side")
    side = repo.behave(all="pass")
    repo.git("checkout", "--quiet", "main")
    old = {"GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z", "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z"}
    repo.git("commit", "--quiet", "--allow-empty", "-m", "long ago", **old)
    repo.git("merge", "--quiet", "--no-ff", "-X", "theirs", "-m", "merge", "side")
    merge = repo.git("rev-parse", "HEAD")
    judged(service, side)
    assert compared(judged(service, merge)) is None
    judged(service, base)
    assert compared(judged(service, merge, force=True)) == (base, 2)
    assert compared(judged(service, side, force=True)) == (base, 1)


def test_other_sizes_and_other_suites_are_not_compared_with(service: Bench) -> None:
    repo = service.repo
    judged(service, repo.behave(all="pass"), batch_sizes=[1])
    head = repo.behave(all="pass")
    assert compared(judged(service, head)) is None
    assert compared(judged(service, head, batch_sizes=[1])) is not None
    job = service.wait(service.submit(head, suites=["correctness"], batch_sizes=[1])["id"])
    document = service.http.get(f"/runs/{job['runs'][0]['id']}/document").json()
    assert document["baseline"] is None


KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x, y, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    value = tl.load(x + at)
    total = tl.sum(value, 0)
    tl.store(y + at, value - total)

def fused(*operands, **options):
    x = torch.empty(65536, dtype=torch.float32, device=operands[0].device)
    out = torch.empty_like(x)
    kernel[(1,)](x, out, SIZE={size}, num_warps={warps})
    return out, None, None
"""


def op(size: int, warps: int) -> dict[str, str]:
    return {"demo_op.py": KERNEL.replace("{size}", str(size)).replace("{warps}", str(warps))}


@pytest.mark.slow
def test_a_commit_that_loses_a_workgroup_or_spills_fails(tmp_path: Path, repo: Repo) -> None:
    """The real judge compiles the kernels of four commits for gfx950."""
    url = f"sqlite:///{tmp_path}/data/gdn.sqlite"
    settings: dict[str, Any] = {"judge_command": (), "device_kinds": ("gfx950-emulated",)}
    with bench(tmp_path / "data", url, repo, **settings) as service:
        service.start()

        def run(sha: str) -> dict[str, Any]:
            return judged(service, sha, batch_sizes=[3], heads="1x2")

        small = repo.commit("small", op(1024, 4))
        first = run(small)
        assert (first["verdict"], first["baseline"]) == ("passed", None)
        assert first["reason"].endswith("no baseline to compare with")
        words = repo.commit("words", {"README": "hello"})
        second = run(words)
        assert second["reason"] == (
            f"all 2 cases passed; same binary as the baseline ({small[:12]}, 1 commit behind)"
        )
        assert second["kernel_digest"] == first["kernel_digest"]
        lost = repo.commit("wide", op(1024, 16))
        wide = run(lost)
        assert wide["verdict"] == "failed"
        assert "resident workgroups of kernel is 2, should be >= 8" in wide["reason"]
        again = run(repo.commit("more words", {"README": "hello again"}))
        assert (again["verdict"], compared(again)) == ("failed", (words, 2))
        spilling = run(repo.commit("spills", op(32768, 1)))
        assert (spilling["verdict"], compared(spilling)) == ("failed", (words, 3))
        assert "spills of kernel is" in spilling["reason"]
