"""Output perturbation: privacy of the minimiser of a strongly convex objective plus noise.

The minimisers over any closed convex set satisfy |theta - theta'| <= |grad Phi - grad Phi'|(theta') / Lambda <= Delta /
Lambda, with Phi the sum of losses plus the ridge and Lambda = n ridge: add the two variational inequalities and use
strong monotonicity. A point with a gradient (modulo the normal cone) of norm at most tolerance is within tolerance /
Lambda of the minimiser, so the computed points differ by at most S = (Delta + 2 tolerance) / Lambda. The tolerance is
checked with a bound on the rounding of the gradient inside, so this holds for the points in doubles. A secure run
rounds them to a public grid and adds exact noise to whole numbers: they differ by at most S + grid sqrt(d).
"""

from __future__ import annotations

import math

from dplangevin import _check
from dplangevin.errors import CalibrationFailed
from dplangevin.families._minimiser import (
    SOLVER_CONVERGES,
    check_minimiser,
    default_tolerance,
    deflated,
    total_ridge,
    words,
)
from dplangevin.families.perturbation.schedule import OutputPerturbationSchedule
from dplangevin.privacy.conversions import gdp_mu
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Pure
from dplangevin.privacy.theorem import Theorem, inflated, public_grid
from dplangevin.problem.constants import Constants

SECURE_WORDS = (
    "the solver's certificate bounds the rounding of its gradient in double precision (IEEE 754, sums in blocks)",
)


class OutputPerturbationTheorem(Theorem[OutputPerturbationSchedule], name="output-perturbation", proof=""):
    """S / density_scale: a pure epsilon with Gamma-norm noise, mu of GDP with Gaussian noise.

    Examples
    --------
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01)
    >>> schedule = OutputPerturbationSchedule(density_scale=1 / 150, tolerance=1e-7)
    >>> round(OutputPerturbationTheorem().certify(constants, schedule).epsilon(), 6)
    1.0
    """

    reference = "Chaudhuri, Monteleoni and Sarwate (2011), Theorem 6; Dong, Roth and Su (2022), Theorem 2.7"
    beyond_n = "Lambda = n ridge is public, Delta one record's; the solver certifies its point for the records it saw"

    def promise(self, constants: Constants, schedule: OutputPerturbationSchedule) -> Guarantee:
        check_minimiser(self, constants, schedule.tolerance)
        moved = minimiser_sensitivity(constants, schedule.tolerance)
        secure = SECURE_WORDS if schedule.secure else ()
        if schedule.secure:
            moved += rounding_reach(self, constants, schedule.density_scale)
        cost = inflated(moved / schedule.density_scale)
        part = Pure(value=cost) if schedule.noise == "gamma" else Gaussian(mu=cost)
        return self.guarantee(
            constants, schedule, (part,), words(schedule.iterations, *secure), conditions=(SOLVER_CONVERGES,)
        )


def minimiser_sensitivity(constants: Constants, tolerance: float) -> float:
    """(Delta + 2 tolerance) / Lambda: how far the computed minimisers of neighbours can be apart."""
    return (constants.gradient_sensitivity + 2 * tolerance) / total_ridge(constants)


def rounding_reach(
    theorem: Theorem[OutputPerturbationSchedule], constants: Constants, deviation: float
) -> float:
    """grid sqrt(d): rounding each of two points to the grid moves it by at most half of that."""
    if constants.dimension is None:
        raise theorem.refuse("the number of parameters is not stated", "Build the plan from a Problem.")
    if math.isfinite(constants.diameter):
        raise theorem.refuse(
            "the rounding of a projection is not bounded, so a secure minimiser has no constraint",
            "Leave radius out.",
        )
    longest = constants.n * constants.lipschitz / total_ridge(constants)
    if not longest / public_grid(deviation) <= 2.0**51:
        raise theorem.refuse(
            "the grid of the noise is too fine for the longest minimiser", "Raise the ridge."
        )
    return public_grid(deviation) * math.sqrt(constants.dimension) * (1 + 1e-12)


def calibrated_output_perturbation(
    constants: Constants, *, epsilon: float, delta: float = 0.0, secure: bool = False
) -> OutputPerturbationSchedule:
    """The schedule with the least noise that meets (epsilon, delta): Gamma-norm noise for delta = 0, else Gaussian."""
    _check.positive("epsilon", epsilon)
    tolerance = default_tolerance(constants)
    check_minimiser(OutputPerturbationTheorem(), constants, tolerance)
    cost = deflated(epsilon if delta == 0 else gdp_mu(epsilon, delta))
    if not cost > 0:
        raise CalibrationFailed(f"epsilon = {epsilon:g} is too small for double precision; raise epsilon.")
    scale = minimiser_sensitivity(constants, tolerance) / cost
    if secure:  # the grid is at most 2^-20 of the noise
        share = 2.0**-20 * math.sqrt(constants.dimension or 1) / cost
        if not share < 0.5:
            raise CalibrationFailed("epsilon is too small for the grid of secure noise; raise it.")
        scale *= (1 + 1e-9) / (1 - share * (1 + 1e-9))
    return OutputPerturbationSchedule(
        density_scale=scale,
        tolerance=tolerance,
        noise="gamma" if delta == 0 else "gaussian",
        secure=secure,
    )
