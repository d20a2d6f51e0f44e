"""Record what an op would launch on a GPU, on a machine without one.

A stand-in Triton driver compiles for the GPU and takes each launch instead of a
device: kernel, grid, and where each argument points. CPU tensors stand in for
device tensors and look like them (`presented`). Between launches only what leaves
device data alone can be followed: views, allocations, fills, and operators that are
registered in Python (`bodies`); any other torch operator on device data is refused by name.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import hashlib
import itertools
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions
from torch.utils._python_dispatch import TorchDispatchMode

from gdn_judge.agent import bodies, presented, threads


@dataclass(frozen=True)
class Target:
    """A GPU to compile for: Triton's backend and arch, shared memory bytes of a workgroup."""

    backend: str
    arch: str | int
    warp_size: int
    shared_bytes: int
    processors: int
    capability: tuple[int, int]
    assembly: str  # Triton's name of the stage that is handed over


GFX950 = Target("hip", "gfx950", 64, 160 * 1024, 256, (9, 5), "amdgcn")
SM90 = Target("cuda", 90, 32, 227 * 1024, 132, (9, 0), "ptx")
TARGETS = {"gfx950-emulated": GFX950, "gfx950-captured": GFX950, "sm90-captured": SM90}
_CONTENTS_LIMIT = 1 << 20
_OWN_REFERENCES = 4  # of a storage in `_let_go`: a collection, two names, and the count's own
_SCALARS = {
    "i1": "<?",
    "i8": "<b",
    "u8": "<B",
    "i16": "<h",
    "u16": "<H",
    "i32": "<i",
    "u32": "<I",
    "i64": "<q",
    "u64": "<Q",
    "fp16": "<e",
    "fp32": "<f",
    "f32": "<f",
    "fp64": "<d",
}
_FILLS = ("aten.fill_", "aten.zero_")
_BLANKS = ("aten.empty", "aten.new_empty", "aten.empty_like")
_FRESH = (  # these ask their input for its form alone
    *_BLANKS,
    "aten.new_zeros",
    "aten.new_ones",
    "aten.new_full",
    "aten.zeros_like",
    "aten.ones_like",
    "aten.full_like",
)


class CannotCapture(RuntimeError):
    """The op does something that a capture cannot follow; the message says what."""


class UseAfterFree(RuntimeError):
    """A kernel is given the address of memory that the op has let go of."""


class Capture:
    """The stand-in device of one process."""

    def __init__(self, kind: str) -> None:
        self.target = TARGETS[kind]
        self._sent: set[str] = set()
        self._kept: dict[int, tuple[Any, int]] = {}  # address -> (weak storage, id)
        self._number = 0
        self._recording: Recording | None = None
        self._fault: Exception | None = None  # of this call, or on a thread since the last one

    def install(self) -> None:
        """Make Triton compile for the target and hand its launches to this object."""
        import triton

        target = self.target
        presented.install(
            backend=target.backend,
            capability=target.capability,
            arch=target.arch if isinstance(target.arch, str) else f"sm_{target.arch}",
            processors=target.processors,
            warp_size=target.warp_size,
            shared_bytes=target.shared_bytes,
            refused=CannotCapture,
        )
        triton.runtime.driver.set_active(_driver(self))
        threads.install(self._on_a_thread)
        bodies.install()
        torch.compile = _announced(torch.compile)

    def record(
        self, run: Callable[[], Any], operands: Mapping[str, torch.Tensor]
    ) -> dict[str, Any]:
        """Call `run`, which returns what the op returns, and describe its launches.

        Raises CannotCapture or UseAfterFree also where the op catches them: what it does
        instead is not what it does on a GPU.
        """
        if "torch._dynamo" in sys.modules:
            _Watch.keep_compiler_out()
        kept_bytes = self._kept_bytes()
        self._recording = recording = Recording(self, operands)
        try:
            shown = presented.Presented(recording.reading)
            with shown, _Watch(recording, shown):
                try:
                    results = run()
                except Exception as error:
                    if self._fault is None or self._fault is error:
                        raise
                    raise self._fault from error
            reply = recording.reply(results)
            if self._fault is not None:
                raise self._fault
        except BaseException:
            self._sent -= recording.codes.keys()  # no reply brings them
            raise
        finally:
            self._recording, self._fault = None, None
        del results
        self._forget(recording)
        # a call that leaves more memory behind prepares it: that is not what each call launches
        prepared = [] if self._kept_bytes() > kept_bytes else reply["prepared"]
        alive = sorted(number for _, number in self._kept.values())
        return {**reply, "prepared": prepared, "alive": alive}

    def fault(self, error: Exception) -> NoReturn:
        """Raise `error`, and again at the end of the call."""
        self._fault = self._fault or error
        raise error

    def _on_a_thread(self, name: str, tensors: list[torch.Tensor]) -> None:
        """torch.`name` is called on a thread that the candidate started."""
        kept = {storage.data_ptr() for storage in self.kept()}
        if self._recording is not None or any(
            tensor.untyped_storage().data_ptr() in kept for tensor in tensors
        ):
            self.fault(CannotCapture(f"torch.{name} on another Python thread"))

    def launch(
        self, launcher: _Launcher, grid: tuple[int, int, int], args: tuple[Any, ...]
    ) -> None:
        if self._recording is None:
            self.fault(CannotCapture("a kernel was launched outside a captured call"))
        if threading.get_ident() != self._recording.thread:
            self.fault(CannotCapture(f"a launch of {launcher.name} on another Python thread"))
        self._recording.launch(launcher, grid, args)

    def known(self, storage: torch.UntypedStorage) -> int | None:
        """The id of a storage that outlived an earlier call."""
        entry = self._kept.get(storage.data_ptr())
        return entry[1] if entry is not None and not entry[0].expired() else None

    def kept(self) -> Iterator[torch.UntypedStorage]:
        """The storages of earlier calls that live on."""
        for ref, _ in self._kept.values():
            if not ref.expired():
                storage: Any = torch.UntypedStorage
                yield storage._new_with_weak_ptr(ref.cdata)

    def _kept_bytes(self) -> int:
        return sum(storage.nbytes() for storage in self.kept())

    def next_id(self) -> int:
        self._number += 1
        return self._number

    def first_time(self, digest: str) -> bool:
        fresh = digest not in self._sent
        self._sent.add(digest)
        return fresh

    def _forget(self, recording: Recording) -> None:
        """Keep ids of storages that the op still holds; the others' addresses may come again."""
        held = recording.release()
        self._kept = {
            address: (ref, number)
            for address, (ref, number) in {**self._kept, **held}.items()
            if not ref.expired()
        }


class Recording:
    """The events of one call, in order."""

    def __init__(self, capture: Capture, operands: Mapping[str, torch.Tensor]) -> None:
        self.capture = capture
        self.thread = threading.get_ident()
        # operators that made what lies at an address, or, with None, changed device memory
        self._prepared: list[tuple[str, int | None]] = []
        self.storages: dict[int, dict[str, Any]] = {}  # address -> description
        self._alive: dict[int, torch.UntypedStorage] = {}
        self.blank: set[int] = set()
        # addresses whose bytes only the device knows; of what was kept, from the start
        self.device = {kept.data_ptr() for kept in capture.kept()}
        self.events: list[dict[str, Any]] = []
        self.codes: dict[str, dict[str, Any]] = {}
        self.operands = {name: self._operand(name, t) for name, t in operands.items()}

    def _operand(self, name: str, tensor: torch.Tensor) -> dict[str, Any]:
        storage = self._storage(tensor, init="operand")
        self.device.add(storage["address"])
        return _view(tensor, storage["id"])

    def _storage(self, tensor: torch.Tensor, init: Any = None) -> dict[str, Any]:
        return self._entry(tensor.untyped_storage(), init)

    def _entry(self, storage: torch.UntypedStorage, init: Any = None) -> dict[str, Any]:
        address = storage.data_ptr()
        if address in self.storages:
            return self.storages[address]
        known = self.capture.known(storage)
        self._alive[address] = storage
        entry = {
            "id": known or self.capture.next_id(),
            "address": address,
            "bytes": storage.nbytes(),
            "init": "kept" if known else init or self._contents(address, storage),
        }
        self.storages[address] = entry
        return entry

    def _contents(self, address: int, storage: torch.UntypedStorage) -> Any:
        if address in self.blank:
            return "blank"
        return _packed(_raw(storage))

    def launch(
        self, launcher: _Launcher, grid: tuple[int, int, int], args: tuple[Any, ...]
    ) -> None:
        arguments = []
        touched = []
        for kind, value in zip(launcher.signature, args, strict=True):
            if kind == "constexpr":
                continue
            if kind.startswith("*") or kind == "nvTmaDesc":
                pointer, address = self._pointer(value)
                arguments.append(pointer)
                touched.append(address)
            elif kind in _SCALARS:
                arguments.append({"bytes": struct.pack(_SCALARS[kind], value).hex()})
            elif kind == "bf16":
                arguments.append({"bytes": struct.pack("<f", value)[2:].hex()})
            else:
                self._refuse(f"an argument of type {kind!r} of {launcher.name}")
        self.device.update(a for a in touched if a is not None)
        code = launcher.code(self.capture, self.codes)
        self.events.append({"launch": code, "grid": [int(n) for n in grid], "arguments": arguments})

    def _pointer(self, value: Any) -> tuple[Any, int | None]:
        if value is None or (isinstance(value, int) and value == 0):
            return None, None
        if isinstance(value, torch.Tensor):
            if not value.data_ptr():  # of an empty tensor, also of an empty view
                return None, None
            return self._at(value.untyped_storage(), value.data_ptr())
        if isinstance(value, int):
            # one at a time: a second reference to a storage would hide that it was let go
            for known in itertools.chain(self._alive.values(), self.capture.kept()):
                address = known.data_ptr()
                if address <= value < address + max(1, known.nbytes()):
                    if _let_go(known):
                        text = f"the address {value:#x} is of memory that the op has let go of"
                        self.capture.fault(UseAfterFree(text))
                    return self._at(known, value)
            self._refuse(f"the address {value:#x} is of no tensor that this call used")
        if hasattr(value, "data_ptr"):
            return self._pointer(int(value.data_ptr()))
        return self._refuse(f"a pointer argument of type {type(value).__name__}")

    def _at(self, storage: torch.UntypedStorage, pointer: int) -> tuple[Any, int]:
        where = presented.place(storage)
        if where != presented.DEVICE:  # as Triton's launchers do
            raise ValueError(f"a pointer argument of a kernel is on {where}: it cannot be accessed")
        entry = self._entry(storage)
        offset = pointer - entry["address"]
        return {"storage": entry["id"], "offset": offset}, entry["address"]

    # torch operators between launches

    def operator(
        self, name: str, args: tuple[Any, ...], kwargs: Any, result: Any, func: Any
    ) -> None:
        """A torch operator ran: `result` is what it gave."""
        inputs = [t.untyped_storage().data_ptr() for t in _tensors((args, kwargs))]
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            if address in inputs:
                in_place = func._schema.is_mutable and address not in self.device
                if in_place and tensor.numel() and presented.place(storage) == presented.DEVICE:
                    self._prepared.append((name, None))
                continue
            if address not in self._alive:  # new, perhaps where kept memory was let go
                self.device.discard(address)
                self._alive[address] = storage
            if name.startswith(_BLANKS):
                self.blank.add(address)
            elif tensor.numel() and not _is_view(func):
                self._prepared.append((name, address))

    def reading(self, way: str, tensor: torch.Tensor, *, lasting: bool = False) -> None:
        """Refuse to let the host read device data past torch's operators, now or later."""
        if lasting or tensor.untyped_storage().data_ptr() in self.device:
            self._refuse(f"the host reads device data: Tensor.{way}")

    def before(self, name: str, args: tuple[Any, ...], kwargs: Any, func: Any) -> None:
        """Refuse an operator that reads or changes device data in a way that is not followed."""
        inputs = list(_tensors((args, kwargs)))
        touched = [t for t in inputs if t.untyped_storage().data_ptr() in self.device]
        for tensor in inputs:
            if func._schema.is_mutable and tensor is inputs[0]:
                self.blank.discard(tensor.untyped_storage().data_ptr())
        if not touched or name.startswith(_FRESH) or _is_view(func):
            return
        if name.startswith(_FILLS) and inputs[0].is_contiguous():
            self._fill(inputs[0], args)
            return
        self._refuse(f"the torch operator {name} on device data")

    def _fill(self, tensor: torch.Tensor, args: tuple[Any, ...]) -> None:
        value = args[1] if len(args) > 1 else 0
        if isinstance(value, torch.Tensor):
            self._refuse("a fill with a value from a tensor")
        one = torch.tensor([value]).to(tensor.dtype).view(torch.uint8)
        storage = self._storage(tensor)
        self.events.append(
            {
                "fill": storage["id"],
                "offset": tensor.data_ptr() - storage["address"],
                "count": tensor.numel(),
                "pattern": bytes(one.tolist()).hex(),
            }
        )

    def _refuse(self, what: str) -> NoReturn:
        self.capture.fault(CannotCapture(what))

    # the end

    def reply(self, results: Any) -> dict[str, Any]:
        given = {}
        error = ""
        if not isinstance(results, tuple) or len(results) != 3:
            error = f"should return a tuple of three, returned a {type(results).__name__}"
        else:
            for name, tensor in zip(("out", "quantized", "scales"), results, strict=True):
                error = self._problem(name, tensor)
                if error:
                    break
                given[name] = self._result(tensor)
        return {
            "form_error": error,
            "results": given,
            "operands": self.operands,
            "events": self.events,
            "prepared": [
                name
                for name, address in self._prepared
                if address is None or presented.place(self._alive[address]) == presented.DEVICE
            ],
            "codes": self.codes,
            "storages": [
                {key: entry[key] for key in ("id", "bytes", "init")}
                for entry in self.storages.values()
            ],
        }

    def _problem(self, name: str, result: Any) -> str:
        """What is wrong with where a result lies, or ""."""
        if result is None:
            return ""
        if not isinstance(result, torch.Tensor):
            return f"{name} should be a tensor, got {type(result).__name__}"
        storage = result.untyped_storage()
        where = presented.place(storage)
        if where != presented.DEVICE:
            return f"{name} is on {where}, not on {presented.DEVICE}"
        if result.numel() and self.capture.known(storage) is not None:
            return f"{name} lies in memory that an earlier call returned or kept"
        return ""

    def _result(self, tensor: torch.Tensor | None) -> Any:
        if tensor is None:
            return None
        return _view(tensor, self._storage(tensor)["id"] if tensor.numel() else 0)

    def release(self) -> dict[int, tuple[Any, int]]:
        """Let go of the storages; those that live on keep their ids."""
        refs = {
            address: (_weak(self._alive[address]), entry["id"])
            for address, entry in self.storages.items()
            if entry["init"] != "operand"
        }
        self._alive.clear()
        return refs


class _Watch(TorchDispatchMode):  # type: ignore[misc, no-untyped-call, unused-ignore]
    """Shows every torch operator of a call to its recording."""

    def __init__(self, recording: Recording, shown: presented.Presented) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recording, self.shown = recording, shown

    @classmethod
    def keep_compiler_out(cls) -> None:
        """Have torch's compiler leave this class alone, once an op uses it.

        torch's own wrapper does it, and imports the compiler for that: some seconds
        of each candidate, so that it is left off before.
        """
        cls.__torch_dispatch__ = _compiler_kept_out  # type: ignore[method-assign]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        body = bodies.find(func, on_gpu=presented.on_gpu((args, kwargs)))
        if body is not None:
            with self.shown, self:  # torch has taken both away to come here
                return body(*args, **(kwargs or {}))
        name = str(func)
        self.recording.before(name, args, kwargs or {}, func)
        result = func(*args, **(kwargs or {}))
        self.recording.operator(name, args, kwargs or {}, result, func)
        return result


_compiler_kept_out: Any = _Watch.__torch_dispatch__
_Watch.__torch_dispatch__ = getattr(  # type: ignore[method-assign]
    _compiler_kept_out, "__wrapped__", _compiler_kept_out
)


def _announced(compile_: Any) -> Any:
    """torch.compile, which may come in the middle of a captured call."""

    @functools.wraps(compile_)
    def compile_watched(*args: Any, **kwargs: Any) -> Any:
        _Watch.keep_compiler_out()
        return compile_(*args, **kwargs)

    return compile_watched


def _is_view(func: Any) -> bool:
    """Whether the operator only makes another view of its input."""
    if func.is_view:
        return True
    name = str(func)
    return name.startswith(("aten._unsafe_view", "aten._reshape_alias", "aten.lift_fresh"))


def _tensors(tree: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _view(tensor: torch.Tensor, storage: int) -> dict[str, Any]:
    base = tensor.untyped_storage().data_ptr() if tensor.numel() else 0
    return {
        "storage": storage,
        "offset": tensor.data_ptr() - base if tensor.numel() else 0,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
    }


def _let_go(storage: torch.UntypedStorage) -> bool:
    """Whether no tensor of the op has `storage`, nor the op itself: the recording alone does."""
    counted: Any = torch._C
    ours = sys.getrefcount(storage) <= _OWN_REFERENCES
    return ours and counted._storage_Use_Count(storage._cdata) <= 1


def _weak(storage: torch.UntypedStorage) -> Any:
    make: Any = reductions.StorageWeakRef
    return make(storage)


def _raw(storage: torch.UntypedStorage) -> bytes:
    return ctypes.string_at(storage.data_ptr(), storage.nbytes())


def _packed(data: bytes) -> Any:
    """Contents as one repeated byte, or as base64 within the limit."""
    if data == data[:1] * len(data):
        return {"fill": data[0] if data else 0}
    if len(data) > _CONTENTS_LIMIT:
        raise CannotCapture(f"{len(data)} bytes of prepared memory, over {_CONTENTS_LIMIT}")
    return {"base64": base64.b64encode(data).decode()}


class _Launcher:
    """What Triton calls to launch one compiled kernel."""

    def __init__(self, capture: Capture, source: Any, metadata: Any) -> None:
        self.capture, self.metadata = capture, metadata
        self.name = str(metadata.name)
        self.signature = [str(kind) for kind in source.signature.values()]
        self.assembly = ""

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: Any,
        function: Any,
        packed: Any,
        launch_metadata: Any,
        enter: Any,
        leave: Any,
        *args: Any,
    ) -> None:
        if self.metadata.launch_cooperative_grid:
            raise CannotCapture("a cooperative grid")
        if self.metadata.global_scratch_size or self.metadata.profile_scratch_size:
            raise CannotCapture("scratch memory that the launcher allocates")
        self.capture.launch(self, (x, y, z), args)

    def code(self, capture: Capture, codes: dict[str, dict[str, Any]]) -> str:
        """The key of this code object; its text travels once."""
        text = self.assembly
        key = hashlib.sha256(text.encode()).hexdigest()
        if capture.first_time(key):
            codes[key] = {
                "name": self.name,
                "assembly": text,
                "warps": int(self.metadata.num_warps),
                "shared": int(self.metadata.shared),
            }
        return key


def _driver(capture: Capture) -> Any:
    """A Triton driver that only records."""
    target = capture.target

    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class Utils:
        """The device's loader."""

        def __init__(self) -> None:
            self.modules = 0

        def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> Any:
            self.modules += 1
            return self.modules, self.modules, 0, 0, 1024

        def unload_module(self, module: Any) -> None: ...

        def get_device_properties(self, device: int) -> dict[str, Any]:
            return {
                "max_shared_mem": target.shared_bytes,
                "multiprocessor_count": target.processors,
                "arch": target.arch,
                "warpSize": target.warp_size,
            }

    class StandIn(DriverBase):  # type: ignore[misc]
        """Stands in for the GPU's own driver."""

        def __init__(self) -> None:
            super().__init__()
            self.utils = Utils()

        def launcher_cls(self, source: Any, metadata: Any) -> _Launcher:
            return _Launcher(capture, source, metadata)

        @classmethod
        def is_active(cls) -> bool:
            return True

        def get_current_target(self) -> Any:
            return GPUTarget(target.backend, target.arch, target.warp_size)

        def get_current_device(self) -> int:
            return 0

        def set_current_device(self, device: int) -> None: ...

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_device_capability(self, *_: Any) -> tuple[int, int]:
            return target.capability

        def get_active_torch_device(self) -> torch.device:
            return presented.DEVICE

        def get_device_interface(self) -> Any:
            return torch.cuda

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_benchmarker(self) -> Any:
            raise CannotCapture("autotuning by timing: there is no clock on this device")

    _attach_assembly(target.assembly)
    return StandIn()


def _attach_assembly(stage: str) -> None:
    """Give each launcher the assembly of its kernel when its handles are made."""
    from triton.compiler.compiler import CompiledKernel

    original = CompiledKernel._init_handles

    def init_handles(kernel: Any) -> None:
        original(kernel)
        if isinstance(kernel._run, _Launcher) and not kernel._run.assembly:
            kernel._run.assembly = kernel.asm[stage]

    CompiledKernel._init_handles = init_handles
