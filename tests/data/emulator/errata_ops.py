"""Small ops under the op's signature whose gfx950 code has, or just lacks, a known erratum."""

import torch
import triton
import triton.language as tl


@triton.jit
def assembly_kernel(source, target, text: tl.constexpr, width: tl.constexpr):
    at = tl.program_id(0) * width + tl.arange(0, width)
    x = tl.load(source + at)
    pair = tl.inline_asm_elementwise(text, "=v,v,v", [x, x], tl.int64, is_pure=True, pack=1)
    tl.store(target + at, pair)


def _out(ssm, indices):
    shape = indices.shape[0], ssm.shape[1], 128
    return torch.empty(shape, dtype=torch.bfloat16, device=ssm.device)


def as_before(*operands, **options):
    """This repository's op without the option that keeps LLVM off the form."""
    from gdn_kernels import fused_gdn_decode_qkvz, platform

    platform.errata_options = lambda arch: {}
    return fused_gdn_decode_qkvz(*operands, **options)


def as_it_is(*operands, **options):
    """The same, right."""
    from gdn_kernels import fused_gdn_decode_qkvz

    return fused_gdn_decode_qkvz(*operands, **options)


def _by_hand(text, ssm, indices):
    out = _out(ssm, indices)
    assembly_kernel[(indices.shape[0],)](ssm.view(torch.int64), out.view(torch.int64), text, 32)
    return out, None, None


def by_hand(qkvz, ba, conv, ssm, indices, *rest, **options):
    return _by_hand("v_pk_fma_f32 $0, $1, $2, $2 op_sel:[0,1]", ssm, indices)


def by_hand_plain(qkvz, ba, conv, ssm, indices, *rest, **options):
    return _by_hand("v_pk_fma_f32 $0, $1, $2, $2", ssm, indices)


def by_hand_other(qkvz, ba, conv, ssm, indices, *rest, **options):
    return _by_hand("v_pk_fma_f32 $0, $1, $2, $2 op_sel:[1,0,0]", ssm, indices)


def by_hand_unreadable(qkvz, ba, conv, ssm, indices, *rest, **options):
    """A list of registers, which the emulator does not read, beside the form."""
    text = "v_mov_b32 v0, [v0]\nv_pk_fma_f32 $0, $1, $2, $2 op_sel:[0,1,0]"
    return _by_hand(text, ssm, indices)


def by_hand_unreadable_plain(qkvz, ba, conv, ssm, indices, *rest, **options):
    return _by_hand("v_mov_b32 v0, [v0]\nv_pk_fma_f32 $0, $1, $2, $2", ssm, indices)
