"""What the machine offers: the device kernels launch on, its architecture, Gluon.

Importing this asks nothing of the machine and needs no GPU.
"""

from __future__ import annotations

import functools
import importlib
import re
import warnings
from dataclasses import dataclass
from typing import Any

import triton

from gdn_kernels import settings

GLUON_SINCE = (3, 8)  # some 3.7 builds import Gluon and miscompile it


@dataclass(frozen=True)
class LaunchDevice:
    """The torch device type that launches go to, or why there is none."""

    type: str
    reason: str = ""


@dataclass(frozen=True)
class Architecture:
    """Target of the active Triton driver: backend "cuda" or "hip", name "sm90" or "gfx950"."""

    backend: str
    name: str
    warp_size: int


def store_wait(arch: Architecture) -> str:
    """The instruction with which a wave waits for its own stores; "" where none is needed.

    PTX's barrier orders all memory of a program by itself. On AMD Triton's is a fence of the
    workgroup at most, which on gfx9 leaves stores on their way, so that another workgroup
    could be told of them before they arrive. The counter of stores has a name of its own in
    each generation (the ISA documents of CDNA3, RDNA3 and RDNA4).
    """
    if arch.backend != "hip":
        return ""
    if arch.name.startswith("gfx9"):
        return "s_waitcnt vmcnt(0)"
    if arch.name.startswith(("gfx10", "gfx11")):
        return "s_waitcnt_vscnt null, 0x0"
    return "s_wait_storecnt 0x0"


def errata_options(arch: Architecture) -> dict[str, Any]:
    """Options of the compiler that keep it off an instruction which `arch` mis-executes.

    gfx950 now and then leaves out the low lane's sum of a v_pk_fma_f32 with op_sel:[0,1,0]
    (ROCm/rocMLIR pull request 2459, which names no other chip): LLVM gets no packed fp32
    there. Empty elsewhere, and, with a RuntimeWarning, where Triton has no such option.
    """
    if arch.name != "gfx950":
        return {}
    if missing := errata_missing(arch):
        warnings.warn(missing, RuntimeWarning, stacklevel=2)
        return {}
    # the attribute replaces the one that Triton sets itself, for its address sanitizer alone
    features = ["-packed-fp32-ops", *["+xnack"] * bool(triton.knobs.compilation.enable_asan)]
    return {"llvm_fn_attrs": (("target-features", ",".join(features)),)}


def errata_missing(arch: Architecture) -> str:
    """What of `errata_options` this Triton cannot do for `arch`, or ""."""
    if arch.name != "gfx950" or "llvm_fn_attrs" in _hip_options():
        return ""
    return (
        f"Triton {triton.__version__} cannot compile without packed fp32 (it has no llvm_fn_attrs, "
        "Triton 3.8 has): on gfx950 the state update may now and then lose a product "
        "(ROCm/rocMLIR pull request 2459)"
    )


@functools.lru_cache(maxsize=1)
def _hip_options() -> frozenset[str]:
    """The names of the options that Triton's AMD backend takes; another name is a KeyError."""
    backend = importlib.import_module("triton.backends.amd.compiler")
    return frozenset(backend.HIPOptions.__dataclass_fields__)


def interpreting() -> bool:
    """Whether Triton interprets kernels on the CPU (TRITON_INTERPRET at import)."""
    return bool(triton.knobs.runtime.interpret)


def launch_device() -> LaunchDevice:
    """Where a Triton launch goes now. Never raises."""
    if interpreting():
        return LaunchDevice("cpu")
    try:
        driver = triton.runtime.driver.active
        return _device_of(driver)
    except (RuntimeError, ImportError, AttributeError, AssertionError) as error:
        return LaunchDevice("", f"no GPU that Triton can launch on ({error})")


@functools.lru_cache(maxsize=8)
def _device_of(driver: object) -> LaunchDevice:
    return LaunchDevice(driver.get_active_torch_device().type)  # type: ignore[attr-defined]


def architecture() -> Architecture:
    """The architecture kernels are compiled for now; raises what Triton raises without a GPU."""
    if interpreting():
        return Architecture("interpreter", "interpreter", 1)
    return _architecture_of(triton.runtime.driver.active)


@functools.lru_cache(maxsize=8)
def _architecture_of(driver: object) -> Architecture:
    target = driver.get_current_target()  # type: ignore[attr-defined]
    name = f"sm{target.arch}" if target.backend == "cuda" else str(target.arch).split(":")[0]
    return Architecture(target.backend, name, target.warp_size)


def version_at_least(version: str, floor: tuple[int, int]) -> bool:
    """Compare the first two numbers of `version` as numbers; unreadable is False.

    "3.10.0" is at least (3, 8); "3.7.1", "" and "main" are not.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) >= floor


@functools.lru_cache(maxsize=1)
def gluon_refusal() -> str:
    """Why Gluon kernels are not used here, or "" where they are."""
    if not settings.gluon_allowed():
        return "switched off by GDN_KERNELS_GLUON=0"
    if not version_at_least(triton.__version__, GLUON_SINCE):
        floor = ".".join(map(str, GLUON_SINCE))
        return f"Gluon needs Triton >= {floor}, this is {triton.__version__!r}"
    try:
        importlib.import_module("triton.experimental.gluon.language")
    except ImportError as error:
        return f"Gluon does not import: {error}"
    return ""
