"""What the judge reads of its environment: only what a candidate needs to find its device."""

from __future__ import annotations

import os
from collections.abc import Mapping

# Passed on to a candidate; everything else stays out of its environment.
_PASSED_ON = (
    "PATH",
    "LANG",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "ROCM_PATH",
    "ROCM_HOME",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "TRITON_PTXAS_PATH",
    "TRITON_LIBCUDA_PATH",
)


def candidate_environment(work: str, interpret: bool) -> Mapping[str, str]:
    """A fresh environment: device variables, an empty Triton cache, home in `work`."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment |= {
        "HOME": work,
        "TMPDIR": work,
        "TRITON_CACHE_DIR": f"{work}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{work}/inductor",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",  # small arrays: more threads would spin on the judge's cores
    }
    return environment | ({"TRITON_INTERPRET": "1"} if interpret else {})


def shown_amd_device() -> str | None:
    """The unique id (16 hex digits) of the one AMD device that is shown to this process."""
    name = os.environ.get("ROCR_VISIBLE_DEVICES", "")
    return name.removeprefix("GPU-") if name.startswith("GPU-") and "," not in name else None


def image_digest() -> str | None:
    """Of the image that this judge came in, where its container says so."""
    return os.environ.get("GDN_IMAGE_DIGEST")
