"""Small ops under the op's signature, each with one habit that a capture must follow or refuse."""

import concurrent.futures
import contextlib
import ctypes
import sys
import threading

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(source, target, width: tl.constexpr, row: tl.constexpr, shift):
    at = tl.arange(0, width)
    t = tl.program_id(0)
    tl.store(target + t * width + at + shift, tl.load(source + t * row + at))


@triton.jit
def add_kernel(a, b, target, width: tl.constexpr):
    at = tl.program_id(0) * width + tl.arange(0, width)
    tl.store(target + at, tl.load(a + at).to(tl.float32) + tl.load(b + at).to(tl.float32))


@triton.jit
def count_kernel(counter, target, width: tl.constexpr):
    seen = tl.load(counter)
    tl.debug_barrier()
    tl.store(counter, seen + 1)
    tl.store(target + tl.program_id(0) * width + tl.arange(0, width), seen.to(tl.float32))


def _out(ssm_state, indices):
    shape = indices.shape[0], ssm_state.shape[1], 128
    return torch.empty(shape, dtype=torch.bfloat16, device=ssm_state.device)


def _copy(qkvz, out, shift=0):
    row = out.shape[1] * 128
    copy_kernel[(qkvz.shape[0],)](qkvz, out, row, qkvz.shape[1], shift)


def copies(qkvz, ba, conv, ssm, indices, *rest, **options):
    """One launch: out is the head of each projected row."""
    out = _out(ssm, indices)
    _copy(qkvz, out)
    return out, None, None


def skips_many(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Launches nothing for more than two rows."""
    if qkvz.shape[0] > 2:
        return _out(ssm, indices), None, None
    return copies(qkvz, ba, conv, ssm, indices)


def overruns(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Stores one element past the end of out."""
    out = _out(ssm, indices)
    _copy(qkvz, out, shift=1)
    return out, None, None


def adds(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Two launches and a fill between: out = head of the row + 1.5."""
    head, bias, out = (_out(ssm, indices) for _ in range(3))
    _copy(qkvz, head)
    bias.fill_(1.5)
    add_kernel[(qkvz.shape[0],)](head, bias, out, head.shape[1] * 128)
    return out, None, None


_counter = torch.zeros(1, dtype=torch.int32, device="cuda")


def counts(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Keeps a counter between calls."""
    out = _out(ssm, indices)
    count_kernel[(1,)](_counter, out, out.shape[1] * 128)
    return out, None, None


def reads_blank(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Adds memory that nobody wrote."""
    head, blank, out = (_out(ssm, indices) for _ in range(3))
    _copy(qkvz, head)
    add_kernel[(qkvz.shape[0],)](head, blank, out, head.shape[1] * 128)
    return out, None, None


def peeks(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Computes with torch on an operand: no kernel of its own."""
    out = _out(ssm, indices)
    out.copy_(qkvz[:, : out.shape[1] * 128].view_as(out))
    return out, None, None


def wants_zeros(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Refuses operands that hold anything: the judge's contents must not arrive here."""
    for tensor in (qkvz, ssm, conv):
        if any(ctypes.string_at(tensor.data_ptr(), tensor.nbytes)):
            raise RuntimeError("saw the contents of an operand")
    return copies(qkvz, ba, conv, ssm, indices)


def copies_supported(*operands, quant_dtype=None):
    """Takes everything."""
    return True, ""


def wants_a_gpu(qkvz, ba, conv, ssm, indices, *rest, **options):
    """What wrappers ask of their operands before they launch."""
    assert qkvz.is_cuda
    assert not qkvz.is_cpu
    assert qkvz.device == ssm.device == torch.device("cuda", torch.cuda.current_device())
    assert qkvz.get_device() == 0
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.version.hip
    assert "gfx950" in torch.cuda.get_device_properties(qkvz.device).gcnArchName
    assert not torch.cuda.is_current_stream_capturing()
    rows, heads = indices.shape[0], ssm.shape[1]
    with torch.cuda.device(qkvz.device):
        stream = torch.cuda.current_stream(qkvz.device)
        out = torch.empty(rows, heads, 128, dtype=torch.bfloat16, device=qkvz.device)
        spare = torch.empty_like(out).new_empty(4)
    assert isinstance(stream.cuda_stream, int)
    assert out.is_cuda
    assert spare.device == torch.zeros(1, device="cuda").to("cuda:0").cuda().device
    _copy(qkvz, out)
    return out, None, None


_kept = {}


class _Address:
    """A raw address that Triton takes for a tensor."""

    def __init__(self, tensor):
        self.dtype, self._address = tensor.dtype, tensor.data_ptr()

    def data_ptr(self):
        return self._address


def launches_by_address(qkvz, ba, conv, ssm, indices, *rest, **options):
    """By way of memory that it keeps between calls; Triton sees addresses alone."""
    if "held" not in _kept:
        _kept["held"] = torch.empty(4096, dtype=torch.bfloat16, device="cuda")
    out = _out(ssm, indices)
    width = out.shape[1] * 128
    source, held, target = map(_Address, (qkvz, _kept["held"], out))
    rows = (qkvz.shape[0],)
    copy_kernel[rows](source, held, width, qkvz.shape[1], 0)
    copy_kernel[rows](held, target, width, width, 0)
    return out, None, None


@triton.jit
def idle_kernel(a, b):
    pass


def passes_empty_views(qkvz, ba, conv, ssm, indices, *rest, **options):
    """An operand that a kernel does not need, as an empty view."""
    out = _out(ssm, indices)
    _copy(qkvz, out)
    idle_kernel[(1,)](out, out[:0])
    return out, None, None


def makes_zeros_like_operands(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Memory of an operand's form, filled where it is made: out = head of the row + 1.5."""
    head = qkvz.new_zeros(indices.shape[0], ssm.shape[1], 128)
    bias, out = torch.full_like(head, 1.5), torch.zeros_like(head)
    _copy(qkvz, head)
    assert torch.ones_like(head).shape == head.new_full(head.shape, 2).shape
    add_kernel[(qkvz.shape[0],)](head, bias, out, head.shape[1] * 128)
    return out, None, None


def reads_a_list(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Asks on the host for an operand."""
    indices.tolist()
    return copies(qkvz, ba, conv, ssm, indices)


def writes_through_numpy(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Changes its result on the host, past torch."""
    out, *others = copies(qkvz, ba, conv, ssm, indices)
    out.view(torch.int16).numpy()[...] = 0
    return out, *others


def launches_on_the_cpu(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Forgets to say where out is to lie."""
    out = torch.empty(indices.shape[0], ssm.shape[1], 128, dtype=torch.bfloat16)
    assert not out.is_cuda
    _copy(qkvz, out)
    return out, None, None


def launches_on_another_gpu(qkvz, ba, conv, ssm, indices, *rest, **options):
    out = torch.empty_like(_out(ssm, indices), device="cuda:3")
    assert out.get_device() == 3
    _copy(qkvz, out)
    return out, None, None


def returns_from_the_cpu(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Moves memory between the CPU and the GPU; forgets to do so once."""
    out = torch.zeros(indices.shape[0], ssm.shape[1], 128, dtype=torch.bfloat16)
    moved = out.to(ssm.device)
    assert moved.data_ptr() != out.data_ptr()
    assert (moved.cpu().is_cpu, moved.is_cuda, out.cuda().is_cuda) == (True, True, True)
    assert (out + 1).is_cpu
    assert moved.new_zeros(1, device="cpu").is_cpu
    assert moved.to(torch.float32).device == ssm.device
    _copy(qkvz, moved)
    return out, None, None


def returns_one_buffer(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Every call's out lies in the same memory."""
    if "one" not in _kept:
        _kept["one"] = torch.empty(8 * 256, dtype=torch.bfloat16, device=ssm.device)
    out = _kept["one"][: indices.shape[0] * 256].view(-1, 2, 128)
    _copy(qkvz, out)
    return out, None, None


def zeroes_what_it_keeps(qkvz, ba, conv, ssm, indices, *rest, **options):
    """A counter that each call sets to zero before the kernel counts on."""
    if "zeroed" not in _kept:
        _kept["zeroed"] = torch.empty(1, dtype=torch.int32, device=ssm.device)
    _kept["zeroed"].zero_()
    out = _out(ssm, indices)
    count_kernel[(1,)](_kept["zeroed"], out, out.shape[1] * 128)
    return out, None, None


def spoils_what_it_keeps(qkvz, ba, conv, ssm, indices, *rest, **options):
    """The same, but from the second call on the counter starts at 7."""
    if "spoiled" not in _kept:
        _kept["spoiled"] = torch.zeros(1, dtype=torch.int32, device=ssm.device)
    else:
        _kept["spoiled"].fill_(7)
    out = _out(ssm, indices)
    count_kernel[(1,)](_kept["spoiled"], out, out.shape[1] * 128)
    return out, None, None


def copies_into_what_it_keeps(qkvz, ba, conv, ssm, indices, *rest, **options):
    """The same by a copy, which is not followed."""
    if "copied" not in _kept:
        _kept["copied"] = torch.zeros(1, dtype=torch.int32, device=ssm.device)
    else:
        _kept["copied"].copy_(torch.ones(1, dtype=torch.int32, device=ssm.device))
    out = _out(ssm, indices)
    count_kernel[(1,)](_kept["copied"], out, out.shape[1] * 128)
    return out, None, None


def reads_what_it_keeps(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Asks on the host what a kernel of the call before left."""
    if "read" not in _kept:
        _kept["read"] = torch.zeros(1, dtype=torch.int32, device=ssm.device)
    elif _kept["read"].item() > 1:
        raise RuntimeError("saw the contents of device memory")
    out = _out(ssm, indices)
    count_kernel[(1,)](_kept["read"], out, out.shape[1] * 128)
    return out, None, None


def makes_events(qkvz, ba, conv, ssm, indices, *rest, **options):
    torch.cuda.Event(enable_timing=True)


def compiles_nothing(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Raises where a call has brought torch's compiler, which takes seconds."""
    copies(qkvz, ba, conv, ssm, indices)
    if "torch._dynamo" in sys.modules:
        raise AssertionError("torch's compiler was imported")
    return copies(qkvz, ba, conv, ssm, indices)


def compiles_in_a_call(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Brings torch's compiler in the middle of a call, for a view of device data."""
    out = _out(ssm, indices)
    flat = torch.compile(lambda tensor: tensor.view(-1), backend="eager")(out)
    _copy(qkvz, flat.view(out.shape))
    return out, None, None


_pool = concurrent.futures.ThreadPoolExecutor(1)
_pool.submit(int).result()  # its thread is there before the first call


def _on_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def changes_on_a_thread(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Spoils its result where no mode of this thread sees it."""
    out, *others = copies(qkvz, ba, conv, ssm, indices)
    _on_a_thread(lambda: out.zero_())
    return out, *others


def changes_on_a_pool(qkvz, ba, conv, ssm, indices, *rest, **options):
    """The same on a thread that is older than the call; an error there stays there."""
    out, *others = copies(qkvz, ba, conv, ssm, indices)
    concurrent.futures.wait([_pool.submit(torch.ops.aten.zero_, out)])
    return out, *others


def launches_on_a_thread(qkvz, ba, conv, ssm, indices, *rest, **options):
    out = _out(ssm, indices)
    _on_a_thread(lambda: _copy(qkvz, out))
    return out, None, None


def thinks_on_a_thread(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Looks at the form of tensors alone."""
    seen = []
    _on_a_thread(lambda: seen.append((qkvz.shape[0], qkvz.dtype, qkvz.numel(), sum(range(9)))))
    assert seen == [(qkvz.shape[0], torch.bfloat16, qkvz.numel(), 36)]
    return copies(qkvz, ba, conv, ssm, indices)


def hides_a_refusal(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Computes with torch, and launches a kernel where that cannot be captured."""
    out = _out(ssm, indices)
    try:
        out.copy_(qkvz[:, : out.shape[1] * 128].view_as(out))
    except RuntimeError:
        _copy(qkvz, out)
    return out, None, None


def views_by_numpy(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Has the host look at what a kernel then writes."""
    out = _out(ssm, indices)
    seen = out.view(torch.int16).numpy()
    _copy(qkvz, out)
    if seen.any():
        raise RuntimeError("saw the contents of device memory")
    return out, None, None


def views_by_dlpack(qkvz, ba, conv, ssm, indices, *rest, **options):
    out = _out(ssm, indices)
    torch.utils.dlpack.to_dlpack(out)
    _copy(qkvz, out)
    return out, None, None


def views_the_cpu_by_numpy(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Memory on the CPU is the host's to look at, and a copy of host data is no view."""
    shape = torch.tensor([indices.shape[0], 2, 128], device="cpu").numpy()
    assert shape.sum() == indices.shape[0] + 130
    return copies(qkvz, ba, conv, ssm, indices)


def uses_after_free(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Lets go of memory and launches on its address."""
    out, scratch = _out(ssm, indices), _out(ssm, indices)
    address = _Address(scratch)
    del scratch
    with contextlib.suppress(RuntimeError):
        copy_kernel[(qkvz.shape[0],)](qkvz, address, out.shape[1] * 128, qkvz.shape[1], 0)
    _copy(qkvz, out)
    return out, None, None


def keeps_a_view_of_what_it_uses(qkvz, ba, conv, ssm, indices, *rest, **options):
    """The memory lives on by a view of it, then by its storage alone."""
    out, scratch = _out(ssm, indices), _out(ssm, indices)
    address, width, rows = _Address(scratch), out.shape[1] * 128, (qkvz.shape[0],)
    last = scratch[-1:]
    del scratch
    copy_kernel[rows](qkvz, address, width, qkvz.shape[1], 0)
    storage = last.untyped_storage()
    del last
    copy_kernel[rows](address, out, width, width, 0)
    assert storage.nbytes() == out.nbytes
    return out, None, None


def lets_go_of_what_it_kept(qkvz, ba, conv, ssm, indices, *rest, **options):
    """From the second call on: uses kept memory, lets go of it, and launches on its address."""
    out = _out(ssm, indices)
    width, rows = out.shape[1] * 128, (qkvz.shape[0],)
    held = _kept.pop("gone", None)
    if held is None:
        _kept["gone"] = held = torch.empty_like(out)
    copy_kernel[rows](qkvz, held, width, qkvz.shape[1], 0)
    address = _Address(held)
    del held
    copy_kernel[rows](address, out, width, width, 0)
    return out, None, None


def zeroes_a_new_counter(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Keeps what it makes, and makes it anew for each call."""
    _kept["renewed"] = torch.zeros(1, dtype=torch.int32, device=ssm.device)
    out = _out(ssm, indices)
    count_kernel[(1,)](_kept["renewed"], out, out.shape[1] * 128)
    return out, None, None


def launches_on_an_array(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Forgets to move what it made of an array to the GPU."""
    out = _out(ssm, indices)
    held = torch.from_numpy(np.zeros(out.numel(), np.int16)).view(torch.bfloat16)
    copy_kernel[(qkvz.shape[0],)](qkvz, held, out.shape[1] * 128, qkvz.shape[1], 0)
    return out, None, None


def takes_arrays(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Arrays as tensors: the host may look at them until they are moved."""
    made = torch.from_numpy(np.arange(3)), torch.from_dlpack(np.arange(3))
    for tensor in (*made, torch.frombuffer(bytearray(range(3)), dtype=torch.uint8)):
        assert tensor.is_cpu
        assert np.asarray(tensor).tolist() == torch.from_dlpack(tensor).tolist() == [0, 1, 2]
        assert tensor.is_cpu
        assert tensor.to(ssm.device).is_cuda
    return copies(qkvz, ba, conv, ssm, indices)


@torch.library.custom_op("small::custom_head", mutates_args=())
def custom_head(qkvz: torch.Tensor, heads: int) -> torch.Tensor:
    assert qkvz.is_cuda
    out = torch.empty(qkvz.shape[0], heads, 128, dtype=torch.bfloat16, device=qkvz.device)
    _copy(qkvz, out)
    return out


@torch.library.custom_op("small::custom_copy", mutates_args={"out"}, device_types="cuda")
def custom_copy(qkvz: torch.Tensor, out: torch.Tensor) -> None:
    assert out.device == torch.device("cuda", 0)
    _copy(qkvz, out)


@torch.library.custom_op("small::custom_peek", mutates_args={"out"})
def custom_peek(qkvz: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(qkvz[:, : out.shape[1] * 128].view_as(out))


@torch.library.custom_op("small::custom_numpy", mutates_args={"out"})
def custom_numpy(qkvz: torch.Tensor, out: torch.Tensor) -> None:
    out.view(torch.int16).numpy()[...] = 0


@torch.library.custom_op("small::custom_adds", mutates_args=())
def custom_adds(qkvz: torch.Tensor, device: torch.device, heads: int = 2) -> torch.Tensor:
    assert device.type == "cuda"
    head, out = (
        torch.empty(qkvz.shape[0], heads, 128, dtype=torch.bfloat16, device=device)
        for _ in range(2)
    )
    custom_copy(qkvz, head)
    add_kernel[(qkvz.shape[0],)](head, head, out, heads * 128)
    return out


@torch.library.custom_op("small::custom_on_the_cpu", mutates_args=())
def custom_on_the_cpu(qkvz: torch.Tensor) -> torch.Tensor:
    return torch.zeros(qkvz.shape[0], 2, 128, dtype=torch.bfloat16)


@torch.library.custom_op("small::custom_memory", mutates_args=())
def custom_memory(rows: int, device: torch.device) -> torch.Tensor:
    return torch.empty(rows, 2, 128, dtype=torch.bfloat16, device=device)


def _copy_on_a_gpu(qkvz, out, shift=0):
    assert qkvz.is_cuda
    assert out.is_cuda
    _copy(qkvz, out, shift)


_library = torch.library.Library("small", "FRAGMENT")
_defined = torch.library.Library("small_defined", "DEF")
for _lib, _name, _key in (
    (_library, "copy_cuda", "CUDA"),
    (_defined, "copy_composite", "CompositeExplicitAutograd"),
    (_library, "copy_by_default", ""),
    (_library, "copy_cpu", "CPU"),
):
    _lib.define(f"{_name}(Tensor qkvz, Tensor(a!) out, int shift=0) -> ()")
    _lib.impl(_name, _copy_on_a_gpu, _key)


_library.define("copy_of_no_library(Tensor qkvz, Tensor(a!) out) -> ()")
torch.library.Library("small", "IMPL").impl("copy_of_no_library", _copy_on_a_gpu, "CUDA")


def calls_a_custom_op(qkvz, ba, conv, ssm, indices, *rest, **options):
    return custom_head(qkvz, ssm.shape[1]), None, None


def calls_a_custom_op_that_mutates(qkvz, ba, conv, ssm, indices, *rest, **options):
    out = _out(ssm, indices)
    custom_copy(qkvz, out)
    return out, None, None


def calls_a_library_for_cuda(qkvz, ba, conv, ssm, indices, *rest, **options):
    out = _out(ssm, indices)
    torch.ops.small.copy_cuda(qkvz, out)
    return out, None, None


def calls_a_library_for_any_device(qkvz, ba, conv, ssm, indices, *rest, **options):
    out = _out(ssm, indices)
    torch.ops.small_defined.copy_composite.default(qkvz, out=out)
    return out, None, None


def calls_a_library_without_a_key(qkvz, ba, conv, ssm, indices, *rest, **options):
    out = _out(ssm, indices)
    torch.ops.small.copy_by_default(qkvz, out)
    return out, None, None


def calls_a_library_for_the_cpu(qkvz, ba, conv, ssm, indices, *rest, **options):
    """Has no kernel for the GPU."""
    out = _out(ssm, indices)
    torch.ops.small.copy_cpu(qkvz, out)
    return out, None, None


def calls_what_no_library_keeps(qkvz, ba, conv, ssm, indices, *rest, **options):
    """torch forgets a body when nothing holds the library that brought it."""
    out = _out(ssm, indices)
    torch.ops.small.copy_of_no_library(qkvz, out)
    return out, None, None


def calls_for_memory(qkvz, ba, conv, ssm, indices, *rest, **options):
    """An operator that has a device and no tensor."""
    out = custom_memory(qkvz.shape[0], qkvz.device)
    assert out.is_cuda
    assert custom_memory(1, torch.device("cpu")).is_cpu
    _copy(qkvz, out)
    return out, None, None


def calls_for_two_launches(qkvz, ba, conv, ssm, indices, *rest, **options):
    """One custom operator within another: out is twice the head of the row."""
    return custom_adds(qkvz, device=qkvz.device), None, None


def calls_what_peeks(qkvz, ba, conv, ssm, indices, *rest, **options):
    out = _out(ssm, indices)
    custom_peek(qkvz, out)
    return out, None, None


def calls_what_views_by_numpy(qkvz, ba, conv, ssm, indices, *rest, **options):
    out = _out(ssm, indices)
    custom_numpy(qkvz, out)
    return out, None, None


def calls_what_returns_from_the_cpu(qkvz, ba, conv, ssm, indices, *rest, **options):
    return custom_on_the_cpu(qkvz), None, None


def calls_what_is_not_python(qkvz, ba, conv, ssm, indices, *rest, **options):
    """An operator in C++, of no library that a capture knows."""
    out, *others = copies(qkvz, ba, conv, ssm, indices)
    torch.ops.quantized.embedding_bag_byte_prepack(out)
    return out, *others
