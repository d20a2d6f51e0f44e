"""One small candidate for each way to fool the judge, each with the outcome it must get.

Every file of `candidates/` is one: EXPECT says what the document must show, FILES
adds files to its checkout, SUITE and ARGS change the command. The right control
is among them and must pass.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gdn_judge.document import Document, Outcome

HERE = Path(__file__).parent
CANDIDATES = sorted((HERE / "candidates").glob("*.py"))
PLAIN = HERE.parent / "support" / "plain_op.py"
KNOWN = {"verdict", "outcomes", "reason", "others_pass", "gone"}
KNOWN |= {"log_has", "log_lacks", "log_below", "no_process"}


def constants(path: Path) -> dict[str, Any]:
    """Top-level literal assignments, read without importing the file."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("EXPECT", "FILES", "SUITE", "ARGS"):
                found[name] = ast.literal_eval(node.value)
    return found


def judge(path: Path, folder: Path) -> Document:
    """Run the judge's command on a checkout that holds the candidate."""
    settings = constants(path)
    checkout = folder / "checkout"
    checkout.mkdir()
    shutil.copy(path, checkout / "target_op.py")
    shutil.copy(PLAIN, checkout / "plain_op.py")
    for name, text in settings.get("FILES", {}).items():
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(text)
    command = [sys.executable, "-I", "-m", "gdn_judge", "run", "--target", str(checkout)]
    command += ["--import-path", "target_op:fused_gdn_decode_qkvz", "--device", "interpreter"]
    command += ["--suite", settings.get("SUITE", "correctness"), "--quick"]
    command += [
        "--batch-sizes",
        "2,3",
        "--heads",
        "1x2",
        "--launches",
        "any",
        "--call-timeout",
        "3",
    ]
    command += [*settings.get("ARGS", []), "--out", str(folder / "verdict.json")]
    environment = {**os.environ, "GDN_TOKEN": "s3cret-token", "GITHUB_TOKEN": "s3cret-token"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert ended.returncode in (0, 1), ended.stderr
    document = Document.from_json((folder / "verdict.json").read_text())
    assert (ended.returncode == 0) == (document.verdict.value == "passed")
    return document


@pytest.mark.slow
@pytest.mark.usefixtures("own_user")
@pytest.mark.parametrize("path", CANDIDATES, ids=lambda path: path.stem)
def test_candidate(path: Path, tmp_path: Path) -> None:
    expected = constants(path)["EXPECT"]
    document = judge(path, tmp_path)
    shown = f"{document.verdict}: {document.reason}\n{document.log_tail[-2000:]}"
    assert document.verdict.value == expected["verdict"], shown
    fine = (Outcome.PASSED, Outcome.NOT_RUN)
    bad = [case for case in document.cases if case.outcome not in fine]
    if "outcomes" in expected:
        assert {case.outcome.value for case in bad} <= set(expected["outcomes"]), shown
        assert bad, shown
    assert expected.get("reason", "") in document.reason, shown
    if expected.get("others_pass"):
        assert len(bad) < len(document.cases) / 2, shown
        after = document.cases[document.cases.index(bad[0]) + 1 :]
        assert any(case.outcome is Outcome.PASSED for case in after), shown
    assert expected.get("log_has", "") in document.log_tail
    assert "log_lacks" not in expected or expected["log_lacks"] not in document.log_tail
    assert len(document.log_tail) <= expected.get("log_below", 1 << 20)
    if "gone" in expected:
        pids = re.findall(rf"{expected['gone']} (\d+)", document.log_tail)
        assert pids, shown
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    if "no_process" in expected:
        assert expected["no_process"] not in names_of_processes()
    assert not Path("/tmp/gdn-judge-was-fooled").exists()


def names_of_processes() -> set[str]:
    """Twice: a process that is about to hand on to the next is there one of the times."""
    found = set()
    for path in [*Path("/proc").glob("[0-9]*/comm"), *Path("/proc").glob("[0-9]*/comm")]:
        with contextlib.suppress(OSError):
            found.add(path.read_text().strip())
    return found


def test_every_candidate_says_what_to_expect() -> None:
    for path in CANDIDATES:
        expected = constants(path)["EXPECT"]
        assert set(expected) <= KNOWN, path.name
        assert "verdict" in expected, path.name


def test_every_threat_to_a_judge_on_a_cpu_has_a_candidate() -> None:
    """9 and 10 need a device's timers (tests/gpu); 11 is the interleaving, a unit test."""
    named = {int(match[1]) for path in CANDIDATES if (match := re.match(r"t(\d+)_", path.stem))}
    assert named == set(range(1, 25)) - {9, 10, 11} | {36}
