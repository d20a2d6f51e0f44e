"""How far a right kernel may lie from the reference, element by element, by derivation.

A right kernel computes the contract's step in fp32, sums in any order, contracts what it
likes, and rounds where the contract rounds. What each quantity may err by, to first order,
follows from the bound on a sum of n terms in any order, |error| <= n u sum|terms| with
u = 2^-24 (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section
4.2), and from what the elementary functions of GPUs are documented to err by (CUDA C++
Programming Guide, "Mathematical Functions": a few ulps, for an exponential also those of
its argument). y and beta hold no rounding ties (see `generate`), so they are exact.

State: each element has a bound of its own. Out: the bound on core says which bfloat16
values core may legally become: one nearly always, two at a tie, more where core is mostly
cancellation. Norm and gate carry that set to an interval of out, whose ends are rounded as
out is. So what a tie of core moves behind the norm is allowed, there and no further.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdn_judge.contract import K, V
from gdn_judge.numerics import Float, Rounding, Single, round_bf16

U = 2.0**-24  # unit roundoff of fp32
TINY = 2.0**-118  # what kernels that flush denormals lose over a head
_FUNCTION = 8  # u that an exponential, logarithm, root or quotient errs by
_FEW = 4  # u of the products and stores around one value
_SUM_K, _SUM_V = (K + _FEW) * U, (V + _FEW) * U
NORM_ERROR = _SUM_K / 2 + (_FUNCTION + _FEW) * U  # of q and k, relative: a root of a sum


def sigmoid_error(x: Float) -> Float:
    """Relative error of 1/(1 + exp(-x))."""
    return np.asarray(U * (_FUNCTION + _FEW + 2 * np.abs(x)))


def activation_error(acc: Float, magnitude: Float) -> Float:
    """Absolute error of acc*sigmoid(acc); `magnitude` sums the absolute values acc adds up."""
    sigmoid = 1 / (1 + np.exp(-acc))
    slope = np.abs(sigmoid * (1 + acc * (1 - sigmoid)))
    return np.asarray(slope * 2 * _FEW * U * magnitude + np.abs(acc * sigmoid) * sigmoid_error(acc))


def decay_error(log_rate: Float, rate: Float, u: Float, softplus: Float) -> Float:
    """Relative error of exp(-rate*softplus(u)), where rate = exp(log_rate).

    log(1 + exp(u)) loses what 1 + exp(u) rounds away, an absolute error of some u. With an
    infinite rate the decay is 0 or 1 exactly, whichever way it is computed.
    """
    of_softplus = U * (_FUNCTION * (1 + softplus) + 2 * np.abs(u) * np.minimum(softplus, 1))
    of_rate = U * (_FUNCTION + 2 * np.abs(log_rate))
    exponent = rate * softplus
    error = rate * of_softplus + exponent * of_rate + U * (_FUNCTION + 2 * exponent)
    return np.where(np.isfinite(error), error, 0.0)


@dataclass(frozen=True, kw_only=True)
class Magnitudes:
    """Sums of absolute values, with D the decayed state.

    seen sum|D k| and read sum|D q| [T, VH, V]; k_q the sum of k q and abs_k_q that of
    |k q| [T, VH, 1].
    """

    seen: Float
    read: Float
    k_q: Float
    abs_k_q: Float

    @classmethod
    def of(cls, before: Single, decay: Float, k: Float, q: Float) -> Magnitudes:
        """`before` [T, VH, V, K] is the state before the step, decay [T, VH]."""
        pair = np.abs(np.stack([k, q], axis=-1)).astype(np.float32)
        sums = np.matmul(np.abs(before), pair).astype(np.float64) * decay[..., None, None]
        k_q = (k * q).sum(axis=-1, keepdims=True)
        abs_k_q = np.abs(k * q).sum(axis=-1, keepdims=True)
        return cls(seen=sums[..., 0], read=sums[..., 1], k_q=k_q, abs_k_q=abs_k_q)


def residual_error(
    v: Float, predicted: Float, beta: Float, decay_error: Float, sums: Magnitudes
) -> Float:
    """Absolute error of (v - D k)*beta; v and predicted [T, VH, V], the others [T, VH]."""
    factors = (NORM_ERROR + decay_error)[..., None]
    of_predicted = _SUM_K * sums.seen + factors * np.abs(predicted)
    rounded = _FEW * U * (np.abs(v) + np.abs(predicted))
    return np.asarray(beta[..., None] * (of_predicted + rounded))


def core_error(
    core: Float, residual: Float, residual_error: Float, decay_error: Float, sums: Magnitudes
) -> Float:
    """Absolute error of S' q before its rounding; [T, VH, V], decay_error [T, VH].

    S' q and D q + residual*(k q) are one within it.
    """
    kept = (_SUM_K + decay_error[..., None]) * sums.read
    added = _SUM_K * np.abs(residual) * sums.abs_k_q
    moved = (residual_error + NORM_ERROR * np.abs(residual)) * np.abs(sums.k_q)
    return np.asarray(NORM_ERROR * np.abs(core) + kept + added + moved + TINY)


@dataclass(frozen=True, kw_only=True)
class StateBound:
    """What an element of S' may err by: kept |S| + added |k| + 2u |S'|, S the state before.

    kept [T, VH], added [T, VH, V], k [T, VH, K] without its sign.
    """

    kept: Float
    added: Float
    k: Float

    @classmethod
    def of(
        cls, decay: Float, decay_error: Float, residual: Float, residual_error: Float, k: Float
    ) -> StateBound:
        added = residual_error + (NORM_ERROR + _FEW * U) * np.abs(residual)
        return cls(kept=decay * (decay_error + _FEW * U), added=added, k=np.abs(k))

    def at(self, row: int, before: Single, after: Single) -> Float:
        """The bound of each element of row `row`; states [VH, V, K]."""
        with np.errstate(invalid="ignore"):  # not finite where the state is not
            kept = self.kept[row, :, None, None] * np.abs(before)
            added = self.added[row, :, :, None] * self.k[row, :, None, :]
            return np.asarray(kept + added + 2 * U * np.abs(after) + TINY)


def out_interval(
    core: Float, error: Float, z: Float, factor: Float, norm_eps: float, rounding: Rounding
) -> tuple[Float, Float]:
    """Least and greatest out, before its rounding, of a core within `error`; all [T, VH, V].

    `factor` is z*sigmoid(z) times the norm's weight. Each element is taken with its own
    core in the norm, which grows with it, and with the others' at their extremes.
    """
    low, high = round_bf16(core - error, rounding), round_bf16(core + error, rounding)
    ends = np.stack([np.square(low), np.square(high)])
    least = np.where(np.sign(low) == np.sign(high), ends.min(axis=0), 0.0)
    others = [_without_own(squares) for squares in (least, ends.max(axis=0))]
    normed = np.stack(
        [end / np.sqrt((rest + end**2) / V + norm_eps) for end in (low, high) for rest in others]
    )
    gated = normed * factor
    slack = _out_error(z) * np.abs(gated) + TINY
    return (gated - slack).min(axis=0), (gated + slack).max(axis=0)


def _without_own(squares: Float) -> Float:
    return np.asarray(np.maximum(squares.sum(axis=-1, keepdims=True) - squares, 0.0))


def _out_error(z: Float) -> Float:
    """Relative error of norm and gate from a core that has been rounded."""
    return np.asarray(_SUM_V / 2 + U * (2 * _FUNCTION + 2 * _FEW + 2 * np.abs(z)))
