"""The curvature of a loss at a released point, and the size of its slopes, with noise: what standard errors need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Block, Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_sums import release_sums
from dplangevin.privacy.theorems.noisy_sums import NoisySums
from dplangevin.problem import Loss, Problem

Floats = NDArray[np.float64]
MATRIX_SHARE = 0.8  # of the budget, for the matrix; the rest is for the two scalars

Groups = list[tuple[int, float, float]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Curvature:
    """Noisy sums at theta: matrix = sum h'' x x^T, and, when asked for, slopes = sum h'^2, bends = sum h''."""

    matrix: Floats
    slopes: float | None
    bends: float | None


def curvature_groups(problem: Problem, *, dispersion: bool) -> Groups:
    """The sums and one record's bounds: |h'' x x^T|_F <= curvature_bound row_norm^2, h'^2 <= slope_bound^2."""
    loss, columns = problem.loss, problem.n_columns
    if loss.score_dimension != 1:
        raise InvalidParameter(f"curvatures are released for losses of one score; {loss.name} has more.")
    unit = loss.curvature_bound * problem.row_norm**2 * (1 + 1e-12)
    matrix = columns * (columns + 1) // 2
    if not dispersion:
        return [(matrix, unit, 1.0)]
    rest = (1 - MATRIX_SHARE) / 2
    return [(matrix, unit, MATRIX_SHARE), (1, loss.slope_bound**2, rest), (1, loss.curvature_bound, rest)]


def release_curvature(plan: NoisySums, data: Dataset, theta: Floats, rng: np.random.Generator) -> Curvature:
    """Add the plan's noise to the curvature at theta, a point that was itself released."""
    release = release_sums(plan, lambda: _sums(data, theta, len(plan.groups)), rng)
    matrix, *scalars = release.values
    slopes, bends = (float(value[0]) for value in scalars) if scalars else (None, None)
    return Curvature(matrix=unpacked(matrix), slopes=slopes, bends=bends)


def packed(matrix: Floats) -> Floats:
    """A symmetric matrix as a vector of the same (Frobenius) length: off-diagonal entries times sqrt 2."""
    rows, columns = np.triu_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0)))


def unpacked(vector: Floats) -> Floats:
    """The symmetric matrix of a packed vector."""
    size = int((np.sqrt(8 * len(vector) + 1) - 1) / 2 + 0.5)
    rows, columns = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[rows, columns] = vector / np.where(rows == columns, 1.0, np.sqrt(2.0))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


def _sums(data: Dataset, theta: Floats, groups: int) -> list[Floats]:
    problem = data.problem
    matrix = np.zeros((problem.n_columns, problem.n_columns))
    slopes = bends = 0.0
    seen = 0
    for block in data.blocks():
        if block.weights is not None:
            raise InvalidParameter("curvatures are released for equally weighted records only.")
        scores = np.nan_to_num(block.rows @ theta, nan=0.0, posinf=1e300, neginf=-1e300)
        curvatures = _curvatures(problem.loss, scores, block)
        matrix += block.rows.T @ (curvatures[:, None] * block.rows)
        slope = np.clip(problem.loss.slope(scores, block.labels), *_limits(problem.loss))
        slopes += float(slope @ slope)
        bends += float(curvatures.sum())
        seen += len(scores)
    data.check_rows(seen)
    return [packed(matrix), np.array([slopes]), np.array([bends])][:groups]


def _curvatures(loss: Loss, scores: Floats, block: Block) -> Floats:
    """h'' by central differences, kept within [0, curvature_bound] so that no rounding exceeds the sensitivity."""
    width = 1e-6 * (1 + np.abs(scores))
    change = loss.slope(scores + width, block.labels) - loss.slope(scores - width, block.labels)
    return np.clip(np.nan_to_num(change / (2 * width)), 0.0, loss.curvature_bound)


def _limits(loss: Loss) -> tuple[float, float]:
    return -loss.slope_bound, loss.slope_bound
