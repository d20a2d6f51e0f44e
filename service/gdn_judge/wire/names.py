"""Open sets of names: strings that a table has a row for.

As an enumeration reads (iteration, `Kind("sm90")`, `Kind.SM90`, a ValueError for others), but
its members come from the rows of a table, so that a new one is a row and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self


class _Names(type):
    _known: dict[str, Any]

    def __iter__(cls) -> Iterator[Any]:
        return iter(list(cls._known.values()))

    def __getattr__(cls, constant: str) -> Any:
        """`DeviceKind.GFX950_EMULATED` is `DeviceKind("gfx950-emulated")`."""
        if not constant.isupper():
            raise AttributeError(constant)
        for name in cls:
            if name.upper().replace("-", "_") == constant:
                return name
        raise AttributeError(f"there is no {cls.__name__} {constant}")

    def __len__(cls) -> int:
        return len(cls._known)


class Name(str, metaclass=_Names):
    """One of the names of its class; equal names are one object."""

    _known: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        cls._known = {}

    def __new__(cls, text: object) -> Self:
        """The name that reads so. Raises ValueError where there is none."""
        if isinstance(text, str) and text in cls._known:
            found: Self = cls._known[text]
            return found
        known = ", ".join(cls._known)
        raise ValueError(f"{text!r} is no {cls.__name__}; known: {known}")

    @classmethod
    def add(cls, text: str) -> Self:
        """A new name, at the end. Raises ValueError for one that is there."""
        if text in cls._known:
            raise ValueError(f"{text!r} is a {cls.__name__} already")
        name = str.__new__(cls, text)
        cls._known[text] = name
        return name

    @classmethod
    def remove(cls, text: str) -> None:
        """Forget a name; the opposite of `add`, for tests."""
        del cls._known[text]

    @property
    def value(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return str.__str__(self)
