"""Mirror descent with a public mirror map: T adaptive Gaussian steps, one Gaussian in all."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dplangevin import _check
from dplangevin.errors import CalibrationFailed
from dplangevin.families._minimiser import deflated
from dplangevin.families.mirror_descent.schedule import RESOLUTION, PublicMirrorSchedule
from dplangevin.families.noisy_gradient.theorems.discrete_composition import (
    SECURE_ASSUMPTIONS,
    noise_on_grid,
    record_bound,
)
from dplangevin.privacy.conversions import gdp_mu
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian
from dplangevin.privacy.theorem import Theorem, inflated
from dplangevin.problem.constants import Constants

PUBLIC_WORDS = (
    "only the private data set is protected; the public data set is not protected at all",
    "the mirror map, the start and every choice of the run depend on public data and public numbers only",
    "no record is in both data sets: a record that is public has no protection",
)


class PublicMirrorDescentTheorem(Theorem[PublicMirrorSchedule], name="public-mirror-descent", proof=""):
    """mu^2 = sum_t (Delta / (n sigma_t))^2, exactly: given the public data a step is a Gaussian mechanism.

    Delta is the sensitivity of the gradient SUM: 2 L under replace-one, L under add-remove with the public divisor n.
    Mirror steps, mixing, projections and averages are post-processing; neither convexity nor an exact solver is needed.
    Theorem 74's sigma^2 = 8 L^2 T log(1/delta) / (epsilon n)^2 is larger, and is not valid for every epsilon.
    """

    reference = (
        "Ganesh (2022), Algorithm 1 and Theorem 74; the noise by Dong, Roth and Su (2022), Theorem 3.2"
    )
    beyond_n = "every step adds noise to a sum over records divided by the public n"

    def promise(self, constants: Constants, schedule: PublicMirrorSchedule) -> Guarantee:
        if schedule.secure:
            return self._secure(constants, schedule)
        noises = schedule.per_step("noise_std")
        with np.errstate(over="ignore", divide="ignore"):
            mu = float(np.linalg.norm(constants.gradient_sensitivity / constants.n / noises))
        return self.guarantee(constants, schedule, (Gaussian(mu=inflated(mu)),), PUBLIC_WORDS)

    def _secure(self, constants: Constants, schedule: PublicMirrorSchedule) -> Guarantee:
        """The same with the sensitivity in integers: mu^2 = sum_t 4 bound_t / 4^20 (or bound_t / 4^20)."""
        bounds = [record_bound(self, constants, float(grid)) for grid in schedule.grids(constants.n)]
        sides = 2 if constants.adjacency == "replace-one" else 1
        mu = sides * math.sqrt(math.fsum(bounds)) / 2.0**RESOLUTION
        found = self.guarantee(constants, schedule, (Gaussian(mu=inflated(mu)),), PUBLIC_WORDS)
        words = (*constants.assumptions, *PUBLIC_WORDS, *SECURE_ASSUMPTIONS)
        return replace(found, assumptions=words)


def mirror_noise(
    constants: Constants, n_steps: int, *, epsilon: float, delta: float, secure: bool = False
) -> float:
    """noise_std = Delta sqrt(T) / (n mu(epsilon, delta)), a hair above for the accountant's rounding.

    Examples
    --------
    >>> constants = Constants(n=10_000, lipschitz=0.03)
    >>> f"{mirror_noise(constants, 60, epsilon=1.0, delta=1e-5):.7e}"
    '1.7338409e-04'
    """
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
    steps = max(_check.count("n_steps", n_steps, least=0), 1)
    if secure:
        return noise_on_grid(constants, steps, RESOLUTION, epsilon=epsilon, delta=delta) / constants.n
    mu = deflated(gdp_mu(epsilon, delta))
    if not mu > 0:
        raise CalibrationFailed(
            f"epsilon = {epsilon:g} at delta = {delta:g} is too small for double precision; raise it."
        )
    return constants.gradient_sensitivity * math.sqrt(steps) / (constants.n * mu)
