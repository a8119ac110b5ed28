"""Privacy of the Gibbs law exp(-beta F) itself under convexity.

Strongly convex F: Delta sqrt(beta / m)-GDP, Delta the sensitivity of grad F (Gopi, Lee and Liu 2022,
theorem 4.1; Bok, Su and Altschuler 2024, section 5; exact for quadratics). With a log-Sobolev constant c
and a G-Lipschitz log ratio: G^2 / (2c)-zCDP. Theorem 2.7 of Ganesh, Thakurta and Upadhyay (2023) as
printed is false for small epsilon and unused.
"""

from __future__ import annotations

import math

from dplangevin import _check
from dplangevin.errors import AssumptionFailed
from dplangevin.families.draws.theorems.exponential_mechanism import (
    DRAW_ASSUMPTIONS,
    exponential_mechanism,
    mean_gradient_sensitivity,
    oscillation,
)
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Concentrated, Gaussian, Part
from dplangevin.privacy.theorem import inflated
from dplangevin.problem.constants import Constants


def gibbs_strongly_convex(constants: Constants, inverse_temperature: float) -> Guarantee:
    """One exact draw of exp(-beta F) on a convex set, F m-strongly convex: mu = Delta sqrt(beta / m)."""
    beta = _check.positive("inverse_temperature", inverse_temperature)
    ridge = _strong_convexity(constants, "the Gibbs law's Gaussian differential privacy")
    mu = inflated(mean_gradient_sensitivity(constants) * math.sqrt(beta / ridge))
    return _minted(
        constants, Gaussian(mu=mu), "strongly convex Gibbs law", "Gopi, Lee and Liu (2022), theorem 4.1"
    )


def gibbs_temperature(constants: Constants, mu: float) -> float:
    """The largest inverse temperature whose Gibbs law is mu-GDP: m mu^2 / Delta^2."""
    target = _check.positive("mu", mu)
    ridge = _strong_convexity(constants, "the Gibbs law's Gaussian differential privacy")
    delta = mean_gradient_sensitivity(constants)
    beta = ridge * (target / delta) ** 2
    while inflated(delta * math.sqrt(beta / ridge)) > target:
        beta *= 1 - 1e-9
    return beta


def log_sobolev_constant(
    inverse_temperature: float, strong_convexity: float, threshold: float = 0.0, smoothing: float = 0.0
) -> float:
    """c of exp(-beta max{F, F* + threshold}), F m-strongly convex, KL <= E|grad log ratio|^2 / (2c).

    Bakry-Emery beta m; Holley-Stroock exp(-oscillation of the perturbation). While beta threshold <= 1 that is
    beta m exp(-beta threshold), beyond it m / (e threshold). `smoothing` adds the oscillation M p lambda^2
    / 2 of a Gaussian smoothing of width lambda (then the first form holds for every beta).
    """
    beta = _check.positive("inverse_temperature", inverse_temperature)
    ridge = _check.positive("strong_convexity", strong_convexity)
    psi, extra = _check.nonnegative("threshold", threshold), _check.nonnegative("smoothing", smoothing)
    if extra == 0 and beta * psi > 1:
        return ridge / (math.e * psi)
    return beta * ridge * math.exp(-beta * (psi + extra))


def gibbs_log_sobolev(
    constants: Constants, inverse_temperature: float, score_sensitivity: float, log_sobolev: float
) -> Guarantee:
    """One exact draw of exp(-beta score): (beta score_sensitivity)^2 / (2c)-zCDP.

    score_sensitivity bounds |grad score(.; D) - grad score(.; D')| over neighbours on the set; log_sobolev
    holds for the law of every data set.
    """
    beta = _check.positive("inverse_temperature", inverse_temperature)
    gap = beta * _check.positive("score_sensitivity", score_sensitivity)
    rho = inflated(gap**2 / (2 * _check.positive("log_sobolev", log_sobolev)))
    return _minted(
        constants,
        Concentrated(rho=rho),
        "Gibbs law with a log-Sobolev inequality",
        "Herbst's argument, Ledoux (1999), with explicit constants",
    )


def threshold_sensitivity(
    constants: Constants, threshold: float, full_lipschitz: float, interior_minimisers: bool
) -> float:
    """Sensitivity of grad F 1[F > F* + psi]: max{Delta, min(L_F, Delta + sqrt(2 M psi))}.

    Needs F convex, and for the second form grad F = 0 at the minimiser of EVERY data set (for instance a
    ball of radius at least L/m around the ridge's centre) and F smooth everywhere. Otherwise max{Delta,
    L_F}: at a minimiser on the boundary the gradient jumps by up to L_F, the Lipschitz constant of the full F.
    """
    psi = _check.nonnegative("threshold", threshold)
    full = _check.positive("full_lipschitz", full_lipschitz)
    if not constants.convex:
        raise AssumptionFailed(
            "the thresholded score's sensitivity does not apply: the loss is not convex, so the set {F > F* + psi} may "
            "change by more than a gradient's width. Use the exponential mechanism's pure guarantee."
        )
    delta = mean_gradient_sensitivity(constants)
    if psi == 0:
        return delta
    inside = delta + math.sqrt(2 * constants.smoothness * psi) if interior_minimisers else math.inf
    return max(delta, min(full, inside))


def ramp_sensitivity(
    constants: Constants, ramp: float, full_lipschitz: float, minimum_error: float = 0.0
) -> float:
    """Gradient sensitivity of a ramp of width tau applied to F - F*: Delta + L_F (oscillation + error) / tau."""
    tau = _check.positive("ramp", ramp)
    full = _check.positive("full_lipschitz", full_lipschitz)
    width = oscillation(constants) + _check.nonnegative("minimum_error", minimum_error)
    return mean_gradient_sensitivity(constants) + full * width / tau


def thresholded_gibbs(
    constants: Constants,
    inverse_temperature: float,
    threshold: float,
    full_lipschitz: float,
    interior_minimisers: bool,
    minimum_error: float = 0.0,
) -> Guarantee:
    """One exact draw of exp(-beta max{F, F* + psi}): the smaller of the log-Sobolev and bounded-range zCDP.

    With an inexact F* the threshold sits at most minimum_error higher, which enters both.
    """
    beta = _check.positive("inverse_temperature", inverse_temperature)
    ridge = _strong_convexity(constants, "the thresholded Gibbs law")
    psi = _check.nonnegative("threshold", threshold) + _check.nonnegative("minimum_error", minimum_error)
    sensitivity = threshold_sensitivity(constants, psi, full_lipschitz, interior_minimisers)
    curved = gibbs_log_sobolev(constants, beta, sensitivity, log_sobolev_constant(beta, ridge, psi))
    ranged = exponential_mechanism(constants, beta, minimum_error)
    reach = ranged.epsilon(0.0)
    rho = sum(part.rho for part in curved.parts if isinstance(part, Concentrated))
    return curved if rho < reach**2 / 8 else ranged


def _strong_convexity(constants: Constants, what: str) -> float:
    if not constants.convex:
        raise AssumptionFailed(
            f"{what} does not apply: the loss is not convex. Use the exponential mechanism's pure guarantee."
        )
    if constants.strong_convexity <= 0:
        raise AssumptionFailed(f"{what} does not apply: strong_convexity is 0. Add a ridge (alpha > 0).")
    return constants.strong_convexity


def _minted(constants: Constants, part: Part, theorem: str, reference: str) -> Guarantee:
    return Guarantee(
        parts=(part,),
        adjacency=constants.adjacency,
        release="draw",
        theorem=theorem,
        reference=reference,
        assumptions=(*constants.assumptions, *DRAW_ASSUMPTIONS),
    )
