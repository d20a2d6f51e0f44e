"""The op: `fused_gdn_decode_qkvz`, its predicate, and `explain`."""

from __future__ import annotations

from typing import Any

import torch

from gdn_kernels import launch, platform, tuning
from gdn_kernels.contract import CONV_WIDTH, HEAD_DIM, HEAD_RATIO, OPERANDS
from gdn_kernels.predicate import Refusal, Shape, examine, require

# The judge may hold the op to these: our own op deviates from the contract nowhere.
GDN_DECLARATIONS: dict[str, str] = {}

Result = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]


def fused_gdn_decode_qkvz(
    projected_qkvz: torch.Tensor,
    projected_ba: torch.Tensor,
    conv_state: torch.Tensor,
    ssm_state: torch.Tensor,
    ssm_state_indices: torch.Tensor,
    conv_weight: torch.Tensor,
    conv_bias: torch.Tensor,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    norm_weight: torch.Tensor,
    *,
    scale: float,
    norm_eps: float,
    quant_dtype: torch.dtype | None = None,
    pad_slot_id: int = -1,
) -> Result:
    """One decode step of a Gated DeltaNet layer for T tokens, in one launch.

    With KH key heads, VH = 2*KH value heads, K = V = 128 and N slots; all
    operands contiguous, on one device:

        projected_qkvz     [T, KH*(2K + 4V)]  bf16  per key head: q(K) k(K) v(2V) z(2V)
        projected_ba       [T, 2*VH]          bf16  per key head: b(2) a(2)
        conv_state         [N, 2*KH*K+VH*V, 3] bf16 changed in place; oldest value first
        ssm_state          [N, VH, V, K]      fp32  changed in place; K fastest
        ssm_state_indices  [T]                int32 row -> slot of both pools
        conv_weight        [C, 4]             bf16  tap 0 oldest
        conv_bias          [C]                bf16
        A_log, dt_bias     [VH]               fp32, bf16
        norm_weight        [V]                bf16

    Qwen3.5 stores the same widths as `[all q|all k|all v|all z]`; no shape
    shows it, and that order is read wrongly here.

    Rows whose slot is `pad_slot_id` change no pool and give +0 (FP8 codes 0,
    scale 1e-10/448). Slots of the other rows must be distinct and in range;
    that is not checked. T = 0 launches nothing.

    Returns (out [T, VH, V] bf16, codes [T, VH*V] float8_e4m3fn or None,
    scales [T, VH] fp32 or None); codes and scales where `quant_dtype` is
    torch.float8_e4m3fn. Raises ValueError with the predicate's reason where
    `fused_gdn_decode_qkvz_supported` says no.
    """
    operands = (
        projected_qkvz,
        projected_ba,
        conv_state,
        ssm_state,
        ssm_state_indices,
        conv_weight,
        conv_bias,
        A_log,
        dt_bias,
        norm_weight,
    )
    shape = require(operands, quant_dtype)
    outputs = allocate_outputs(shape, ssm_state.device, quant_dtype is not None)
    if shape.tokens:
        launch.fused(operands, shape, outputs, scale, norm_eps, pad_slot_id)
    return outputs


def fused_gdn_decode_qkvz_supported(
    projected_qkvz: Any,
    projected_ba: Any,
    conv_state: Any,
    ssm_state: Any,
    ssm_state_indices: Any,
    conv_weight: Any,
    conv_bias: Any,
    A_log: Any,
    dt_bias: Any,
    norm_weight: Any,
    quant_dtype: Any = None,
) -> tuple[bool, str]:
    """Whether the op takes these operands: (True, "") or (False, why).

    Never raises and never launches; the reason names the operand.
    """
    verdict = examine(
        (
            projected_qkvz,
            projected_ba,
            conv_state,
            ssm_state,
            ssm_state_indices,
            conv_weight,
            conv_bias,
            A_log,
            dt_bias,
            norm_weight,
        ),
        quant_dtype,
    )
    return (False, verdict.reason) if isinstance(verdict, Refusal) else (True, "")


def warm_up(key_heads: int, device: torch.device | str = "cuda") -> list[launch.Variant]:
    """Compile and load every variant that any T can select with `key_heads`; returns them.

    After it no call with these heads compiles, inside a graph capture or
    outside. Launches each variant once on a pad row. Raises ValueError where
    the op does not launch on `device`.
    """
    operands = _pad_row(key_heads, torch.device(device))
    shape = require(operands, None)
    arch, gluon = platform.architecture(), not platform.gluon_refusal()
    variants = []
    for config in tuning.configurations(arch.name, gluon, key_heads):
        for fp8 in (False, True):
            outputs = allocate_outputs(shape, operands[0].device, fp8)
            variants.append(launch.fused(operands, shape, outputs, 1.0, 1e-6, -1, config))
    return variants


def _pad_row(key_heads: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """The ten operands of a call with one pad row and one slot."""
    heads = HEAD_RATIO * key_heads
    channels = (2 * key_heads + heads) * HEAD_DIM
    half: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
    return (
        torch.zeros(1, (2 * key_heads + 2 * heads) * HEAD_DIM, **half),
        torch.zeros(1, 2 * heads, **half),
        torch.zeros(1, channels, CONV_WIDTH - 1, **half),
        torch.zeros(1, heads, HEAD_DIM, HEAD_DIM, device=device),
        torch.full((1,), -1, dtype=torch.int32, device=device),
        torch.zeros(channels, CONV_WIDTH, **half),
        torch.zeros(channels, **half),
        torch.zeros(heads, device=device),
        torch.zeros(heads, **half),
        torch.zeros(HEAD_DIM, **half),
    )


def explain(*operands: Any, quant_dtype: Any = None) -> str:
    """In words: whether the op takes the ten operands, which path it chooses, and why."""
    if len(operands) != len(OPERANDS):
        return f"refused: explain takes the ten operands {', '.join(OPERANDS)}"
    shape = examine(operands, quant_dtype)
    if isinstance(shape, Refusal):
        return f"refused: {shape.reason}"
    arch = platform.architecture()
    refusal = platform.gluon_refusal()
    config = tuning.choose(arch.name, not refusal, shape.key_heads, max(shape.tokens, 1))
    missing = platform.errata_missing(arch)
    return "\n".join(
        [
            f"taken: T = {shape.tokens}, KH = {shape.key_heads}, VH = {shape.value_heads}, "
            f"N = {shape.slots}, FP8 {'on' if quant_dtype is not None else 'off'}",
            f"path: {config.kernel} on {arch.name}: {_why(config, arch.name, refusal)}",
            f"configuration: {config}",
            *([f"beware: {missing}"] if missing else []),
        ]
    )


def _why(config: tuning.Config, arch: str, refusal: str) -> str:
    if refusal:
        return refusal
    if arch not in tuning.table():
        return f"no rules for {arch} in the tuning table, so the portable kernel"
    return f"the tuning table's rule for {arch}"


_forms: dict[tuple[int, int, bool, torch.device], list[torch.Tensor]] = {}
_FORMS_AT_MOST = 8192


def allocate_outputs(shape: Shape, device: torch.device, fp8: bool) -> Result:
    """(out, codes, scales) as the op returns them, uninitialised.

    Allocated by example, of tensors with no memory behind them: PyTorch takes half the
    time for a tensor like another as for one of given sizes and type.
    """
    key = (shape.tokens, shape.value_heads, fp8, device)
    forms = _forms.get(key)
    if forms is None:
        if len(_forms) >= _FORMS_AT_MOST:
            _forms.clear()
        forms = _output_forms(shape, device, fp8)
        if any(type(form) is not torch.Tensor for form in forms):
            return _as_result(forms)  # made under a mode that makes others: not to be kept
        for form in forms:
            form.untyped_storage().resize_(0)
        _forms[key] = forms
    return _as_result([torch.empty_like(form) for form in forms])


def _as_result(tensors: list[torch.Tensor]) -> Result:
    out, *quantised = tensors
    codes, scales = quantised or (None, None)
    return out, codes, scales


def _output_forms(shape: Shape, device: torch.device, fp8: bool) -> list[torch.Tensor]:
    """Tensors of the outputs' sizes and types."""
    tokens, heads = shape.tokens, shape.value_heads
    forms = [torch.empty((tokens, heads, HEAD_DIM), dtype=torch.bfloat16, device=device)]
    if fp8:
        forms.append(
            torch.empty((tokens, heads * HEAD_DIM), dtype=torch.float8_e4m3fn, device=device)
        )
        forms.append(torch.empty((tokens, heads), dtype=torch.float32, device=device))
    return forms
