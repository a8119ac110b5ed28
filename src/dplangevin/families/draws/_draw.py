"""One draw of exp(-beta F) on a body, by the sampler its schedule names."""

from __future__ import annotations

import itertools

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.data._moments import moments
from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed
from dplangevin.families._minimise import hessian_sum
from dplangevin.families.draws.exact_methods import box_lipschitz, cells_per_axis, exact_method
from dplangevin.families.draws.schedule import DrawSchedule
from dplangevin.problem import Ball
from dplangevin.samplers.active_ball import active_ball
from dplangevin.samplers.adaptive_rejection import adaptive_rejection
from dplangevin.samplers.bodies import Body, BoxBody, body_of
from dplangevin.samplers.cell_envelope import cell_envelope
from dplangevin.samplers.certified_start import certified_start
from dplangevin.samplers.elliptical_envelope import elliptical_envelope
from dplangevin.samplers.finite_grid import finite_grid
from dplangevin.samplers.minimise import approximate_minimiser
from dplangevin.samplers.problem_potential import ProblemPotential
from dplangevin.samplers.proximal_chain import proximal
from dplangevin.samplers.self_concordance import Anchor
from dplangevin.samplers.truncated_gaussian import quadratic_gaussian


def draw(
    schedule: DrawSchedule, data: Dataset, rng: np.random.Generator, size: int = 1, body: Body | None = None
) -> Floats:
    """`size` independent draws [p, size] on the problem's set, or on a body inside it (one parameter if exact)."""
    problem = data.problem
    potential = ProblemPotential(data, schedule.inverse_temperature)
    if schedule.tier != "exact":
        body = body or body_of(problem.constraint, problem.dimension)
        start = certified_start(potential, body, size, rng)
        return proximal(potential, body, start, schedule.step_size, schedule.n_steps, rng).theta
    method = exact_method(problem, schedule.grid)
    inside = body or body_of(problem.constraint, problem.dimension)
    if method == "line":
        low, high = (float(inside.project(np.array([[end]]))[0, 0]) for end in (-1e300, 1e300))
        return adaptive_rejection(potential, low, high, size, rng).theta
    if body is not None:
        raise AssumptionFailed(
            "exact draws on a part of the set need one parameter; use tier='pure' or 'certified'."
        )
    if method == "grid":
        return _on_grid(potential, inside, schedule.grid, size, rng)
    if method == "cells":
        return _cells(potential, inside, size, rng)
    if method == "gaussian":
        return _gaussian(potential, inside, size, rng)
    return _logistic(potential, inside, size, rng)


def grid_points(body: Body, per_axis: int) -> Floats:
    """The public grid: per_axis points on each axis of the smallest box around the body, those in the body."""
    low, high = _box(body)
    axes = [np.linspace(a, b, per_axis) for a, b in zip(low, high, strict=True)]
    points = np.array(list(itertools.product(*axes))).T
    return np.ascontiguousarray(points[:, body.contains(points)])


def _box(body: Body) -> tuple[Floats, Floats]:
    if isinstance(body, BoxBody):
        return body.low, body.high
    side = np.full(body.dimension, body.diameter / 2)
    return -side, side


def _on_grid(
    potential: ProblemPotential, body: Body, per_axis: int, size: int, rng: np.random.Generator
) -> Floats:
    points = grid_points(body, per_axis)
    blocks = np.array_split(points, max(1, points.shape[1] // 512), axis=1)
    scores = np.concatenate([potential.value(block) for block in blocks])
    return np.asarray(points[:, finite_grid(scores, size, rng)])


def _cells(potential: ProblemPotential, body: Body, size: int, rng: np.random.Generator) -> Floats:
    problem, beta = potential.problem, potential.inverse_temperature
    low, high = _box(body)
    cells = cells_per_axis(problem, beta)
    steep = beta * box_lipschitz(problem)
    return cell_envelope(potential, body, low, high, cells, steep, potential.smoothness, size, rng).theta


def _gaussian(potential: ProblemPotential, body: Body, size: int, rng: np.random.Generator) -> Floats:
    """F is quadratic on the set: N(minimiser, (beta H)^-1) conditioned on it."""
    problem = potential.problem
    matrix, cross = moments(potential.data)
    matrix = matrix / problem.n + problem.ridge * np.eye(problem.dimension)
    mean = np.linalg.solve(matrix, cross / problem.n)
    return quadratic_gaussian(mean, potential.inverse_temperature * matrix, body, size, rng)


def _logistic(potential: ProblemPotential, body: Body, size: int, rng: np.random.Generator) -> Floats:
    """The envelope at the minimiser: inside the ball, or on its sphere. Both are exact, so either may be chosen."""
    problem = potential.problem
    assert isinstance(problem.constraint, Ball)
    radius, ridge, norm = problem.constraint.radius, potential.strong_convexity, problem.row_norm
    anchor = approximate_minimiser(potential, body, 20_000)
    length = float(np.linalg.norm(anchor))
    if length > radius * (1 - 1e-9):
        anchor = anchor * (radius / length)
        if float(potential.gradient(anchor[:, None])[:, 0] @ anchor) < 0:
            hessian = logistic_hessian(potential, anchor)
            return active_ball(potential, radius, Anchor(anchor, hessian, ridge, norm), size, rng).theta
    hessian = logistic_hessian(potential, anchor)
    return elliptical_envelope(potential, body, Anchor(anchor, hessian, ridge, norm), size, rng).theta


def logistic_hessian(potential: ProblemPotential, theta: Floats) -> Floats:
    """Hessian of the data term of V: beta / n sum weight s (1 - s) x x'."""
    return hessian_sum(potential.data, theta) * (potential.inverse_temperature / potential.problem.n)
