"""The codeobject tables: what each compiled kernel uses, and the checks on it."""

from __future__ import annotations

from gdn_client.document import Document
from gdn_client.report.cases import worst_by_check
from gdn_client.report.figures import scalar
from gdn_client.report.table import EMPTY, Cell, Column, Table, without_empty_columns
from gdn_client.text import one_line


def tables(document: Document) -> list[Table]:
    return [kernel_table(document), *worst_by_check(document)]


def kernel_table(document: Document) -> Table:
    """One row per kernel; every resource that any kernel states is a column."""
    names = list(dict.fromkeys(name for kernel in document.kernels for name in kernel.resources))
    columns = [
        Column("kernel", left=True),
        Column("arch", left=True, rank=len(names) + 1),
        *(Column(one_line(name.replace("_", " "), 24), rank=i) for i, name in enumerate(names)),
        Column("digest", left=True, rank=len(names) + 2),
    ]
    rows = [
        [
            Cell(one_line(kernel.name, 48)),
            Cell(one_line(kernel.arch, 16)),
            *(
                Cell(one_line(scalar(kernel.resources[name]), 24))
                if name in kernel.resources
                else EMPTY
                for name in names
            ),
            Cell(kernel.digest[:12]),
        ]
        for kernel in document.kernels
    ]
    return without_empty_columns(Table(columns, rows, title="Kernels"))
