"""Numbers as text, the same in every table and format."""

from __future__ import annotations

from gdn_client.document import Scalar


def microseconds(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 10_000:
        return whole(round(value))
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"


def spread(median: float | None, p10: float | None, p90: float | None) -> str:
    """`12.34 [12.10-12.60]`, or the median alone."""
    if median is None or p10 is None or p90 is None:
        return microseconds(median)
    return f"{microseconds(median)} [{microseconds(p10)}-{microseconds(p90)}]"


def fixed(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def scalar(value: Scalar) -> str:
    """A check's value or bound, a kernel's resource."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e6 else f"{value:.4g}"
    return str(value)


def whole(value: int | None) -> str:
    """With a thin group separator: 1 048 576."""
    return "" if value is None else f"{value:,}".replace(",", " ")
