"""Serving adapter for SGLang: opt-in, and never in the way.

The caller asks `enabled()` at start, `covered(...)` for a batch, then `run(...)`:

    if sglang.enabled():
        yes, why = sglang.covered(*operands, output_gate="silu", quant_dtype=dtype)
        if yes:
            return sglang.run(*operands, scale=..., norm_eps=..., quant_dtype=dtype)
    ...  # the caller's own chain

Nothing is imported or probed unless SGLANG_QWEN3_NEXT_GDN_FUSED_BACKEND names
this backend. A gate that cannot answer declines with a reason, and the caller's
chain runs; an error inside the kernel is the caller's to see, since the pools
may already have changed. The first engagement and each reason to decline are
logged once.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

from gdn_kernels import settings

BACKEND = "gdn_kernels"
GATE_ACTIVATIONS = ("silu", "swish")  # two names of one function; sigmoid is another gate

_log = logging.getLogger(__name__)
_said: set[str] = set()


def enabled() -> bool:
    """Whether the environment asks for this backend; a value that names another is declined."""
    asked = settings.sglang_backend()
    if asked is None:
        return False
    if asked != BACKEND:
        _decline(f"{settings.SGLANG_BACKEND} is {asked!r}, this backend answers to {BACKEND!r}")
        return False
    return True


def available() -> tuple[bool, str]:
    """Whether the op can launch on this machine: (True, "") or (False, why). Never raises."""
    if not enabled():
        return False, f"{settings.SGLANG_BACKEND} does not ask for {BACKEND!r}"
    try:
        platform = importlib.import_module("gdn_kernels.platform")
        reason = platform.launch_device().reason
    except Exception as error:  # noqa: BLE001 - a gate that fails declines, with the reason
        reason = f"the gate failed: {type(error).__name__}: {error}"
    return _answer(reason)


def covered(*operands: Any, output_gate: str = "silu", quant_dtype: Any = None) -> tuple[bool, str]:
    """Whether the op takes the ten operands under this gate activation. Never raises.

    Everything about operands is the op's own predicate; only the activation of
    the output gate, which the op does not see, is judged here.
    """
    ready, reason = available()
    if not ready:
        return False, reason
    if output_gate not in GATE_ACTIVATIONS:
        return _answer(f"output gate {output_gate!r}: the op gates with {GATE_ACTIVATIONS[0]}")
    try:
        op = importlib.import_module("gdn_kernels.op")
        taken, reason = op.fused_gdn_decode_qkvz_supported(*operands, quant_dtype=quant_dtype)
    except Exception as error:  # noqa: BLE001 - as above
        taken, reason = False, f"the gate failed: {type(error).__name__}: {error}"
    return _answer("" if taken else reason)


def run(*operands: Any, **options: Any) -> Any:
    """The op on operands that `covered` took; its errors pass through unchanged."""
    op = importlib.import_module("gdn_kernels.op")
    if "engaged" not in _said:
        _said.add("engaged")
        _log.info("fused GDN decode engaged: %s", op.explain(*operands).replace("\n", "; "))
    return op.fused_gdn_decode_qkvz(*operands, **options)


def _answer(reason: str) -> tuple[bool, str]:
    if reason:
        _decline(reason)
    return not reason, reason


def _decline(reason: str) -> None:
    if reason not in _said:
        _said.add(reason)
        _log.warning("fused GDN decode declined: %s", reason)
