"""Python bodies of the operators that an op registers with torch.library.

On a GPU the dispatcher finds them by where the arguments lie. A capture's lie in CPU
memory, so that it looks the bodies up here and runs them itself.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

_Body = Callable[..., Any]
_bodies: dict[str, dict[str, _Body | None]] = {}  # operator -> dispatch key -> what runs there
_ANY = "CompositeExplicitAutograd"
_OPERATORS = type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor)


def find(operator: Any, *, on_gpu: bool) -> _Body | None:
    """What runs for one overload on arguments of the GPU, or of the CPU; None if not Python."""
    known = _bodies.get(operator.name(), {})
    return known.get("CUDA" if on_gpu else "CPU", known.get(_ANY))


def has_any(function: Any) -> bool:
    """Whether a torch function is an operator, of whatever overload, with a body in Python."""
    if not _bodies or not isinstance(function, _OPERATORS):
        return False
    name = "::".join(str(function).split(".")[:2])
    return any(known.partition(".")[0] == name for known in _bodies)


def install() -> None:
    """Remember each body that `Library.impl`, and so also `custom_op`, registers from now on."""
    library: Any = torch.library.Library
    register = library.impl

    @functools.wraps(register)
    def impl(self: Any, op_name: Any, fn: _Body, dispatch_key: str = "", **options: Any) -> None:
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        if key == "CompositeImplicitAutograd":
            key = _ANY  # the other runs above torch's dispatch modes, and differs by autograd alone
        register(self, op_name, fn, key, **options)
        name = op_name if isinstance(op_name, str) else op_name.name()
        keys = _bodies.setdefault(f"{self.ns}::{name.rpartition('::')[2]}", {})
        passes_on = fn is torch.library.fallthrough_kernel or options.get("with_keyset")
        keys[key] = None if passes_on else fn
        weakref.finalize(self, keys.pop, key, None)  # torch drops it with the library

    library.impl = impl
