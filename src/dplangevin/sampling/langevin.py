"""Langevin dynamics, projected and underdamped, with proved numbers of steps; and chains without a certificate.

Smoothness bounds exp(-V) from BELOW: V(x) <= V(c) + <g, x - c> + M |x - c|^2 / 2. The law proportional to that lower
function has density at most Z_target / Z_low times the target's, and Z_target is at most the mass of the upper
function given by (strong) convexity at the same c. An envelope of the target is NOT such a law: it bounds the density
ratio in the wrong direction. Samplers are exact or certified for ANY anchor, so a minimiser may be approximate.

Informational only: step counts run to 1e7 and beyond, and for underdamped Langevin only the discretisation error is
proved (no rate of the continuous process is known in Renyi divergence). No guarantee is derived from these numbers.
Everything is for V normalised to be 1-strongly convex and M-smooth with its minimum at 0 (see
langevin.normalize_potential).

Reference: Ganesh (2022, thesis), theorems 42 and 49, with the corrected Girsanov argument of
docs/theory/langevin_and_gibbs.md.

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
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin._search import bisect_integers, expand_bracket
from dplangevin.accounting.proximal_certificate import MAX_START_GAP
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.sampling.log_concave import Columns, sample_log_concave, sample_unit_directions
from dplangevin.sampling.potential import CountingPotential, FunctionPotential, Potential, SamplerOutput
from dplangevin.sampling.supports import BallSupport, BoxSupport, ConvexSupport


def approximate_minimizer(
    potential: Potential, support: ConvexSupport, n_steps: int = 2000, tolerance: float = 1e-10
) -> Floats:
    """Minimize V by accelerated projected gradient with restarts (O'Donoghue and Candes 2015); return a point [p].

    Stops when a step is shorter than `tolerance` times the scale 1/sqrt(smoothness) of the law.
    """
    step = 1 / potential.smoothness
    x = support.project(np.zeros((support.dimension, 1)))
    ahead, momentum = x, 1.0
    for _ in _progress.iterate_with_progress(range(n_steps), "minimising", private=True):
        new = support.project(ahead - step * potential.gradient(ahead))
        move = new - x
        if float(np.sum((ahead - new) * move)) > 0:
            momentum, ahead = 1.0, x
            new = support.project(x - step * potential.gradient(x))
            move = new - x
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / next_momentum * move
        x, momentum = new, next_momentum
        if np.linalg.norm(move) <= tolerance * np.sqrt(step):
            break
    return np.asarray(x[:, 0])


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """The law exp(<linear, x> - precision |x|^2 / 2) on the support, at most e^log_density_ratio times the target.

    log_density_ratio depends on the data: it certifies this data set, but the number is private, and so is the number
    of steps computed from it (a running-time side channel).
    """

    support: ConvexSupport
    linear: Floats
    precision: float
    log_density_ratio: float

    def sample(self, size: int, rng: np.random.Generator) -> Floats:
        """Return exact draws of the start law, one per column."""
        return self.support.sample_gaussian(np.tile(self.linear[:, None], size), self.precision, rng)


def make_warm_start(potential: Potential, support: ConvexSupport, center: Floats) -> WarmStart:
    """Return the start at `center`: any point of the support is valid, near the minimiser w is smallest."""
    c = np.asarray(center, float)
    if c.shape != (support.dimension,) or not bool(support.contains(c[:, None])[0]):
        raise InvalidParameter(
            f"the start's centre must be {support.dimension} numbers inside the support; project it first."
        )
    low, high = potential.strong_convexity, _check.check_positive("smoothness", potential.smoothness)
    gradient = potential.gradient(c[:, None])[:, 0]
    square = float(c @ c) / 2
    shift = float(gradient @ c)
    upper = support.log_mass_bounds(low * c - gradient, low)[1] - low * square + shift
    lower = support.log_mass_bounds(high * c - gradient, high)[0] - high * square + shift
    slack = 1e-9 + 1e-12 * (abs(shift) + high * square)
    return WarmStart(
        support=support,
        linear=high * c - gradient,
        precision=high,
        log_density_ratio=max(upper - lower, 0.0) + slack,
    )


_STEP_LIMITS = (200, 2_000, 20_000, 200_000)


def sample_certified_start(
    potential: Potential, support: ConvexSupport, size: int, rng: np.random.Generator
) -> Floats:
    """Return `size` exact draws of exp(-<g, x - c> - M |x - c|^2 / 2), c a minimiser of V up to MAX_START_GAP.

    Their density is at most exp(warm_start_ratio(..., gap=MAX_START_GAP)) times that of exp(-V), with the same ratio
    for every data set. A run whose minimiser does not reach that gap stops and releases nothing.
    """
    for n_steps in _STEP_LIMITS:
        center = approximate_minimizer(potential, support, n_steps)
        gradient = potential.gradient(center[:, None])[:, 0]
        if _start_gap(potential, support, center, gradient) <= MAX_START_GAP:
            linear = potential.smoothness * center - gradient
            return support.sample_gaussian(np.tile(linear[:, None], size), potential.smoothness, rng)
    raise AssumptionFailed(
        "the minimiser needed for a certified start was not found, so nothing is released. Raise the ridge or lower "
        "the inverse temperature; both are public choices."
    )


def _start_gap(potential: Potential, support: ConvexSupport, center: Floats, gradient: Floats) -> float:
    """Bound <g, c - x> in the start's ratio; on an unbounded set, from the exact ratio of two Gaussians."""
    if math.isfinite(support.diameter):
        return support.frank_wolfe_gap(center, gradient)
    low, high = potential.strong_convexity, potential.smoothness
    square = float(gradient @ gradient)
    # w = (p/2) log(M/m) + |g|^2 (1/m - 1/M) / 2, to be met by (p/2) log(M/m) + (1 - sqrt(m/M)) gap
    return square * (1 / low - 1 / high) / 2 / max(1 - math.sqrt(low / high), 1e-12)


DivergenceDirection = Literal["discrete-from-continuous", "continuous-from-discrete"]


def mixing_time(
    dimension: int, condition: float, order: float, divergence: float, both_directions: bool = True
) -> float:
    """Return the time tau after which the continuous diffusion meets its two thirds of the Renyi budget.

    One direction (start N(0, I/M), order >= 3/2): tau = a log(3 k log M / (2 e)). Both (start N(0, I),
    order >= 2): max{2a log(3 k log M / e), log((2a - 1) M) / 2 + a log(3 k log M / e)}.

    Examples
    --------
    >>> round(mixing_time(10, 10, 2, 0.1, both_directions=False), 4), round(mixing_time(10, 10, 2, 0.1), 4)
    (11.6893, 26.1513)
    """
    k, m, least = (
        _check.check_count("dimension", dimension),
        _check_condition(condition),
        2.0 if both_directions else 1.5,
    )
    if order < least:
        raise AssumptionFailed(f"the mixing time is proved for orders of at least {least}, got {order!r}.")
    ratio = 3 * k * math.log(m) / _check.check_positive("divergence", divergence)
    if not both_directions:
        return order * max(math.log(ratio / 2), 0.0)
    slow = max(math.log(ratio), 0.0)
    return max(2 * order * slow, 0.5 * math.log((2 * order - 1) * m) + order * slow)


def girsanov_divergence(
    dimension: int,
    condition: float,
    order: float,
    step_size: float,
    n_steps: int,
    direction: DivergenceDirection = "discrete-from-continuous",
    start_variance: float = 1.0,
) -> float:
    """Bound the Renyi divergence between the paths of the discretised and the continuous overdamped process.

    Minimized over a grid of the free parameter omega; needs step_size <= 1/M, 4 eta lambda' < 1 and 2 u v0 < 1.
    Values of omega that violate a condition are skipped; infinity when none remains.
    """
    m, order = _check_condition(condition), _check_order(order)
    eta = _check.check_positive("step_size", step_size)
    if eta > 1 / m:
        raise AssumptionFailed(f"the Girsanov certificate needs step_size <= 1/M = {1 / m!r}, got {eta!r}.")
    factor = _direction_factor(order, direction)
    steps, k = _check.check_count("n_steps", n_steps), _check.check_count("dimension", dimension)
    best = math.inf
    for omega in np.geomspace(1e-4, 10, 60):
        z = math.sqrt(8 * factor * (1 + omega)) * m * eta
        drift = 2 / 3 * factor * m**4 * (1 + 1 / omega) * eta**3
        if z >= math.pi / 2 or 4 * eta * drift >= 1:
            continue
        b = 1 - (1 - eta) ** 2 + 4 * eta * drift
        if b * b < 16 * eta * drift:
            continue
        u = 2 * drift / (b + math.sqrt(b * b - 16 * eta * drift))
        if 4 * eta * u >= 1 or 2 * u * start_variance >= 1:
            continue
        noise = steps * k / 4 * -math.log(math.cos(z))
        position = k / 2 * (-steps / 2 * math.log1p(-4 * eta * u) - 0.5 * math.log1p(-2 * u * start_variance))
        best = min(best, (noise + position) / (2 * (order - 1)))
    return best


def lipschitz_divergence(
    dimension: int,
    smoothness: float,
    lipschitz: float,
    order: float,
    step_size: float,
    n_steps: int,
    direction: DivergenceDirection = "discrete-from-continuous",
) -> float:
    """Bound the Renyi divergence of the two overdamped paths for an L-Lipschitz, M-smooth potential, from any start.

    As `girsanov_divergence`, with |x_t - x_j| <= s L + sqrt(2) |B_s| within a step: no strong convexity and no law of
    the position are needed. For every omega > 0, with z = 2 sqrt(Lambda (1 + omega)) M eta < pi / 2, R <= (-(T k / 2)
    log cos z + Lambda M^2 L^2 (1 + 1 / omega) T eta^3 / 3) / (2 (order - 1)).
    """
    m, slope = _check.check_positive("smoothness", smoothness), _check.check_positive("lipschitz", lipschitz)
    order, eta = _check_order(order), _check.check_positive("step_size", step_size)
    steps, k = _check.check_count("n_steps", n_steps), _check.check_count("dimension", dimension)
    factor, best = _direction_factor(order, direction), math.inf
    for omega in np.geomspace(1e-4, 1e2, 80):
        z = 2 * math.sqrt(factor * (1 + omega)) * m * eta
        if z < math.pi / 2:
            noise = steps * k / 2 * -math.log(math.cos(z))
            drift = factor * (m * slope) ** 2 * (1 + 1 / omega) * steps * eta**3 / 3
            best = min(best, (noise + drift) / (2 * (order - 1)))
    return best


def underdamped_divergence(
    dimension: int,
    condition: float,
    order: float,
    step_size: float,
    time: float,
    friction: float,
    inverse_mass: float,
    direction: DivergenceDirection = "discrete-from-continuous",
) -> float:
    """Bound the Renyi divergence between the paths of the discretised and the continuous underdamped process.

    Start x ~ N(0, I/M), v ~ N(0, mu I). Minimized over the free parameter s; infinity when no s is admissible.
    """
    m, order = _check_condition(condition), _check_order(order)
    eta, mu = (
        _check.check_positive("step_size", step_size),
        _check.check_positive("inverse_mass", inverse_mass),
    )
    gamma, tau = _check.check_positive("friction", friction), _check.check_positive("time", time)
    k = _check.check_count("dimension", dimension)
    reduced_friction = gamma - mu * m * eta / 2
    if reduced_friction <= 0:
        raise AssumptionFailed(
            f"the underdamped certificate needs step_size < 2 gamma / (mu M), got {eta!r}."
        )
    a = _direction_factor(order, direction) * mu / gamma * m**2 * eta**2 / 2
    best = math.inf
    for s in np.geomspace(1e-4, 1e2, 400):
        b = (1 + s) * a / reduced_friction
        if a > s * reduced_friction**2 / ((1 + s) ** 2 * gamma * mu) or b * mu >= 1:
            continue
        total = (1 + s) * a * gamma / reduced_friction * mu * k * tau - k * math.log1p(-b * mu)
        best = min(best, total / (2 * (order - 1)))
    return best


def n_overdamped_steps(
    dimension: int, condition: float, order: float, divergence: float, both_directions: bool = True
) -> int:
    """Return the steps after which R_order between the unadjusted chain and exp(-V) is at most `divergence`.

    The discretisation gets a third of the budget at order 2a, the diffusion the rest (weak triangle inequality).
    """
    m = _check_condition(condition)
    tau = mixing_time(dimension, m, order, divergence, both_directions)
    start = 1.0 if both_directions else 1 / m

    def error(n_steps: int) -> float:
        eta = tau / n_steps
        directions: tuple[DivergenceDirection, ...] = ("discrete-from-continuous", "continuous-from-discrete")
        return max(
            girsanov_divergence(dimension, m, 2 * order, eta, n_steps, direction, start)
            for direction in (directions if both_directions else directions[:1])
        )

    return _find_min_steps(error, divergence / 3, math.ceil(tau * m))


def n_underdamped_steps(
    dimension: int,
    condition: float,
    order: float,
    divergence: float,
    time: float,
    friction: float,
    inverse_mass: float,
) -> int:
    """Return the steps after which the DISCRETISATION error of underdamped Langevin is at most divergence / 3.

    The error is a Renyi divergence of order 2a.
    """
    m = _check_condition(condition)

    def error(n_steps: int) -> float:
        return underdamped_divergence(
            dimension, m, 2 * order, time / n_steps, time, friction, inverse_mass, "continuous-from-discrete"
        )

    return _find_min_steps(error, divergence / 3, math.ceil(time * inverse_mass * m / friction))


def _find_min_steps(error: Callable[[int], float], allowed: float, least: int) -> int:
    def is_small(count: int) -> bool:
        return error(count) <= allowed

    least = max(least, 1)
    high = expand_bracket(is_small, least, 1e18)
    if high is None:
        raise AssumptionFailed("the certificate needs more than 1e18 steps; use the proximal sampler.")
    return high if high == least else bisect_integers(is_small, high, high // 2, digits=10**6)


def _direction_factor(order: float, direction: DivergenceDirection) -> float:
    _check.check_choice("direction", direction, ("discrete-from-continuous", "continuous-from-discrete"))
    lead = order - 1 if direction == "discrete-from-continuous" else order
    return lead * (order - 0.5)


def _check_condition(condition: float) -> float:
    value = _check.check_positive("condition", condition)
    if value <= 1:
        raise AssumptionFailed(f"the condition number M/m must exceed 1, got {condition!r}.")
    return value


def _check_order(order: float) -> float:
    if _check.check_positive("order", order) <= 1:
        raise AssumptionFailed(f"the Renyi order must exceed 1, got {order!r}.")
    return float(order)


def gaussian_divergence(order: float, variance: float, target_variance: float, dimension: int = 1) -> float:
    """Return the Renyi divergence R_order(N(0, v I) || N(0, t I)).

    It is (k/2) (log(t/v) + log(t/s) / (order - 1)) with s = order t + (1 - order) v, infinite when s <= 0: the exact
    divergence of an unadjusted chain on a quadratic, whose stationary variance is t / (1 - step_size / (2 t)).
    """
    order, v, t = (
        _check_order(order),
        _check.check_positive("variance", variance),
        _check.check_positive("target_variance", target_variance),
    )
    between = order * t + (1 - order) * v
    if between <= 0:
        return math.inf
    return dimension / 2 * (math.log(t / v) + math.log(t / between) / (order - 1))


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
