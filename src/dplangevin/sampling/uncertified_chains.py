"""Chains without a certificate, for research and plots: they have no privacy guarantee.

Unadjusted (overdamped) Langevin, x <- x - eta grad V(x) + N(0, 2 eta I), is biased: for a quadratic of curvature h
its stationary variance is 1 / (h (1 - eta h / 2)) instead of 1 / h (Ganesh, 2022, thesis, chapter 3).
Metropolis-adjusted Langevin is unbiased in the limit, without a usable rate (Roberts and Tweedie, 1996). Hit-and-run
draws a uniform direction, then exactly along the chord (Smith, 1984; Lovasz and Vempala, 2006; published rates have
no usable constants).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.sampling.langevin import run_sgld
from dplangevin.sampling.log_concave import Columns, sample_log_concave
from dplangevin.sampling.potential import CountingPotential, FunctionPotential, Potential, SamplerOutput
from dplangevin.sampling.supports import BallSupport, BoxSupport, ConvexSupport
from dplangevin.sampling.truncated import sample_unit_directions


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
