"""Which kernels the op launched: a claim, since the op runs in the same process.

Triton's launch hooks on a device, a wrapper round its grid executor under the
interpreter. Digests are of the code object's file, read when it was loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_CODE = (".cubin", ".hsaco")
_MAX = 512


class Recorder:
    """Launches since the last `take`, in order: name, digest, arch, resources."""

    def __init__(self) -> None:
        self._launches: list[dict[str, Any]] = []
        self._loaded: dict[Any, dict[str, Any]] = {}

    def install(self, interpret: bool) -> None:
        runtime = _runtime_knobs()
        if interpret and runtime is not None:
            self._wrap_interpreter()
            return
        for name, hook in (
            ("kernel_load_end_hook", self._on_load),
            ("launch_enter_hook", self._on_launch),
        ):
            chain: Any = getattr(runtime, name, None)
            if hasattr(chain, "add"):
                chain.add(hook)

    def remove(self) -> None:
        """Take the launch hook away, so that it costs a timed call nothing."""
        chain: Any = getattr(_runtime_knobs(), "launch_enter_hook", None)
        if hasattr(chain, "remove"):
            chain.remove(self._on_launch)

    def take(self) -> list[dict[str, Any]]:
        launches, self._launches = self._launches, []
        return launches

    def distinct(self) -> list[dict[str, Any]]:
        """The launches since the last `take`, each code object once."""
        found = {(launch["name"], launch.get("digest")): launch for launch in self.take()}
        return list(found.values())

    def _note(self, launch: dict[str, Any]) -> None:
        if len(self._launches) < _MAX:
            self._launches.append(launch)

    def _on_load(
        self, module: Any, function: Any, name: str, group: Mapping[str, str], digest: str
    ) -> None:
        self._loaded[function] = _code_object(name, group)

    def _on_launch(self, metadata: Any) -> None:
        data = metadata.get()
        known = self._loaded.get(data.get("function"))
        self._note(known or {"name": str(data.get("name", "?"))})

    def _wrap_interpreter(self) -> None:
        from triton.runtime import interpreter

        original, note = interpreter.GridExecutor.__call__, self._note

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            note({"name": str(getattr(executor.fn, "__name__", "?"))})
            return original(executor, *args, **kwargs)

        interpreter.GridExecutor.__call__ = call


def _runtime_knobs() -> Any:
    """Triton's runtime hooks, or None where there is no Triton or an old one."""
    try:
        import triton
    except ImportError:
        return None
    return getattr(getattr(triton, "knobs", None), "runtime", None)


def _code_object(name: str, group: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    for file, path in group.items():
        if file.endswith(_CODE):
            found["digest"] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        elif file.endswith(".json"):
            found |= _resources(json.loads(Path(path).read_text()))
    return found


def _resources(metadata: Mapping[str, Any]) -> dict[str, Any]:
    target = metadata.get("target", {})
    kept = ("num_warps", "num_stages", "shared", "global_scratch_size")
    return {
        "arch": str(target.get("arch", "")) if isinstance(target, dict) else str(target),
        "resources": {key: metadata[key] for key in kept if isinstance(metadata.get(key), int)},
    }


@contextlib.contextmanager
def profiled() -> Iterator[list[dict[str, Any]]]:
    """Kernels seen by the device's own tracer (CUPTI or ROCTracer): name, us.

    The list is filled when the block ends.
    """
    import torch

    kernels: list[dict[str, Any]] = []
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        yield kernels
        torch.cuda.synchronize()
    for event in profile.events():
        if str(event.device_type).endswith("CUDA"):
            kernels.append({"name": event.name[:200], "us": event.device_time})
