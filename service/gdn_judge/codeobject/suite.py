"""The codeobject suite: what the kernels of each batch size use, and what they lost.

A case is one architecture and batch size. A call that launches nothing, new spills,
scratch memory and code with a known erratum that corrupts values fail it, and against a
baseline also a lost resident workgroup. For gfx950 at small sizes the kernel is executed
too, for the traffic audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gdn_judge import correctness, generate
from gdn_judge.capture import Code
from gdn_judge.cases import Planned, Scope
from gdn_judge.codeobject import baseline, errata, gfx950, sm90
from gdn_judge.codeobject.baseline import Compiled
from gdn_judge.codeobject.compiler import Compiler
from gdn_judge.contract import call_bytes
from gdn_judge.document import Check, Scalar
from gdn_judge.emulator.assembly import Program
from gdn_judge.emulator.launch import Report
from gdn_judge.errors import NotModelled
from gdn_judge.judged import Judged
from gdn_judge.operands import CallOptions, KernelRun
from gdn_judge.session import Session
from gdn_judge.wire import devices

BATCHES = (1, 2, 3, 5, 8, 16, 32, 64, 128, 256)
QUICK_BATCHES = (1, 8, 64, 256)
EXECUTED_UP_TO = 2  # rows whose kernels are executed for the traffic audit
_SPILLS = {"gfx950": ("vgpr_spills", "sgpr_spills"), "sm90": ("spill_stores", "spill_loads")}
_SCRATCH = {"gfx950": "scratch", "sm90": "stack"}
_RESIDENT = {"gfx950": "groups_per_cu", "sm90": "blocks_per_sm"}
_UNITS = {  # of the three above, as a reason says them
    "gfx950": ("spilled registers", "bytes of scratch", "workgroups per CU"),
    "sm90": ("bytes of spills", "bytes of stack", "blocks per SM"),
}


words = baseline.words


def plan(scope: Scope) -> list[Planned]:
    """One case for each architecture that the device kind stands for and each batch size."""
    archs = devices.spec(scope.device).archs
    sizes = scope.batches or (QUICK_BATCHES if scope.quick else BATCHES)
    heads = scope.code_heads
    return [
        Planned(id=f"{arch}-{heads}-T{rows}", kind="codeobject", heads=heads, rows=rows, arch=arch)
        for arch in archs
        for rows in sizes
        if rows
    ]


def judge(planned: Planned, session: Session) -> Judged:
    """Run one planned case. Raises CandidateError, NotModelled, OutOfTime.

    Errata are found in the text alone: a kernel that has one fails where nothing else of
    it can be judged, too.
    """
    compiler = session.executor()
    assert isinstance(compiler, Compiler)
    try:
        return _judge(planned, session, compiler)
    except NotModelled as error:
        checks = list(_errata(planned.arch, compiler.launched))
        if all(check.passed for check in checks):
            raise
        checks.append(_told("not judged", str(error)[:500]))
        return Judged(checks, list(dict.fromkeys(code.name for code in compiler.launched)))


def _judge(planned: Planned, session: Session, compiler: Compiler) -> Judged:
    arch = planned.arch
    options = CallOptions(fp8=planned.fp8)
    limit = min(300.0, session.left())
    launches = compiler.compiled(arch, planned.heads, planned.rows, options, limit)
    kernels = [measured(arch, code, compiler) for _, code in launches]
    checks = [_launched(planned.rows, len(launches))]
    checks += _errata(arch, compiler.launched)
    checks += _compared(planned, kernels, session)
    checks += [
        _told(f"workgroups of {code.name}", _product(event.grid)) for event, code in launches
    ]
    if arch == "gfx950" and planned.rows <= EXECUTED_UP_TO:
        checks += _traffic(planned, session, compiler, options)
    for kernel in kernels:
        _remember(session, kernel, arch, planned.rows)
    return Judged(checks, list(dict.fromkeys(kernel.name for kernel in kernels)))


def _product(grid: tuple[int, int, int]) -> int:
    x, y, z = grid
    return x * y * z


def measured(arch: str, code: Code, compiler: Compiler) -> Compiled:
    """What one code object uses. Raises NotModelled where it cannot be read."""
    if arch == "gfx950":
        program = compiler.program_of(code)
        found = gfx950.resources(program, code.warps, code.shared)
        return Compiled(code.name, program.digest, found)
    found = sm90.resources(code.assembly, code.warps, code.shared)
    return Compiled(code.name, sm90.digest(code.assembly), found)


def _errata(arch: str, codes: Iterable[Code]) -> Iterator[Check]:
    """For each kernel one check on what corrupts values; what else is known of it is told."""
    for code in {(code.name, code.assembly): code for code in codes}.values():
        found = errata.find(arch, code.assembly)
        corrupting = [finding for finding in found if finding.erratum.corrupts]
        yield Check(
            name=f"known errata of {code.name}",
            passed=not corrupting,
            value=sum(finding.count for finding in corrupting),
            bound=0,
            detail="; ".join(map(str, corrupting))[:2000],
        )
        for finding in found:
            if not finding.erratum.corrupts:
                yield _told(f"told errata of {code.name}", str(finding)[:500])


def _launched(rows: int, count: int) -> Check:
    detail = "" if count else f"launches nothing at T = {rows}"
    return Check(
        name="launches", passed=count > 0, value=count, bound=1, relation=">=", detail=detail
    )


def _compared(planned: Planned, kernels: list[Compiled], session: Session) -> Iterator[Check]:
    resident = _RESIDENT[planned.arch]
    distinct = list({(kernel.name, kernel.digest): kernel for kernel in kernels}.values())
    held = None
    if session.baseline is not None:
        held = baseline.hold(
            session.baseline, planned.id, planned.arch, planned.rows, distinct, resident
        )
    pairs = held.pairs if held else [(kernel, None) for kernel in distinct]
    name = baseline.name(session)
    for kernel, before in pairs:
        yield from _checks(planned.arch, kernel, before.resources if before else None, name)
    if held is None:
        return
    if held.fewest is not None:
        then, now = held.fewest
        lost = now < then
        yield Check(
            name="fewest resident workgroups of the call",
            passed=not lost,
            value=now,
            bound=then,
            relation=">=",
            detail=_against(now, then, _UNITS[planned.arch][2], name) if lost else "",
        )
    yield from baseline.told(held)


def _checks(
    arch: str, kernel: Compiled, before: Mapping[str, Scalar] | None, held_against: str
) -> Iterator[Check]:
    """`before`: what the kernel used in the baseline; None where there is nothing to compare."""
    spilled, scratch, resident = _UNITS[arch]
    for names, what, unit in (
        (_SPILLS[arch], "spills", spilled),
        ((_SCRATCH[arch],), "scratch bytes", scratch),
    ):
        value = sum(baseline.whole(kernel.resources, name) for name in names)
        bound = sum(baseline.whole(before or {}, name) for name in names)
        more = value > bound
        detail = _against(value, bound, unit, held_against) if more and before is not None else ""
        yield Check(
            name=f"{what} of {kernel.name}",
            passed=not more,
            value=value,
            bound=bound,
            detail=detail,
        )
    name = f"resident workgroups of {kernel.name}"
    value = baseline.whole(kernel.resources, _RESIDENT[arch])
    if before is None:
        yield _told(name, value)
        return
    bound = baseline.whole(before, _RESIDENT[arch])
    lost = value < bound
    yield Check(
        name=name,
        passed=not lost,
        value=value,
        bound=bound,
        relation=">=",
        detail=_against(value, bound, resident, held_against) if lost else "",
    )


def _against(value: int, bound: int, unit: str, held_against: str) -> str:
    return f"{value} {unit}, {held_against} has {bound}"


def _told(name: str, value: int | float | str) -> Check:
    return Check(name=name, passed=True, value=value, relation="measured")


def _remember(session: Session, kernel: Compiled, arch: str, rows: int) -> None:
    key = (kernel.name, kernel.digest)
    known = session.kernels.get(key)
    earlier = known.resources.get("batches") if known else None
    batches = f"{earlier},{rows}" if earlier else str(rows)
    resources = {"batches": batches, **kernel.resources}
    session.kernels[key] = KernelRun(
        name=kernel.name, digest=kernel.digest, arch=arch, resources=resources
    )


# what the kernel moves, by executing it


def _traffic(
    planned: Planned, session: Session, compiler: Compiler, options: CallOptions
) -> list[Check]:
    rng = session.seed.rng(planned.id)
    operands = generate.operands(rng, planned.heads, planned.rows, slots=planned.rows + 1)
    result = session.call(operands, options)
    checks = correctness.judge_once(operands, options, result, session)
    moved = result.counters["read_bytes"] + result.counters["written_bytes"]
    model = call_bytes(planned.heads, planned.rows, planned.fp8)
    checks += [
        _told("bytes moved", moved),
        _told("bytes of the contract's model", model),
        _told("bytes moved over the model", round(moved / model, 4)),
    ]
    for report, program in zip(compiler.reports, compiler.programs_run, strict=True):
        checks += _path(report, program)
    return checks


def _path(report: Report, program: Program) -> list[Check]:
    """The executed path of one kernel: waits ahead of the state, instruction mix, buffers."""
    instructions = program.instructions
    executed = ((ins, report.counts[ins.pc]) for ins in instructions)
    checks = [
        _told(f"wave instructions of {report.kernel}", report.wave_instructions),
        _told(f"executed mix of {report.kernel}", gfx950.mix(executed)),
    ]
    if "ssm_state" in report.first_pc:
        pc = report.first_pc["ssm_state"]
        ahead = sum(gfx950.is_load(ins) and report.counts[ins.pc] > 0 for ins in instructions[:pc])
        checks += [
            _told(
                "waits before the first state load",
                gfx950.waits_before(instructions, report.counts, pc),
            ),
            _told("vector loads before the first state load", ahead),
        ]
    return checks
