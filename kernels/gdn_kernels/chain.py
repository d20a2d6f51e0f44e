"""The unfused chain: the four launches that the fused op replaces, as a baseline.

    split      projected rows -> convolution input, z, b, a
    convolve   causal conv1d update of the history, SiLU
    recur      gated delta rule, one program per (token, value head, 32 rows)
    norm       gated RMS norm
    quantise   a fifth launch, only where FP8 activations are asked for

Same contract and rounding points as the fused op, with intermediates in device
memory. It takes what the op takes and refuses with the same words.
"""

from __future__ import annotations

from typing import Any

import torch

from gdn_kernels.chain_triton import (
    convolve_kernel,
    norm_kernel,
    quantise_kernel,
    recur_kernel,
    split_kernel,
)
from gdn_kernels.contract import HEAD_DIM, HEAD_RATIO
from gdn_kernels.op import Result, fused_gdn_decode_qkvz_supported
from gdn_kernels.predicate import Shape, require

unfused_gdn_decode_qkvz_supported = fused_gdn_decode_qkvz_supported
_STATE_ROWS = 32


def unfused_gdn_decode_qkvz(
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
    """`fused_gdn_decode_qkvz` as four launches, five with FP8. Same operands, results, errors."""
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
    out = ssm_state.new_empty((shape.tokens, shape.value_heads, HEAD_DIM), dtype=torch.bfloat16)
    if shape.tokens:
        _steps(operands, shape, out, scale, norm_eps, pad_slot_id)
    if quant_dtype is None:
        return out, None, None
    return out, *_quantise(shape, out)


def _steps(
    operands: tuple[torch.Tensor, ...],
    shape: Shape,
    out: torch.Tensor,
    scale: float,
    norm_eps: float,
    pad_slot_id: int,
) -> None:
    qkvz, ba, conv, ssm, index, weight, bias, a_log, dt_bias, norm = operands
    heads: dict[str, Any] = {"KH": shape.key_heads, "R": HEAD_RATIO, "D": HEAD_DIM}
    channels = weight.shape[0]
    tokens, value_heads = shape.tokens, shape.value_heads
    x = qkvz.new_empty((tokens, channels))
    y = torch.empty_like(x)
    z = torch.empty_like(out)
    core = torch.empty_like(out)
    b = qkvz.new_empty((tokens, value_heads))
    a = torch.empty_like(b)
    split_kernel[(tokens, shape.key_heads)](qkvz, ba, x, z, b, a, **heads, num_warps=4)
    convolve_kernel[(tokens, channels // 256)](
        x, conv, index, weight, bias, y, pad_slot_id, channels, BLOCK=256, num_warps=4
    )
    recur_kernel[(tokens, value_heads, HEAD_DIM // _STATE_ROWS)](
        y,
        b,
        a,
        ssm,
        index,
        a_log,
        dt_bias,
        core,
        scale,
        pad_slot_id,
        **heads,
        BV=_STATE_ROWS,
        num_warps=4,
    )
    norm_kernel[(tokens, value_heads)](
        core, z, index, norm, out, norm_eps, pad_slot_id, value_heads, D=HEAD_DIM, num_warps=1
    )


def _quantise(shape: Shape, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    width = shape.value_heads * HEAD_DIM
    codes = out.new_empty((shape.tokens, width), dtype=torch.float8_e4m3fn)
    scales = out.new_empty((shape.tokens, shape.value_heads), dtype=torch.float32)
    if shape.tokens:
        quantise_kernel[(shape.tokens, shape.value_heads)](
            out, codes.view(torch.uint8), scales, shape.value_heads, D=HEAD_DIM, num_warps=1
        )
    return codes, scales
