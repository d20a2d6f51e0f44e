"""What a judge's container is allowed, as the engine's own request. Pure: no engine is asked.

Who is who inside: the judge is root with the five capabilities below, because it
starts the candidate under another uid and ends it as that uid (SETUID, SETGID), gives
it a scratch folder (CHOWN), measures and clears that folder (DAC_OVERRIDE), and makes
room where the candidate has used up all processes (KILL).
The candidate is an account of its own; the change of uid takes every capability
from it, and no-new-privileges keeps setuid programs from giving one back.

An engine hands no descriptor into a container, so the document is a file here: in a
folder that the candidate's account may not even enter.
"""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gdn_judge.wire import devices
from gdn_judge.wire.devices import Vendor
from gdn_service.runner.base import JudgeRequest, judge_arguments

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID")
LABEL = "org.gdn-lab.worker"  # its value is the worker's name
TREE = PurePosixPath("/gdn/tree")
OUT = PurePosixPath("/gdn/out")
WORK = PurePosixPath("/gdn/work")
LEASH = PurePosixPath("/gdn/leash.py")
BASELINE = PurePosixPath("/gdn/baseline.json")
VERDICT = "verdict.json"
_FIRST_UID, _UIDS = 200_000, 1 << 16  # above all accounts of Debian, Ubuntu and their images
_LOG_MAX = "16m"  # of the engine's own copy; the service's copy has its own limit


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Bounds of one container, in bytes and counts; `mounts` are host folders, read-only.

    `cpus` and `memory_nodes` are kernel lists like "0-15,32"; "" means those near the device.
    """

    memory: int
    pids: int
    scratch: int
    shared_memory: int
    cpus: str = ""
    memory_nodes: str = ""
    mounts: tuple[str, ...] = ()


def container_request(
    request: JudgeRequest,
    *,
    image_id: str,
    judge: tuple[str, ...],
    worker: str,
    leash: Path,
    allowance: Allowance,
) -> dict[str, Any]:
    """The body of the engine's "create container" for one run.

    `image_id` is the digest of the image; `judge` the judge's command inside it;
    `leash` a copy on the host of supervisor.py, which ends everything inside when
    its stdin closes: the container dies with the worker.
    """
    return {
        "Image": image_id,
        "Entrypoint": [],
        "Cmd": [judge[0], "-I", str(LEASH), *judge, *_arguments(request)],
        "User": "0:0",
        "WorkingDir": str(WORK),
        "Hostname": _hostname(worker),
        "Env": _environment(request, image_id),
        "Labels": {LABEL: worker, "org.gdn-lab.run": request.work_dir.name},
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host_config(request, leash, allowance),
    }


def candidate_uid(run: str) -> int:
    """An account for each run: two containers on one host share no per-user limit."""
    return _FIRST_UID + zlib.crc32(run.encode()) % _UIDS


def _arguments(request: JudgeRequest) -> list[str]:
    inside = dataclasses.replace(
        request,
        tree=Path(TREE),
        work_dir=Path(WORK),
        baseline=None if request.baseline is None else Path(BASELINE),
        device_index=0,  # one device is shown, so it is the first
        candidate_user=request.candidate_user or str(candidate_uid(request.work_dir.name)),
        candidate_uids="",
    )
    return judge_arguments(inside, ("--out", str(OUT / VERDICT)))


def _environment(request: JudgeRequest, image_id: str) -> list[str]:
    values = {
        "HOME": str(WORK),
        "TMPDIR": str(WORK),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GDN_IMAGE_DIGEST": image_id,
    }
    vendor = devices.spec(request.device_kind).vendor
    if vendor is Vendor.NVIDIA:
        values["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
    else:  # CUDA images say "all", which an engine that defaults to NVIDIA's runtime obeys
        values["NVIDIA_VISIBLE_DEVICES"] = "void"
    if vendor is Vendor.AMD and request.device_uuid is not None:
        values["ROCR_VISIBLE_DEVICES"] = request.device_uuid
    return [f"{name}={value}" for name, value in values.items()]


def _host_config(request: JudgeRequest, leash: Path, allowance: Allowance) -> dict[str, Any]:
    return {
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": list(CAPABILITIES),
        "SecurityOpt": ["no-new-privileges:true"],
        "Privileged": False,
        "IpcMode": "private",
        "CgroupnsMode": "private",  # as an engine on cgroup v2 does by itself, one on v1 does not
        "Init": True,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no"},
        "Memory": allowance.memory,
        "MemorySwap": allowance.memory,  # the sum of both: no swap
        "PidsLimit": allowance.pids,
        "CpusetCpus": allowance.cpus or request.cpus,
        "CpusetMems": allowance.memory_nodes or request.memory_nodes,
        "ShmSize": allowance.shared_memory,
        "Tmpfs": {
            # Compiled kernels are loaded from there, hence exec.
            str(WORK): f"rw,exec,nosuid,nodev,mode=0755,size={allowance.scratch}",
            "/tmp": f"rw,noexec,nosuid,nodev,mode=1777,size={allowance.scratch // 16}",
        },
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        "LogConfig": {"Type": "json-file", "Config": {"max-size": _LOG_MAX, "max-file": "1"}},
        "Mounts": _mounts(request, leash, allowance),
        **_devices(request),
    }


def _mounts(request: JudgeRequest, leash: Path, allowance: Allowance) -> list[dict[str, Any]]:
    return [
        _bind(str(request.tree), str(TREE)),
        _bind(str(leash), str(LEASH)),
        _bind(str(request.work_dir / "out"), str(OUT), writable=True),
        *([_bind(str(request.baseline), str(BASELINE))] if request.baseline else []),
        *(_bind(folder, folder) for folder in allowance.mounts),
    ]


def _bind(source: str, target: str, *, writable: bool = False) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": not writable,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _devices(request: JudgeRequest) -> dict[str, Any]:
    """The one GPU: AMD's device nodes with their numeric groups, or the toolkit's request."""
    vendor = devices.spec(request.device_kind).vendor
    if vendor is Vendor.AMD:
        return {
            "Devices": [
                {"PathOnHost": node, "PathInContainer": node, "CgroupPermissions": "rw"}
                for node, _group in request.device_nodes
            ],
            "GroupAdd": sorted({str(group) for _node, group in request.device_nodes}),
        }
    if vendor is Vendor.NVIDIA:
        return {
            "DeviceRequests": [
                {
                    "Driver": "nvidia",
                    "DeviceIDs": [request.device_uuid],
                    "Capabilities": [["gpu", "compute", "utility"]],
                }
            ]
        }
    return {}


def _hostname(worker: str) -> str:
    """The worker's name as a host name, so that environments name the machine."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in worker)
    return kept.strip("-")[:63] or "worker"
