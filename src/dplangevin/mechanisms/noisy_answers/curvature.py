"""Release the curvature of a loss at a released point, and the size of its slopes: what standard errors need.

A softmax loss does not change when all K scores shift together. Its curvature is released in K - 1 orthonormal
contrasts Q of the classes, sum (Q^T S Q) (x) x x^T with S = diag(p) - p p^T. The (Frobenius) length of Q^T S Q is
that of S, at most 1/2: with s_k = sum_c p_c^k, |S|^2 = s_2 - 2 s_3 + s_2^2 <= s_2 - s_3 = sum_c p_c p_c (1 - p_c) <=
1/4, because s_2^2 <= s_1 s_3 (Cauchy-Schwarz). Two classes of probability 1/2 attain it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from dplangevin._arrays import Floats
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.data.dataset import Block, Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec
from dplangevin.problem import Loss, Problem

MATRIX_BUDGET_FRACTION = 0.8  # for the curvature, when two scalars take the rest of the budget
SANDWICH_BUDGET_FRACTION = 0.7  # for the curvature, when the matrix of squared slopes takes the rest

SumGroups = list[tuple[int, float, float]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedCurvature:
    """Noisy sums over the records at theta; None for those that were not requested.

    Parameters
    ----------
    matrix : sum h'' x x^T.
    squared_slopes, curvature_sum : sum h'^2 and sum h''.
    slope_moment : sum h'^2 x x^T.
    """

    matrix: Floats
    squared_slopes: float | None = None
    curvature_sum: float | None = None
    slope_moment: Floats | None = None


def curvature_groups(problem: Problem, *, dispersion: bool, slope_moment: bool = False) -> SumGroups:
    """Return the groups of sums as (number of sums, bound on one record's contribution, budget fraction).

    The bounds follow from |x x^T|_F <= row_norm^2, h'' <= curvature_bound and h'^2 <= slope_bound^2. There is one
    group for the curvature; with `slope_moment` a second one, sum h'^2 x x^T; with `dispersion` two more, sum h'^2
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
        return [
            (matrix, largest * unit, SANDWICH_BUDGET_FRACTION),
            (matrix, square, 1 - SANDWICH_BUDGET_FRACTION),
        ]
    if not dispersion:
        return [(matrix, largest * unit, 1.0)]
    rest = (1 - MATRIX_BUDGET_FRACTION) / 2
    return [
        (matrix, largest * unit, MATRIX_BUDGET_FRACTION),
        (1, loss.slope_bound**2, rest),
        (1, largest, rest),
    ]


def class_contrasts(classes: int) -> Floats:
    """Return orthonormal columns [K, K - 1] orthogonal to (1, ..., 1); for a single score, [[1]].

    Examples
    --------
    >>> class_contrasts(2).round(4).tolist()
    [[0.7071], [-0.7071]]
    """
    if classes == 1:
        return np.ones((1, 1))
    steps = np.arange(1.0, classes)
    basis = np.triu(np.ones((classes, classes - 1)))
    basis[np.arange(1, classes), np.arange(classes - 1)] = -steps
    return np.asarray(basis / np.sqrt(steps * (steps + 1)))


def release_curvature(
    plan: CertifiedSpec, data: Dataset, theta: Floats, rng: np.random.Generator
) -> ReleasedCurvature:
    """Release the curvature at theta, a point that was itself released, with the plan's noise."""
    spec = plan.spec
    assert isinstance(spec, NoisySumsSpec)
    release = NoisySums().run(plan, lambda: _exact_sums(data, theta, spec.sizes), rng)
    matrix, *more = release.values
    if len(more) == 1:
        return ReleasedCurvature(matrix=unpack_symmetric(matrix), slope_moment=unpack_symmetric(more[0]))
    squared_slopes, curvature_sum = (float(value[0]) for value in more) if more else (None, None)
    return ReleasedCurvature(
        matrix=unpack_symmetric(matrix), squared_slopes=squared_slopes, curvature_sum=curvature_sum
    )


def pack_symmetric(matrix: Floats) -> Floats:
    """Return a symmetric matrix as a vector with its Frobenius norm: off-diagonal entries times sqrt 2."""
    rows, columns = np.triu_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0)))


def unpack_symmetric(vector: Floats) -> Floats:
    """Return the symmetric matrix of a packed vector."""
    size = int((np.sqrt(8 * len(vector) + 1) - 1) / 2 + 0.5)
    rows, columns = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[rows, columns] = vector / np.where(rows == columns, 1.0, np.sqrt(2.0))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


def _exact_sums(data: Dataset, theta: Floats, sizes: tuple[int, ...]) -> list[Floats]:
    ends = np.cumsum(sizes)
    task = _softmax_curvature_sum if data.problem.loss.score_dimension > 1 else _curvature_sums
    return np.split(data.sum_over_blocks(task, theta, len(sizes) == 2)[: ends[-1]], ends[:-1])


def _curvature_sums(data: Dataset, theta: Floats, slope_moment: bool) -> Floats:
    """Return the packed curvature, followed by the packed slope_moment, or by sum h'^2 and sum h''."""
    problem = data.problem
    matrix, squares = np.zeros((2, problem.n_columns, problem.n_columns))
    squared_slopes = curvature_sum = 0.0
    n_rows = 0
    for block in data.blocks():
        scores = _finite_scores(block, theta[:, None])[:, 0]
        curvatures = _clipped_curvatures(problem.loss, scores, block)
        matrix += block.rows.T @ (curvatures[:, None] * block.rows)
        slope = np.clip(problem.loss.slope(scores, block.labels), *_slope_limits(problem.loss))
        if slope_moment:
            scaled_rows = slope[:, None] * block.rows
            squares += scaled_rows.T @ scaled_rows
        squared_slopes += float(slope @ slope)
        curvature_sum += float(curvatures.sum())
        n_rows += len(scores)
    data.check_row_count(n_rows)
    return np.concatenate(
        [pack_symmetric(matrix), pack_symmetric(squares) if slope_moment else [squared_slopes, curvature_sum]]
    )


def _softmax_curvature_sum(data: Dataset, theta: Floats, slope_moment: bool) -> Floats:
    """Return the packed curvature in contrasts of the classes; entry (column j, contrast c) is at j (K - 1) + c."""
    classes, columns = data.problem.loss.score_dimension, data.problem.n_columns
    basis, free = class_contrasts(classes), classes - 1
    total = np.zeros((columns, free, columns, free))
    n_rows = 0
    for block in data.blocks():
        probabilities = softmax(_finite_scores(block, theta.reshape(columns, classes)), axis=1)
        means = probabilities @ basis
        for c in range(free):
            for d in range(c + 1):
                weights = probabilities @ (basis[:, c] * basis[:, d]) - means[:, c] * means[:, d]
                total[:, c, :, d] += block.rows.T @ (weights[:, None] * block.rows)
        n_rows += len(probabilities)
    data.check_row_count(n_rows)
    for c in range(free):
        for d in range(c):
            total[:, d, :, c] = total[:, c, :, d]
    return pack_symmetric(total.reshape(columns * free, columns * free))


def _finite_scores(block: Block, theta: Floats) -> Floats:
    if block.weights is not None:
        raise InvalidParameter("curvatures are released for equally weighted records only.")
    return np.nan_to_num(block.rows @ theta, nan=0.0, posinf=1e300, neginf=-1e300)


def _clipped_curvatures(loss: Loss, scores: Floats, block: Block) -> Floats:
    """Return h'', clipped to its bounds so that no rounding exceeds the sensitivity."""
    return np.clip(np.nan_to_num(loss.curvature(scores, block.labels)), 0.0, loss.typical_curvature_bound)


def _slope_limits(loss: Loss) -> tuple[float, float]:
    return -loss.slope_bound, loss.slope_bound
