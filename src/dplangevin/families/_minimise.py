"""The minimiser of a strongly convex sum of losses, certified: damped (projected) Newton in double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dplangevin._arrays import Floats
from dplangevin._progress import progress
from dplangevin._rng import noise_observer
from dplangevin.data.dataset import Block, Dataset
from dplangevin.errors import AssumptionFailed
from dplangevin.families._minimiser import rounding_floor
from dplangevin.problem.constraints import ConstraintSet, WholeSpace

MOST_STEPS = 200
UNIT = 2.0**-53
_SCALES = 24
"""Halvings of a step that a line search tries at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective:
    """Phi(theta) = sum_i weight_i loss_i(theta) + (ridge / 2) |theta|^2 + <tilt, theta>, over the problem's set."""

    data: Dataset
    ridge: float
    tilt: Floats

    def value(self, theta: Floats) -> float:
        return float(self.values(theta[:, None])[0])

    def values(self, thetas: Floats) -> Floats:
        """Phi at each column."""
        losses = self.data.loss_sum(self.data.problem.loss, thetas)
        return np.asarray(losses + self.ridge / 2 * (thetas * thetas).sum(axis=0) + self.tilt @ thetas)

    def gradient(self, theta: Floats) -> Floats:
        data = self.data.gradient_sum(self.data.problem.loss, theta[:, None])[:, 0]
        return data + self.ridge * theta + self.tilt

    def hessian(self, theta: Floats) -> Floats:
        matrix = hessian_sum(self.data, theta)
        matrix[np.diag_indices_from(matrix)] += self.ridge
        return matrix

    def records(self) -> int:
        """N in the bounds of this run: the stated n, or the true number where there are more."""
        return max(self.data.problem.n, self.data.n_samples)

    def rounding(self, theta: Floats) -> float:
        """Bound on the rounding error of `gradient`: sums over blocks, scores, ridge and tilt."""
        constants, size = self.data.problem.constants, float(np.linalg.norm(theta))
        records = self.records()
        scores = records * constants.data_smoothness * (len(theta) + 8) * size
        rest = (len(theta) + 8) * (self.ridge * size + float(np.linalg.norm(self.tilt)))
        return rounding_floor(constants, records) + UNIT * (scores + rest)


def minimise(
    objective: Objective, tolerance: float, iterations: int | None = None, reach: float = math.inf
) -> Floats:
    """The certified minimiser of the objective (see `_minimise`); an audit that watches noise sees the tilt."""
    observer = noise_observer.get()
    if observer is None:
        return _minimise(objective, tolerance, iterations, reach)
    return np.asarray(
        observer.observe_minimiser(
            objective.tilt,
            lambda tilt: _minimise(replace(objective, tilt=tilt), tolerance, iterations, reach),
            replace(objective, tilt=np.zeros(len(objective.tilt))).gradient,
        )
    )


def _minimise(objective: Objective, tolerance: float, iterations: int | None, reach: float) -> Floats:
    """A point whose distance to the exact minimiser, scaled back to norm `reach`, is at most tolerance / ridge.

    Certificate: xi in grad Phi(theta) + normal cone(theta) with |xi|, rounding error included, at most tolerance;
    strong monotonicity does the rest. Without a constraint xi is the gradient; with one it comes from a projected
    gradient step (two gradients and a projection, so three rounding errors). A run that cannot give the certificate
    raises; the text holds nothing of the data. With `iterations` the work does not depend on the data (`_padded`).
    """
    constraint = objective.data.problem.constraint
    free = isinstance(constraint, WholeSpace)
    if iterations is not None:
        if not free:
            raise AssumptionFailed(
                "a fixed number of iterations is for unconstrained problems: the projected solver's inner steps depend "
                "on the data. Leave out iterations, or the constraint."
            )
        return _padded(objective, tolerance, iterations, reach)
    theta = constraint.project(np.zeros(objective.data.problem.dimension))
    value = objective.value(theta)
    for _ in progress(range(MOST_STEPS), "minimising", private=True):  # it stops early, as the data say
        gradient = objective.gradient(theta)
        point, residual = (theta, gradient) if free else _projected(objective, constraint, theta, gradient)
        missing = float(np.linalg.norm(residual))
        doubt = missing + (1 if free else 3) * objective.rounding(point)
        if _doubt_within_reach(doubt, point, objective.ridge, reach) <= tolerance:
            return _scaled_back(point, reach)
        step = _newton_step(objective, constraint, theta, gradient, 1e-3 * missing)
        if step is None:
            break
        theta, value = _advance(objective, theta, value, step, float(gradient @ step))
    raise _not_found(tolerance)


def _doubt_within_reach(doubt: float, point: Floats, ridge: float, reach: float) -> float:
    """ridge times a bound on how far `point`, scaled back to norm `reach`, is from the minimiser scaled back.

    Scaling back to a norm s <= |u|, |v| and then to reach <= s multiplies |u - v| by at most reach / s. The minimiser
    is within doubt / ridge of the point, so s is at least |point| / 2 unless doubt / ridge exceeds the other half.
    """
    size = float(np.linalg.norm(point))
    if size <= reach or doubt > ridge * size / 2:
        return doubt
    return doubt * min(1.0, 2 * reach / size)


def _scaled_back(point: Floats, reach: float) -> Floats:
    size = float(np.linalg.norm(point))
    return point if size <= reach else point * (reach / size)


def _not_found(tolerance: float) -> AssumptionFailed:
    return AssumptionFailed(
        f"the minimiser was not found within tolerance = {tolerance:g}, so nothing is released. "
        "Raise tolerance or the ridge (or iterations); all are public choices."
    )


def _padded(objective: Objective, tolerance: float, iterations: int, reach: float) -> Floats:
    """The same, always with `iterations` gradients, Hessians, solves and line searches over the same scales.

    A point that has its certificate is kept while the iterations go on. What is left in the running time is how long
    single additions and multiplications take.
    """
    constraint = objective.data.problem.constraint
    theta = np.zeros(objective.data.problem.dimension)
    scales = 2.0 ** -np.arange(_SCALES)
    best, found = theta, False
    for _ in progress(range(iterations), "minimising"):
        gradient = objective.gradient(theta)
        doubt = float(np.linalg.norm(gradient)) + objective.rounding(theta)
        missing = _doubt_within_reach(doubt, theta, objective.ridge, reach)
        best, found = (theta, True) if missing <= tolerance and not found else (best, found)
        step = _newton_step(objective, constraint, theta, gradient, 0.0)
        step = np.zeros_like(theta) if step is None or not np.isfinite(step).all() else step
        values = objective.values(theta[:, None] + np.append(scales, 0.0) * step[:, None])
        slack = 1e-13 * (abs(values[-1]) + np.abs(values[:-1]))
        good = values[:-1] <= values[-1] + 1e-4 * scales * float(gradient @ step) + slack
        theta = theta + (scales[int(np.argmax(good))] if good.any() else 0.0) * step
    if not found:
        gradient = objective.gradient(theta)
        doubt = float(np.linalg.norm(gradient)) + objective.rounding(theta)
        if _doubt_within_reach(doubt, theta, objective.ridge, reach) > tolerance:
            raise _not_found(tolerance)
        best = theta
    return _scaled_back(best, reach)


def _newton_step(
    objective: Objective, constraint: ConstraintSet, theta: Floats, gradient: Floats, tolerance: float
) -> Floats | None:
    """The minimiser of the quadratic model over the set, minus theta; None when it cannot be computed."""
    hessian = objective.hessian(theta)
    try:
        if isinstance(constraint, WholeSpace):
            return np.asarray(cho_solve(cho_factor(hessian), -gradient))
        return quadratic_minimiser(hessian, gradient - hessian @ theta, constraint, theta, tolerance) - theta
    except (
        np.linalg.LinAlgError,
        ValueError,
    ):  # overflow, or no digits left; the cause may depend on the data
        return None


def _projected(
    objective: Objective, constraint: ConstraintSet, theta: Floats, gradient: Floats
) -> tuple[Floats, Floats]:
    """theta+ = project(theta - grad / M), and (theta - theta+) M - grad(theta) + grad(theta+), in its inclusion."""
    smoothness = objective.records() * objective.data.problem.constants.data_smoothness + objective.ridge
    point = constraint.project(theta - gradient / smoothness)
    return point, (theta - point) * smoothness - gradient + objective.gradient(point)


def _advance(
    objective: Objective, theta: Floats, value: float, step: Floats, slope: float
) -> tuple[Floats, float]:
    """Halve the step until the objective falls by 1e-4 of what its slope promises, up to rounding."""
    scale = 1.0
    for _ in range(60):
        new = theta + scale * step
        new_value = objective.value(new)
        slack = 1e-13 * (abs(value) + abs(new_value))
        if new_value <= value + 1e-4 * scale * slope + slack:
            break
        scale /= 2
    return new, new_value


def quadratic_minimiser(
    matrix: Floats, linear: Floats, constraint: ConstraintSet, start: Floats, tolerance: float
) -> Floats:
    """argmin of z^T A z / 2 + <linear, z> over the set, by accelerated projected gradient with restarts.

    Stops when the gradient mapping is at most tolerance, or after 20000 steps.
    References: O'Donoghue and Candes (2015).
    """
    smoothness = float(np.linalg.norm(matrix, 2))
    point = ahead = constraint.project(start)
    momentum = 1.0
    for _ in range(20_000):
        new = constraint.project(ahead - (matrix @ ahead + linear) / smoothness)
        if float(np.linalg.norm(ahead - new)) * smoothness <= tolerance:
            return new
        if float((ahead - new) @ (new - point)) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - point)
        point, momentum = new, following
    return point


def hessian_sum(data: Dataset, theta: Floats) -> Floats:
    """sum_i weight_i Hessian of loss_i at theta; columns j, k and classes c, d are at (j K + c, k K + d)."""
    return data.summed(_hessian_sum, theta)


def _hessian_sum(data: Dataset, theta: Floats) -> Floats:
    classes, columns = data.problem.loss.score_dimension, data.problem.n_columns
    total = np.zeros((classes, classes, columns, columns))
    for block in data.blocks():
        curvatures = _curvatures(data, block, theta)
        if classes == 1:  # no loss bends downwards: half the multiplications of a product of two matrices
            scaled = np.sqrt(np.maximum(curvatures[:, 0, 0], 0.0))[:, None] * block.rows
            total[0, 0] += scaled.T @ scaled
            continue
        for c in range(classes):
            for d in range(c, classes):
                total[c, d] += block.rows.T @ (curvatures[:, c, d, None] * block.rows)
    for c in range(classes):
        for d in range(c):
            total[c, d] = total[d, c]
    return total.transpose(2, 0, 3, 1).reshape(columns * classes, columns * classes)


def _curvatures(data: Dataset, block: Block, theta: Floats) -> Floats:
    """weight_i d slope_c / d score_d, [rows, K, K]."""
    loss = data.problem.loss
    classes = loss.score_dimension
    scores = block.rows @ theta.reshape(-1, classes)
    if classes == 1:
        result = loss.curvature(scores[:, 0], block.labels)[:, None, None]
    else:
        result = loss.curvature(scores, block.labels)
    return result if block.weights is None else result * block.weights[:, None, None]
