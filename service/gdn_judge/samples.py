"""From raw samples to a Measurement: median and percentiles, all samples kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gdn_judge.document import Measurement, MeasurementKind


def measurement(
    name: str,
    kind: MeasurementKind,
    samples_us: Sequence[float],
    *,
    bytes_moved: int | None = None,
    peak: float | None = None,
    rmw_ceiling: float | None = None,
    **more: Any,
) -> Measurement:
    """`samples_us` are us per call; peak and ceiling in bytes per second.

    Fields that cannot be had stay None: no bandwidth without bytes, no
    percentage without a peak. No finite sample at all is an error.
    """
    values = [float(value) for value in samples_us]
    if not values or not np.isfinite(values).all() or min(values) <= 0:
        raise ValueError(f"{name}: samples are missing, not finite or not positive")
    median, p10, p90 = (float(np.percentile(values, q)) for q in (50, 10, 90))
    rate = None if bytes_moved is None else bytes_moved / (median * 1e-6)
    return Measurement(
        name=name,
        kind=kind,
        samples=values,
        median=median,
        p10=p10,
        p90=p90,
        contract_bytes=bytes_moved,
        tb_per_s=None if rate is None else rate / 1e12,
        percent_of_peak=_percent(rate, peak),
        percent_of_rmw_ceiling=_percent(rate, rmw_ceiling),
        **more,
    )


def _percent(rate: float | None, of: float | None) -> float | None:
    return None if rate is None or of is None else 100 * rate / of
