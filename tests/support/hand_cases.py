"""Drive the cases of tests/data/hand-cases.json against any op with the contract's signature.

Each case names elements to set on zero tensors and elements to expect. `check`
raises AssertionError with the case id and the line that does not hold.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

D = 128
DATA = Path(__file__).parents[1] / "data" / "hand-cases.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text())["cases"]
SENTINEL = 7.0


@dataclass
class Tensors:
    """The operands of one case, and the bigger allocations that views were cut from."""

    values: dict[str, Any]
    bases: dict[str, torch.Tensor] = field(default_factory=dict)
    slots: list[int] | None = None  # slot ids that exist, where the pool is sparse


class Case:
    def __init__(self, case: dict[str, Any], device: str = "cpu") -> None:
        self.case, self.device = case, device
        self.KH, self.r, self.T = case["KH"], case["r"], case["T"]
        self.VH = self.KH * self.r
        self.group = 2 * D + 2 * self.r * D
        self.C = 2 * self.KH * D + self.VH * D
        # Pools of 8.6 GB are for a GPU; elsewhere the same slots are packed closely.
        self.sparse = case.get("sparse") if device == "cpu" else None
        self.N = len(self.sparse) if self.sparse else case["N"]
        self.pad = case.get("pad_slot_id", -1)

    def slot(self, slot: int) -> int:
        return self.sparse.index(slot) if self.sparse else slot

    # building -----------------------------------------------------------------------
    def build(self) -> Tensors:
        make = lambda shape, dtype: torch.zeros(shape, dtype=dtype, device=self.device)  # noqa: E731
        bf16, f32 = torch.bfloat16, torch.float32
        guard = 1 if self.case.get("guard") else 0
        conv = make((self.N + guard, self.C, 3), bf16)
        ssm = make((self.N + guard, self.VH, D, D), f32)
        if guard:
            conv[0], ssm[0] = SENTINEL, SENTINEL
        weight = make((self.C, 4), bf16)
        weight[:] = torch.tensor(self.case["taps"], dtype=bf16)
        index = [i if i == self.pad else self.slot(i) for i in self.case["idx"]]
        values = {
            "projected_qkvz": make((self.T, self.KH * self.group), bf16),
            "projected_ba": make((self.T, 2 * self.VH), bf16),
            "conv_state": conv[guard:],
            "ssm_state": ssm[guard:],
            "ssm_state_indices": torch.tensor(index, dtype=torch.int32, device=self.device),
            "conv_weight": weight,
            "conv_bias": make((self.C,), bf16),
            "A_log": make((self.VH,), f32),
            "dt_bias": make((self.VH,), bf16),
            "norm_weight": make((D,), bf16) + 1,
        }
        tensors = Tensors(values, {"conv_state": conv, "ssm_state": ssm} if guard else {})
        self.set_lines(tensors.values, self.case["set"])
        self._views(tensors)
        self._spoil(tensors.values)
        return tensors

    def set_lines(self, values: dict[str, Any], lines: list[Any]) -> None:
        for kind, *line in lines:
            tensor, index = self._place(values, kind, line[:-1])
            value = torch.tensor(
                [float(x) for x in line[-1]] if isinstance(line[-1], list) else float(line[-1]),
                dtype=torch.float64,
            )
            tensor[index] = value.to(tensor.dtype).to(tensor.device)

    def _place(self, values: dict[str, Any], kind: str, at: list[Any]) -> tuple[Any, Any]:
        index = [slice(None) if i == "*" else i for i in at]
        if kind in ("q", "k", "v", "z"):
            return self._projection(values["projected_qkvz"], kind), tuple(index)
        if kind in ("b", "a"):
            view = values["projected_ba"].view(self.T, self.KH, 2, self.r)
            head = index[1]
            heads = (slice(None), slice(None)) if isinstance(head, slice) else divmod(head, self.r)
            return view[:, :, "ba".index(kind)], (index[0], *heads)
        if kind == "S":
            first = index[0] if isinstance(index[0], slice) else self.slot(index[0])
            return values["ssm_state"], (first, *index[1:])
        if kind == "conv":
            return values["conv_state"], (self.slot(at[0]), self.channel(*at[1:4]))
        if kind in ("w", "bias"):
            name = {"w": "conv_weight", "bias": "conv_bias"}[kind]
            return values[name], self.channel(*at[:3])
        names = {"A_log": "A_log", "dt_bias": "dt_bias", "norm_w": "norm_weight"}
        names |= {"qkvz_flat": "projected_qkvz", "ba_flat": "projected_ba"}
        return values[names[kind]], tuple(index)

    def _projection(self, qkvz: torch.Tensor, kind: str) -> torch.Tensor:
        groups = qkvz.view(self.T, self.KH, self.group)
        if kind in "qk":
            start = D * "qk".index(kind)
            return groups[:, :, start : start + D]
        start = 2 * D + (self.r * D if kind == "z" else 0)
        part = groups[:, :, start : start + self.r * D].view(self.T, self.KH, self.r, D)
        return _Heads(part, self.r)  # type: ignore[return-value]

    def channel(self, kind: str, head: int, d: int) -> int:
        return {"q": 0, "k": self.KH * D, "v": 2 * self.KH * D}[kind] + head * D + d

    def _views(self, tensors: Tensors) -> None:
        for name, (how, *rest) in self.case.get("view", {}).items():
            tensor = tensors.values[name]
            if how == "wide":
                base = torch.full((self.T, rest[0]), math.nan, dtype=tensor.dtype)
                view = base[:, : tensor.shape[1]]
            elif how == "pair":
                base = torch.full((self.T, 2), 2, dtype=tensor.dtype)
                view = base[:, 0]
            else:
                base = torch.full(
                    (tensor.shape[0], 2, *tensor.shape[1:]), SENTINEL, dtype=tensor.dtype
                )
                view = base[:, 0]
            base = base.to(self.device)
            view = torch.as_strided(base, view.shape, view.stride())
            view.copy_(tensor)
            tensors.values[name], tensors.bases[name] = view, base

    def _spoil(self, values: dict[str, Any]) -> None:
        if self.case.get("bias_none"):
            values["conv_bias"] = None
        if "bad" in self.case:
            name, how, what = self.case["bad"]
            tensor = values[name]
            if how == "dtype":
                values[name] = tensor.to(getattr(torch, what))
            elif how == "slots":
                values[name] = tensor[:what].clone()
            else:
                values[name] = tensor[:, :what].contiguous()

    # running ------------------------------------------------------------------------
    def run(self, op: Callable[..., Any], fp8: bool = True) -> tuple[Tensors, Tensors, Any]:
        """(before, after, results of the last step). Raises what the op raises."""
        tensors, before = self.build(), self.build()
        results = self._step(op, tensors, fp8)
        for lines in self.case.get("then", []):
            for name in ("projected_qkvz", "projected_ba"):
                tensors.values[name].zero_()
            self.set_lines(tensors.values, lines)
            results = self._step(op, tensors, fp8)
        return before, tensors, results

    def _step(self, op: Callable[..., Any], tensors: Tensors, fp8: bool) -> Any:
        return op(
            **tensors.values,
            scale=self.case.get("scale", D**-0.5),
            norm_eps=1e-6,
            quant_dtype=torch.float8_e4m3fn if fp8 else None,
            pad_slot_id=self.pad,
        )

    # checking -----------------------------------------------------------------------
    def check(self, before: Tensors, after: Tensors, results: Any) -> None:
        named = torch.zeros_like(after.values["ssm_state"], dtype=torch.bool)
        for line in self.case["expect"]:
            if line[0] == "S":
                _tensor, index = self._place(after.values, "S", line[1:5])
                named[index] = True
        for line in self.case["expect"]:
            why = f"{self.case['id']}: {line} ({self.case['why']})"
            getattr(self, f"_expect_{line[0]}")(line[1:], before, after, results, named, why)

    def _expect_S(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        tensor, index = self._place(after.values, "S", line[:4])
        _close(tensor[index], *line[4:], why=why)

    def _expect_S_rest(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        slot = self.slot(line[0])
        assert not after.values["ssm_state"][slot][~named[slot]].any(), why

    def _expect_out(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        index = tuple(slice(None) if i == "*" else i for i in line[:3])
        _close(results[0][index], *line[3:], why=why)

    def _expect_out_zero(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        row, head, start = line
        assert not results[0][row, head, start:].any(), why

    def _expect_conv(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        slot, kind, head, d, window = line
        self._expect_conv_flat(
            (slot, self.channel(kind, head, d), window), before, after, results, named, why
        )

    def _expect_conv_flat(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        slot, channel, window = line
        assert after.values["conv_state"][self.slot(slot), channel].tolist() == window, why

    def _codes(self, results: Any) -> torch.Tensor:
        return results[1].view(torch.uint8).view(-1, self.VH, D)

    def _expect_code(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        index = tuple(slice(None) if i == "*" else i for i in line[:3])
        assert (self._codes(results)[index] == line[3]).all(), why

    def _expect_code_zero(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        assert not (self._codes(results) & 0x7F).any(), why

    def _expect_scale(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        index = tuple(slice(None) if i == "*" else i for i in line[:2])
        _close(results[2][index], *line[2:], why=why)

    def _expect_finite(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        for tensor in (results[0], after.values["conv_state"], after.values["ssm_state"]):
            assert torch.isfinite(tensor).all(), why

    def _expect_others_unchanged(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        live = [i for i in before.values["ssm_state_indices"].tolist() if i != self.pad]
        rest = [slot for slot in range(self.N) if slot not in live]
        for name in ("conv_state", "ssm_state"):
            if self.N > 1000:
                rest = [slot for slot in (self.case["sparse"]) if slot not in live]
            assert _same(after.values[name][rest], before.values[name][rest]), f"{name}: {why}"
            if self.case.get("guard"):
                assert (after.bases[name][0] == SENTINEL).all(), f"{name} before slot 0: {why}"

    def _expect_view_rest_unchanged(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        for name, base in after.bases.items():
            base, original = base.clone(), before.bases[name].clone()
            view = after.values[name]
            for copy in (base, original):
                torch.as_strided(copy, view.shape, view.stride()).zero_()
            assert _same(base, original), f"{name}: {why}"

    def _expect_shape(self, line, before, after, results, named, why):  # type: ignore[no-untyped-def]
        name, shape = line
        result = results[("out", "quantized", "scales").index(name)]
        assert list(result.shape) == shape, why


class _Heads:
    """[T, KH, r, D] indexed by value head."""

    def __init__(self, tensor: torch.Tensor, r: int) -> None:
        self.tensor, self.r = tensor, r
        self.dtype, self.device = tensor.dtype, tensor.device

    def __setitem__(self, index: Any, value: torch.Tensor) -> None:
        row, head, d = index
        heads = (slice(None), slice(None)) if isinstance(head, slice) else divmod(head, self.r)
        self.tensor[(row, *heads, d)] = value


def _close(
    actual: torch.Tensor, value: float, tolerance: float, mode: str = "", *, why: str
) -> None:
    actual = actual.to(torch.float64)
    error = (actual - value).abs()
    limit = tolerance if mode == "abs" else tolerance * abs(value)
    assert (error <= limit).all(), f"{why}: worst error {error.max().item()}, allowed {limit}"


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(
        a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8)
    )


def outcome(case: dict[str, Any], op: Callable[..., Any], device: str = "cpu") -> str:
    """Hold `op` to one case; "right" or "refused". AssertionError where it breaks the case."""
    driver = Case(case, device)
    tensors = driver.build()
    pristine = driver.build()
    try:
        before, after, results = driver.run(op)
    except ValueError as refusal:
        if case["mode"] == "right":
            raise AssertionError(f"{case['id']} must be taken") from refusal
        _nothing_changed(driver, op, tensors, pristine, case, str(refusal))
        return "refused"
    assert case["mode"] != "refuse", f"{case['id']} must be refused: {case['why']}"
    driver.check(before, after, results)
    for name, value in before.values.items():
        if name not in ("conv_state", "ssm_state") and value is not None and not case.get("then"):
            assert _same(value, after.values[name]), f"{case['id']} changed the input {name}"
    return "right"


def _nothing_changed(
    driver: Case,
    op: Callable[..., Any],
    tensors: Tensors,
    pristine: Tensors,
    case: dict[str, Any],
    reason: str,
) -> None:
    with contextlib.suppress(ValueError):
        driver._step(op, tensors, True)
    for name, value in tensors.values.items():
        if value is not None:
            assert _same(value, pristine.values[name]), f"{case['id']} changed {name}"
    if "bad" in case:
        assert case["bad"][0] in reason, f"{case['id']}: {reason!r} does not name the operand"


def by_mode(*modes: str) -> Iterator[dict[str, Any]]:
    return itertools.chain.from_iterable(
        (case for case in CASES if case["mode"] == mode) for mode in modes
    )
