"""Mirror maps: strictly convex functions Psi of public data, and the mirror descent step that each defines."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import final

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import find_root
from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.newton import (
    TiltedObjective,
    minimize_quadratic,
    projected_gradient_step,
    search_line,
    solve_newton_step,
)
from dplangevin.problem.constraints import Ball, ConstraintSet, WholeSpace

MAX_NEWTON_STEPS = 100
GRADIENT_TOLERANCE = 1e-11


class MirrorMap(ABC):
    """A mirror map: Psi on a convex set, with its minimiser there.

    Parameters
    ----------
    start : argmin of Psi over the set, where a run starts.
    constraint : the convex set.
    ridge : the factor of the ridge term in Psi; a step does not depend on where that term is centred.
    """

    def __init__(self, *, start: Floats, constraint: ConstraintSet, ridge: float) -> None:
        self.start = np.array(start, float)
        self.start.flags.writeable = False
        self.constraint = constraint
        self.ridge = _check.check_nonnegative("ridge", ridge)

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return len(self.start)

    @abstractmethod
    def gradient(self, theta: Floats) -> Floats:
        """Return grad Psi at theta[dimension], or at each column of theta[dimension, k]."""

    @abstractmethod
    def step(self, theta: Floats, shift: Floats) -> Floats:
        """Return the argmin over the set of <shift, u> + B_Psi(u, theta).

        Without a constraint grad Psi(u) = grad Psi(theta) - shift. B_Psi(u, v) = Psi(u) - Psi(v) -
        <grad Psi(v), u - v>. One point, or one for each column of theta[dimension, k].
        """


@final
class QuadraticMap(MirrorMap):
    """A quadratic mirror map, Psi(u) = <slope, u> + (u - start)^T (H + ridge I) (u - start) / 2.

    It is exact for linear regression, and a quadratic model of other losses.

    slope is the gradient at the start, 0 unless the start lies on the edge of the set.
    One Cholesky factor serves every step. On a ball the Bregman projection solves the secular equation in the
    eigenbasis of H. H = I, ridge = 0 and start = 0 is plain gradient descent.
    """

    def __init__(
        self,
        hessian: Floats,
        *,
        start: Floats,
        constraint: ConstraintSet | None = None,
        ridge: float = 0.0,
        slope: Floats | None = None,
    ) -> None:
        super().__init__(start=start, constraint=constraint or WholeSpace(), ridge=ridge)
        self._slope = np.zeros(self.dimension) if slope is None else np.array(slope, float)
        matrix = np.array(hessian, float)
        if matrix.shape != (self.dimension, self.dimension):
            raise InvalidParameter(
                f"hessian must have shape [{self.dimension}, {self.dimension}] to fit start, got {list(matrix.shape)}."
            )
        if not _is_symmetric(matrix):
            raise InvalidParameter("hessian must be a symmetric matrix of finite numbers.")
        matrix[np.diag_indices_from(matrix)] += self.ridge
        self._matrix = matrix
        self._factor = _factorize(matrix, self.ridge)

    def gradient(self, theta: Floats) -> Floats:
        return np.asarray(((theta.T - self.start) @ self._matrix + self._slope).T)

    def step(self, theta: Floats, shift: Floats) -> Floats:
        free = theta - np.asarray(cho_solve(self._factor, shift, check_finite=False))
        if isinstance(self.constraint, WholeSpace):
            return free
        if free.ndim == 1:
            return self._bregman_project(free)
        return np.stack([self._bregman_project(column) for column in free.T], axis=1)

    @cached_property
    def _eigendecomposition(self) -> tuple[Floats, Floats]:
        values, vectors = np.linalg.eigh(self._matrix)
        return values, vectors

    def _bregman_project(self, point: Floats) -> Floats:
        """Return the Bregman projection: argmin over the set of (u - point)^T A (u - point) / 2."""
        if self.constraint.contains(point):
            return point
        if isinstance(self.constraint, Ball):
            return self.constraint.project(
                _project_on_ball(*self._eigendecomposition, point, self.constraint.radius)
            )
        tolerance = 1e-12 * float(np.linalg.norm(self._matrix @ point))
        return minimize_quadratic(
            self._matrix, -self._matrix @ point, self.constraint, point, max(tolerance, 1e-300)
        )


@final
class LossMap(MirrorMap):
    """The public loss as a mirror map: Psi(u) = (1/m) sum over m public records of loss(u) + a ridge.

    Steps are computed by damped Newton. The part start_ridge of the ridge is centred at 0 and belongs to the public
    loss; the rest is centred at the start. A step is post-processing of noisy gradients: an inexact one costs
    accuracy, never privacy.
    """

    def __init__(self, data: Dataset, *, start: Floats, ridge: float, start_ridge: float = 0.0) -> None:
        super().__init__(start=start, constraint=data.problem.constraint, ridge=ridge)
        self._data = data
        self._linear_term = (self.ridge - start_ridge) * self.start
        self._total_ridge = self.ridge * data.n_samples
        _factorize(self._objective(np.zeros(self.dimension)).hessian(self.start), self.ridge)

    def _objective(self, tilt: Floats) -> TiltedObjective:
        return TiltedObjective(data=self._data, ridge=self._total_ridge, tilt=tilt)

    def gradient(self, theta: Floats) -> Floats:
        if theta.ndim == 2:
            return np.stack([self.gradient(column) for column in theta.T], axis=1)
        total = self._objective(np.zeros(self.dimension)).gradient(theta)
        return np.asarray(total / self._data.n_samples - self._linear_term)

    def step(self, theta: Floats, shift: Floats) -> Floats:
        if theta.ndim == 2:
            return np.stack([self.step(t, s) for t, s in zip(theta.T, shift.T, strict=True)], axis=1)
        size = self._data.n_samples
        return minimize_from(
            self._objective((shift - self.gradient(theta) - self._linear_term) * size), theta
        )


def minimize_from(objective: TiltedObjective, start: Floats) -> Floats:
    """Return the minimiser over the problem's set by damped Newton from `start`, with |grad| / rows at most 1e-11.

    Where double precision does not reach that, the best point is returned; only accuracy depends on it.
    """
    constraint, size = objective.data.problem.constraint, objective.data.n_samples
    free = isinstance(constraint, WholeSpace)
    theta = constraint.project(start)
    value = objective.value(theta)
    best, best_norm = theta, math.inf
    for _ in range(MAX_NEWTON_STEPS):
        gradient = objective.gradient(theta)
        point, residual = (
            (theta, gradient) if free else projected_gradient_step(objective, constraint, theta, gradient)
        )
        residual_norm = float(np.linalg.norm(residual)) / size
        if residual_norm < best_norm:
            best, best_norm = point, residual_norm
        if not residual_norm > GRADIENT_TOLERANCE:
            break
        step = solve_newton_step(objective, constraint, theta, gradient, 1e-3 * residual_norm * size)
        if step is None or not np.isfinite(step).all():
            break
        new, value = search_line(objective, theta, value, step, float(gradient @ step))
        if np.array_equal(new, theta):
            break
        theta = new
    return best


def _factorize(matrix: Floats, ridge: float) -> tuple[Floats, bool]:
    """Return the Cholesky factor of the Hessian of Psi; refuse a singular one."""
    advice = (
        f"the mirror map is singular (its ridge is {ridge:g}): Psi is not strictly convex and a step is not unique. "
        f"State a larger ridge, e.g. ridge={_suggest_ridge(matrix):.3g}."
    )
    try:
        factor, lower = cho_factor(matrix, check_finite=False)
    except np.linalg.LinAlgError:
        raise InvalidParameter(advice) from None
    diagonal = np.abs(np.diag(factor))
    if not (diagonal.min() / diagonal.max()) ** 2 > len(matrix) * 2.0**-52:
        raise InvalidParameter(advice)
    return factor, lower


def _is_symmetric(matrix: Floats, rows: int = 256) -> bool:
    """Return True if entries are finite and symmetric to 1e-10 of the largest; by blocks, to save memory."""
    largest = max(float(matrix.max()), -float(matrix.min()))
    blocks = (slice(first, first + rows) for first in range(0, len(matrix), rows))
    return math.isfinite(largest) and all(
        bool(np.all(np.abs(matrix[part] - matrix[:, part].T) <= 1e-10 * largest)) for part in blocks
    )


def _suggest_ridge(matrix: Floats) -> float:
    """Return a thousandth of the mean eigenvalue, or 1 where that vanishes."""
    return 1e-3 * float(np.trace(matrix)) / len(matrix) or 1.0


def _project_on_ball(values: Floats, vectors: Floats, point: Floats, radius: float) -> Floats:
    """Return the argmin over |u| <= radius of (u - point)^T A (u - point) / 2, A = V diag(values) V^T, point outside.

    u(nu) = (A + nu I)^-1 A point with |u(nu)| = radius: one root nu in (0, max values (|point| / radius - 1)].
    """
    inside = vectors.T @ point

    def excess(nu: float) -> float:
        return 1 / radius - 1 / float(np.linalg.norm(inside * (values / (values + nu))))

    top = float(values[-1]) * (float(np.linalg.norm(point)) / radius - 1) * (1 + 1e-12)
    if not excess(top) <= 0:  # the point is outside by rounding only
        return point
    nu = float(find_root(excess, 0.0, top, xtol=1e-300, rtol=8.9e-16, max_steps=500))
    return np.asarray(vectors @ (inside * (values / (values + nu))))
