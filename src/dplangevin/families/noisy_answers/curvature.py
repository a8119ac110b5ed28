"""The curvature of a loss at a released point, and the size of its slopes, with noise: what standard errors need.

A softmax loss does not change when all K scores move together. Its curvature is released in K - 1 orthonormal contrasts
Q of the classes, sum (Q^T S Q) (x) x x^T with S = diag(p) - p p^T. The (Frobenius) length of Q^T S Q is that of S, at
most 1/2: with s_k = sum_c p_c^k, |S|^2 = s_2 - 2 s_3 + s_2^2 <= s_2 - s_3 = sum_c p_c p_c (1 - p_c) <= 1/4, because
s_2^2 <= s_1 s_3 (Cauchy-Schwarz). Two classes of probability 1/2 attain it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Block, Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_answers.mechanism import NoisySums
from dplangevin.families.noisy_answers.schedule import NoisySumsSchedule
from dplangevin.privacy.plan import Price
from dplangevin.problem import Loss, Problem

MATRIX_SHARE = 0.8  # of the budget, for the curvature when two scalars take the rest
SANDWICH_SHARE = 0.7  # of the budget, for the curvature when the matrix of squared slopes takes the rest

Groups = list[tuple[int, float, float]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Curvature:
    """Noisy sums at theta: matrix = sum h'' x x^T, and what else was asked for.

    Parameters
    ----------
    slopes, bends : sum h'^2 and sum h''.
    slope_moment : sum h'^2 x x^T.
    """

    matrix: Floats
    slopes: float | None = None
    bends: float | None = None
    slope_moment: Floats | None = None


def curvature_groups(problem: Problem, *, dispersion: bool, slope_moment: bool = False) -> Groups:
    """The sums and one record's bounds: |x x^T|_F <= row_norm^2, h'' <= curvature_bound, h'^2 <= slope_bound^2.

    One group: the curvature; two: also the `slope_moment`, sum h'^2 x x^T; three: also, for the `dispersion`, sum h'^2
    and sum h''.
    """
    loss, largest = problem.loss, problem.loss.typical_curvature_bound
    if (dispersion or slope_moment or loss.slope_variance != "curvature") and loss.score_dimension != 1:
        raise InvalidParameter(f"squared slopes are released for losses of one score; {loss.name} has more.")
    size = problem.n_columns * max(loss.score_dimension - 1, 1)
    unit = problem.row_norm**2 * (1 + 1e-12)
    matrix = size * (size + 1) // 2
    if slope_moment:
        square = loss.slope_bound**2 * unit
        return [(matrix, largest * unit, SANDWICH_SHARE), (matrix, square, 1 - SANDWICH_SHARE)]
    if not dispersion:
        return [(matrix, largest * unit, 1.0)]
    rest = (1 - MATRIX_SHARE) / 2
    return [(matrix, largest * unit, MATRIX_SHARE), (1, loss.slope_bound**2, rest), (1, largest, rest)]


def contrasts(classes: int) -> Floats:
    """Orthonormal columns [K, K - 1] at right angles to (1, ..., 1); for a single score, [[1]].

    Examples
    --------
    >>> contrasts(2).round(4).tolist()
    [[0.7071], [-0.7071]]
    """
    if classes == 1:
        return np.ones((1, 1))
    steps = np.arange(1.0, classes)
    basis = np.triu(np.ones((classes, classes - 1)))
    basis[np.arange(1, classes), np.arange(classes - 1)] = -steps
    return np.asarray(basis / np.sqrt(steps * (steps + 1)))


def release_curvature(plan: Price, data: Dataset, theta: Floats, rng: np.random.Generator) -> Curvature:
    """Add the plan's noise to the curvature at theta, a point that was itself released."""
    schedule = plan.schedule
    assert isinstance(schedule, NoisySumsSchedule)
    release = NoisySums().run(plan, lambda: _sums(data, theta, schedule.sizes), rng)
    matrix, *more = release.values
    if len(more) == 1:
        return Curvature(matrix=unpacked(matrix), slope_moment=unpacked(more[0]))
    slopes, bends = (float(value[0]) for value in more) if more else (None, None)
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


def _sums(data: Dataset, theta: Floats, sizes: tuple[int, ...]) -> list[Floats]:
    ends = np.cumsum(sizes)
    task = _softmax_sum if data.problem.loss.score_dimension > 1 else _sum
    return np.split(data.summed(task, theta, len(sizes) == 2)[: ends[-1]], ends[:-1])


def _sum(data: Dataset, theta: Floats, slope_moment: bool) -> Floats:
    """The packed curvature, and then the packed slope_moment, or sum h'^2 and sum h'', one after the other."""
    problem = data.problem
    matrix, squares = np.zeros((2, problem.n_columns, problem.n_columns))
    slopes = bends = 0.0
    seen = 0
    for block in data.blocks():
        scores = _scores(block, theta[:, None])[:, 0]
        curvatures = _curvatures(problem.loss, scores, block)
        matrix += block.rows.T @ (curvatures[:, None] * block.rows)
        slope = np.clip(problem.loss.slope(scores, block.labels), *_limits(problem.loss))
        if slope_moment:
            sloped = slope[:, None] * block.rows
            squares += sloped.T @ sloped
        slopes += float(slope @ slope)
        bends += float(curvatures.sum())
        seen += len(scores)
    data.check_rows(seen)
    return np.concatenate([packed(matrix), packed(squares) if slope_moment else [slopes, bends]])


def _softmax_sum(data: Dataset, theta: Floats, slope_moment: bool) -> Floats:
    """The packed curvature in contrasts of the classes; entry (column j, contrast c) is at j (K - 1) + c."""
    classes, columns = data.problem.loss.score_dimension, data.problem.n_columns
    basis, free = contrasts(classes), classes - 1
    total = np.zeros((columns, free, columns, free))
    seen = 0
    for block in data.blocks():
        shares = softmax(_scores(block, theta.reshape(columns, classes)), axis=1)
        means = shares @ basis
        for c in range(free):
            for d in range(c + 1):
                weights = shares @ (basis[:, c] * basis[:, d]) - means[:, c] * means[:, d]
                total[:, c, :, d] += block.rows.T @ (weights[:, None] * block.rows)
        seen += len(shares)
    data.check_rows(seen)
    for c in range(free):
        for d in range(c):
            total[:, d, :, c] = total[:, c, :, d]
    return packed(total.reshape(columns * free, columns * free))


def _scores(block: Block, theta: Floats) -> Floats:
    if block.weights is not None:
        raise InvalidParameter("curvatures are released for equally weighted records only.")
    return np.nan_to_num(block.rows @ theta, nan=0.0, posinf=1e300, neginf=-1e300)


def _curvatures(loss: Loss, scores: Floats, block: Block) -> Floats:
    """h'', kept within its bounds so that no rounding exceeds the sensitivity."""
    return np.clip(np.nan_to_num(loss.curvature(scores, block.labels)), 0.0, loss.typical_curvature_bound)


def _limits(loss: Loss) -> tuple[float, float]:
    return -loss.slope_bound, loss.slope_bound
