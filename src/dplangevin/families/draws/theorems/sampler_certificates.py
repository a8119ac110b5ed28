"""What a guarantee becomes when the draw is only certified to be close to the law it is about.

Every certificate must hold for EVERY admissible data set. One-sided Renyi closeness gives nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dplangevin import _check
from dplangevin.errors import AssumptionFailed
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Approximate, BoundedRange, Profile, Pure

_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 600)])


def total_variation_transfer(
    guarantee: Guarantee, total_variation: float, epsilon: float | None = None
) -> Guarantee:
    """Laws within total variation tau of (eps, delta)-DP ones: (eps, delta + (1 + e^eps) tau), for every eps.

    epsilon : a value that the resulting curve carries exactly (others are interpolated on the safe side).
    """
    tau = _check.nonnegative("total_variation", total_variation)
    if tau == 0:
        return guarantee
    at = guarantee.epsilon(0.0)
    exact = [value for value in (epsilon, at) if value is not None and math.isfinite(value)]
    grid = np.unique(np.concatenate([_EPSILONS, exact]))
    deltas = np.array([guarantee.delta(float(e)) for e in grid]) + (1 + np.exp(grid)) * tau
    # delta(eps) is nonincreasing, so a smaller eps's bound serves all larger ones
    best = np.minimum.accumulate(np.minimum(deltas * (1 + 1e-12), 1.0))
    return _closer(
        guarantee,
        (Profile(epsilons=tuple(grid.tolist()), deltas=tuple(best.tolist())),),
        f"the draw's law is within total variation {tau:.6g} of the target for every data set",
        "certified sampler",
    )


def total_variation_allowance(delta: float, epsilon: float) -> float:
    """The total variation tau that costs `delta` at epsilon: delta / (1 + e^eps), rounded down.

    Examples
    --------
    >>> round(total_variation_allowance(1e-6, 1.0) * 1e7, 4)
    2.6894
    """
    return (
        _check.open_unit("delta", delta) / (1 + math.exp(_check.nonnegative("epsilon", epsilon))) * (1 - 1e-9)
    )


def sup_norm_cost(sup_norm: float) -> float:
    """log((1 + zeta) / (1 - zeta)): what a density known within a factor 1 +- zeta adds to epsilon."""
    zeta = _check.nonnegative("sup_norm", sup_norm)
    if zeta >= 1:
        raise AssumptionFailed(f"the sup-norm certificate must be below 1, got {sup_norm!r}; run more steps.")
    return (math.log1p(zeta) - math.log1p(-zeta)) * (1 + 1e-12)


def sup_norm_transfer(guarantee: Guarantee, sup_norm: float, keep_range: bool = False) -> Guarantee:
    """Densities within a factor [1 - zeta, 1 + zeta] of a pure law's: epsilon + log((1 + zeta)/(1 - zeta)), delta = 0.

    keep_range keeps a bounded-range promise bounded range (better when composed), at twice the price: the log
    ratio may move by that much at each end.
    """
    cost = sup_norm_cost(sup_norm)
    _need_pure(guarantee, "the sup-norm certificate")
    if keep_range:
        if (
            len(guarantee.parts) != 1
            or not isinstance(guarantee.parts[0], BoundedRange)
            or guarantee.parts[0].count != 1
        ):
            raise AssumptionFailed(
                "keep_range needs one bounded-range draw; leave it out to get a pure guarantee."
            )
        parts: tuple[Pure | BoundedRange, ...] = (BoundedRange(value=guarantee.parts[0].value + 2 * cost),)
    else:
        parts = (Pure(value=guarantee.epsilon(0.0) + cost),)
    words = f"the draw's density is within a factor 1 +- {sup_norm:.6g} of the target's for every data set"
    return _closer(guarantee, parts, words, "sup-norm certified sampler")


def capped_rejection(guarantee: Guarantee, failure_probability: float) -> Guarantee:
    """A rejection loop stopped after N proposals, failing with a fixed output: delta grows by sup_D (1 - acc)^N.

    failure_probability must bound that for every data set. True only on top of a pure law.
    """
    fail = _check.nonnegative("failure_probability", failure_probability)
    _need_pure(guarantee, "the cap's extra delta")
    words = f"the rejection loop fails with probability at most {fail:.6g} for every data set, with a fixed output"
    return replace(
        guarantee,
        extra_delta=guarantee.extra_delta + fail,
        assumptions=(*guarantee.assumptions, words),
        at_delta=None,
    )


def _need_pure(guarantee: Guarantee, what: str) -> None:
    if not math.isfinite(guarantee.epsilon(0.0)):
        raise AssumptionFailed(f"{what} needs a pure target (delta = 0); use the total-variation transfer.")


def _closer(
    guarantee: Guarantee,
    parts: tuple[Profile | Pure | BoundedRange | Approximate, ...],
    words: str,
    name: str,
) -> Guarantee:
    return replace(
        guarantee,
        parts=parts,
        extra_delta=0.0,
        theorem=f"{guarantee.theorem}, {name}",
        assumptions=(*guarantee.assumptions, words),
        at_delta=0.0 if name in ("sup-norm certified sampler", "density error") else None,
        composition=None,
    )
