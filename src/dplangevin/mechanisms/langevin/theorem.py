"""Privacy of Langevin runs, by the theorems about noisy gradient descent, and of the continuous diffusion."""

from __future__ import annotations

import math
from dataclasses import replace

from dplangevin.accounting.conditions import Condition
from dplangevin.accounting.conversions import gdp_epsilon
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Concentrated
from dplangevin.accounting.theorem import Spec, Theorem, round_up
from dplangevin.mechanisms.langevin.spec import DiffusionSpec, LangevinSpec
from dplangevin.mechanisms.noisy_gradient import lower_bounds
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import BlockRecursion as BlockRecursion
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition as Composition
from dplangevin.mechanisms.noisy_gradient.theorems.dobrushin import Dobrushin as Dobrushin
from dplangevin.mechanisms.noisy_gradient.theorems.langevin_process import (
    LAST_REFERENCE,
    TRAJECTORY_REFERENCE,
    langevin_last_iterate_guarantee,
    langevin_trajectory_guarantee,
)
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import OptimalShift as OptimalShift
from dplangevin.problem.constants import Constants


class DiffusionPathTheorem(
    Theorem[DiffusionSpec],
    name="diffusion-path",
    proof="docs/theory/langevin_and_gibbs.md, section 4",
):
    """The whole path: mu^2 = (Delta^2 / 2) int beta_t^2 dt, without convexity (Girsanov).

    Examples
    --------
    >>> spec = DiffusionSpec(inverse_temperature=100.0, time=0.5, release="trajectory")
    >>> round(DiffusionPathTheorem().certify(Constants(n=1000, lipschitz=1.0), spec).mu, 6)
    0.1
    """

    reference = TRAJECTORY_REFERENCE
    is_plain_composition = True

    def derive_guarantee(self, constants: Constants, spec: DiffusionSpec) -> Guarantee:
        if math.isinf(spec.time):
            raise self.refuse(
                "it grows without bound in time", "State a finite time, or a ridge for the end point."
            )
        guarantee = langevin_trajectory_guarantee(constants, spec.squared_temperature_integral)
        return replace(guarantee, theorem=self.name, release=spec.release)


class DiffusionEndTheorem(
    Theorem[DiffusionSpec],
    name="diffusion-end",
    proof="docs/theory/langevin_and_gibbs.md, section 4",
):
    """The end point, convex: mu^2 = (beta Delta^2 / m) tanh(beta m T / 2); T to infinity is exp(-beta F) itself.

    Examples
    --------
    >>> constants = Constants(n=1000, lipschitz=1.0, smoothness=1.0, strong_convexity=0.1)
    >>> spec = DiffusionSpec(inverse_temperature=100.0, time=float("inf"))
    >>> round(DiffusionEndTheorem().certify(constants, spec).mu, 6)
    0.063246
    """

    reference = LAST_REFERENCE

    def derive_guarantee(self, constants: Constants, spec: DiffusionSpec) -> Guarantee:
        if spec.release != "last-iterate":
            raise self.refuse("the whole path is released", "Release the end point only.")
        if spec.exponent:
            raise self.refuse("the temperature is not constant", "Use the bound for the whole path.")
        guarantee = langevin_last_iterate_guarantee(constants, spec.inverse_temperature, spec.time)
        return replace(guarantee, theorem=self.name)


class LogSobolevTheorem(
    Theorem[LangevinSpec | DiffusionSpec],
    name="log-sobolev",
    proof="docs/theory/langevin_and_gibbs.md, section 4",
):
    """The end point under a stated log-Sobolev constant c of all laws on the way, without convexity.

    rho-zCDP with rho = beta^2 Delta^2 T / 4 up to T = 1 / (2c), and (beta^2 Delta^2 / (2c)) (1 - e^(1/2 - cT) / 2)^2
    from then on.

    Examples
    --------
    >>> constants = Constants(n=1000, lipschitz=1.0, log_sobolev=10.0)
    >>> spec = LangevinSpec(inverse_temperature=100.0, time=0.5, n_steps=100)
    >>> round(LogSobolevTheorem().certify(constants, spec).zcdp(), 6)
    0.001978
    """

    reference = (
        "Chourasia, Ye and Shokri (2021), Theorem 2, with the best balance of its two terms at every time"
    )

    def derive_guarantee(self, constants: Constants, spec: LangevinSpec | DiffusionSpec) -> Guarantee:
        c, beta = constants.log_sobolev, spec.inverse_temperature
        if c is None:
            raise self.refuse(
                "no log-Sobolev constant is stated", "State log_sobolev, or use a theorem that needs none."
            )
        if spec.release != "last-iterate":
            raise self.refuse("more than the end point is released", "Release the last iterate only.")
        time = spec.total_time if isinstance(spec, LangevinSpec) else spec.time
        if isinstance(beta, tuple) or (isinstance(spec, DiffusionSpec) and spec.exponent):
            raise self.refuse("the temperature is not constant", "Use the bound for the whole path.")
        if constants.projection_error:
            raise self.refuse("the projection is inexact", "Use a set with an exact projection.")
        a = (beta * constants.gradient_sensitivity / constants.n) ** 2
        rho = a * time / 4 if time * c <= 0.5 else a / (2 * c) * (1 - math.exp(0.5 - c * time) / 2) ** 2
        condition = Condition(
            kind="unchecked-hypothesis",
            text=f"the law of the run having the log-Sobolev constant {c:g} at every time, for every data set",
        )
        return self.guarantee(constants, spec, (Concentrated(rho=round_up(rho)),), conditions=(condition,))


def epsilon_lower_bound(constants: Constants, spec: Spec, delta: float) -> float | None:
    """Return an epsilon that some run attains: for steps that of noisy gradient descent, else of a quadratic loss.

    For F = m |theta - c|^2 / 2 + <g, theta> on the whole space the diffusion is an Ornstein-Uhlenbeck process: the end
    points differ by (Delta / m)(1 - e^(-beta m T)) and have the variance (1 - e^(-2 beta m T)) / (beta m), which
    is the bound for end points; for linear losses the path is that of a Brownian motion with a drift.
    """
    if isinstance(spec, LangevinSpec):
        if constants.log_sobolev is not None:  # linear losses, which attain the bound, have no such constant
            return None
        return lower_bounds.epsilon_lower_bound(constants, spec.to_descent(), delta)
    assert isinstance(spec, DiffusionSpec)
    if math.isfinite(constants.diameter):
        return None
    delta_0 = constants.gradient_sensitivity / constants.n
    beta, ridge = spec.inverse_temperature, constants.strong_convexity
    if constants.log_sobolev is not None:  # that of a quadratic loss with this curvature
        ridge = max(ridge, constants.log_sobolev / beta)
        if ridge > constants.smoothness:
            return None
    if spec.release == "trajectory":
        square = delta_0**2 * spec.squared_temperature_integral / 2
    elif spec.exponent:
        return None
    else:
        time = spec.time
        square = (
            delta_0**2 * beta * math.tanh(beta * ridge * time / 2) / ridge
            if ridge
            else delta_0**2 * beta**2 * time / 2
        )
    return gdp_epsilon(math.sqrt(square) * (1 - 1e-9), delta) if math.isfinite(square) else None
