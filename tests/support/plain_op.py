"""The op in plain fp32 torch operations, and each way to get it wrong.

A right kernel by other means: fp32 throughout and its own summation order. It
is the right control of the attacks and, with one fault, each of the mutants.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

D = 128

FAULTS = {
    "no_scale": "q is not scaled",
    "no_q_norm": "q is not normalised",
    "no_k_norm": "k is not normalised",
    "no_beta": "beta is 1",
    "no_dt_bias": "dt_bias is left out",
    "no_decay": "the state does not decay",
    "no_delta": "the prediction is not subtracted",
    "predict_before_decay": "predicts from the state before its decay",
    "l2_eps_1e5": "the norms of q and k use eps 1e-5",
    "norm_eps_1e5": "the output norm uses eps 1e-5",
    "l2_eps_outside": "eps is added to the norm, outside the root",
    "reversed_taps": "tap 0 is taken as the newest",
    "swap_ba": "b and a are swapped",
    "k_major": "the state is read and written K-major",
    "state_not_written": "the new state is not stored",
    "history_not_written": "the new history is not stored",
    "history_after_silu": "the history keeps the activated values",
    "beta_fp32": "beta is not rounded to bf16",
    "y_fp32": "the convolution's output is not rounded to bf16",
    "bf16_products": "each product of the convolution is rounded to bf16",
    "core_fp32": "core is not rounded to bf16",
    "bf16_state": "the state is rounded to bf16",
    "norm_rounded": "the norm is rounded to bf16 before the gate",
    "gemma_norm": "the norm's weight is 1 + w",
    "no_gate": "z does not gate the output",
    "no_bias": "conv_bias is left out",
    "contiguous_layout": "the columns are read as [all q|all k|all v|all z]",
    "wrong_key_head": "value head h uses key head h % KH",
    "off_by_one_slot": "writes the state of the next slot",
    "pad_to_slot_0": "a pad row works on slot 0",
    "slot_0_is_pad": "slot 0 is taken as a pad",
    "pad_not_zeroed": "outputs of pad rows keep what was there",
    "scales_zero": "FP8 scales are all zero",
    "scale_per_row": "one FP8 scale for a row instead of one for each head",
    "fp8_truncated": "the FP8 cast truncates",
    "out_fp32": "out is float32",
}


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
    quant_dtype: Any = None,
    pad_slot_id: int = -1,
    fault: str = "",
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    given = (projected_qkvz, projected_ba, conv_state, ssm_state, ssm_state_indices)
    weights = (conv_weight, conv_bias, A_log, dt_bias, norm_weight)
    if reason := _refusal(dict(zip(NAMES, (*given, *weights), strict=True)), quant_dtype):
        raise ValueError(reason)
    T, VH = projected_qkvz.shape[0], ssm_state.shape[1]
    KH = (projected_qkvz.shape[1] - 2 * VH * D) // (2 * D)
    r = VH // KH
    shape, device = (T, VH, D), ssm_state.device
    out = torch.full(
        shape, 3.0 if fault == "pad_not_zeroed" else 0.0, dtype=torch.bfloat16, device=device
    )
    index = ssm_state_indices.long()
    live = (index != pad_slot_id) & ((index != 0) if fault == "slot_0_is_pad" else True)
    slots = index[live]
    if fault == "pad_to_slot_0":
        live, slots = torch.ones_like(live), torch.where(live, index, 0)
    if slots.numel():
        x, z = _split(projected_qkvz[live], KH, r, fault)
        b, a = projected_ba[live].float().view(-1, KH, 2, r).unbind(2)
        b, a = b.reshape(-1, VH), a.reshape(-1, VH)
        if fault == "swap_ba":
            b, a = a, b
        y = _convolve(x, conv_state, slots, conv_weight, conv_bias, fault)
        q, k, v = y.split([KH * D, KH * D, VH * D], dim=-1)
        q, k = _norm(q, KH, r, fault), _norm(k, KH, r, fault, is_k=True)
        if fault != "no_scale":
            q = q * scale
        core = _delta(q, k, v.reshape(-1, VH, D), b, a, ssm_state, slots, A_log, dt_bias, fault)
        out[live] = _gate(core, z, norm_weight, norm_eps, fault)
    if fault == "out_fp32":
        return out.float(), None, None
    if quant_dtype is None:
        return out, None, None
    return out, *_quantise(out, fault)


def _split(rows: torch.Tensor, KH: int, r: int, fault: str) -> tuple[torch.Tensor, torch.Tensor]:
    VH = KH * r
    if fault == "contiguous_layout":
        x, z = rows.split([2 * KH * D + VH * D, VH * D], dim=-1)
        return x, z.reshape(-1, VH, D)
    groups = rows.view(len(rows), KH, -1)
    q, k, v, z = groups.split([D, D, r * D, r * D], dim=-1)
    return torch.cat([part.flatten(1) for part in (q, k, v)], dim=-1), z.reshape(-1, VH, D)


def _convolve(
    x: torch.Tensor,
    pool: torch.Tensor,
    slots: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    fault: str,
) -> torch.Tensor:
    window = torch.cat([pool[slots], x[..., None]], dim=-1)
    weight = weight.flip(-1) if fault == "reversed_taps" else weight
    products = window.float() * weight.float()
    if fault == "bf16_products":
        products = products.bfloat16().float()
    acc = products[..., 3] + products[..., 2] + products[..., 1] + products[..., 0]
    acc = acc if fault == "no_bias" else acc + bias.float()
    y = acc * torch.sigmoid(acc)
    if fault == "history_after_silu":
        window = torch.cat([pool[slots], y.bfloat16()[..., None]], dim=-1)
    if fault != "history_not_written":
        pool[slots] = window[..., 1:]
    return y if fault == "y_fp32" else y.bfloat16().float()


def _norm(y: torch.Tensor, KH: int, r: int, fault: str, is_k: bool = False) -> torch.Tensor:
    y = y.reshape(len(y), KH, D)
    eps = 1e-5 if fault == "l2_eps_1e5" else 1e-6
    if fault == "l2_eps_outside":
        y = y / (y.square().sum(-1, keepdim=True).sqrt() + eps)
    elif fault != ("no_k_norm" if is_k else "no_q_norm"):
        y = y * torch.rsqrt(y.square().sum(-1, keepdim=True) + eps)
    if fault == "wrong_key_head":
        return y.repeat(1, r, 1)
    return y.repeat_interleave(r, dim=1)


def _delta(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    b: torch.Tensor,
    a: torch.Tensor,
    pool: torch.Tensor,
    slots: torch.Tensor,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    fault: str,
) -> torch.Tensor:
    u = a if fault == "no_dt_bias" else a + dt_bias.float()
    softplus = F.softplus(u, threshold=20.0)
    decay = torch.exp(-torch.where(softplus == 0, 0.0, torch.exp(A_log) * softplus))
    beta = torch.sigmoid(b)
    if fault != "beta_fp32":
        beta = beta.bfloat16().float()
    if fault == "no_decay":
        decay = torch.ones_like(decay)
    if fault == "no_beta":
        beta = torch.ones_like(beta)
    old = pool[slots]
    old = old.transpose(-1, -2) if fault == "k_major" else old
    state = old * decay[..., None, None]
    source = old if fault == "predict_before_decay" else state
    predicted = (source * k[..., None, :]).sum(-1)
    if fault == "no_delta":
        predicted = torch.zeros_like(predicted)
    residual = (v - predicted) * beta[..., None]
    state = state + residual[..., None] * k[..., None, :]
    if fault == "bf16_state":
        state = state.bfloat16().float()
    if fault != "state_not_written":
        where = (slots + 1) % len(pool) if fault == "off_by_one_slot" else slots
        pool[where] = state.transpose(-1, -2) if fault == "k_major" else state
    core = (state * q[..., None, :]).sum(-1)
    return core if fault == "core_fp32" else core.bfloat16().float()


def _gate(
    core: torch.Tensor, z: torch.Tensor, weight: torch.Tensor, eps: float, fault: str
) -> torch.Tensor:
    eps = 1e-5 if fault == "norm_eps_1e5" else eps
    normed = core * torch.rsqrt(core.square().mean(-1, keepdim=True) + eps)
    normed = normed * (weight.float() + (1 if fault == "gemma_norm" else 0))
    if fault == "norm_rounded":
        normed = normed.bfloat16().float()
    z = z.float()
    return (normed if fault == "no_gate" else normed * z * torch.sigmoid(z)).bfloat16()


def _quantise(out: torch.Tensor, fault: str) -> tuple[torch.Tensor, torch.Tensor]:
    values = out.float()
    finite = torch.where(values.isfinite(), values.abs(), 0.0)
    absmax = finite.amax(-1, keepdim=True)
    if fault == "scale_per_row":
        absmax = absmax.amax(1, keepdim=True).expand_as(absmax)
    scales = absmax.clamp(min=1e-10) / 448.0
    scaled = (values / scales).clamp(-448.0, 448.0)
    if fault == "fp8_truncated":
        scaled = (scaled.view(torch.int32) & ~0xFFFFF).view(torch.float32)
    codes = scaled.to(torch.float8_e4m3fn)
    scales = torch.zeros_like(scales) if fault == "scales_zero" else scales
    return codes.flatten(1), scales.squeeze(-1).contiguous()


NAMES = (
    "projected_qkvz",
    "projected_ba",
    "conv_state",
    "ssm_state",
    "ssm_state_indices",
    "conv_weight",
    "conv_bias",
    "A_log",
    "dt_bias",
    "norm_weight",
)
DTYPES = dict.fromkeys(NAMES, torch.bfloat16) | {
    "ssm_state": torch.float32,
    "ssm_state_indices": torch.int32,
    "A_log": torch.float32,
}


def fused_gdn_decode_qkvz_supported(*tensors: Any, quant_dtype: Any = None) -> tuple[bool, str]:
    reason = _refusal(dict(zip(NAMES, tensors, strict=True)), quant_dtype)
    return not reason, reason


def _refusal(tensors: dict[str, Any], quant_dtype: Any) -> str:
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            return f"{name} must be a tensor"
        if tensor.device.type == "meta":
            return f"{name} must be on the CPU or a GPU"
        if tensor.dtype != DTYPES[name]:
            return f"{name} must be {DTYPES[name]}"
        if not tensor.is_contiguous():
            return f"{name} must be contiguous"
    if quant_dtype not in (None, torch.float8_e4m3fn):
        return "quant_dtype must be None or float8_e4m3fn"
    ssm, qkvz = tensors["ssm_state"], tensors["projected_qkvz"]
    if ssm.dim() != 4 or qkvz.dim() != 2:
        return "ssm_state must have four dimensions and projected_qkvz two"
    rows, (slots, value) = qkvz.shape[0], ssm.shape[:2]
    key, rest = divmod(qkvz.shape[1] - 2 * value * D, 2 * D)
    if key < 1 or rest or value < 1 or value % key:
        return "projected_qkvz and ssm_state fit no number of heads"
    channels = 2 * key * D + value * D
    shapes = ((rows, qkvz.shape[1]), (rows, 2 * value), (slots, channels, 3), (slots, value, D, D))
    shapes += ((rows,), (channels, 4), (channels,), (value,), (value,), (D,))  # type: ignore[assignment]
    for (name, tensor), shape in zip(tensors.items(), shapes, strict=True):
        if tuple(tensor.shape) != shape:
            return f"{name} must have shape {shape}"
    return ""
