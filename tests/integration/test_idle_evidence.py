"""tests/gpu/idle_evidence.py itself: what it expects holds on a fake driver, and can fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
SCRIPT = ROOT / "tests" / "gpu" / "idle_evidence.py"
CARD = {"name": "NVIDIA H200", "total": 141 << 30, "capability": [9, 0]}

pytestmark = pytest.mark.slow


def rehearse(folder: Path, behaviour: str, cards: int) -> tuple[int, dict[str, Any], str]:
    """(exit status, the evidence, the table) with fake cards and the stand-in judge."""
    driver = folder / "driver"
    shutil.copytree(SUPPORT / "fake_nvml", driver)
    (driver / "processes").mkdir()
    devices = [CARD | {"uuid": f"GPU-fake-{number}"} for number in range(cards)]
    (driver / "devices.json").write_text(json.dumps(devices))
    ended = subprocess.run(
        [sys.executable, str(SUPPORT / "rehearse_evidence.py"), str(driver), behaviour],
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | {"TMPDIR": str(folder)},
        check=False,
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout), ended.stderr


def test_all_holds_where_everyone_is_seen(tmp_path: Path) -> None:
    code, evidence, table = rehearse(tmp_path, "paced", 2)
    parts = evidence["parts"]
    assert [name for name, part in parts.items() if not part["holds"]] == [], table
    assert code == 0
    assert evidence["holds"]
    (sample, _again) = parts["holder"]["samples"]
    for number, held in enumerate(sample["devices"]):
        assert f"evidence/sm90/{number}: in use by pid {held['pid']} (" in sample["why"]
        assert held["offenders"][0]["used_bytes"] == 10 << 30
    assert parts["monitored"]["assertions"] == 6
    assert parts["canary"]["disturbed"].startswith("copy 1002.0 us (usual 475.9 to 526.0, 4 ")
    intruder = parts["intruder"]
    assert intruder["reason"].startswith(
        f"someone else used the device during the run: pid {intruder['pid']} ("
    )
    assert (intruder["host_tries"], intruder["runs_on_the_device"]) == (1, 2)
    assert [(r["attempt"], r["arm"], r["moment"]) for r in intruder["readings"]] == [
        (attempt, arm, moment)
        for attempt in (1, 2)
        for arm, moment in (
            ("run", "before"),
            ("candidate", "before"),
            ("candidate", "after"),
            ("run", "after"),
        )
    ]
    (other,) = intruder["readings"][0]["others"]
    assert (other["device"], other["used_bytes"]) == ("evidence/sm90/1", 600 << 20)
    assert parts["devices"]["at_the_same_time_on"] == ["evidence/sm90/0", "evidence/sm90/1"]
    assert table.splitlines()[-1] == "all hold"


def test_a_run_that_times_nothing_is_no_evidence(tmp_path: Path) -> None:
    """The judge ends without a case: nobody can come in the middle of it."""
    code, evidence, table = rehearse(tmp_path, "silent", 1)
    assert code == 1
    assert not evidence["holds"]
    assert [name for name, part in evidence["parts"].items() if not part["holds"]] == ["intruder"]
    assert "FAILS  intruder" in table
    assert evidence["parts"]["devices"]["why"] == "this machine has one GPU"


def test_without_a_driver_it_says_why_it_cannot_run() -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has an NVIDIA driver")
    ended = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 77
    assert ended.stderr.startswith("cannot run here: NVML: ")
    assert ended.stdout == ""
