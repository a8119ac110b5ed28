"""Privacy of underdamped Langevin: Gaussian composition along the path."""

from __future__ import annotations

import math

from dplangevin.families.underdamped.schedule import UnderdampedSchedule
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian
from dplangevin.privacy.theorem import Theorem, inflated
from dplangevin.problem.constants import Constants


class UnderdampedTheorem(
    Theorem[UnderdampedSchedule],
    name="underdamped-trajectory",
    proof="docs/theory/langevin_and_gibbs.md, Underdamped",
):
    """mu = beta Delta sqrt(T eta u / (2 gamma)) of GDP, Delta the sensitivity of grad F; no convexity.

    During a step the drifts of the velocity differ by u beta (g - g'), of norm at most u beta Delta, against Brownian
    noise of rate 2 gamma u: an adaptive Gaussian mechanism of mu^2 = eta (u beta Delta)^2 / (2 gamma u) about the path,
    of which the exact step (x', v') is a function. Steps compose.

    Examples
    --------
    >>> constants = Constants(n=1000, lipschitz=1.0)
    >>> schedule = UnderdampedSchedule(inverse_temperature=100.0, step_size=0.1, n_steps=50)
    >>> round(UnderdampedTheorem().certify(constants, schedule).mu, 6)
    0.223607
    """

    reference = "Ganesh (2022), section 3.4, with Dong, Roth and Su (2022), Theorem 3.2"

    def promise(self, constants: Constants, schedule: UnderdampedSchedule) -> Guarantee:
        """One Gaussian for the whole path."""
        strength = schedule.inverse_temperature * constants.gradient_sensitivity / constants.n
        time = schedule.step_size * schedule.n_steps
        mu = strength * math.sqrt(time * schedule.inverse_mass / (2 * schedule.friction))
        return self.guarantee(constants, schedule, (Gaussian(mu=inflated(mu)),))
