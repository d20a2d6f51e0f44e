"""The roofline table: one row per batch, with what the device could measure.

Columns that no case fills are left out, so a device without event timers shows the
judge's own clock or the emulator's byte counts, under titles that say so.
"""

from __future__ import annotations

from collections.abc import Callable

from gdn_client.document import Case, Document, Measurement
from gdn_client.report.cases import BATCH_COLUMNS, batch_of, worst_by_check
from gdn_client.report.figures import fixed, microseconds, spread, whole
from gdn_client.report.table import EMPTY, Cell, Column, Table, Tone, without_empty_columns

CHAIN_RATIO = "chain_over_fused"
_REGIMES = {"latency": "lat", "bandwidth": "bw"}


def tables(document: Document) -> list[Table]:
    cases = sorted(document.cases, key=lambda case: (case.passed, batch_of(case).order))
    rows = [[*batch_of(case).cells(), *(cell(case) for _, cell in _COLUMNS)] for case in cases]
    columns = [*BATCH_COLUMNS, *(column for column, _ in _COLUMNS)]
    table = Table(columns, rows, note=_legend(document))
    checks = worst_by_check(document) if document.verdict != "passed" else []
    return [without_empty_columns(table), *checks]


def facts(document: Document) -> list[str]:
    """The run's ceilings in words: `rmw ceiling 4.08 / 4.07 TB/s` before and after."""
    values: dict[tuple[str, str], list[str]] = {}
    for ceiling in document.ceilings:
        name = ceiling.name.partition(" ")[0].replace("_", " ")
        if ceiling.tb_per_s is not None:
            values.setdefault((name, "TB/s"), []).append(f"{ceiling.tb_per_s:.2f}")
        elif ceiling.median is not None:
            values.setdefault((name, ceiling.unit), []).append(microseconds(ceiling.median))
    return [f"{name} {' / '.join(texts)} {unit}" for (name, unit), texts in values.items()]


def fused(case: Case) -> Measurement | None:
    """The time of the op itself: by the device's clock, else by the judge's."""
    return case.measured("fused", "gpu_time") or case.measured("fused", "wall_time")


def _legend(document: Document) -> str:
    labels = []
    for case in document.cases:
        for m in case.measurements:
            if m.label and m.label not in labels:
                labels.append(m.label)
    return "; ".join(labels[:4])


def _outcome(case: Case) -> Cell:
    return EMPTY if case.passed else Cell(case.outcome, Tone.BAD)


def _time(kind: str) -> Callable[[Case], Cell]:
    def cell(case: Case) -> Cell:
        m = case.measured("fused", kind)
        if m is None:
            return EMPTY
        return Cell(spread(m.median, m.p10, m.p90))

    return cell


def _figure(name: str, digits: int) -> Callable[[Case], Cell]:
    def cell(case: Case) -> Cell:
        m = case.measured("fused", "gpu_time")
        return EMPTY if m is None else Cell(fixed(getattr(m, name), digits))

    return cell


def _regime(case: Case) -> Cell:
    m = case.measured("fused", "gpu_time")
    regime = (m.regime if m else None) or ""
    return Cell(regime, short=_REGIMES.get(regime))


def _median(name: str, *kinds: str) -> Callable[[Case], Cell]:
    def cell(case: Case) -> Cell:
        m = case.measured(name, *kinds)
        return EMPTY if m is None else Cell(microseconds(m.median))

    return cell


def _ratio(case: Case) -> Cell:
    value = case.ratios.get(CHAIN_RATIO)
    if value is None:
        return EMPTY
    return Cell(f"{value:.2f}x", Tone.GOOD if value >= 1 else Tone.BAD)


def _counted(case: Case) -> Cell:
    m = case.measured("fused", "emulated_traffic")
    return EMPTY if m is None else Cell(whole(m.measured_bytes))


def _model(case: Case) -> Cell:
    """The contract's bytes, where no bandwidth already shows them."""
    m = case.measured("fused", "emulated_traffic") or case.measured("contract_bytes")
    return EMPTY if m is None else Cell(whole(m.contract_bytes))


def _excess(case: Case) -> Cell:
    m = case.measured("fused", "emulated_traffic")
    if m is None or not m.contract_bytes or m.measured_bytes is None:
        return EMPTY
    return Cell(f"{m.measured_bytes / m.contract_bytes:.3f}")


def _chain_bytes(case: Case) -> Cell:
    m = case.measured("chain", "emulated_traffic")
    return EMPTY if m is None else Cell(whole(m.measured_bytes))


_COLUMNS: list[tuple[Column, Callable[[Case], Cell]]] = [
    (Column("result", left=True), _outcome),
    (Column("us [p10-p90]"), _time("gpu_time")),
    (Column("wall us [p10-p90]"), _time("wall_time")),
    (Column("TB/s", rank=1), _figure("tb_per_s", 2)),
    (Column("%peak", rank=3), _figure("percent_of_peak", 1)),
    (Column("%RMW"), _figure("percent_of_rmw_ceiling", 1)),
    (Column("regime", left=True, rank=4), _regime),
    (Column("chain us"), _median("chain", "gpu_time")),
    (Column("chain wall us"), _median("chain", "wall_time")),
    (Column("ratio"), _ratio),
    (Column("host us", rank=5), _median("host_call", "host_time")),
    (Column("judge's clock us", rank=6), _median("judge_clock", "gpu_time")),
    (Column("round trip us", rank=2), _median("round_trip", "wall_time")),
    (Column("bytes counted"), _counted),
    (Column("model bytes"), _model),
    (Column("of model"), _excess),
    (Column("chain bytes", rank=7), _chain_bytes),
]
