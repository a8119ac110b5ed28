"""Public samples: their minimiser, Hessian and mirror map. Nothing here reads private records."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.data.dataset import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mirror_descent.mirror_map import LossMap, MirrorMap, QuadraticMap, minimize_from
from dplangevin.mechanisms.moments.mechanism import second_moments
from dplangevin.mechanisms.newton import TiltedObjective, hessian_sum, record_curvatures
from dplangevin.problem import Loss, Problem, WholeSpace
from dplangevin.problem.constants import as_array

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
