"""Output perturbation: privacy of the minimiser of a strongly convex objective plus noise.

The minimisers over any closed convex set satisfy |theta - theta'| <= |grad Phi - grad Phi'|(theta') / Lambda <= Delta /
Lambda, with Phi the sum of losses plus the ridge and Lambda = n ridge: add the two variational inequalities and use
strong monotonicity. A point with a gradient (modulo the normal cone) of norm at most tolerance is within tolerance /
Lambda of the minimiser, so the computed points differ by at most S = (Delta + 2 tolerance) / Lambda.
"""

from __future__ import annotations

from dplangevin import _check
from dplangevin.errors import CalibrationFailed
from dplangevin.families._minimiser import (
    ASSUMPTIONS,
    check_minimiser,
    default_tolerance,
    deflated,
    running_time,
    total_ridge,
)
from dplangevin.families.perturbation.schedule import OutputPerturbationSchedule
from dplangevin.privacy.conversions import gdp_mu
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Pure
from dplangevin.privacy.theorem import Theorem, inflated
from dplangevin.problem.constants import Constants


class OutputPerturbationTheorem(Theorem[OutputPerturbationSchedule]):
    """S / noise_scale: a pure epsilon with Gamma-norm noise, mu of GDP with Gaussian noise.

    Examples
    --------
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01)
    >>> schedule = OutputPerturbationSchedule(noise_scale=1 / 150, tolerance=1e-7)
    >>> round(OutputPerturbationTheorem().certify(constants, schedule).epsilon(), 6)
    1.0
    """

    name = "output-perturbation"
    reference = "Chaudhuri, Monteleoni and Sarwate (2011), Theorem 6; Dong, Roth and Su (2022), Theorem 2.7"
    proof = ""

    def certify(self, constants: Constants, schedule: OutputPerturbationSchedule) -> Guarantee:
        check_minimiser(self, constants, schedule.tolerance)
        cost = inflated(minimiser_sensitivity(constants, schedule.tolerance) / schedule.noise_scale)
        part = Pure(value=cost) if schedule.noise == "gamma" else Gaussian(mu=cost)
        return self.guarantee(constants, schedule, (part,), (*ASSUMPTIONS, running_time(schedule.iterations)))


def minimiser_sensitivity(constants: Constants, tolerance: float) -> float:
    """(Delta + 2 tolerance) / Lambda: how far the computed minimisers of neighbours can be apart."""
    return (constants.gradient_sensitivity + 2 * tolerance) / total_ridge(constants)


def calibrated_output_perturbation(
    constants: Constants, *, epsilon: float, delta: float = 0.0
) -> OutputPerturbationSchedule:
    """The schedule with the least noise that meets (epsilon, delta): Gamma-norm noise for delta = 0, else Gaussian."""
    _check.positive("epsilon", epsilon)
    tolerance = default_tolerance(constants)
    check_minimiser(OutputPerturbationTheorem(), constants, tolerance)
    cost = deflated(epsilon if delta == 0 else gdp_mu(epsilon, delta))
    if not cost > 0:
        raise CalibrationFailed(f"epsilon = {epsilon:g} is too small for double precision; raise epsilon.")
    return OutputPerturbationSchedule(
        noise_scale=minimiser_sensitivity(constants, tolerance) / cost,
        tolerance=tolerance,
        noise="gamma" if delta == 0 else "gaussian",
    )
