"""Constants of the op and the operand names, in the order of its signature."""

from __future__ import annotations

HEAD_DIM = 128  # K = V: width of a key head and of a value head
CONV_WIDTH = 4  # W: taps of the causal convolution; the history holds W - 1 values
HEAD_RATIO = 2  # r = VH / KH: value heads that share a key head
KEY_HEADS = (1, 2, 4, 8, 16)  # KH of Qwen3-Next-80B at TP16, TP8, TP4, TP2, TP1

OPERANDS = (
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
