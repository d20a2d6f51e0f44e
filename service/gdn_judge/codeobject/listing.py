"""`gdn-judge codeobject`: the kernels of a target, alone, without executing them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence

from gdn_judge import candidate, prepare
from gdn_judge.codeobject import bugs as hunt
from gdn_judge.codeobject import suite
from gdn_judge.codeobject.compiler import Compiler
from gdn_judge.codeobject.errata import find as find_errata
from gdn_judge.contract import Heads
from gdn_judge.document import Scalar
from gdn_judge.errors import CandidateError, HostError, UsageError
from gdn_judge.operands import CallOptions

Row = dict[str, Scalar]


def show(options: argparse.Namespace) -> int:
    """Print the table or the JSON. Raises UsageError, and HostError for what fails to compile."""
    heads, process = _heads(options.heads), _process(options)
    sizes = options.batch_sizes or suite.BATCHES
    rows = kernels(process, options.arch, heads, sizes, fp8=not options.no_fp8)
    if options.json:
        print(json.dumps({"arch": options.arch, "heads": str(heads), "kernels": rows}, indent=1))
    else:
        print(table(rows))
    return 0


def bugs(options: argparse.Namespace) -> int:
    """Spoil the kernel in one place after the other and print what noticed.

    Returns 1 where a mutant was not caught and is not provably equivalent.
    """
    process = _process(options)
    heads = _heads(options.heads)
    findings = hunt.hunt(process, heads, options.rows, options.per_kind, report=_print)
    print(hunt.summary(findings))
    return 0 if all(f.outcome in ("caught", "equivalent") for f in findings) else 1


def _print(finding: hunt.Finding) -> None:
    mutant = finding.mutant
    by = finding.by.split(";")[0][:120]
    print(
        f"{finding.outcome:13}{mutant.kind:26} line {mutant.line}: {mutant.text}  {by}", flush=True
    )


def _process(options: argparse.Namespace) -> candidate.Launch:
    folders = options.python_path or ["kernels"]
    return prepare.process(options.target, options.import_path, folders)


def _heads(text: str) -> Heads:
    try:
        return Heads.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def kernels(
    process: candidate.Launch, arch: str, heads: Heads, sizes: Sequence[int], *, fp8: bool
) -> list[Row]:
    """One row for each distinct kernel, with the batch sizes that it serves."""
    compiler = Compiler(process)
    found: dict[tuple[str, str], tuple[list[int], Mapping[str, Scalar]]] = {}
    try:
        compiler.start()
        for size in filter(None, sizes):
            options = CallOptions(fp8=fp8)
            for _, code in compiler.compiled(arch, heads, size, options, 300.0):
                kernel = suite.measured(arch, code, compiler)
                key = kernel.name, kernel.digest
                if key not in found:
                    errata = sum(finding.count for finding in find_errata(arch, code.assembly))
                    found[key] = [], {**kernel.resources, "errata": errata}
                found[key][0].append(size)
    except CandidateError as error:
        raise HostError(f"the target cannot be compiled for {arch}: {error}") from error
    finally:
        compiler.close()
    return [
        {"kernel": name, "batches": ",".join(map(str, batches)), **resources, "digest": digest}
        for (name, digest), (batches, resources) in found.items()
    ]


def table(rows: Sequence[Row]) -> str:
    """One column a kernel, one line a resource."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = []
    for name in names:
        cells = [str(row.get(name, ""))[:40] for row in rows]
        lines.append([name.replace("_", " "), *cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(rows) + 1)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
