"""What an sm90 kernel uses: what Triton's ptxas says of its PTX.

Sources of the constants: CUDA C++ Programming Guide, "Technical Specifications
per Compute Capability", column 9.0.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path

from gdn_judge.document import Scalar
from gdn_judge.errors import HostError, NotModelled

REGISTERS = 65536
REGISTER_GRANULE = 256  # a warp
MAX_WARPS = 64
MAX_BLOCKS = 32
SHARED_BYTES = 228 * 1024
SHARED_RESERVED = 1024  # of each block
_TIMEOUT_S = 120


def ptxas() -> Path:
    """Triton's own ptxas. Raises HostError where there is none."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise HostError("triton is not installed, so there is no ptxas")
    path = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    if not path.is_file():
        raise HostError(f"triton has no ptxas at {path}")
    return path


def resources(ptx: str, warps: int, shared_bytes: int) -> dict[str, Scalar]:
    """Registers a thread, spills and shared memory in bytes, occupancy.

    Raises NotModelled where ptxas rejects the text.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [str(ptxas()), "-v", "--gpu-name=sm_90a", "-o", str(cubin), str(source)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise NotModelled(f"ptxas rejects the kernel: {done.stderr.strip()[:300]}")
        code_bytes = cubin.stat().st_size
    registers = _number(r"Used (\d+) registers", done.stderr)
    shared = shared_bytes + _number(r"(\d+) bytes smem", done.stderr)
    return {
        "registers": registers,
        "shared": shared,
        "spill_stores": _number(r"(\d+) bytes spill stores", done.stderr),
        "spill_loads": _number(r"(\d+) bytes spill loads", done.stderr),
        "stack": _number(r"(\d+) bytes stack frame", done.stderr),
        **occupancy(registers, shared, warps),
        "cubin_bytes": code_bytes,
    }


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


def occupancy(registers: int, shared_bytes: int, warps: int) -> dict[str, Scalar]:
    """Blocks and warps a multiprocessor, and what limits them."""
    a_warp = -(-max(registers, 1) * 32 // REGISTER_GRANULE) * REGISTER_GRANULE
    limits = {
        "registers": REGISTERS // a_warp // warps,
        "shared": SHARED_BYTES // (shared_bytes + SHARED_RESERVED),
        "warps": MAX_WARPS // warps,
        "blocks": MAX_BLOCKS,
    }
    blocks = min(limits.values())
    limiter = next(name for name, value in limits.items() if value == blocks)
    return {"blocks_per_sm": blocks, "warps_per_sm": blocks * warps, "limited_by": limiter}


def digest(ptx: str) -> str:
    """SHA-256 of the PTX without source lines and comments."""
    text = ptx.split(".section", 1)[0]
    kept = [
        line.split("//")[0].strip()
        for line in text.splitlines()
        if not line.strip().startswith((".loc", ".file", "//", "$L__tmp"))
    ]
    return hashlib.sha256("\n".join(line for line in kept if line).encode()).hexdigest()
