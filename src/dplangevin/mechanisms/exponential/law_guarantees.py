"""Privacy guarantees of one draw from exp(-beta F): of the exact law, and of a sampler certified to be close to it.

On a bounded set the draw has bounded range beta * oscillation. Proof: the log density ratio of neighbours is -beta g
+ constant with g = F(.; D) - F(.; D'), so it lies in an interval of length beta (max g - min g), and g is (gradient
sensitivity)-Lipschitz on the set. Neither convexity nor smoothness nor a bounded loss is used. A nondecreasing
1-Lipschitz function of F - min F (threshold, ramp) preserves the interval. References: McSherry and Talwar (2007);
Ganesh, Thakurta and Upadhyay (2022), theorems D.1 and D.5, with the factor 2 made explicit; Durfee and Rogers (2019)
and Cesar and Rogers (2021) for bounded range.

For strongly convex F the draw is Delta sqrt(beta / m)-GDP, where Delta is the sensitivity of grad F (Gopi, Lee and
Liu 2022, theorem 4.1; Bok, Su and Altschuler 2024, section 5; exact for quadratics). With a log-Sobolev constant c
and a G-Lipschitz log ratio it is G^2 / (2c)-zCDP. Theorem 2.7 of Ganesh, Thakurta and Upadhyay (2023) is false as
printed for small epsilon and is not used.

A sampler's certificate must hold for EVERY admissible data set; one-sided Renyi closeness implies nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dplangevin import _check
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import (
    Approximate,
    BoundedRange,
    Concentrated,
    Gaussian,
    PrivacyPart,
    Profile,
    Pure,
)
from dplangevin.accounting.theorem import round_up
from dplangevin.errors import AssumptionFailed
from dplangevin.problem.constants import Constants

EXPONENTIAL_THEOREM = "exponential mechanism"
EXPONENTIAL_REFERENCE = (
    "McSherry and Talwar (2007), Theorem 6; bounded range by Durfee and Rogers (2019), section 4"
)
DRAW_ASSUMPTIONS = (
    "the draw is exact in real arithmetic, from a secret seed",
    "running time and number of proposals are not observed",
    "n, bounds and inverse temperature are public and not chosen from the private data",
)


def mean_gradient_sensitivity(constants: Constants) -> float:
    """Return sup |grad F(theta; D) - grad F(theta; D')| over neighbours: the sensitivity of the sum divided by n."""
    return constants.gradient_sensitivity / constants.n


def score_oscillation(constants: Constants) -> float:
    """Return the supremum over neighbours of max g - min g: Delta * diameter (2 L diam / n under replace-one).

    Where values are clipped to an interval of width b, it is 2 b / n (b / n under add-remove), without any gradient.
    """
    if constants.value_oscillation is not None:
        return constants.value_oscillation / constants.n
    if constants.diameter == float("inf"):
        raise AssumptionFailed(
            f"{EXPONENTIAL_THEOREM} does not apply: the parameter set is unbounded, so one record can change the score "
            "without limit. Constrain the parameter to a ball or box."
        )
    return mean_gradient_sensitivity(constants) * constants.diameter


def exponential_guarantee(
    constants: Constants, inverse_temperature: float, minimum_error: float = 0.0
) -> Guarantee:
    """Return the guarantee of one exact draw of exp(-beta F): bounded range beta (oscillation + minimum_error).

    Parameters
    ----------
    minimum_error : for scores max{F, F* + psi} or ramps of F - F*, a data-independent bound on the error of the
        computed minimum F* that the solver always meets; 0 for the plain score.
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    error = _check.check_nonnegative("minimum_error", minimum_error)
    return Guarantee(
        parts=(BoundedRange(value=round_up(beta * (score_oscillation(constants) + error))),),
        adjacency=constants.adjacency,
        release="draw",
        theorem=EXPONENTIAL_THEOREM,
        reference=EXPONENTIAL_REFERENCE,
        assumptions=(*constants.assumptions, *DRAW_ASSUMPTIONS),
        at_delta=0.0,
    )


def exponential_temperature(constants: Constants, epsilon: float, minimum_error: float = 0.0) -> float:
    """Return the largest inverse temperature with bounded range epsilon: epsilon / (oscillation + minimum_error)."""
    target = _check.check_positive("epsilon", epsilon)
    width = score_oscillation(constants) + _check.check_nonnegative("minimum_error", minimum_error)
    beta = target / width
    while round_up(beta * width) > target:
        beta *= 1 - 1e-9
    return beta


def gibbs_guarantee(constants: Constants, inverse_temperature: float) -> Guarantee:
    """Return the guarantee of one exact draw of exp(-beta F), F m-strongly convex on a convex set.

    It is mu-GDP with mu = Delta sqrt(beta / m).
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    ridge = _check_strong_convexity(constants, "the Gibbs law's Gaussian differential privacy")
    mu = round_up(mean_gradient_sensitivity(constants) * math.sqrt(beta / ridge))
    return _make_guarantee(
        constants, Gaussian(mu=mu), "strongly convex Gibbs law", "Gopi, Lee and Liu (2022), theorem 4.1"
    )


def gibbs_temperature(constants: Constants, mu: float) -> float:
    """Return the largest inverse temperature whose Gibbs law is mu-GDP: m mu^2 / Delta^2."""
    target = _check.check_positive("mu", mu)
    ridge = _check_strong_convexity(constants, "the Gibbs law's Gaussian differential privacy")
    delta = mean_gradient_sensitivity(constants)
    beta = ridge * (target / delta) ** 2
    while round_up(delta * math.sqrt(beta / ridge)) > target:
        beta *= 1 - 1e-9
    return beta


def log_sobolev_constant(
    inverse_temperature: float, strong_convexity: float, threshold: float = 0.0, smoothing: float = 0.0
) -> float:
    """Return the log-Sobolev constant c of exp(-beta max{F, F* + threshold}), F m-strongly convex.

    c is normalised by KL <= E|grad log ratio|^2 / (2c). Bakry-Emery gives beta m, and Holley-Stroock the factor
    exp(-oscillation of the perturbation): beta m exp(-beta threshold) while beta threshold <= 1, m / (e threshold)
    beyond. `smoothing` adds the oscillation M p lambda^2 / 2 of a Gaussian smoothing of width lambda (the first form
    then holds for every beta).
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    ridge = _check.check_positive("strong_convexity", strong_convexity)
    psi, extra = (
        _check.check_nonnegative("threshold", threshold),
        _check.check_nonnegative("smoothing", smoothing),
    )
    if extra == 0 and beta * psi > 1:
        return ridge / (math.e * psi)
    return beta * ridge * math.exp(-beta * (psi + extra))


def log_sobolev_guarantee(
    constants: Constants, inverse_temperature: float, score_sensitivity: float, log_sobolev: float
) -> Guarantee:
    """Return the guarantee of one exact draw of exp(-beta score): (beta score_sensitivity)^2 / (2c)-zCDP.

    Parameters
    ----------
    score_sensitivity : bound on |grad score(.; D) - grad score(.; D')| over neighbours on the set.
    log_sobolev : c, a log-Sobolev constant that holds for the law of every data set.
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    gap = beta * _check.check_positive("score_sensitivity", score_sensitivity)
    rho = round_up(gap**2 / (2 * _check.check_positive("log_sobolev", log_sobolev)))
    return _make_guarantee(
        constants,
        Concentrated(rho=rho),
        "Gibbs law with a log-Sobolev inequality",
        "Herbst's argument, Ledoux (1999), with explicit constants",
    )


def threshold_sensitivity(
    constants: Constants, threshold: float, full_lipschitz: float, interior_minimizers: bool
) -> float:
    """Return the sensitivity of grad F 1[F > F* + psi]: max{Delta, min(L_F, Delta + sqrt(2 M psi))}.

    Needs F convex, and for the second form grad F = 0 at the minimiser of EVERY data set (for instance a
    ball of radius at least L/m around the ridge's centre) and F smooth everywhere. Otherwise max{Delta,
    L_F}: at a minimiser on the boundary the gradient jumps by up to L_F, the Lipschitz constant of the full F.
    """
    psi = _check.check_nonnegative("threshold", threshold)
    full = _check.check_positive("full_lipschitz", full_lipschitz)
    if not constants.convex:
        raise AssumptionFailed(
            "the thresholded score's sensitivity does not apply: the loss is not convex, so the set {F > F* + psi} may "
            "change by more than a gradient's width. Use the exponential mechanism's pure guarantee."
        )
    delta = mean_gradient_sensitivity(constants)
    if psi == 0:
        return delta
    inside = delta + math.sqrt(2 * constants.smoothness * psi) if interior_minimizers else math.inf
    return max(delta, min(full, inside))


def ramp_sensitivity(
    constants: Constants, ramp: float, full_lipschitz: float, minimum_error: float = 0.0
) -> float:
    """Return the gradient sensitivity of a ramp of width tau of F - F*: Delta + L_F (oscillation + error) / tau."""
    tau = _check.check_positive("ramp", ramp)
    full = _check.check_positive("full_lipschitz", full_lipschitz)
    width = score_oscillation(constants) + _check.check_nonnegative("minimum_error", minimum_error)
    return mean_gradient_sensitivity(constants) + full * width / tau


def thresholded_gibbs_guarantee(
    constants: Constants,
    inverse_temperature: float,
    threshold: float,
    full_lipschitz: float,
    interior_minimizers: bool,
    minimum_error: float = 0.0,
) -> Guarantee:
    """Return the guarantee of one exact draw of exp(-beta max{F, F* + psi}).

    It is the smaller, in zCDP, of the log-Sobolev and the bounded-range guarantee. With an inexact F* the threshold
    is at most minimum_error higher, which enters both.
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    ridge = _check_strong_convexity(constants, "the thresholded Gibbs law")
    psi = _check.check_nonnegative("threshold", threshold) + _check.check_nonnegative(
        "minimum_error", minimum_error
    )
    sensitivity = threshold_sensitivity(constants, psi, full_lipschitz, interior_minimizers)
    log_sobolev = log_sobolev_guarantee(constants, beta, sensitivity, log_sobolev_constant(beta, ridge, psi))
    bounded_range = exponential_guarantee(constants, beta, minimum_error)
    epsilon = bounded_range.epsilon(0.0)
    rho = sum(part.rho for part in log_sobolev.parts if isinstance(part, Concentrated))
    return log_sobolev if rho < epsilon**2 / 8 else bounded_range


def _check_strong_convexity(constants: Constants, what: str) -> float:
    if not constants.convex:
        raise AssumptionFailed(
            f"{what} does not apply: the loss is not convex. Use the exponential mechanism's pure guarantee."
        )
    if constants.strong_convexity <= 0:
        raise AssumptionFailed(f"{what} does not apply: strong_convexity is 0. Add a ridge (alpha > 0).")
    return constants.strong_convexity


def _make_guarantee(constants: Constants, part: PrivacyPart, theorem: str, reference: str) -> Guarantee:
    return Guarantee(
        parts=(part,),
        adjacency=constants.adjacency,
        release="draw",
        theorem=theorem,
        reference=reference,
        assumptions=(*constants.assumptions, *DRAW_ASSUMPTIONS),
    )


_EPSILON_GRID = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 600)])


def transfer_total_variation(
    guarantee: Guarantee, total_variation: float, epsilon: float | None = None
) -> Guarantee:
    """Return the guarantee of a sampler within total variation tau of the law: (eps, delta + (1 + e^eps) tau).

    Parameters
    ----------
    guarantee : (eps, delta) of the law, for every eps.
    epsilon : a value at which the resulting curve is exact (elsewhere it is interpolated on the safe side).
    """
    tau = _check.check_nonnegative("total_variation", total_variation)
    if tau == 0:
        return guarantee
    at = guarantee.epsilon(0.0)
    exact = [value for value in (epsilon, at) if value is not None and math.isfinite(value)]
    # every point of a composition is a sum over a long distribution: a coarser grid there
    is_composed = sum(part.count for part in guarantee.parts) > 1
    grid = np.unique(np.concatenate([_EPSILON_GRID[:: 6 if is_composed else 1], exact]))
    deltas = np.array([guarantee.delta(float(e)) for e in grid]) + (1 + np.exp(grid)) * tau
    # delta(eps) is nonincreasing, so the bound at a smaller eps holds at all larger ones
    best = np.minimum.accumulate(np.minimum(deltas * (1 + 1e-12), 1.0))
    return _replace_parts(
        guarantee,
        (Profile(epsilons=tuple(grid.tolist()), deltas=tuple(best.tolist())),),
        f"the draw's law is within total variation {tau:.6g} of the target for every data set",
        "certified sampler",
    )


def total_variation_allowance(delta: float, epsilon: float) -> float:
    """Return the total variation tau that adds `delta` to a guarantee at epsilon: delta / (1 + e^eps), rounded down.

    Examples
    --------
    >>> round(total_variation_allowance(1e-6, 1.0) * 1e7, 4)
    2.6894
    """
    return (
        _check.check_open_unit("delta", delta)
        / (1 + math.exp(_check.check_nonnegative("epsilon", epsilon)))
        * (1 - 1e-9)
    )


def sup_norm_cost(sup_norm: float) -> float:
    """Return what a density known within a factor 1 +- zeta adds to epsilon: log((1 + zeta) / (1 - zeta))."""
    zeta = _check.check_nonnegative("sup_norm", sup_norm)
    if zeta >= 1:
        raise AssumptionFailed(f"the sup-norm certificate must be below 1, got {sup_norm!r}; run more steps.")
    return (math.log1p(zeta) - math.log1p(-zeta)) * (1 + 1e-12)


def transfer_sup_norm(guarantee: Guarantee, sup_norm: float, keep_range: bool = False) -> Guarantee:
    """Return the guarantee of a sampler whose density is within a factor [1 - zeta, 1 + zeta] of a pure law's.

    It is pure, with epsilon + log((1 + zeta) / (1 - zeta)). With `keep_range` a bounded-range guarantee stays one
    (which composes better) and grows by twice as much, because the log ratio may move by that much at each end.
    """
    cost = sup_norm_cost(sup_norm)
    _check_pure(guarantee, "the sup-norm certificate")
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
    assumption = (
        f"the draw's density is within a factor 1 +- {sup_norm:.6g} of the target's for every data set"
    )
    return _replace_parts(guarantee, parts, assumption, "sup-norm certified sampler")


def cap_rejection(guarantee: Guarantee, failure_probability: float) -> Guarantee:
    """Return the guarantee of a rejection loop that stops after N proposals and then returns a fixed output.

    delta grows by sup_D (1 - acceptance)^N, which failure_probability must bound for every data set. This holds only
    for a pure law.
    """
    fail = _check.check_nonnegative("failure_probability", failure_probability)
    _check_pure(guarantee, "the cap's extra delta")
    assumption = f"the rejection loop fails with probability at most {fail:.6g} for every data set, with a fixed output"
    return replace(
        guarantee,
        extra_delta=guarantee.extra_delta + fail,
        assumptions=(*guarantee.assumptions, assumption),
        at_delta=None,
    )


def _check_pure(guarantee: Guarantee, what: str) -> None:
    if not math.isfinite(guarantee.epsilon(0.0)):
        raise AssumptionFailed(f"{what} needs a pure target (delta = 0); use the total-variation transfer.")


def _replace_parts(
    guarantee: Guarantee,
    parts: tuple[Profile | Pure | BoundedRange | Approximate, ...],
    assumption: str,
    name: str,
) -> Guarantee:
    return replace(
        guarantee,
        parts=parts,
        extra_delta=0.0,
        theorem=f"{guarantee.theorem}, {name}",
        assumptions=(*guarantee.assumptions, assumption),
        at_delta=0.0 if name in ("sup-norm certified sampler", "density error") else None,
        composition=None,
    )
