"""The spec of underdamped Langevin, its options, and its privacy: Gaussian composition along the path."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting.conversions import gdp_epsilon
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import Capabilities, Spec, Theorem, round_up
from dplangevin.mechanisms.options import read_spec_fields, with_constants_options
from dplangevin.problem.constants import Constants


@dataclass(frozen=True, kw_only=True)
class UnderdampedSpec(Spec):
    """Underdamped Langevin: dx = v dt, dv = -gamma v dt - u beta grad F(x) dt + sqrt(2 gamma u) dW.

    The gradient is frozen during a step.

    Parameters
    ----------
    inverse_temperature : beta; the law of x tends to exp(-beta F), up to the bias of the steps.
    friction, inverse_mass : gamma and u.
    step_size, n_steps : length and number of the steps, each drawn exactly.
    release : the last position; the guarantee covers every position and velocity.
    """

    mechanism: ClassVar[str] = "underdamped"
    capabilities: ClassVar[Capabilities] = Capabilities()
    inverse_temperature: float
    friction: float = 2.0
    inverse_mass: float = 1.0
    step_size: float
    n_steps: int
    release: Literal["last-iterate"] = "last-iterate"

    def __post_init__(self) -> None:
        _check.set_frozen(
            self,
            inverse_temperature=_check.check_scale("inverse_temperature", self.inverse_temperature),
            friction=_check.check_scale("friction", self.friction),
            inverse_mass=_check.check_scale("inverse_mass", self.inverse_mass),
            step_size=_check.check_scale("step_size", self.step_size),
            n_steps=_check.check_count("n_steps", self.n_steps),
            release=_check.check_choice("release", self.release, ("last-iterate",)),
        )


read_underdamped_options = with_constants_options()(
    read_spec_fields(UnderdampedSpec, "inverse_temperature step_size n_steps friction inverse_mass")
)


class UnderdampedTheorem(
    Theorem[UnderdampedSpec],
    name="underdamped-trajectory",
    proof="docs/theory/langevin_and_gibbs.md, Underdamped",
):
    """mu-GDP of the whole path, mu = beta Delta sqrt(T eta u / (2 gamma)), Delta the sensitivity of grad F.

    During a step the drifts of the velocity differ by u beta (g - g'), of norm at most u beta Delta, against Brownian
    noise of rate 2 gamma u: an adaptive Gaussian mechanism of mu^2 = eta (u beta Delta)^2 / (2 gamma u) about the
    path, of which the exact step (x', v') is a function. Steps compose. No convexity is needed.

    Examples
    --------
    >>> constants = Constants(n=1000, lipschitz=1.0)
    >>> spec = UnderdampedSpec(inverse_temperature=100.0, step_size=0.1, n_steps=50)
    >>> round(UnderdampedTheorem().certify(constants, spec).mu, 6)
    0.223607
    """

    reference = "Ganesh (2022), section 3.4, with Dong, Roth and Su (2022), Theorem 3.2"

    def derive_guarantee(self, constants: Constants, spec: UnderdampedSpec) -> Guarantee:
        """Return the guarantee: one Gaussian mechanism for the whole path."""
        strength = spec.inverse_temperature * constants.gradient_sensitivity / constants.n
        time = spec.step_size * spec.n_steps
        mu = strength * math.sqrt(time * spec.inverse_mass / (2 * spec.friction))
        return self.guarantee(constants, spec, (Gaussian(mu=round_up(mu)),))


def epsilon_lower_bound(constants: Constants, spec: UnderdampedSpec, delta: float) -> float:
    """Return the exact epsilon of the last position for linear losses, a lower bound for the run.

    Their gradient does not depend on x, so steps of any length give the same law: with g the friction, T the total
    time and r = g T - 1 + e^(-g T), the last position moves by (u beta Delta / g^2) r and has the variance
    (2 u / g^2) r.
    """
    gamma, mass = spec.friction, spec.inverse_mass
    time = gamma * spec.step_size * spec.n_steps
    # a series where the difference would cancel
    spread = time + math.expm1(-time) if time > 1e-3 else time * time / 2 * (1 - time / 3)
    strength = spec.inverse_temperature * constants.gradient_sensitivity / constants.n
    return gdp_epsilon(strength * math.sqrt(mass * spread / 2) / gamma * (1 - 1e-9), delta)
