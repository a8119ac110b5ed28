"""Proved numbers of steps of Langevin chains, and starts whose density is provably close to the target's.

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
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin._search import bisect_integers, expand_bracket
from dplangevin.accounting.proximal_certificate import MAX_START_GAP
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.sampling.potential import Potential
from dplangevin.sampling.supports import ConvexSupport


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
