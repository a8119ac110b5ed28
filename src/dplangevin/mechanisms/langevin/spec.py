"""Specs of Langevin diffusion, by inverse temperature and time, and the theorems about them.

diffusion:  d theta = -beta_t grad F dt + sqrt(2) dW (reflected on the set),
    SGLD:       theta <- project(theta - eta beta grad F(theta) + N(0, 2 eta I)).

Trajectory: Gaussian composition (Ganesh, Thakurta and Upadhyay 2022, lemma C.1, sharpened to GDP). Last
iterate: Bok, Su and Altschuler (2024) with optimal shifts. Delta is the sensitivity of grad F. The start
does not depend on the data. Lemma 3.1 of Ganesh, Thakurta and Upadhyay (2023) is not used: as printed
its beta is too large by a factor of 1.6 to 2.
"""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field, fields, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check
from dplangevin.accounting.conversions import gdp_epsilon
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.parts import Concentrated, Gaussian
from dplangevin.accounting.plan import COMMON_ASSUMPTIONS, Capabilities, Spec, Theorem, round_up
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exponential.spec import mean_gradient_sensitivity
from dplangevin.mechanisms.noisy_gradient import lower_bounds
from dplangevin.mechanisms.noisy_gradient.spec import (
    BatchOrder,
    IterateWeights,
    NoisyGradientSpec,
    Sampling,
    StartKind,
)
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import (
    BlockRecursion as BlockRecursion,
    Dobrushin as Dobrushin,
)
from dplangevin.mechanisms.noisy_gradient.theorems.composition import (
    Composition as Composition,
    contraction_bound,
)
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import (
    OptimalShift as OptimalShift,
    best_restart_mu,
    same_start_mu,
)
from dplangevin.mechanisms.options import with_constants_options
from dplangevin.problem.constants import Constants

TRAJECTORY_REFERENCE = "Ganesh, Thakurta and Upadhyay (2022), lemma C.1, as Gaussian differential privacy"
LAST_REFERENCE = "Bok, Su and Altschuler (2024), sections 3 and 4 (shifted interpolation)"
IDEAL_DIFFUSION_ASSUMPTION = (
    "the continuous diffusion is run exactly (no software does: use the SGLD guarantee of the run itself)"
)
PUBLIC_START_ASSUMPTION = "the start does not depend on the private data"
LAST_ITERATE_ASSUMPTION = (
    "only the last iterate is released: no other iterate, average or data-dependent stopping time"
)


def langevin_trajectory_guarantee(constants: Constants, squared_temperature_integral: float) -> Guarantee:
    """Return the guarantee of the whole path of the ideal diffusion: mu^2 = (Delta^2 / 2) integral of beta_t^2.

    Informational: no software runs the continuous diffusion.
    """
    integral = _check.check_positive("squared_temperature_integral", squared_temperature_integral)
    mu = mean_gradient_sensitivity(constants) * math.sqrt(integral / 2)
    return _make_guarantee(
        constants,
        mu,
        "trajectory",
        "Langevin trajectory",
        TRAJECTORY_REFERENCE,
        (IDEAL_DIFFUSION_ASSUMPTION, PUBLIC_START_ASSUMPTION),
    )


def langevin_last_iterate_guarantee(
    constants: Constants, inverse_temperature: float, time: float
) -> Guarantee:
    """Return the guarantee of the end point of the ideal diffusion: mu^2 = (beta Delta^2 / m) tanh(beta m T / 2).

    F is m-strongly convex; m = 0 gives the limit Delta^2 beta^2 T / 2. Informational, as above.
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    t = _check.check_positive("time", time, infinite=True)
    _check_convex(constants, "the last-iterate bound")
    ridge, delta = constants.strong_convexity, mean_gradient_sensitivity(constants)
    square = (
        delta**2 * beta * math.tanh(beta * ridge * t / 2) / ridge if ridge > 0 else delta**2 * beta**2 * t / 2
    )
    return _make_guarantee(
        constants,
        math.sqrt(square),
        "last-iterate",
        "Langevin last iterate",
        LAST_REFERENCE,
        (IDEAL_DIFFUSION_ASSUMPTION, PUBLIC_START_ASSUMPTION, LAST_ITERATE_ASSUMPTION),
    )


def sgld_trajectory_guarantee(
    constants: Constants, inverse_temperature: ArrayLike, step_size: ArrayLike, n_steps: int
) -> Guarantee:
    """Return the guarantee of every iterate of SGLD: mu^2 = (Delta^2 / 2) sum_t beta_t^2 eta_t.

    It needs no convexity and is exact for the discrete chain. Averages, checkpoints, projections and stopping before
    n_steps are post-processing.
    """
    steps = _check.check_count("n_steps", n_steps)
    beta = _per_step_array("inverse_temperature", inverse_temperature, steps)
    eta = _per_step_array("step_size", step_size, steps)
    mu = mean_gradient_sensitivity(constants) * math.sqrt(float(np.sum(beta**2 * eta)) / 2)
    return _make_guarantee(
        constants, mu, "trajectory", "SGLD trajectory", TRAJECTORY_REFERENCE, (PUBLIC_START_ASSUMPTION,)
    )


def sgld_trajectory_temperature(constants: Constants, mu: float, step_size: float, n_steps: int) -> float:
    """Return the largest constant beta with a mu-GDP trajectory: mu sqrt(2 / (eta K)) / Delta."""
    delta = mean_gradient_sensitivity(constants)
    eta, steps = _check.check_positive("step_size", step_size), _check.check_count("n_steps", n_steps)
    beta = _check.check_positive("mu", mu) * math.sqrt(2 / (eta * steps)) / delta
    while round_up(delta * beta * math.sqrt(eta * steps / 2)) > mu:
        beta *= 1 - 1e-9
    return beta


def sgld_last_iterate_guarantee(
    constants: Constants, inverse_temperature: float, step_size: float, n_steps: int | float
) -> Guarantee:
    """Return the guarantee of the last iterate of SGLD, constant beta and eta, convex smooth F; a = eta beta.

    With c = max{|1 - a m|, |1 - a M|}: for c < 1, mu^2 = (beta^2 Delta^2 eta / 2) ((1 - c^K)/(1 + c^K))
    ((1 + c)/(1 - c)), bounded in K; on a set of finite diameter also min over t <= K of
    (c^t diam + s (1 - c^t)/(1 - c))^2 (1 - c^2) / ((1 - c^{2t}) sigma^2), s = a Delta, sigma^2 = 2 eta.
    """
    mu = _last_iterate_mu(constants, inverse_temperature, step_size, n_steps)
    assumptions = (PUBLIC_START_ASSUMPTION, LAST_ITERATE_ASSUMPTION)
    return _make_guarantee(constants, mu, "last-iterate", "SGLD last iterate", LAST_REFERENCE, assumptions)


def _last_iterate_mu(
    constants: Constants, inverse_temperature: float, step_size: float, n_steps: int | float
) -> float:
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    eta, steps = (
        _check.check_positive("step_size", step_size),
        _check.check_count_or_infinity("n_steps", n_steps),
    )
    _check_convex(constants, "the last-iterate bound")
    if constants.projection_error > 0:
        raise AssumptionFailed(
            "the last-iterate bound does not apply: the projection is not exact. Use the trajectory bound."
        )
    rate = contraction_bound(constants, eta * beta)
    if not rate <= 1:
        raise AssumptionFailed(
            f"the last-iterate bound does not apply: a step of eta beta = {eta * beta!r} is not a "
            f"contraction. Take eta beta <= 2/M = {2 / constants.smoothness!r}, or use the trajectory bound."
        )
    shift, noise = eta * beta * mean_gradient_sensitivity(constants), math.sqrt(2 * eta)
    fresh = same_start_mu(shift, noise, rate, steps)
    return min(fresh, best_restart_mu(shift, noise, rate, constants.diameter, steps))


def underdamped_trajectory_guarantee(
    constants: Constants, inverse_temperature: float, friction: float, inverse_mass: float, time: float
) -> Guarantee:
    """Return the guarantee of underdamped Langevin with exact steps: mu = beta Delta sqrt(tau mu_0 / (2 gamma)).

    Per unit of time the velocity's drift moves by mu_0 beta Delta against noise of variance 2 gamma mu_0.
    """
    strength = _check.check_positive("inverse_temperature", inverse_temperature) * mean_gradient_sensitivity(
        constants
    )
    gamma, mass = (
        _check.check_positive("friction", friction),
        _check.check_positive("inverse_mass", inverse_mass),
    )
    mu = strength * math.sqrt(_check.check_positive("time", time) * mass / (2 * gamma))
    return _make_guarantee(
        constants,
        mu,
        "trajectory",
        "underdamped trajectory",
        "Ganesh (2022, thesis), fact 15",
        (PUBLIC_START_ASSUMPTION,),
    )


def _per_step_array(name: str, value: ArrayLike, steps: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    numbers = np.asarray(value, float)
    if numbers.ndim > 1 or (numbers.ndim == 1 and numbers.size != steps):
        raise InvalidParameter(
            f"{name} must be one number or one per step ({steps}), got shape {numbers.shape}."
        )
    if not np.all(numbers > 0) or not np.all(np.isfinite(numbers)):
        raise InvalidParameter(f"{name} must be positive and finite, got {value!r}.")
    return np.broadcast_to(numbers, (steps,)).copy()


def _check_convex(constants: Constants, what: str) -> None:
    if not constants.convex:
        raise AssumptionFailed(f"{what} does not apply: the loss is not convex. Use the trajectory bound.")


def _make_guarantee(
    constants: Constants, mu: float, release: str, theorem: str, reference: str, assumptions: tuple[str, ...]
) -> Guarantee:
    if not math.isfinite(mu):
        raise AssumptionFailed(
            f"{theorem} gives no finite bound for this run. Give a finite number of steps, a ridge, or a bounded set."
        )
    return Guarantee(
        parts=(Gaussian(mu=round_up(mu)),),
        adjacency=constants.adjacency,
        release=release,
        theorem=theorem,
        reference=reference,
        assumptions=(*constants.assumptions, *assumptions, *COMMON_ASSUMPTIONS),
    )


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
