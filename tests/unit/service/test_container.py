"""The container's rights, word for word, and the pieces of the stream."""

from __future__ import annotations

import dataclasses
import gc
import json
from pathlib import Path
from typing import Any

import pytest

from gdn_judge.document import DeviceKind, Suite
from gdn_service.errors import EngineError, SettingsError
from gdn_service.runner.base import JudgeRequest
from gdn_service.runner.choice import build_runner
from gdn_service.runner.container import Allowance, candidate_uid, container_request
from gdn_service.runner.docker_runner import DockerRunner
from gdn_service.runner.engine import Engine
from gdn_service.runner.frames import STDERR, STDOUT, FrameParser
from gdn_service.runner.process import ProcessRunner
from gdn_service.settings import load_settings

GOLDEN = Path(__file__).parents[2] / "golden" / "service"
IMAGE = "sha256:" + "ab" * 32
REQUEST = JudgeRequest(
    tree=Path("/data/trees/" + "c" * 40),
    import_path="gdn_kernels:fused_gdn_decode_qkvz",
    python_path=["kernels"],
    chain_import_path="gdn_kernels.chain:unfused_gdn_decode_qkvz",
    target="gdn-lab",
    commit="c" * 40,
    suite=Suite.ROOFLINE,
    device_kind=DeviceKind.INTERPRETER,
    device_index=0,
    device_uuid=None,
    batch_sizes=[1, 64],
    heads="4x8",
    quick=False,
    candidate_user="",
    work_dir=Path("/data/work/run-7"),
    deadline_s=3590,
    call_timeout_s=120,
    timeout_s=3600,
)
AMD = dataclasses.replace(
    REQUEST,
    device_kind=DeviceKind.GFX950,
    device_index=3,
    device_uuid="GPU-9246ab0c1d2e3f40",
    device_nodes=(("/dev/kfd", 109), ("/dev/dri/renderD131", 109)),
    cpus="0-63,128-191",
    memory_nodes="0",
)
NVIDIA = dataclasses.replace(
    REQUEST, device_kind=DeviceKind.SM90, device_index=1, device_uuid="GPU-1a2b"
)


def body(request: JudgeRequest, **allowed: Any) -> dict[str, Any]:
    allowance = Allowance(
        memory=80 << 30, pids=4096, scratch=16 << 30, shared_memory=8 << 30, **allowed
    )
    return container_request(
        request,
        image_id=IMAGE,
        judge=("python3", "-I", "-m", "gdn_judge"),
        worker="gpu host 1",
        leash=Path("/data/work/run-7/leash.py"),
        allowance=allowance,
    )


@pytest.mark.parametrize(
    ("name", "request_"),
    [("cpu", REQUEST), ("amd", AMD), ("nvidia", NVIDIA)],
    ids=["cpu", "amd", "nvidia"],
)
def test_the_engine_gets_exactly_this(
    name: str, request_: JudgeRequest, pytestconfig: pytest.Config
) -> None:
    golden = GOLDEN / f"container_{name}.json"
    text = json.dumps(body(request_), indent=1) + "\n"
    if pytestconfig.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_nothing_of_the_policy_depends_on_the_device() -> None:
    """What a GPU adds is device nodes, groups, a request, cores and memory near it; no right."""
    own = {"Devices", "GroupAdd", "DeviceRequests", "CpusetCpus", "CpusetMems"}
    configs = [body(request)["HostConfig"] for request in (REQUEST, AMD, NVIDIA)]
    policies = [{k: v for k, v in config.items() if k not in own} for config in configs]
    assert policies[0] == policies[1] == policies[2]
    assert policies[0]["NetworkMode"] == "none"
    assert policies[0]["CapDrop"] == ["ALL"]


def test_only_the_output_folder_is_writable() -> None:
    mounts = body(REQUEST, mounts=("/opt/rocm",))["HostConfig"]["Mounts"]
    assert [mount["Target"] for mount in mounts if not mount["ReadOnly"]] == ["/gdn/out"]
    assert mounts[-1]["Source"] == mounts[-1]["Target"] == "/opt/rocm"


def test_a_baseline_is_shown_read_only() -> None:
    baseline = Path("/data/work/run-7/baseline.json")
    made = body(dataclasses.replace(REQUEST, baseline=baseline, commits_behind=2))
    words = made["Cmd"]
    assert words[words.index("--baseline") + 1] == "/gdn/baseline.json"
    assert words[words.index("--commits-behind") + 1] == "2"
    (mount,) = [m for m in made["HostConfig"]["Mounts"] if m["Target"] == "/gdn/baseline.json"]
    assert (mount["Source"], mount["ReadOnly"]) == (str(baseline), True)


def test_the_operators_cores_win_over_the_devices() -> None:
    config = body(AMD, cpus="0-7", memory_nodes="0")["HostConfig"]
    assert (config["CpusetCpus"], config["CpusetMems"]) == ("0-7", "0")
    assert body(AMD)["HostConfig"]["CpusetCpus"] == "0-63,128-191"


def test_an_account_for_each_run_unless_one_is_named() -> None:
    words = body(REQUEST)["Cmd"]
    assert words[words.index("--candidate-user") + 1] == str(candidate_uid("run-7"))
    assert candidate_uid("run-7") != candidate_uid("run-8")
    assert 200_000 <= candidate_uid("run-7") < 265_536
    named = body(dataclasses.replace(REQUEST, candidate_user="4711"))["Cmd"]
    assert named[named.index("--candidate-user") + 1] == "4711"


def test_frames_come_in_any_pieces() -> None:
    stream = b"\1\0\0\0\0\0\0\5hello" + b"\2\0\0\0\0\0\0\0" + b"\2\0\0\0\0\0\0\3bad"
    for size in (1, 3, 7, len(stream)):
        parser, got = FrameParser(), {STDOUT: b"", STDERR: b""}
        for start in range(0, len(stream), size):
            for number, piece in parser.feed(stream[start : start + size]):
                got[number] += piece
        assert got == {STDOUT: b"hello", STDERR: b"bad"}


def test_the_settings_choose_the_runner() -> None:
    assert isinstance(build_runner(load_settings()), ProcessRunner)
    chosen = build_runner(load_settings(runner="docker", judge_image="gdn-judge"))
    assert isinstance(chosen, DockerRunner)
    with pytest.raises(SettingsError, match="GDN_JUDGE_IMAGE"):
        load_settings(runner="docker")
    with pytest.raises(SettingsError, match="'opt/rocm' is not an absolute path"):
        load_settings(container_mounts="opt/rocm")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="the container engine cannot be reached"):
        Engine(f"unix://{tmp_path}/docker.sock")
    gc.collect()  # the library leaves its socket to the collector where it cannot connect
