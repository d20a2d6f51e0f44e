"""Verdict documents such as the judge writes, made with the judge's own types."""

from __future__ import annotations

from typing import Any

from gdn_judge.document import (
    Baseline,
    Case,
    Check,
    DeviceKind,
    Document,
    Kernel,
    Measurement,
    MeasurementKind,
    Outcome,
    Suite,
    Verdict,
)

DIGEST = "3fa9c0d1e2b4" + "0" * 52
ENVIRONMENT: dict[str, Any] = {
    "device_name": "NVIDIA H200",
    "driver": "570.86.15",
    "triton": "3.8.0",
    "torch": "2.13.0",
    "power_limit_w": 700,
}
# T: fused us, chain us, TB/s, % of peak, % of the RMW ceiling
TIMES = {
    1: (4.31, 12.52, 0.25, 5.2, 6.1),
    8: (5.87, 15.04, 1.47, 30.6, 36.0),
    64: (19.8, 33.02, 3.49, 72.7, 85.5),
    256: (71.2, 86.94, 3.88, 80.9, 95.1),
    1000: (273.6, 331.7, 3.95, 82.2, 96.8),
}


def document(suite: Suite, verdict: Verdict, cases: list[Case], **changes: Any) -> Document:
    values: dict[str, Any] = {
        "suite": suite,
        "device_kind": DeviceKind.SM90,
        "verdict": verdict,
        "reason": "",
        "planned": [case.id for case in cases],
        "cases": cases,
        "judge_version": "0.1.0",
        "target": "gdn-lab",
        "import_path": "gdn_kernels:fused_gdn_decode_qkvz",
        "commit": "1" * 40,
        "started_at": "2026-01-02T03:04:05Z",
        "duration_s": 123.4,
        "kernel_digest": DIGEST,
        "environment": dict(ENVIRONMENT),
    }
    made = Document(**{**values, **changes})
    made.validate()
    return made


def _params(tokens: int, fp8: bool) -> dict[str, Any]:
    return {"T": tokens, "KH": 4, "VH": 8, "fp8": fp8}


def _timed(tokens: int, fp8: bool) -> Case:
    us, chain, tb, peak, rmw = TIMES[tokens]
    us += 0.25 if fp8 else 0.0

    def time(name: str, median: float, **more: Any) -> Measurement:
        return Measurement(
            name=name,
            kind=MeasurementKind.GPU_TIME,
            samples=[median] * 20,
            median=median,
            p10=round(median * 0.99, 3),
            p90=round(median * 1.02, 3),
            **more,
        )

    return Case(
        id=f"T{tokens}-4x8{'-fp8' if fp8 else ''}",
        params=_params(tokens, fp8),
        outcome=Outcome.PASSED,
        seconds=1.5,
        measurements=[
            time(
                "fused",
                us,
                calls_per_sample=32,
                contract_bytes=tokens * 1_082_852,
                tb_per_s=tb,
                percent_of_peak=peak,
                percent_of_rmw_ceiling=rmw,
                regime="latency" if tokens < 32 else "bandwidth",
            ),
            time("chain", chain),
            Measurement(
                name="host_call", kind=MeasurementKind.HOST_TIME, samples=[9.4], median=9.4
            ),
        ],
        ratios={"chain_over_fused": chain / us},
    )


def roofline(**changes: Any) -> Document:
    ceilings = [
        Measurement(
            name="rmw_ceiling",
            kind=MeasurementKind.GPU_TIME,
            samples=[1.0],
            median=1.0,
            tb_per_s=4.08,
        ),
        Measurement(name="launch_floor", kind=MeasurementKind.GPU_TIME, samples=[0.8], median=0.8),
    ]
    cases = [_timed(tokens, fp8) for fp8 in (False, True) for tokens in TIMES]
    return document(Suite.ROOFLINE, Verdict.PASSED, cases, **{"ceilings": ceilings, **changes})


def roofline_without_timers() -> Document:
    """The emulator counts bytes and has no clock worth the name."""
    cases = []
    for tokens in (1, 2, 5):
        contract = tokens * 1_082_852
        cases.append(
            Case(
                id=f"T{tokens}",
                params=_params(tokens, False),
                outcome=Outcome.PASSED,
                measurements=[
                    Measurement(
                        name="fused",
                        kind=MeasurementKind.EMULATED_TRAFFIC,
                        unit="bytes",
                        contract_bytes=contract,
                        measured_bytes=contract + 4096 * tokens,
                        label="bytes counted by the emulator; no time",
                    ),
                    Measurement(
                        name="fused",
                        kind=MeasurementKind.WALL_TIME,
                        samples=[81000.0],
                        median=81000.0,
                        p10=80500.0,
                        p90=83000.0,
                        label="the judge's clock around the emulator, not a GPU time",
                    ),
                ],
            )
        )
    return document(
        Suite.ROOFLINE,
        Verdict.PASSED,
        cases,
        device_kind=DeviceKind.GFX950_EMULATED,
        environment={"device_name": "gfx950 emulated"},
        notes=["This device executes the gfx950 code object on a CPU; it says nothing of time."],
    )


def _judged(tokens: int, fp8: bool, pattern: str, *, state: float, exact: float) -> Case:
    passed = state <= 4e-5 and exact >= 0.98
    checks = [
        Check(name="form", passed=True, relation="holds"),
        Check(name="inputs_changed", passed=True, value=0, bound=0),
        Check(name="untouched_slots_changed", passed=True, value=0, bound=0),
        Check(name="ssm_state_rel_l2", passed=state <= 4e-5, value=state, bound=4e-5),
        Check(name="out_exact", passed=exact >= 0.98, value=exact, bound=0.98, relation=">="),
    ]
    if fp8:
        checks.append(Check(name="codes_wrong", passed=True, value=0, bound=0))
    return Case(
        id=f"T{tokens}-4x8-{pattern}{'-fp8' if fp8 else ''}",
        params=_params(tokens, fp8),
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        checks=checks,
        seconds=0.5,
        reason="" if passed else "the state is off by more than the contract allows",
    )


def correctness(**changes: Any) -> Document:
    cases = [
        _judged(tokens, fp8, pattern, state=1.2e-5 + tokens * 1e-9, exact=0.993 - tokens * 1e-6)
        for fp8 in (False, True)
        for tokens in (1, 33, 256)
        for pattern in ("unit", "small", "pads")
    ]
    return document(Suite.CORRECTNESS, Verdict.PASSED, cases, **changes)


HOSTILE = "<b>@everyone</b> | `x` [l](http://evil) \x1b[31m#12 \u202eabc"


def correctness_failed() -> Document:
    """One wrong batch, one crash with words chosen by the candidate, two not reached."""
    cases = list(correctness().cases)
    cases[4] = _judged(33, False, "small", state=9.8e-5, exact=0.944)
    cases[7] = Case(
        id="T256-4x8-small",
        params=_params(256, False),
        outcome=Outcome.CRASHED,
        reason=HOSTILE,
    )
    for index in (16, 17):
        cases[index] = Case(
            id=cases[index].id,
            params=cases[index].params,
            outcome=Outcome.NOT_RUN,
            reason="the run ended before it",
        )
    cases.append(predicate())
    return document(
        Suite.CORRECTNESS,
        Verdict.FAILED,
        cases,
        partial=True,
        reason="3 of 19 cases are wrong",
        log_tail="before\n\x1b[2Jcandidate says ```hello\n",
    )


def determinism() -> Document:
    cases = [
        Case(
            id=f"repeat-4x8-T{tokens}",
            params=_params(tokens, True) | {"kind": "repeat"},
            outcome=Outcome.PASSED,
            checks=[
                Check(name="out_exact", passed=True, value=0.995, bound=0.98, relation=">="),
                Check(name="distinct_results", passed=True, value=1, bound=1),
                Check(name="fresh_process_differs", passed=True, value=0, bound=0),
            ],
        )
        for tokens in (1, 33)
    ]
    cases.append(
        Case(
            id="invariance-4x8-T33",
            params=_params(33, True) | {"kind": "invariance"},
            outcome=Outcome.PASSED,
            checks=[
                Check(
                    name="rows_changed_by_permutation", passed=True, value=2, relation="measured"
                ),
                Check(name="row_changed_when_alone", passed=True, value=0, relation="measured"),
            ],
        )
    )
    return document(Suite.DETERMINISM, Verdict.PASSED, cases)


def predicate() -> Case:
    """Many answers, one of them wrong."""
    checks = [
        Check(name=f"refuses conv_bias:{how}", passed=how != "none", relation="holds")
        for how in ("type", "none", "strided")
    ]
    return Case(
        id="predicate-conv_bias",
        params=_params(2, True) | {"kind": "predicate"},
        outcome=Outcome.FAILED,
        checks=checks,
        reason="the predicate said yes, the op raised TypeError",
    )


def codeobject() -> Document:
    resources = {
        "vgpr": 96,
        "agpr": 0,
        "sgpr": 40,
        "lds_bytes": 2048,
        "scratch_bytes": 0,
        "spills": 0,
        "workgroups_per_cu": 2,
        "limited_by": "vgpr",
        "code_bytes": 11_264,
        "state_access_bytes": 16,
        "waits_before_first_load": 0,
    }
    kernels = [
        Kernel(name="fused_small_t", digest="a" * 64, arch="gfx950", resources=resources),
        Kernel(
            name="fused_large_t",
            digest="b" * 64,
            arch="gfx950",
            resources={**resources, "vgpr": 120, "spills": 3},
        ),
    ]
    cases = [
        Case(
            id=kernel.name,
            params={},
            outcome=Outcome.FAILED if spills else Outcome.PASSED,
            checks=[Check(name="spills", passed=not spills, value=spills, bound=0)],
            kernels=[kernel.name],
            reason="registers spill to memory" if spills else "",
        )
        for kernel, spills in zip(kernels, (0, 3), strict=True)
    ]
    return document(
        Suite.CODEOBJECT,
        Verdict.FAILED,
        cases,
        device_kind=DeviceKind.GFX950_EMULATED,
        kernels=kernels,
        baseline=Baseline(
            commit="c" * 40,
            started_at="2025-12-30T09:30:00.000Z",
            judge_version="0.1.0",
            commits_behind=3,
        ),
        reason="1 of 2 kernels spills",
        environment={},
    )
