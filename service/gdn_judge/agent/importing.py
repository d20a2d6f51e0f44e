"""Import the op from the checkout, and of the checkout only what the op's packages are.

A checkout may hold a torch.py, a conftest.py or a gdn_judge package: top-level
names other than those of the import paths come from the installed packages
first. The judge's own modules are taken away, so that an op cannot call the
reference.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

DECLARATIONS = "GDN_DECLARATIONS"


class ForeignModule(ImportError):
    """The import path led outside the checkout."""


class _Checkout(importlib.abc.MetaPathFinder):
    """Finds `names` in `folders` before anything installed; refuses the judge."""

    def __init__(self, names: set[str], folders: Sequence[str]) -> None:
        self.names, self.folders = names, list(folders)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] == "gdn_judge":
            raise ModuleNotFoundError("the judge is not available to a candidate", name=name)
        if path is None and name in self.names:
            spec = importlib.machinery.PathFinder.find_spec(name, self.folders)
            if spec is None:
                raise ModuleNotFoundError(f"no module {name!r} in {self.folders}", name=name)
            return spec
        return None


def prepare(import_paths: Sequence[str], folders: Sequence[str]) -> None:
    """Make the checkout's packages importable and the judge's not."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "gdn_judge"]:
        del sys.modules[name]
    names = {path.partition(":")[0].partition(".")[0] for path in import_paths}
    sys.meta_path.insert(0, _Checkout(names, folders))
    sys.path.extend(folders)


def load(import_path: str, root: str) -> Callable[..., Any]:
    """The callable at "module:attribute". Raises ImportError or AttributeError."""
    module_name, _, attribute = import_path.partition(":")
    module = importlib.import_module(module_name)
    origin = Path(getattr(module, "__file__", None) or "/").resolve()
    if not origin.is_relative_to(Path(root).resolve()):
        raise ForeignModule(f"{module_name} was imported from {origin}, outside the checkout")
    op: Callable[..., Any] = getattr(module, attribute)
    return op


def predicate(import_path: str) -> Callable[..., Any] | None:
    """`<op>_supported` beside the op, or None."""
    module_name, _, attribute = import_path.partition(":")
    found: Callable[..., Any] | None = getattr(
        sys.modules[module_name], f"{attribute}_supported", None
    )
    return found


def declarations(import_path: str) -> dict[str, str]:
    """What the target declares beside the op, as strings."""
    module = sys.modules[import_path.partition(":")[0]]
    found = getattr(module, DECLARATIONS, {})
    return {str(key): str(value) for key, value in dict(found).items()}
