"""What only a GPU shows of the op: warm-up, graphs with changed indices, variants, bad pointers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device; this machine has none", allow_module_level=True)

import triton  # noqa: E402

from gdn_kernels import fused_gdn_decode_qkvz, launch, warm_up  # noqa: E402
from gdn_kernels.chain import unfused_gdn_decode_qkvz  # noqa: E402
from gdn_kernels.tune import NORM_EPS, SCALE, operands  # noqa: E402

pytestmark = pytest.mark.gpu
FP8 = torch.float8_e4m3fn


def fused(*tensors, quant_dtype=FP8):  # type: ignore[no-untyped-def]
    return fused_gdn_decode_qkvz(*tensors, scale=SCALE, norm_eps=NORM_EPS, quant_dtype=quant_dtype)


def test_after_the_warm_up_nothing_compiles_at_any_batch_size() -> None:
    variants = warm_up(4)
    assert 1 <= len(variants) <= 12
    compiled = []
    hook = triton.knobs.runtime.jit_post_compile_hook
    triton.knobs.runtime.jit_post_compile_hook = lambda **facts: compiled.append(facts["repr"])
    try:
        for tokens in (1, 2, 3, 7, 16, 17, 40, 128, 200):
            tensors = operands(4, tokens, tokens + 1)
            fused(*tensors)
            fused(*tensors, quant_dtype=None)
    finally:
        triton.knobs.runtime.jit_post_compile_hook = hook
    assert compiled == []


@pytest.mark.parametrize("tokens", [1, 4, 33, 128])
def test_a_replayed_graph_uses_the_slots_of_the_moment(tokens: int) -> None:
    warm_up(4)
    tensors = operands(4, tokens, 2 * tokens)
    tensors[4].copy_(torch.arange(tokens))
    pools = [pool.clone() for pool in tensors[2:4]]
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        out, _, _ = fused(*tensors)
    tensors[4].copy_(torch.arange(tokens, 2 * tokens))
    graph.replay()
    torch.cuda.synchronize()
    moved = (*tensors[:2], *pools, *tensors[4:])
    expected, _, _ = fused(*moved)
    assert torch.equal(out, expected)
    assert torch.equal(tensors[3], pools[1])
    assert torch.equal(tensors[2], pools[0])


@pytest.mark.parametrize("tokens", [1, 8, 64])
def test_calls_on_two_streams_at_once_do_not_disturb_each_other(tokens: int) -> None:
    sets = [operands(4, tokens, tokens + 1) for _ in range(2)]
    alone = []
    for tensors in sets:
        copied = tuple(tensor.clone() for tensor in tensors)
        alone.append((fused(*copied)[0], copied[3]))
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in sets]
    results = []
    for tensors, stream in zip(sets, streams, strict=True):
        with torch.cuda.stream(stream):
            results.append(fused(*tensors)[0])
    torch.cuda.synchronize()
    for (out, state), tensors, result in zip(alone, sets, results, strict=True):
        assert torch.equal(out, result)
        assert torch.equal(state, tensors[3])


@pytest.mark.parametrize("tokens", [3, 40])
def test_operands_at_odd_addresses_are_right(tokens: int) -> None:
    tensors = list(operands(1, tokens, tokens + 1))
    expected = [tensor.clone() for tensor in tensors]
    for i in (1, 4, 6, 7, 8, 9):
        flat = torch.empty(tensors[i].numel() + 1, dtype=tensors[i].dtype, device="cuda")
        flat[1:] = tensors[i].flatten()
        tensors[i] = flat[1:].view(tensors[i].shape)
    out, codes, scales = fused(*tensors)
    want = fused(*expected)
    assert torch.equal(out, want[0])
    assert torch.equal(codes.view(torch.uint8), want[1].view(torch.uint8))
    assert torch.equal(scales, want[2])
    assert torch.equal(tensors[3], expected[3])


@pytest.mark.parametrize("key_heads", [1, 2, 4, 8, 16])
def test_every_configuration_agrees_with_the_chain(key_heads: int) -> None:
    for variant in warm_up(key_heads):
        tensors = operands(key_heads, 5, 6)
        theirs = tuple(tensor.clone() for tensor in tensors)
        shape = launch.Shape(5, key_heads, 2 * key_heads, 6)
        outputs = (
            torch.empty(5, 2 * key_heads, 128, dtype=torch.bfloat16, device="cuda"),
            None,
            None,
        )
        launch.fused(tensors, shape, outputs, SCALE, NORM_EPS, -1, variant.config)
        want, _, _ = unfused_gdn_decode_qkvz(*theirs, scale=SCALE, norm_eps=NORM_EPS)
        assert float((outputs[0] == want).double().mean()) >= 0.98
        error = (tensors[3].double() - theirs[3].double()).norm() / theirs[3].double().norm()
        assert float(error) <= 1.3e-5
        assert torch.equal(tensors[2], theirs[2])
