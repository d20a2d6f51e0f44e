"""The evidence script on a fake driver, with the stand-in judge: its own logic, no GPU.

    python rehearse_evidence.py FOLDER BEHAVIOUR

FOLDER holds a copy of fake_nvml; BEHAVIOUR is the stand-in judge's.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from gdn_judge.yardsticks import Canary, Look
from gdn_service.runner import nvml_query

SUPPORT = Path(__file__).parent
SCRIPT = SUPPORT.parent / "gpu" / "idle_evidence.py"
FOLDER, BEHAVIOUR = Path(sys.argv[1]), sys.argv[2]
UUID = json.loads((FOLDER / "devices.json").read_text())[0]["uuid"]

HOLDER = f"""
import os, sys
sys.path.insert(0, {str(FOLDER)!r})
import pynvml
pynvml.hold(os.environ["CUDA_VISIBLE_DEVICES"], 10 << 30)
print("ready", flush=True)
sys.stdin.read()
"""


def main() -> int:
    query = FOLDER / "query.py"
    query.write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(FOLDER)!r})\n"
        f"runpy.run_path({nvml_query.__file__!r}, run_name='__main__')\n"
    )
    nvml_query.__file__ = str(query)
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location("idle_evidence", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.HOLDER = script.SPINNER = HOLDER
    script.look = look
    script.MONITOR = script.MONITOR.replace(
        "import sys,", f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import sys,"
    )
    script.ASSERTIONS = 6
    script.make_repository = repository
    script.settings = lambda folder, real=script.settings: real(folder).model_copy(
        update={
            "judge_command": (sys.executable, "-I", str(SUPPORT / "standin_judge.py")),
            "idle_watch_s": 0.3,
            "idle_interval_s": 0.01,
            "host_retry_s": 0.1,
            "stop_grace_s": 1,
        }
    )
    code: int = script.main()
    return code


def look(_device: str) -> Look:
    """A canary that takes twice as long while someone is on the first card."""
    import pynvml

    slow = 2 if pynvml.nvmlDeviceGetComputeRunningProcesses({"uuid": UUID}) else 1
    times = [500.0 * slow, 501.0 * slow, 502.0 * slow]
    return Look(canary=Canary(copy=times, compute=times, bytes=1), facts={"device.uuid": UUID})


def repository(path: Path) -> str:
    from support.service_bench import Repo

    repo = Repo(path)
    repo.commit("package", {"kernels/gdn_kernels.py": "def fused_gdn_decode_qkvz(): ...\n"})
    return repo.commit("behave", {"behaviour.json": json.dumps({"all": BEHAVIOUR})})


if __name__ == "__main__":
    sys.path.insert(0, str(SUPPORT.parent))
    sys.exit(main())
