"""Langevin dynamics: projected SGLD, underdamped Langevin, and chains without a certificate, for research.

SGLD: theta <- project(theta - eta_t beta_t grad F(theta) + N(0, 2 eta_t I)), a discretised diffusion and not an exact
sampler of exp(-beta F). Its privacy: the theorems of `mechanisms.langevin`.

Underdamped Langevin, with the exact Gaussian step for a frozen gradient, is biased and has no guarantee:

    dx = v dt,   dv = -gamma v dt - mu grad V dt + sqrt(2 gamma mu) dW,   stationary: x ~ exp(-V), v ~ N(0, mu I).

Reference: Ganesh (2022, thesis), section 3.4. Position and velocity noise are correlated.

Unadjusted (overdamped) Langevin, x <- x - eta grad V(x) + N(0, 2 eta I), is biased: for a quadratic of curvature h
its stationary variance is 1 / (h (1 - eta h / 2)) instead of 1 / h (Ganesh, 2022, thesis, chapter 3).
Metropolis-adjusted Langevin is unbiased in the limit, without a usable rate (Roberts and Tweedie, 1996). Hit-and-run
draws a uniform direction, then exactly along the chord (Smith, 1984; Lovasz and Vempala, 2006; published rates have
no usable constants).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.sampling.log_concave import Columns, sample_log_concave, sample_unit_directions
from dplangevin.sampling.potential import CountingPotential, FunctionPotential, Potential, SamplerOutput
from dplangevin.sampling.supports import BallSupport, BoxSupport, ConvexSupport


@dataclass(frozen=True, kw_only=True)
class LangevinRun:
    """The result of a run; which part of it may be released is decided by the guarantee.

    Parameters
    ----------
    last : the last iterate [p, k].
    weighted_average : of the iterates 0 .. K-1; None unless weights were given.
    iterates : theta[p, k] by step number (0 is the start), for the steps in keep_steps.
    n_steps : the number of steps made.
    """

    last: Floats
    weighted_average: Floats | None
    iterates: dict[int, Floats]
    n_steps: int


def run_sgld(
    potential: Potential,
    start: ArrayLike,
    step_size: ArrayLike,
    inverse_temperature: ArrayLike,
    n_steps: int,
    rng: np.random.Generator,
    project: Callable[[Floats], Floats] | None = None,
    weights: ArrayLike | None = None,
    keep_steps: tuple[int, ...] = (),
    stop: Callable[[int, Floats], bool] | None = None,
    resume: LangevinRun | None = None,
    after: Callable[[LangevinRun], None] | None = None,
) -> LangevinRun:
    """Run the k chains in the columns of `start` in parallel, each with its own noise.

    Parameters
    ----------
    potential : F itself (inverse temperature not included); only its gradient is used.
    step_size, inverse_temperature : eta_t and beta_t, a number or one per step.
    project : projection onto the constraint set after every step; None leaves the chain unconstrained.
    weights : averaging weights of the iterates 0 .. n_steps - 1; None computes no average.
    keep_steps : step numbers whose iterates are returned.
    stop : called with the step number and theta after every step; True ends the run.
    resume : the run so far, from which to continue instead of `start`.
    after : called with the run so far after every step, except one that stopped the run.
    """
    n_steps = _check.check_count("n_steps", n_steps)
    steps = _per_step_array("step_size", step_size, n_steps)
    temperatures = _per_step_array("inverse_temperature", inverse_temperature, n_steps)
    theta = np.array(start, float)
    if theta.ndim != 2:
        raise InvalidParameter(f"start must have shape [p, k], got {theta.shape}.")
    running_weights = None if weights is None else running_average_weights(weights, n_steps)
    average = None if running_weights is None else np.zeros_like(theta)
    iterates, done = {0: theta.copy()} if 0 in keep_steps else {}, 0
    if resume is not None:
        theta, average, iterates, done = resume.last, resume.weighted_average, resume.iterates, resume.n_steps
    for t in _progress.iterate_with_progress(range(done, n_steps), "Langevin steps"):
        if average is not None and running_weights is not None:
            average += running_weights[t] * (theta - average)
        noise = np.sqrt(2 * steps[t]) * rng.standard_normal(theta.shape)
        theta = theta - steps[t] * temperatures[t] * potential.gradient(theta) + noise
        if project is not None:
            theta = project(theta)
        done = t + 1
        if done in keep_steps:
            iterates[done] = theta.copy()
        if stop is not None and stop(done, theta):
            break
        if after is not None:
            after(LangevinRun(last=theta, weighted_average=average, iterates=iterates, n_steps=done))
    return LangevinRun(last=theta, weighted_average=average, iterates=iterates, n_steps=done)


def geometric_weights(learning_rate: ArrayLike, strong_convexity: float, n_steps: int) -> Floats:
    """Return a_t / ((1 - a_0 m) ... (1 - a_t m)), t < n_steps, scaled to end at 1: (1 - a m)^-(t + 1) for one a."""
    rates = _per_step_array("learning_rate", learning_rate, n_steps)
    shrink = 1 - rates * _check.check_nonnegative("strong_convexity", strong_convexity)
    if not shrink.min() > 0:
        raise InvalidParameter("learning_rate * strong_convexity must be below 1; take smaller steps.")
    later = np.append(np.cumprod(shrink[:0:-1])[::-1], 1.0)
    return np.asarray(rates / rates[-1] * later)


def _per_step_array(name: str, value: ArrayLike, n_steps: int) -> Floats:
    numbers = np.asarray(value, float)
    if numbers.ndim > 1 or (numbers.ndim == 1 and numbers.size != n_steps):
        raise InvalidParameter(f"{name} must be one number or {n_steps}, got shape {numbers.shape}.")
    if not np.all(numbers > 0) or not np.all(np.isfinite(numbers)):
        raise InvalidParameter(f"{name} must be positive and finite, got {value!r}.")
    return np.broadcast_to(numbers, (n_steps,))


def running_average_weights(weights: ArrayLike, n_steps: int) -> Floats:
    """Return w_t over the sum of the weights up to t, for a running average."""
    numbers = np.asarray(weights, float)
    if numbers.shape != (n_steps,) or np.any(numbers < 0) or not numbers.sum() > 0:
        raise InvalidParameter(f"weights must be {n_steps} numbers that are not negative and not all zero.")
    total = np.cumsum(numbers)
    return np.asarray(np.divide(numbers, total, out=np.zeros_like(numbers), where=total > 0))


MIN_VARIANCE = 1e-250
"""Minimum variance of a step's noise: below it products of variances lose digits in double precision."""


@dataclass(frozen=True, kw_only=True)
class UnderdampedStep:
    """The Gaussian law of one step of underdamped Langevin with the gradient g frozen, per coordinate.

    E v' = decay v - velocity_gradient_coef g and E x' = x + velocity_coef v - position_gradient_coef g; the
    covariance of (x', v') is given by variance_x, variance_v and covariance.
    """

    decay: float
    velocity_coef: float
    position_gradient_coef: float
    velocity_gradient_coef: float
    variance_v: float
    covariance: float
    variance_x: float

    @classmethod
    def from_parameters(cls, friction: float, inverse_mass: float, step_size: float) -> UnderdampedStep:
        """Build it from friction gamma, mu = inverse_mass and step_size eta, by series for small u = gamma eta."""
        gamma = _check.check_positive("friction", friction)
        mu = _check.check_positive("inverse_mass", inverse_mass)
        eta = _check.check_positive("step_size", step_size)
        u = gamma * eta
        one_minus_decay = -math.expm1(-u)
        velocity_coef = one_minus_decay / gamma
        if u < 0.5:
            shortfall = eta * _power_series(u, lambda n: (-1.0) ** (n + 1) / math.factorial(n + 1), 1)
            variance_x = (
                mu / gamma**2 * _power_series(u, lambda n: (-1.0) ** n * (4 - 2.0**n) / math.factorial(n), 3)
            )
        else:
            shortfall = eta - velocity_coef
            variance_x = mu / gamma**2 * (2 * u - 3 + 4 * math.exp(-u) - math.exp(-2 * u))
        step = cls(
            decay=math.exp(-u),
            velocity_coef=velocity_coef,
            position_gradient_coef=mu / gamma * shortfall,
            velocity_gradient_coef=mu * velocity_coef,
            variance_v=-mu * math.expm1(-2 * u),
            covariance=mu / gamma * one_minus_decay**2,
            variance_x=variance_x,
        )
        if not (
            step.variance_v > MIN_VARIANCE
            and step.own_noise > 0
            and MIN_VARIANCE < variance_x < 1 / MIN_VARIANCE
        ):
            raise InvalidParameter(
                f"friction = {friction!r}, inverse_mass = {inverse_mass!r} and step_size = {step_size!r} give a step "
                "whose noise underflows or overflows in double precision; change the units of time."
            )
        return step

    @property
    def shared_noise(self) -> float:
        """Standard deviation of the part of the position's noise that is a multiple of the velocity's noise."""
        return self.covariance / math.sqrt(self.variance_v)

    @property
    def own_noise(self) -> float:
        """Standard deviation of the rest of the position's noise."""
        return math.sqrt(max(self.variance_x - self.shared_noise**2, 0.0))

    def sample_step(
        self, x: Floats, v: Floats, gradient: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Draw (x', v') jointly."""
        first, second = rng.standard_normal(x.shape), rng.standard_normal(x.shape)
        shared, own = self.shared_noise, self.own_noise
        new_v = self.decay * v - self.velocity_gradient_coef * gradient + math.sqrt(self.variance_v) * first
        return (
            x
            + self.velocity_coef * v
            - self.position_gradient_coef * gradient
            + shared * first
            + own * second,
            new_v,
        )


def _power_series(u: float, coefficient: Callable[[int], float], first: int) -> float:
    return math.fsum(coefficient(n) * u**n for n in range(first, 30))


def run_underdamped(
    potential: Potential,
    start: ArrayLike,
    friction: float,
    inverse_mass: float,
    step_size: float,
    n_steps: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Run the chains in the columns of `start`; return the last positions and velocities.

    Velocities start at N(0, mu I).
    """
    n_steps = _check.check_count("n_steps", n_steps)
    step = UnderdampedStep.from_parameters(friction, inverse_mass, step_size)
    x = np.array(start, float)
    if x.ndim != 2:
        raise InvalidParameter(f"start must have shape [p, k], got {x.shape}.")
    v = math.sqrt(inverse_mass) * rng.standard_normal(x.shape)
    for _ in _progress.iterate_with_progress(range(n_steps), "Langevin steps"):
        x, v = step.sample_step(x, v, potential.gradient(x), rng)
    return x, v


def run_overdamped(
    potential: Potential, start: ArrayLike, step_size: float, n_steps: int, rng: np.random.Generator
) -> Floats:
    """Run unadjusted Langevin chains from the columns of `start`; return their last points."""
    return run_sgld(potential, start, step_size, 1.0, n_steps, rng).last


def normalize_potential(potential: Potential, minimizer: Floats) -> FunctionPotential:
    """Return g(x) = V(x* + x / sqrt(m)), which is 1-strongly convex and (M/m)-smooth with its minimum at 0.

    A draw x of exp(-g) gives the draw x* + x / sqrt(m) of exp(-V). The thesis has both the shift and the scale
    inverted.
    """
    curvature = _check.check_nonnegative("strong_convexity", potential.strong_convexity)
    if curvature == 0:
        raise AssumptionFailed("normalisation needs a strongly convex potential; add a ridge.")
    center, root = np.asarray(minimizer, float)[:, None], math.sqrt(curvature)
    return FunctionPotential(
        value_function=lambda x: potential.value(center + x / root),
        gradient_function=lambda x: potential.gradient(center + x / root) / root,
        smoothness=potential.smoothness / curvature,
        strong_convexity=1.0,
        lipschitz=potential.lipschitz / root,
    )


def run_mala(
    potential: Potential,
    support: ConvexSupport,
    start: Floats,
    step_size: float,
    n_steps: int,
    rng: np.random.Generator,
) -> SamplerOutput:
    """Run MALA chains from the columns of `start`; return their last points. Proposals outside are rejected."""
    eta, n_steps = (
        _check.check_positive("step_size", step_size),
        _check.check_count("n_steps", n_steps),
    )
    x = np.array(start, float)
    if x.ndim != 2 or not np.all(support.contains(x)):
        raise InvalidParameter(
            f"start must be [{support.dimension}, k] points inside the support; project them first."
        )
    counted = CountingPotential(potential)
    value, gradient = counted.value(x), counted.gradient(x)
    for _ in _progress.iterate_with_progress(range(n_steps), "MALA steps"):
        y = x - eta * gradient + math.sqrt(2 * eta) * rng.standard_normal(x.shape)
        new_value, new_gradient = counted.value(y), counted.gradient(y)
        forth = np.sum((y - x + eta * gradient) ** 2, axis=0)
        back = np.sum((x - y + eta * new_gradient) ** 2, axis=0)
        log_ratio = value - new_value + (forth - back) / (4 * eta)
        mask = support.contains(y) & (-rng.standard_exponential(x.shape[1]) <= log_ratio)
        x, gradient = np.where(mask, y, x), np.where(mask, new_gradient, gradient)
        value = np.where(mask, new_value, value)
    return SamplerOutput(theta=x, evaluations=counted.count, n_proposals=n_steps * x.shape[1])


def run_hit_and_run(
    potential: Potential, support: ConvexSupport, start: Floats, n_steps: int, rng: np.random.Generator
) -> SamplerOutput:
    """Run hit-and-run chains from the columns of `start`, for convex V on a ball or box; return their last points."""
    n_steps = _check.check_count("n_steps", n_steps)
    x = np.array(start, float)
    if x.ndim != 2 or not np.all(support.contains(x)):
        raise InvalidParameter(
            f"start must be [{support.dimension}, k] points inside the support; project them first."
        )
    counted = CountingPotential(potential)
    for _ in _progress.iterate_with_progress(range(n_steps), "hit-and-run steps"):
        direction = sample_unit_directions(x.shape[0], x.shape[1], rng)
        low, high = support_chord(support, x, direction)
        x = support.project(x + direction * _sample_on_chord(counted, x, direction, low, high, rng))
    return SamplerOutput(theta=x, evaluations=counted.count, n_proposals=n_steps * x.shape[1])


def _sample_on_chord(
    potential: CountingPotential,
    x: Floats,
    direction: Floats,
    low: Floats,
    high: Floats,
    rng: np.random.Generator,
) -> Floats:
    def points(t: Floats, columns: Columns) -> tuple[Floats, Floats]:
        chains = np.broadcast_to(columns, t.shape).ravel()
        return x[:, chains] + direction[:, chains] * t.ravel(), direction[:, chains]

    def height(t: Floats, columns: Columns) -> Floats:
        return -potential.value(points(t, columns)[0]).reshape(t.shape)

    def slope(t: Floats, columns: Columns) -> Floats:
        theta, directions = points(t, columns)
        return np.asarray(-np.sum(potential.gradient(theta) * directions, axis=0).reshape(t.shape))

    return np.asarray(sample_log_concave(height, slope, low, high, 1, rng)[0])


def support_chord(support: ConvexSupport, x: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """Return the interval [low, high] of t with x + t direction in the support, for each column."""
    if isinstance(support, BallSupport):
        middle = -np.sum(x * direction, axis=0)
        half = np.sqrt(np.maximum(middle**2 + support.radius**2 - np.sum(x * x, axis=0), 0.0))
        return middle - half, middle + half
    if isinstance(support, BoxSupport):
        with np.errstate(divide="ignore"):
            ends = np.stack([(support.low[:, None] - x) / direction, (support.high[:, None] - x) / direction])
        return np.asarray(ends.min(axis=0).max(axis=0)), np.asarray(ends.max(axis=0).min(axis=0))
    raise InvalidParameter("hit-and-run needs a ball or a box; use another sampler, or another constraint.")
