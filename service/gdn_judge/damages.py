"""Bad operands for the predicate: one operand spoiled in every way, or two at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gdn_judge.contract import DTYPES, OPERANDS
from gdn_judge.execution import Damage
from gdn_judge.operands import Operands

_OTHER_DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
_BAD_QUANT = ("float16", "float8_e5m2", "fp8", "int8")


def of_operand(
    name: str,
    operands: Operands,
    rng: np.random.Generator,
    few: bool,
    devices: Sequence[str] = ("meta",),
) -> list[Damage]:
    """All single damages of one operand; some of the shapes and dtypes where `few`.

    `devices` are torch devices other than the one that the op runs on.
    """
    if name == "quant_dtype":
        return [Damage(operand=name, how="quant", value=value) for value in _BAD_QUANT]
    dtypes = [dtype for dtype in _OTHER_DTYPES if dtype != DTYPES[name]]
    shapes = _shapes(tuple(_seen_shape(operands, name)))
    if few:
        dtypes = list(rng.permutation(dtypes)[:2])
        shapes = list(rng.permutation(shapes)[:3])
    return [
        Damage(operand=name, how="none"),
        Damage(operand=name, how="type"),
        *(Damage(operand=name, how="device", value=device) for device in devices),
        Damage(operand=name, how="strided"),
        *(Damage(operand=name, how="dtype", value=str(dtype)) for dtype in dtypes),
        *(Damage(operand=name, how="shape", value=str(shape)) for shape in shapes),
    ]


def pairs(operands: Operands, rng: np.random.Generator, count: int) -> list[tuple[Damage, ...]]:
    """Two operands spoiled at once, drawn at random."""
    drawn = []
    for _ in range(count):
        first, second = rng.choice(OPERANDS, 2, replace=False)
        drawn.append(
            tuple(
                _pick(of_operand(str(name), operands, rng, few=False), rng)
                for name in (first, second)
            )
        )
    return drawn


def names_operand(reason: str, damages: tuple[Damage, ...]) -> bool:
    """Whether a reason names what is wrong.

    Of a wrong shape or device any operand may be named, since shapes contradict
    each other in pairs; else the spoiled one.
    """
    if any(damage.how in ("shape", "device") for damage in damages):
        return any(name in reason for name in (*OPERANDS, "quant_dtype"))
    return any(damage.operand in reason for damage in damages)


def _pick(damages: list[Damage], rng: np.random.Generator) -> Damage:
    return damages[int(rng.integers(len(damages)))]


def _seen_shape(operands: Operands, name: str) -> list[int]:
    shape = list(operands.arrays()[name].shape)
    if name in ("conv_state", "ssm_state"):
        shape[0] = operands.slots
    return shape


def _shapes(shape: tuple[int, ...]) -> list[str]:
    """One dimension more, one less, none at all, and each length off by one or zero."""
    wrong = [(*shape, 1), shape[:-1], ()]
    for axis, length in enumerate(shape):
        for other in (length + 1, length - 1, 0):
            if other >= 0:
                wrong.append((*shape[:axis], other, *shape[axis + 1 :]))
    texts = dict.fromkeys(",".join(map(str, each)) for each in wrong if each != shape)
    return list(texts)
