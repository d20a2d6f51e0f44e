"""The demo, and the real judge behind the service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdn_service import application
from gdn_service.targets import new_target
from support.service_bench import STANDIN, Bench, Repo, bench

ROOT = Path(__file__).parents[2]
OP = "gdn_kernels:fused_gdn_decode_qkvz"

needs_clone = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="the sources are not a git clone"
)


def demo(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gdn_service.demo", *arguments],
        cwd=cwd,
        env=os.environ | {"GDN_JUDGE_COMMAND": f"{sys.executable},-I,{STANDIN}"},
        capture_output=True,
        text=True,
        check=False,
    )


@needs_clone
def test_the_demo_judges_head_and_then_answers_from_the_store() -> None:
    """With the stand-in judge; `make demo` runs it with the real one."""
    ended = demo(ROOT, "--device", "interpreter")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("roofline on interpreter: passed") == 1
    assert "answered from the store in" in ended.stderr
    home = Path(ended.stderr.partition("data in ")[2].split()[0])
    assert home.name.startswith("gdn-demo-")
    assert not home.exists()


def test_the_demo_outside_a_clone_says_what_to_do(tmp_path: Path, repo: Repo) -> None:
    ended = demo(tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == (
        "demo: this is not a git repository; run the demo inside a clone of GDN Lab\n"
    )
    assert "is not a clone of GDN Lab" in demo(repo.path).stderr


@pytest.fixture
def real(tmp_path: Path, repo: Repo) -> Iterator[Bench]:
    url = f"sqlite:///{tmp_path}/data/gdn.sqlite"
    with bench(tmp_path / "data", url, repo, judge_command=()) as made:
        with application.open_store(made.settings) as store, store.write() as tx:
            for name, import_path in (("gdn-lab", OP), ("nothing", "gdn_kernels:no_such_op")):
                tx.targets.put(
                    new_target(
                        name=name,
                        repository=str(ROOT),
                        import_path=import_path,
                        python_path=["kernels"],
                    )
                )
        made.start()
        yield made


@needs_clone
@pytest.mark.slow
@pytest.mark.usefixtures("own_user")
def test_the_real_judge_behind_the_service(real: Bench) -> None:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    asked = {"suites": ["roofline"], "batch_sizes": [1], "quick": True}
    job = real.wait(real.submit(head, target="gdn-lab", **asked)["id"], timeout_s=280)
    assert (job["state"], job["reason"]) == ("passed", "")
    document = real.http.get(f"/runs/{job['runs'][0]['id']}/document").json()
    assert document["commit"] == head
    assert not any("own user" in note for note in document["notes"])
    closed = [path for path in real.settings.data_dir.iterdir() if path.suffix != ".log"]
    assert {oct(path.stat().st_mode & 0o077) for path in closed} == {"0o0"}
    assert document["planned"] == [case["id"] for case in document["cases"]]
    assert "[passed]" in real.text(job["id"])
    missing = real.wait(real.submit(head, target="nothing", **asked)["id"], timeout_s=280)
    assert (missing["state"], missing["failure_class"]) == ("failed", "candidate")
    assert "no_such_op" in missing["reason"]
