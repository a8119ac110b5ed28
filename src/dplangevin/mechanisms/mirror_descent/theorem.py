"""Privacy of mirror descent with a public mirror map: T adaptive Gaussian steps compose to one Gaussian."""

from __future__ import annotations

import math

import numpy as np

from dplangevin import _check
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.theorem import Theorem, round_up
from dplangevin.errors import CalibrationFailed
from dplangevin.mechanisms.minimizer_tolerance import round_down
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec
from dplangevin.problem.constants import Constants

PUBLIC_DATA_ASSUMPTIONS = (
    "only the private data set is protected; the public data set is not protected at all",
    "the mirror map, the start and every choice of the run depend on public data and public numbers only",
    "no record is in both data sets: a record that is public has no protection",
)


class PublicMirrorDescentTheorem(Theorem[PublicMirrorSpec], name="public-mirror-descent", proof=""):
    """mu-GDP with mu^2 = sum_t (Delta / (n sigma_t))^2: given the public data a step is a Gaussian mechanism.

    Delta is the sensitivity of the gradient SUM: 2 L under replace-one, L under add-remove with the public divisor n.
    Mirror steps, mixing, projections and averages are post-processing; neither convexity nor an exact solver is
    needed. Theorem 74's sigma^2 = 8 L^2 T log(1/delta) / (epsilon n)^2 is larger, and is not valid for every epsilon.
    """

    reference = (
        "Ganesh (2022), Algorithm 1 and Theorem 74; the noise by Dong, Roth and Su (2022), Theorem 3.2"
    )
    holds_beyond_n = "every step adds noise to a sum over records divided by the public n"
    secure_holds_beyond_n = True
    holds_for_rounded_noise = True

    def derive_guarantee(self, constants: Constants, spec: PublicMirrorSpec) -> Guarantee:
        noises = spec.per_step_values("noise_std")
        with np.errstate(over="ignore", divide="ignore"):
            mu = float(np.linalg.norm(constants.gradient_sensitivity / constants.n / noises))
        return self.guarantee(constants, spec, (Gaussian(mu=round_up(mu)),), PUBLIC_DATA_ASSUMPTIONS)


def calibrate_mirror_noise(constants: Constants, n_steps: int, *, epsilon: float, delta: float) -> float:
    """Return noise_std = Delta sqrt(T) / (n mu(epsilon, delta)), slightly larger for the accountant's rounding.

    Examples
    --------
    >>> constants = Constants(n=10_000, lipschitz=0.03)
    >>> f"{calibrate_mirror_noise(constants, 60, epsilon=1.0, delta=1e-5):.7e}"
    '1.7338409e-04'
    """
    _check.check_positive("epsilon", epsilon)
    _check.check_open_unit("delta", delta)
    steps = max(_check.check_count("n_steps", n_steps, minimum=0), 1)
    mu = round_down(gdp_mu(epsilon, delta))
    if not mu > 0:
        raise CalibrationFailed(
            f"epsilon = {epsilon:g} at delta = {delta:g} is too small for double precision; raise it."
        )
    return constants.gradient_sensitivity * math.sqrt(steps) / (constants.n * mu)
