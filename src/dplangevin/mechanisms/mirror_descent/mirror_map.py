"""Public samples, and the mirror maps made from them. Nothing here reads private records."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import find_root
from dplangevin.data.dataset import ArrayDataset, Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.moments.mechanism import second_moments
from dplangevin.mechanisms.newton import (
    TiltedObjective,
    hessian_sum,
    minimize_quadratic,
    projected_gradient_step,
    record_curvatures,
    search_line,
    solve_newton_step,
)
from dplangevin.problem import Loss, Problem
from dplangevin.problem.constants import as_array
from dplangevin.problem.problem import Ball, ConstraintSet, WholeSpace

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


DEFAULT_RIDGE_FRACTION = 1e-3
"""Default ridge of a map, as a fraction of the mean eigenvalue of the public Hessian."""


class PublicSample:
    """Public records, clipped to the problem's bounds like the private ones, with the plain (unclipped) loss.

    Parameters
    ----------
    X, y : public features and targets, in the format of the private ones.
    problem : the problem of the private run; its bounds, set and loss are used.
    """

    def __init__(self, X: ArrayLike, y: ArrayLike, problem: Problem) -> None:
        features, labels = as_array("public X", X), as_array("public y", y)
        if features.ndim != 2 or features.shape[1] != problem.n_features:
            got = features.shape[1] if features.ndim == 2 else f"{features.ndim} dimension(s) instead of"
            raise InvalidParameter(
                f"public and private features differ: the public ones have {got} columns, the private ones "
                f"{problem.n_features}; give the same columns in the same order."
            )
        if len(features) < 1 or labels.shape != (len(features),):
            raise InvalidParameter(
                f"the public sample needs rows and one target each, got shapes {list(features.shape)} and "
                f"{list(labels.shape)}."
            )
        self._features, self._labels, self._private = features, labels, problem
        self.problem = replace(
            problem,
            loss=problem.loss.unclipped_if_bounded,
            n=len(features),
            ridge=0.0,
            adjacency="replace-one",
            allow_more_rows=False,
        )
        self.data = ArrayDataset(features, labels, self.problem)
        self.is_quadratic = problem.loss.unclipped_loss.is_quadratic
        self._moments: tuple[Floats, Floats] | None = None

    @property
    def size(self) -> int:
        """Number of public records."""
        return self.data.n_samples

    def select_rows(self, rows: Any) -> PublicSample:
        """Return the sample of these rows."""
        return PublicSample(self._features[rows], self._labels[rows], self._private)

    def with_loss(self, loss: Loss) -> ArrayDataset:
        """Return the records with another loss, for simulated private gradients."""
        return ArrayDataset(self._features, self._labels, replace(self.problem, loss=loss))

    def scale_residuals(self, theta: Floats, factor: float) -> PublicSample:
        """Return the sample with its residuals at theta multiplied by factor (targets are clipped again)."""
        labels = np.concatenate(
            [(1 - factor) * (block.rows @ theta) + factor * block.labels for block in self.data.blocks()]
        )
        return PublicSample(self._features, labels, self._private)

    def unclipped_fractions(self, loss: Loss, thetas: Floats) -> Floats:
        """Return the fraction of records whose gradient is not clipped, at each column of thetas[dimension, k]."""
        inside = np.zeros(thetas.shape[1])
        if math.isinf(loss.clip_bound):
            return inside + 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.data.blocks():
                slopes = loss.unclipped_loss.slope(block.rows @ thetas, block.labels[:, None])
                inside += (np.abs(slopes) < loss.clip_bound).sum(axis=0)
        return inside / self.size

    def fit_shrinkage(self, theta: Floats) -> HessianShrinkage:
        """Fit Ledoit and Wolf's estimate of the population's Hessian: (1 - w) H + w (m m^T + c I).

        H is the second moment of z_i = sqrt(h_i) x_i with h_i the curvature at theta, m their mean, c the mean
        eigenvalue of their covariance S; w = mean |(z_i - m)(z_i - m)^T - S|_F^2 / (rows |S - c I|_F^2), at most 1.

        References
        ----------
        Ledoit and Wolf (2004), A well-conditioned estimator for large-dimensional covariance matrices.
        """
        classes = self.problem.loss.score_dimension
        hessian = self.hessian(theta)
        mean, fourth = np.zeros(self.problem.dimension), 0.0
        if classes == 1:
            mean = sum((z.sum(axis=0) for z in self._weighted_rows(theta)), mean) / self.size
            fourth = sum(
                float(np.sum(((z - mean) ** 2).sum(axis=1) ** 2)) for z in self._weighted_rows(theta)
            )
        else:  # the rank of a record's Hessian is above 1, so there is no z_i; the mean stays 0
            for block in self.data.blocks():
                norms = (record_curvatures(self.data, block, theta) ** 2).sum(axis=(1, 2))
                fourth += float(np.sum((block.rows**2).sum(axis=1) ** 2 * norms))
        spread = hessian - np.outer(mean, mean)
        size = max(float(np.trace(spread)) / len(spread), 0.0)
        total = float(np.sum(spread**2))
        error, distance = (fourth / self.size - total) / self.size, total - len(spread) * size**2
        weight = min(1.0, max(0.0, error / distance)) if distance > 0 else 0.0
        return HessianShrinkage(weight=weight, size=size, mean=mean)

    def _weighted_rows(self, theta: Floats) -> Iterator[Floats]:
        """Iterate over sqrt(h_i) x_i, block by block, for a loss of one score."""
        for block in self.data.blocks():
            if self.is_quadratic:
                yield block.rows
            else:
                yield block.rows * np.sqrt(record_curvatures(self.data, block, theta)[:, :, 0])

    def hessian(self, theta: Floats) -> Floats:
        """Return the mean Hessian of the loss at theta."""
        if self.is_quadratic:
            return self._second_moments()[0]
        return hessian_sum(self.data, theta) / self.size

    def mean_losses(self, thetas: Floats) -> Floats:
        """Return the mean loss (no ridge) at each column of thetas[dimension, k]."""
        if not self.is_quadratic:
            return self.data.loss_sum(self.problem.loss, thetas) / self.size
        total = np.zeros(thetas.shape[1])
        for block in self.data.blocks():
            total += ((block.rows @ thetas - block.labels[:, None]) ** 2).sum(axis=0) / 2
        return total / self.size

    def mean_loss(self, theta: Floats) -> float:
        """Return the mean loss at one point."""
        return float(self.mean_losses(theta[:, None])[0])

    def mean_gradient(self, theta: Floats) -> Floats:
        """Return the gradient of the mean loss at one point."""
        if self.is_quadratic:
            gram, cross = self._second_moments()
            return np.asarray(gram @ theta - cross)
        return self.data.gradient_sum(self.problem.loss, theta[:, None])[:, 0] / self.size

    def mean_curvature(self) -> float:
        """Return the mean eigenvalue of the Hessian at 0 (with curvature 1 if that vanishes), the unit of ridges."""
        trace = float(np.trace(self.hessian(np.zeros(self.problem.dimension))))
        if not trace > 0:
            trace = sum(float((block.rows**2).sum()) for block in self.data.blocks()) / self.size
        return (trace or 1.0) / self.problem.dimension

    def fit_minimizer(self, ridge: float) -> Floats:
        """Return the argmin over the set of the mean loss + (ridge / 2) |theta|^2."""
        if not self.is_quadratic:
            start = np.zeros(self.problem.dimension)
            return minimize_from(
                TiltedObjective(data=self.data, ridge=ridge * self.size, tilt=np.zeros_like(start)), start
            )
        solution = self._unconstrained_minimizer(ridge)
        constraint = self.problem.constraint
        if isinstance(constraint, WholeSpace) or constraint.contains(solution):
            return solution
        return QuadraticMap(self.hessian(solution), start=solution, constraint=constraint, ridge=ridge).step(
            solution, np.zeros_like(solution)
        )

    def count_enough_rows(self, ridge: float) -> float:
        """Return about how many public rows make their minimiser a better start than 0; nan for several scores.

        The start enters the risk of mirror descent through its Bregman divergence (Ganesh, 2022, Theorem 83): for a
        quadratic loss tr(H^-1 S) / (2 rows) from the public minimiser, S the covariance of the gradients there, and
        theta^T H theta / 2 from 0. They are equal at tr(H^-1 S) / (theta^T H theta) rows.
        """
        if self.problem.loss.score_dimension > 1:
            return math.nan
        theta = self.fit_minimizer(ridge)
        matrix = self.hessian(theta)
        distance = float(theta @ matrix @ theta)
        matrix[np.diag_indices_from(matrix)] += max(ridge, DEFAULT_RIDGE_FRACTION * self.mean_curvature())
        factor, total = cho_factor(matrix), 0.0
        for block in self.data.blocks():
            slopes = self.problem.loss.slope((block.rows @ theta)[:, None], block.labels[:, None])
            gradients = slopes * block.rows
            total += float(np.sum(gradients * cho_solve(factor, gradients.T).T))
        return total / self.size / distance if distance > 0 else math.inf

    def _unconstrained_minimizer(self, ridge: float) -> Floats:
        gram, cross = self._second_moments()
        matrix = gram.copy()
        matrix[np.diag_indices_from(matrix)] += ridge
        try:
            return np.asarray(cho_solve(cho_factor(matrix), cross))
        except np.linalg.LinAlgError:
            return np.asarray(np.linalg.lstsq(matrix, cross, rcond=None)[0])

    def _second_moments(self) -> tuple[Floats, Floats]:
        """Return mean x x^T and mean y x."""
        if self._moments is None:
            gram, cross = second_moments(self.data)
            self._moments = gram / self.size, cross / self.size
        return self._moments

    def make_mirror_map(
        self, *, ridge: float | None = None, start_ridge: float | None = None, exact: bool = True
    ) -> MirrorMap:
        """Return the public loss plus a ridge as a mirror map, started at its minimiser.

        Parameters
        ----------
        ridge : ridge of the map; None takes DEFAULT_RIDGE_FRACTION times the mean eigenvalue of the Hessian, which is
            then the map's `ridge`. 0 is refused where the map would be singular.
        start_ridge : ridge of the public minimiser; None takes `ridge`. The rest of `ridge` is centred at the start,
            so that the start minimises the whole map (only gradient differences of the map matter to a run).
        exact : False takes the quadratic model of the public loss at its minimiser, which is exact for squared loss.
        """
        ridge = self._resolve_ridge(ridge)
        at_start = ridge if start_ridge is None else _check.check_nonnegative("start_ridge", start_ridge)
        start = self.fit_minimizer(at_start)
        if exact and not self.is_quadratic:
            return LossMap(self.data, start=start, ridge=ridge, start_ridge=at_start)
        free = isinstance(self.problem.constraint, WholeSpace)
        slope = None if free else self.mean_gradient(start) + at_start * start
        return QuadraticMap(
            self.hessian(start), start=start, constraint=self.problem.constraint, ridge=ridge, slope=slope
        )

    def _resolve_ridge(self, ridge: float | None) -> float:
        is_underdetermined = self.size < self.problem.dimension
        default = (
            DEFAULT_RIDGE_FRACTION * self.mean_curvature()
            if ridge is None or is_underdetermined
            else math.nan
        )
        sample_text = f"the public sample has {self.size} rows for {self.problem.dimension} parameters"
        if ridge is None:
            if is_underdetermined:
                warnings.warn(
                    f"{sample_text}: its loss is not strictly convex, so ridge = {default:.4g} is added to it.",
                    UserWarning,
                    stacklevel=3,
                )
            return default
        if ridge == 0 and is_underdetermined:
            raise InvalidParameter(
                f"{sample_text}, so its loss is not strictly convex and ridge = 0 leaves a singular mirror map; state "
                f"ridge > 0, or leave it out to use ridge = {default:.4g}."
            )
        return _check.check_nonnegative("ridge", ridge)


class HessianShrinkage(NamedTuple):
    """Shrinkage of an estimated Hessian towards mean mean^T + size I, with this weight."""

    weight: float
    size: float
    mean: Floats

    def multiply(self, shift: Floats) -> Floats:
        """Return (mean mean^T + size I) shift, for one point or for columns."""
        return np.multiply.outer(self.mean, self.mean @ shift) + self.size * shift


def public_mirror_map(
    X: ArrayLike,
    y: ArrayLike,
    problem: Problem,
    *,
    ridge: float | None = None,
    start_ridge: float | None = None,
    exact: bool = True,
) -> MirrorMap:
    """Return the mirror map of a public sample for a private problem; see `PublicSample.make_mirror_map`."""
    return PublicSample(X, y, problem).make_mirror_map(ridge=ridge, start_ridge=start_ridge, exact=exact)
