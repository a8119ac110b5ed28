"""Certified minimisation of a strongly convex sum of losses, by damped (projected) Newton in double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin._rng import noise_observer
from dplangevin.data.dataset import Block, Dataset
from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.perturbation.spec import gradient_rounding_floor
from dplangevin.problem.problem import ConstraintSet, WholeSpace

MAX_NEWTON_STEPS = 200
UNIT_ROUNDOFF = 2.0**-53
_LINE_SEARCH_HALVINGS = 24
"""Number of halvings of a step that a line search tries in one pass over the data."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TiltedObjective:
    """Phi(theta) = sum_i weight_i loss_i(theta) + (ridge / 2) |theta|^2 + <tilt, theta>, over the problem's set.

    With a center, losses are taken at center + theta: the ridge draws towards the center. With a basis B, they are
    taken at B theta, column by column of the scores. Both are for problems without a constraint, and must not depend on
    the records other than through what is released.
    """

    data: Dataset
    ridge: float
    tilt: Floats
    center: Floats | None = None
    basis: Floats | None = None

    def _model(self, theta: Floats) -> Floats:
        """Return where the losses are taken, for theta [d] or [d, k]."""
        if self.center is not None:
            theta = np.asarray(theta + (self.center if theta.ndim == 1 else self.center[:, None]))
        return theta if self.basis is None else self._turn(self.basis, theta)

    def _turn(self, matrix: Floats, theta: Floats) -> Floats:
        """Return the product of a matrix [p, p] with the coefficients [p K] or [p K, k] of every score."""
        return np.asarray((matrix @ theta.reshape(len(matrix), -1)).reshape(theta.shape))

    def value(self, theta: Floats) -> float:
        return float(self.values(theta[:, None])[0])

    def values(self, thetas: Floats) -> Floats:
        """Return Phi at each column."""
        losses = self.data.loss_sum(self.data.problem.loss, self._model(thetas))
        return np.asarray(losses + self.ridge / 2 * (thetas * thetas).sum(axis=0) + self.tilt @ thetas)

    def gradient(self, theta: Floats) -> Floats:
        data = self.data.gradient_sum(self.data.problem.loss, self._model(theta[:, None]))[:, 0]
        if self.basis is not None:
            data = self._turn(self.basis.T, data)
        return data + self.ridge * theta + self.tilt

    def hessian(self, theta: Floats) -> Floats:
        matrix = hessian_sum(self.data, self._model(theta))
        if self.basis is not None:
            turned = self._turn(self.basis.T, matrix)
            matrix = np.ascontiguousarray(self._turn(self.basis.T, np.ascontiguousarray(turned.T)))
        matrix[np.diag_indices_from(matrix)] += self.ridge
        return matrix

    def n_records(self) -> int:
        """Number of records in the bounds of this run: the stated n, or the true number if it is larger."""
        return max(self.data.problem.n, self.data.n_samples)

    def gradient_rounding_bound(self, theta: Floats) -> float:
        """Return a bound on the rounding error of `gradient`: sums over blocks, scores, ridge and tilt."""
        constants, size = self.data.problem.constants, float(np.linalg.norm(theta))
        n_records = self.n_records()
        reach = size if self.center is None else size + 2 * float(np.linalg.norm(self.center))
        scores = n_records * constants.data_smoothness * (len(theta) + 8) * reach
        rest = (len(theta) + 8) * (self.ridge * size + float(np.linalg.norm(self.tilt)))
        return gradient_rounding_floor(constants, n_records) + UNIT_ROUNDOFF * (scores + rest)


def minimize_certified(
    objective: TiltedObjective, tolerance: float, iterations: int | None = None, coef_bound: float = math.inf
) -> Floats:
    """Return the certified minimiser of the objective (see `_minimize`), and report the tilt to a noise audit."""
    observer = noise_observer.get()
    if observer is None:
        return _minimize(objective, tolerance, iterations, coef_bound)
    return np.asarray(
        observer.observe_minimizer(
            objective.tilt,
            lambda tilt: _minimize(replace(objective, tilt=tilt), tolerance, iterations, coef_bound),
            replace(objective, tilt=np.zeros(len(objective.tilt))).gradient,
        )
    )


def _minimize(
    objective: TiltedObjective, tolerance: float, iterations: int | None, coef_bound: float
) -> Floats:
    """Return a point within tolerance / ridge of the exact minimiser, both scaled back to norm `coef_bound`.

    Certificate: xi in grad Phi(theta) + normal cone(theta) with |xi|, rounding error included, at most tolerance;
    strong monotonicity does the rest. Without a constraint xi is the gradient; with one it comes from a projected
    gradient step (two gradients and a projection, so three rounding errors). A run that cannot give the certificate
    raises, and the message reveals nothing about the data. With `n_iterations` the work does not depend on the data.
    """
    constraint = objective.data.problem.constraint
    free = isinstance(constraint, WholeSpace)
    if iterations is not None:
        if not free:
            raise AssumptionFailed(
                "a fixed number of iterations is for unconstrained problems: the projected solver's inner steps "
                "depend on the data. Leave out n_iterations, or the constraint."
            )
        return _minimize_fixed_iterations(objective, tolerance, iterations, coef_bound)
    theta = constraint.project(np.zeros(objective.data.problem.dimension))
    value = objective.value(theta)
    # the number of steps depends on the data, so progress is not shown
    for _ in iterate_with_progress(range(MAX_NEWTON_STEPS), "minimising", private=True):
        gradient = objective.gradient(theta)
        point, residual = (
            (theta, gradient) if free else projected_gradient_step(objective, constraint, theta, gradient)
        )
        residual_norm = float(np.linalg.norm(residual))
        residual_bound = residual_norm + (1 if free else 3) * objective.gradient_rounding_bound(point)
        if _scaled_residual_bound(residual_bound, point, objective.ridge, coef_bound) <= tolerance:
            return scale_to_norm(point, coef_bound)
        step = solve_newton_step(objective, constraint, theta, gradient, 1e-3 * residual_norm)
        if step is None:
            break
        theta, value = search_line(objective, theta, value, step, float(gradient @ step))
    raise _tolerance_error(tolerance)


def _scaled_residual_bound(residual_bound: float, point: Floats, ridge: float, coef_bound: float) -> float:
    """Return ridge times a bound on the distance of `point` from the minimiser, both scaled back to `coef_bound`.

    Scaling back to a norm s <= |u|, |v| and then to coef_bound <= s multiplies |u - v| by at most coef_bound / s. The
    minimiser is within residual_bound / ridge of the point, so s >= |point| / 2 unless that exceeds the other half.
    """
    size = float(np.linalg.norm(point))
    if size <= coef_bound or residual_bound > ridge * size / 2:
        return residual_bound
    return residual_bound * min(1.0, 2 * coef_bound / size)


def scale_to_norm(point: Floats, coef_bound: float) -> Floats:
    """Return the point, scaled back to this norm if it is longer."""
    size = float(np.linalg.norm(point))
    return point if size <= coef_bound else point * (coef_bound / size)


def _tolerance_error(tolerance: float) -> AssumptionFailed:
    return AssumptionFailed(
        f"the minimiser was not found within tolerance = {tolerance:g}, so nothing is released. "
        "Raise tolerance or the ridge (or n_iterations); all are public choices."
    )


def _minimize_fixed_iterations(
    objective: TiltedObjective, tolerance: float, iterations: int, coef_bound: float
) -> Floats:
    """Minimise with exactly `n_iterations` gradients, Hessians, solves and line searches over the same step sizes.

    A certified point is kept while the iterations go on. The running time then depends on the data only through the
    time of single additions and multiplications.
    """
    constraint = objective.data.problem.constraint
    theta = np.zeros(objective.data.problem.dimension)
    scales = 2.0 ** -np.arange(_LINE_SEARCH_HALVINGS)
    best, converged = theta, False
    for _ in iterate_with_progress(range(iterations), "minimising"):
        gradient = objective.gradient(theta)
        residual_bound = float(np.linalg.norm(gradient)) + objective.gradient_rounding_bound(theta)
        scaled_bound = _scaled_residual_bound(residual_bound, theta, objective.ridge, coef_bound)
        best, converged = (theta, True) if scaled_bound <= tolerance and not converged else (best, converged)
        step = solve_newton_step(objective, constraint, theta, gradient, 0.0)
        step = np.zeros_like(theta) if step is None or not np.isfinite(step).all() else step
        values = objective.values(theta[:, None] + np.append(scales, 0.0) * step[:, None])
        slack = 1e-13 * (abs(values[-1]) + np.abs(values[:-1]))
        is_decrease = values[:-1] <= values[-1] + 1e-4 * scales * float(gradient @ step) + slack
        theta = theta + (scales[int(np.argmax(is_decrease))] if is_decrease.any() else 0.0) * step
    if not converged:
        gradient = objective.gradient(theta)
        residual_bound = float(np.linalg.norm(gradient)) + objective.gradient_rounding_bound(theta)
        if _scaled_residual_bound(residual_bound, theta, objective.ridge, coef_bound) > tolerance:
            raise _tolerance_error(tolerance)
        best = theta
    return scale_to_norm(best, coef_bound)


def solve_newton_step(
    objective: TiltedObjective, constraint: ConstraintSet, theta: Floats, gradient: Floats, tolerance: float
) -> Floats | None:
    """Return the minimiser of the quadratic model over the set, minus theta; None when it cannot be computed."""
    hessian = objective.hessian(theta)
    try:
        if isinstance(constraint, WholeSpace):
            return np.asarray(cho_solve(cho_factor(hessian), -gradient))
        return minimize_quadratic(hessian, gradient - hessian @ theta, constraint, theta, tolerance) - theta
    except (np.linalg.LinAlgError, ValueError):
        # overflow or cancellation; the cause may depend on the data, so it is not reported
        return None


def projected_gradient_step(
    objective: TiltedObjective, constraint: ConstraintSet, theta: Floats, gradient: Floats
) -> tuple[Floats, Floats]:
    """Return theta+ = project(theta - grad / M) and its residual (theta - theta+) M - grad(theta) + grad(theta+)."""
    smoothness = objective.n_records() * objective.data.problem.constants.data_smoothness + objective.ridge
    point = constraint.project(theta - gradient / smoothness)
    return point, (theta - point) * smoothness - gradient + objective.gradient(point)


def search_line(
    objective: TiltedObjective, theta: Floats, value: float, step: Floats, slope: float
) -> tuple[Floats, float]:
    """Return the next point and its value: the step is halved until the objective falls by 1e-4 of what its slope
    predicts, up to rounding."""
    scale = 1.0
    for _ in range(60):
        new = theta + scale * step
        new_value = objective.value(new)
        slack = 1e-13 * (abs(value) + abs(new_value))
        if new_value <= value + 1e-4 * scale * slope + slack:
            break
        scale /= 2
    return new, new_value


def minimize_quadratic(
    matrix: Floats, linear: Floats, constraint: ConstraintSet, start: Floats, tolerance: float
) -> Floats:
    """Return the argmin of z^T A z / 2 + <linear, z> over the set, by accelerated projected gradient with restarts.

    Stops when the gradient mapping is at most tolerance, or after 20000 steps.

    References
    ----------
    O'Donoghue and Candes (2015).
    """
    smoothness = float(np.linalg.norm(matrix, 2))
    point = extrapolated = constraint.project(start)
    momentum = 1.0
    for _ in range(20_000):
        new = constraint.project(extrapolated - (matrix @ extrapolated + linear) / smoothness)
        if float(np.linalg.norm(extrapolated - new)) * smoothness <= tolerance:
            return new
        if float((extrapolated - new) @ (new - point)) > 0:
            momentum = 1.0
        next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        extrapolated = new + (momentum - 1) / next_momentum * (new - point)
        point, momentum = new, next_momentum
    return point


def hessian_sum(data: Dataset, theta: Floats) -> Floats:
    """Return sum_i weight_i Hessian of loss_i at theta; columns j, k and classes c, d are at (j K + c, k K + d)."""
    return data.sum_over_blocks(_block_hessian_sum, theta)


def _block_hessian_sum(data: Dataset, theta: Floats) -> Floats:
    classes, columns = data.problem.loss.score_dimension, data.problem.n_columns
    total = np.zeros((classes, classes, columns, columns))
    for block in data.blocks():
        curvatures = record_curvatures(data, block, theta)
        if classes == 1:
            # curvatures are nonnegative, so a symmetric product with half the multiplications will do
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


def record_curvatures(data: Dataset, block: Block, theta: Floats) -> Floats:
    """Return weight_i d slope_c / d score_d, [rows, K, K]."""
    loss = data.problem.loss
    classes = loss.score_dimension
    scores = block.rows @ theta.reshape(-1, classes)
    if classes == 1:
        result = loss.curvature(scores[:, 0], block.labels)[:, None, None]
    else:
        result = loss.curvature(scores, block.labels)
    return result if block.weights is None else result * block.weights[:, None, None]
