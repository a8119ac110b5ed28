"""Specs of Langevin diffusion, by inverse temperature and time, and the theorems about them."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field, fields, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.accounting.conversions import gdp_epsilon
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.parts import Concentrated
from dplangevin.accounting.theorem import Capabilities, Spec, Theorem, round_up
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_gradient import lower_bounds
from dplangevin.mechanisms.noisy_gradient.spec import (
    BatchOrder,
    IterateWeights,
    NoisyGradientSpec,
    Sampling,
    StartKind,
)
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
from dplangevin.mechanisms.options import with_constants_options
from dplangevin.problem.constants import Constants

LANGEVIN_WEIGHTS: tuple[IterateWeights, ...] = ("uniform", "geometric")


@dataclass(frozen=True, kw_only=True)
class LangevinSpec(NoisyGradientSpec):
    """Langevin steps theta <- project(theta - eta_t beta_t grad F(theta) + N(0, 2 eta_t I)) on the full batch.

    They start at 0, projected. The same run as noisy gradient descent has the learning rate `step_size` = eta_t beta_t
    and the noise `noise_std` = sqrt(2 / eta_t) / beta_t on the mean gradient; both are computed.

    Parameters
    ----------
    inverse_temperature : beta_t, a number or one per step (see `power_temperatures`).
    time_step : eta_t, a number or one per step. time : instead of it, the length T of the run, so that
        eta = T / n_steps.
    n_steps, release, checkpoints, start_scale : as in `NoisyGradientSpec`. With release="trajectory" every iterate is
        public, so that the run may be stopped at any time.
    weights : of the average of the iterates that steps lead to: "uniform", or "geometric", proportional to
        a_t / ((1 - a_0 ridge) ... (1 - a_t ridge)) with a_t = eta_t beta_t, for strongly convex objectives.

    Examples
    --------
    >>> spec = LangevinSpec(inverse_temperature=100.0, time=0.5, n_steps=50)
    >>> spec.time_step, spec.step_size, round(spec.noise_std, 6), spec.total_time
    (0.01, 1.0, 0.141421, 0.5)
    """

    mechanism: ClassVar[str] = "langevin"
    capabilities: ClassVar[Capabilities] = Capabilities(
        population_risk=True, holds_beyond_n=True, checkpoints=True, stated_parameters=True
    )
    inverse_temperature: float | tuple[float, ...] = 0.0
    time_step: float | tuple[float, ...] = 0.0
    time: InitVar[float | None] = None
    step_size: float | tuple[float, ...] = field(init=False)
    noise_std: float | tuple[float, ...] = field(init=False)
    batch_size: int | None = field(init=False, default=None)
    sampling: Sampling = field(init=False, default="full")
    average_from: int = field(init=False, default=0)
    momentum: bool = field(init=False, default=False)
    order: BatchOrder = field(init=False, default="public")
    start: StartKind = field(init=False, default="data-independent")
    secure: bool = field(init=False, default=False)

    def __post_init__(self, time: float | None) -> None:
        _check.validate_fields(self, n_steps=_check.check_count_or_infinity)
        if (time is None) == (self.time_step == 0.0):
            raise InvalidParameter("state exactly one of time, the length of the run, and time_step.")
        if time is not None:
            if math.isinf(self.n_steps):
                raise InvalidParameter("a run of any number of steps has no time; state time_step instead.")
            _check.set_frozen(self, time_step=_check.check_scale("time", time) / self.n_steps)
        _check.validate_fields(
            self, inverse_temperature=_check.check_per_step, time_step=_check.check_per_step
        )
        for name in ("inverse_temperature", "time_step"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.n_steps:
                raise InvalidParameter(f"{name} has {len(value)} entries, but n_steps is {self.n_steps}.")
        weights = _check.check_choice("weights", self.weights, LANGEVIN_WEIGHTS)
        if self.release != "average":  # `replace` may change what is released
            weights = "uniform"
        eta, beta = np.asarray(self.time_step), np.asarray(self.inverse_temperature)
        _check.set_frozen(
            self,
            weights=weights,
            step_size=(eta * beta).tolist(),
            noise_std=(np.sqrt(2.0 / eta) / beta).tolist(),
        )
        NoisyGradientSpec.__post_init__(self)

    @property
    def total_time(self) -> float:
        """T, the sum of the time steps; infinity for a run of any number of steps."""
        if isinstance(self.time_step, tuple):
            return math.fsum(self.time_step)
        return float(self.time_step * self.n_steps)

    def to_descent(self) -> NoisyGradientSpec:
        """Return the same run as noisy gradient descent, stated by learning rate and noise."""
        names = [item.name for item in fields(NoisyGradientSpec)]
        return NoisyGradientSpec(**{name: getattr(self, name) for name in names})


def power_temperatures(peak: float, exponent: float, n_steps: int) -> tuple[float, ...]:
    """Return beta_t = peak ((t + 1) / K)^exponent, t < K: b (t/T)^a of the diffusion, for exponent > -1/2."""
    peak, steps = _check.check_positive("peak", peak), _check.check_count("n_steps", n_steps)
    _check_exponent(exponent)
    fractions: NDArray[np.float64] = (np.arange(1, steps + 1) / steps) ** exponent
    return tuple((peak * fractions).tolist())


def _check_exponent(exponent: float) -> float:
    if not exponent > -0.5:
        raise InvalidParameter(
            f"exponent must exceed -1/2 (the privacy integral diverges), got {exponent!r}."
        )
    return float(exponent)


@dataclass(frozen=True, kw_only=True)
class DiffusionSpec(Spec):
    """The diffusion d theta = -beta_t grad F dt + sqrt(2) dW itself, beta_t = beta (t / T)^a, reflected on the set.

    No software runs it: it is accounted, so that a run in steps can be compared with its limit, but not executed.

    Parameters
    ----------
    inverse_temperature : beta. exponent : a; 0 for a constant temperature.
    time : T; infinity is the stationary law exp(-beta F).
    release : "last-iterate", the end point, or "trajectory", the whole path.
    """

    mechanism: ClassVar[str] = "langevin-diffusion"
    capabilities: ClassVar[Capabilities] = Capabilities()
    inverse_temperature: float
    time: float
    exponent: float = 0.0
    release: Literal["last-iterate", "trajectory"] = "last-iterate"

    def __post_init__(self) -> None:
        _check.validate_fields(self, inverse_temperature=_check.check_scale)
        _check.set_frozen(
            self,
            time=_check.check_positive("time", self.time, infinite=True),
            exponent=_check_exponent(self.exponent),
            release=_check.check_choice("release", self.release, ("last-iterate", "trajectory")),
        )

    @property
    def squared_temperature_integral(self) -> float:
        """The integral of beta_t^2 over the run: beta^2 T / (2a + 1)."""
        return self.inverse_temperature**2 * self.time / (2 * self.exponent + 1)


@with_constants_options("", "smoothness strong_convexity diameter convex log_sobolev")
def read_langevin_options(
    constants: Constants,
    *,
    inverse_temperature: float,
    n_steps: int | float,
    time: float | None = None,
    time_step: float | None = None,
    exponent: float = 0.0,
    release: Literal["last-iterate", "average", "checkpoints", "trajectory"] = "last-iterate",
    checkpoints: tuple[int, ...] = (),
) -> LangevinSpec:
    """Read the options of a run in steps; with an exponent, beta_t = inverse_temperature (t / T)^exponent."""
    steps = _check.check_count_or_infinity("n_steps", n_steps)
    beta: float | tuple[float, ...] = inverse_temperature
    if exponent:
        if math.isinf(steps):
            raise InvalidParameter("an exponent needs a finite number of steps.")
        beta = power_temperatures(inverse_temperature, exponent, int(steps))
    if time is None and time_step is None:
        raise InvalidParameter("state time, the length of the run, or time_step.")
    spec = LangevinSpec(
        inverse_temperature=beta,
        n_steps=steps,
        time=time,
        time_step=0.0 if time_step is None else time_step,
        release=release,
        checkpoints=tuple(int(step) for step in checkpoints),
    )
    spec.check_combination(constants)
    return spec


@with_constants_options("", "smoothness strong_convexity diameter log_sobolev")
def read_langevin_diffusion_options(
    constants: Constants,
    *,
    inverse_temperature: float,
    time: float,
    exponent: float = 0.0,
    release: Literal["last-iterate", "trajectory"] = "last-iterate",
) -> DiffusionSpec:
    """Read the options of the continuous process."""
    return DiffusionSpec(
        inverse_temperature=inverse_temperature, time=time, exponent=exponent, release=release
    )


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
