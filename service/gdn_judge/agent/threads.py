"""Sees torch on Python threads that a candidate starts: torch's modes are those of one thread.

A thread that C code starts on its own is not seen.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

_STARTS = ("_start_new_thread", "_start_joinable_thread")  # what `threading` starts them with
_LOOKS = ("__get__", "data_ptr", "size", "stride", "dim", "numel", "element_size", "is_contiguous")


class _Seen(TorchFunctionMode):
    """Tells of each torch function on tensors; a look at a tensor's form is none."""

    def __init__(self, tell: Callable[[str, list[torch.Tensor]], None]) -> None:
        super().__init__()
        self._tell = tell

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = str(getattr(func, "__name__", func))
        leaves = tree_leaves((args, kwargs or {}))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if tensors and name not in _LOOKS:
            self._tell(name, tensors)
        return func(*args, **(kwargs or {}))


def install(tell: Callable[[str, list[torch.Tensor]], None]) -> None:
    """Have each thread that is started from now on call `tell` before torch does a thing there.

    `tell` gets the function's name and the tensors that it is given, and may raise.
    """

    def watched(start: Callable[..., Any]) -> Callable[..., Any]:
        def start_watched(function: Callable[..., Any], *rest: Any, **options: Any) -> Any:
            def run(*args: Any, **kwargs: Any) -> None:
                with _Seen(tell):
                    function(*args, **kwargs)

            return start(run, *rest, **options)

        return start_watched

    for name in _STARTS:
        if hasattr(threading, name):
            setattr(threading, name, watched(getattr(threading, name)))
    low: Any = _thread
    low.start_new_thread = low.start_new = watched(low.start_new_thread)
