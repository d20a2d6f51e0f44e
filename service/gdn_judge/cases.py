"""The plan: which input configurations a suite judges, per kind of device.

Deterministic in its ids; the contents of each case come from the secret seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gdn_judge.contract import NORM_EPS, PAD_SLOT, SCALE, Heads
from gdn_judge.document import DeviceKind, Scalar
from gdn_judge.wire import devices

# Borders of dispatch regimes at powers of two, their neighbours, and sizes between.
GPU_BATCHES = (1, 2, 3, 5, 8, 16, 31, 32, 33, 48, 64, 65, 96, 127, 128, 129, 192, 256, 1000)
CPU_BATCHES = (1, 2, 3, 5, 8)
# Emulated: batches that select other kernels than CPU_BATCHES do; three rows are live.
SPARSE_BATCHES = (9, 16, 17, 32, 33, 64, 65, 128, 129, 256)
SPARSE_QUICK_BATCHES = (16, 64, 256)
CPU_QUICK_BATCHES = (1, 2, 3, 5)
GPU_QUICK_BATCHES = (1, 3, 8, 33, 64, 129)
ROOFLINE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ROOFLINE_OTHER_BATCHES = (1, 8, 32, 128, 512)  # with the other head counts that serve
ROOFLINE_QUICK_BATCHES = (1, 8, 64, 256)
ROOFLINE_CPU_BATCHES = (1, 2)
SERVING_HEADS = (Heads(2, 4), Heads(4, 8), Heads(8, 16), Heads(16, 32))  # TP8 to TP1
GPU_HEADS = (Heads(1, 2), Heads(2, 4), Heads(8, 16), Heads(16, 32))
ROLLOUT_STEPS = 64
# With 8 value heads: 2^31 and 2^32 bytes, 2^31 elements; an 8.6 GB pool.
FAR_PLACES = (4096, 8192, 16384)
FAR_SLOTS = 16385


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One input configuration.

    kind: step (one or more steps), predicate, repeat, invariance, or roofline.
    twist: what is done to the inputs beyond the random draw (see `twists`), or
    for a predicate case the operand that is spoiled.
    """

    id: str
    kind: str
    heads: Heads
    rows: int
    fp8: bool = True
    state: str = "unit"
    pads: str = "none"
    pad_slot_id: int = PAD_SLOT
    inputs: str = "unit"
    scale: float = SCALE
    norm_eps: float = NORM_EPS
    steps: int = 1
    spare_slots: int = 3
    twist: str = ""
    far: bool = False  # slots whose offsets need more than 32 bits
    arch: str = ""  # codeobject only: "gfx950" or "sm90"

    @property
    def slots(self) -> int:
        return self.rows + self.spare_slots

    def params(self) -> dict[str, Scalar]:
        shown: dict[str, Scalar] = {
            "T": self.rows,
            "KH": self.heads.key,
            "VH": self.heads.value,
            "fp8": self.fp8,
            "kind": self.kind,
        }
        if self.kind == "step":
            shown |= {"state": self.state, "pads": self.pads, "steps": self.steps}
        if self.pad_slot_id != PAD_SLOT:
            shown["pad_slot_id"] = self.pad_slot_id
        if (self.scale, self.norm_eps) != (SCALE, NORM_EPS):
            shown |= {"scale": self.scale, "norm_eps": self.norm_eps}
        if self.inputs != "unit":
            shown["inputs"] = self.inputs
        if self.far:
            shown["pool_slots"] = FAR_SLOTS
        if self.arch:
            shown["arch"] = self.arch
        return shown | ({"twist": self.twist} if self.twist else {})


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What the caller narrowed the plan to."""

    device: DeviceKind
    batches: Sequence[int] | None = None
    heads: Heads | None = None
    quick: bool = False
    drawn: Sequence[int] = ()  # batch sizes that the secret seed chose; see `draw`

    @property
    def on_cpu(self) -> bool:
        return devices.spec(self.device).on_cpu

    @property
    def code_heads(self) -> Heads:
        """Nothing is executed at most sizes, so the shapes of a real shard."""
        return self.heads or Heads(4, 8)

    @property
    def main_heads(self) -> Heads:
        return self.heads or (Heads(1, 2) if self.on_cpu else Heads(4, 8))

    def sizes(
        self, cpu_quick: Sequence[int], cpu: Sequence[int], quick: Sequence[int]
    ) -> list[int]:
        if self.batches is not None:
            return list(self.batches)
        if self.on_cpu:
            return list(cpu_quick if self.quick else cpu)
        return list(quick if self.quick else GPU_BATCHES)


TWISTS = (
    "nan-q",
    "nan-v",
    "nan-z",
    "inf-z",
    "minus-inf-z",
    "inf-v",
    "nan-a",
    "nan-b",
    "nan-state",
    "rate-overflow",
    "rate-overflow-softplus-zero",
    "huge-a",
    "zero-inputs",
)
QUICK_TWISTS = ("nan-z", "inf-z", "nan-state", "rate-overflow-softplus-zero", "zero-inputs")


def draw(scope: Scope, rng: np.random.Generator) -> tuple[int, ...]:
    """Batch sizes that no plan names, so that being right for the plan alone is not enough."""
    if scope.batches is not None:
        return ()
    known = CPU_BATCHES if scope.on_cpu else GPU_BATCHES
    choices = [rows for rows in range(4, 14 if scope.on_cpu else 320) if rows not in known]
    count = 1 if scope.on_cpu else 3
    return tuple(int(rows) for rows in rng.choice(choices, count, replace=False))


def correctness(scope: Scope) -> list[Planned]:
    cases = [*_steps(scope), *_sparse(scope), *_pads(scope), *_special(scope), *_other_heads(scope)]
    cases += [
        Planned(id=f"step-drawn-{i}", kind="step", heads=scope.main_heads, rows=rows, pads="mixed")
        for i, rows in enumerate(scope.drawn, 1)
    ]
    return cases + list(_predicate(scope))


def _steps(scope: Scope) -> Iterator[Planned]:
    """Every size: two steps with pads and FP8; small and zero states; with and without FP8."""
    heads = scope.main_heads
    sizes = scope.sizes(CPU_QUICK_BATCHES, CPU_BATCHES, GPU_QUICK_BATCHES)
    if scope.batches is None:
        yield Planned(id=f"step-{heads}-T0", kind="step", heads=heads, rows=0)
    for rows in sizes:
        name = f"{heads}-T{rows}"
        yield Planned(
            id=f"step-{name}-unit-fp8", kind="step", heads=heads, rows=rows, steps=2, pads="mixed"
        )
        if rows > 256 or (scope.quick and scope.on_cpu and rows not in (1, 3)):
            continue
        small = Planned(
            id=f"step-{name}-small-bf16",
            kind="step",
            heads=heads,
            rows=rows,
            state="small",
            fp8=False,
        )
        yield small
        if not scope.quick or rows == 1:
            yield Planned(
                id=f"step-{name}-zero-fp8", kind="step", heads=heads, rows=rows, state="zero"
            )


def _sparse(scope: Scope) -> Iterator[Planned]:
    """Kernels of large batches at the cost of three rows, where each row is dear."""
    if not devices.spec(scope.device).emulated or scope.batches is not None:
        return
    for rows in SPARSE_QUICK_BATCHES if scope.quick else SPARSE_BATCHES:
        name = f"sparse-{scope.main_heads}-T{rows}"
        yield Planned(id=name, kind="step", heads=scope.main_heads, rows=rows, pads="sparse")


def _pads(scope: Scope) -> Iterator[Planned]:
    heads = scope.main_heads
    for pads in ("first", "last", "all"):
        yield Planned(id=f"pads-{pads}", kind="step", heads=heads, rows=4, pads=pads)
    yield Planned(id="pads-id-0", kind="step", heads=heads, rows=4, pads="mixed", pad_slot_id=0)
    # As many slots as rows: slot 0 and the last slot are live.
    yield Planned(id="slots-all-live", kind="step", heads=heads, rows=3, spare_slots=0)


def _special(scope: Scope) -> Iterator[Planned]:
    heads = scope.main_heads
    yield Planned(id="options-other", kind="step", heads=heads, rows=3, scale=0.125, norm_eps=1e-3)
    yield Planned(id="inputs-tiny", kind="step", heads=heads, rows=4, inputs="tiny")
    steps = 16 if scope.quick else ROLLOUT_STEPS
    rows = 1 if scope.on_cpu else 4
    yield Planned(
        id=f"rollout-{steps}",
        kind="step",
        heads=heads,
        rows=rows,
        steps=steps,
        state="small",
        spare_slots=2,
    )
    if not scope.on_cpu and scope.heads in (None, Heads(4, 8)):
        yield Planned(
            id="slots-far",
            kind="step",
            heads=Heads(4, 8),
            rows=len(FAR_PLACES),
            spare_slots=3,
            far=True,
        )
    for twist in QUICK_TWISTS if scope.quick else TWISTS:
        yield Planned(id=f"extreme-{twist}", kind="step", heads=heads, rows=2, twist=twist)


def _other_heads(scope: Scope) -> Iterator[Planned]:
    """The head counts of TP1, TP2 and TP8, and of a single key head."""
    if scope.heads is not None:
        return
    if scope.on_cpu:
        choices: dict[Heads, tuple[int, ...]] = {Heads(2, 4): (2,), Heads(4, 8): (1,)}
        if not scope.quick:
            choices |= {Heads(16, 32): (1,)}
    else:
        choices = dict.fromkeys(GPU_HEADS, (3, 130) if scope.quick else (1, 3, 17, 64, 130))
    for heads, sizes in choices.items():
        for rows in sizes:
            yield Planned(
                id=f"step-{heads}-T{rows}",
                kind="step",
                heads=heads,
                rows=rows,
                pads="mixed" if rows > 1 else "none",
            )


def _predicate(scope: Scope) -> Iterator[Planned]:
    from gdn_judge.contract import OPERANDS

    heads = scope.main_heads
    for operand in ("good", *OPERANDS, "quant_dtype", "pairs"):
        yield Planned(
            id=f"predicate-{operand}", kind="predicate", heads=heads, rows=2, twist=operand
        )


def determinism(scope: Scope) -> list[Planned]:
    heads = scope.main_heads
    sizes = scope.sizes((1, 2), (1, 3, 5), (1, 8, 64, 129))
    if scope.batches is None and not scope.on_cpu and not scope.quick:
        sizes = [1, 2, 8, 32, 33, 64, 96, 128, 129, 256]
    cases = []
    for rows in sizes:
        cases.append(Planned(id=f"repeat-{heads}-T{rows}", kind="repeat", heads=heads, rows=rows))
        if rows > 1:
            cases.append(
                Planned(id=f"invariance-{heads}-T{rows}", kind="invariance", heads=heads, rows=rows)
            )
    return cases


def roofline(scope: Scope) -> list[Planned]:
    """Each size with FP8, and without it; the whole plan of a GPU has all heads that serve."""
    heads = scope.main_heads
    if scope.batches is not None:
        sizes = [rows for rows in scope.batches if rows]  # no rows launch nothing
    elif scope.on_cpu:
        sizes = list(ROOFLINE_CPU_BATCHES)
    else:
        sizes = list(ROOFLINE_QUICK_BATCHES if scope.quick else ROOFLINE_BATCHES)
    bf16 = sizes if not scope.quick else sorted({*sizes[:1], *sizes[-1:]})
    plan = [(heads, rows, True) for rows in sizes]
    if not scope.on_cpu:
        plan += [(heads, rows, False) for rows in bf16]
        if scope.batches is None and scope.heads is None and not scope.quick:
            others = [other for other in SERVING_HEADS if other != heads]
            plan += [(other, rows, True) for other in others for rows in ROOFLINE_OTHER_BATCHES]
    return [
        Planned(
            id=f"roofline-{with_heads}-T{rows}-{'fp8' if fp8 else 'bf16'}",
            kind="roofline",
            heads=with_heads,
            rows=rows,
            fp8=fp8,
            spare_slots=0,
        )
        for with_heads, rows, fp8 in plan
    ]
