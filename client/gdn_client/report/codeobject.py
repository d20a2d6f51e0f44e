"""The codeobject tables: what each compiled kernel uses, and the checks on it."""

from __future__ import annotations

from datetime import datetime

from gdn_client.document import Document, Kernel
from gdn_client.report.cases import worst_by_check
from gdn_client.report.figures import scalar
from gdn_client.report.table import EMPTY, Cell, Column, Table, without_empty_columns
from gdn_client.text import counted, duration, one_line


def tables(document: Document) -> list[Table]:
    """Architectures state different resources, so each has a table of its own, as planned."""
    kernels: dict[str, list[Kernel]] = {arch: [] for arch in planned_archs(document)}
    for kernel in sorted(document.kernels, key=kernel_order):
        kernels.setdefault(kernel.arch, []).append(kernel)
    found = [kernel_table(group) for group in kernels.values() if group]
    return [*found, *worst_by_check(document)]


def planned_archs(document: Document) -> list[str]:
    """Architectures in the order of the cases."""
    archs = (case.params.get("arch") for case in document.cases)
    return list(dict.fromkeys(arch for arch in archs if isinstance(arch, str)))


def kernel_order(kernel: Kernel) -> tuple[list[int], str, str]:
    """As planned, by the batch sizes served; of one batch size by name, variants by digest.

    Kernels that state no batch sizes stay in the document's order.
    """
    batches = batches_of(kernel)
    return (batches, kernel.name, kernel.digest) if batches else ([], "", "")


def batches_of(kernel: Kernel) -> list[int]:
    """[1, 8] of a kernel that states that it serves "1,8"."""
    parts = scalar(kernel.resources.get("batches")).split(",")
    return [int(part) for part in parts if part.isdecimal()]


def facts(document: Document) -> list[str]:
    """["baseline 1a2b3c4d5e6f, 3 commits behind, judged 2 h 05 min before"], or []."""
    found = document.baseline
    if found is None:
        return []
    parts = [f"baseline {found.commit[:12]}"] if found.commit else ["baseline of no commit"]
    if found.commits_behind is not None:
        parts.append(f"{counted(found.commits_behind, 'commit')} behind")
    then, this = _moment(found.started_at), _moment(document.started_at)
    if then and this:
        seconds = (this - then).total_seconds()
        parts.append(f"judged {duration(abs(seconds))} {'before' if seconds >= 0 else 'after'}")
    return [", ".join(parts)]


def _moment(text: str) -> datetime | None:
    """None for what is no time with a zone; documents are read leniently."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def kernel_table(kernels: list[Kernel]) -> Table:
    """One row per kernel; every resource that any of them states is a column."""
    names = list(dict.fromkeys(name for kernel in kernels for name in kernel.resources))
    columns = [
        Column("kernel", left=True),
        *(Column(one_line(name.replace("_", " "), 24), rank=i) for i, name in enumerate(names)),
        Column("digest", left=True, rank=len(names) + 1),
    ]
    rows = [
        [
            Cell(one_line(kernel.name, 48)),
            *(
                Cell(one_line(scalar(kernel.resources[name]), 24))
                if name in kernel.resources
                else EMPTY
                for name in names
            ),
            Cell(kernel.digest[:12]),
        ]
        for kernel in kernels
    ]
    title = f"Kernels for {one_line(kernels[0].arch, 16)}" if kernels[0].arch else "Kernels"
    return without_empty_columns(Table(columns, rows, title=title))
