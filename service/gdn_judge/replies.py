"""Read a candidate's replies: untrusted data, taken only in the form it should have.

Text is cut, and rid of what a database or a terminal cannot hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gdn_judge.document import Scalar
from gdn_judge.errors import ProtocolViolation
from gdn_judge.operands import KernelRun, TensorForm

_MAX_KERNELS = 512


def text(value: Any, limit: int) -> str:
    """`value` as a string without NUL and lone surrogates, at most `limit` characters."""
    cut = str(value)[:limit].replace("\0", "\\0")
    return cut.encode("utf-8", "replace").decode()


def kernel_runs(value: Any) -> tuple[KernelRun, ...]:
    return tuple(kernel_run(item) for item in dicts(value)[:_MAX_KERNELS])


def form(item: Any) -> TensorForm:
    if item is None:
        return TensorForm.of_none()
    try:
        return TensorForm(dtype=str(item["dtype"]), shape=tuple(int(n) for n in item["shape"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolViolation(f"a result's form reads {str(item)[:100]}") from error


def kernel_run(item: Mapping[str, Any]) -> KernelRun:
    return KernelRun(
        name=text(item.get("name", "?"), 200),
        digest=text(item.get("digest", ""), 64),
        arch=text(item.get("arch", ""), 32),
        resources=scalars(item.get("resources")),
    )


def seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e6 else None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def dicts(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def strings(value: Any) -> dict[str, str]:
    return {text(key, 100): text(item, 200) for key, item in list(mapping(value).items())[:32]}


def scalars(value: Any) -> dict[str, Scalar]:
    return {text(key, 100): _scalar(item) for key, item in list(mapping(value).items())[:64]}


def _scalar(item: Any) -> Scalar:
    if item is None or isinstance(item, bool) or (isinstance(item, int) and abs(item) < 2**63):
        return item
    return text(item, 200)


def counts(value: Any) -> dict[str, int]:
    return {name: item for name, item in scalars(value).items() if type(item) is int}
