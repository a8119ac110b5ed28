"""The exact step that every descent shares: round rows once, sum integer gradients, add noise that is drawn exactly.

One record adds a vector of norm at most M R to an integer sum, whatever the point is, and the release is the ideal
Gaussian release of that sum, rounded to a public grid. So it has the sensitivity and the noise of the same step in
real numbers, with no allowance for rounding: docs/theory/exact_sums.md.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Block, Dataset
from dplangevin.data.exact_sums import ExactSums, QuadraticSums, limit_rows, lower_limits
from dplangevin.data.integer_grids import IntegerTransform, RowGrid
from dplangevin.data.kernels import repays_compiled
from dplangevin.errors import InvalidParameter
from dplangevin.problem import Problem, RecordLoss
from dplangevin.problem.constants import MAX_EXACT_COLUMNS
from dplangevin.sampling.exact_noise import ByteSource, add_rounded_gaussian_noise


def public_row_grid(problem: Problem, row_bits: int = 20) -> RowGrid:
    """Return the grid to which the rows of an exact run are rounded; refuse problems that have no exact sums."""
    if isinstance(problem.loss, RecordLoss):
        raise InvalidParameter(
            f"exact sums need a loss of linear scores; the {problem.loss.name} loss is one of whole records. "
            "State secure=False."
        )
    if problem.n_columns > MAX_EXACT_COLUMNS:
        raise InvalidParameter(f"exact sums are for at most {MAX_EXACT_COLUMNS} columns; state secure=False.")
    return RowGrid(row_norm=problem.row_norm, row_bits=row_bits)


def limit_records(data: Dataset, block: Block, grid: RowGrid, transform: IntegerTransform | None) -> Floats:
    """Return m of each record, M times its weight over the weight bound: integers with m |B' x| <= M R."""
    weights, weight_bound = block.weights, data.problem.bounds.weight_bound
    if weights is None and weight_bound != 1:
        weights = np.ones(len(block.labels))
    if transform is not None:
        return limit_rows(block.rows, weights, weight_bound, transform)
    most = np.full(len(block.labels), grid.max_limit)
    return most if weights is None else lower_limits(most, weights, weight_bound)


def has_full_limits(data: Dataset, transform: IntegerTransform) -> bool:
    """Return whether the limit of every record is M, whatever the records are: no weights, and every row is short."""
    is_short = transform.filter is not None and transform.filter.all_short
    return is_short and not data.has_weights and data.problem.bounds.weight_bound == 1


def round_records(data: Dataset, grid: RowGrid, *, in_place: bool = False) -> Dataset:
    """Return the records of a run without whitening: rows on the grid, and weights as integers."""
    return data.with_rounded_rows(grid, in_place=in_place).with_weights(limit_records, grid, None)


def release_gradient(
    data: Dataset,
    grid: RowGrid,
    theta: Floats,
    noise_std: float,
    *,
    divisor: int,
    transform: IntegerTransform | None = None,
    batch: NDArray[np.integer[Any]] | None = None,
    quadratic: QuadraticSums | None = None,
    source: ByteSource = os.urandom,
) -> Floats:
    """Release the sum of gradients at theta [p, K] over the divisor, in units of the bound R, from an exact sum.

    A record adds a matrix of norm at most slope_bound weight_bound / divisor in these units, to which noise of
    standard deviation noise_std is added. The records must be those of `round_records`, or with a transform have the
    limits of `limit_records` as weights.

    batch : increasing row numbers; None for all records.
    quadratic : moments of the same records, which give gradients of a squared loss where all limits are M.
    """
    problem, sums = data.problem, ExactSums(data, grid)
    loss = problem.loss
    if quadratic is not None and batch is None and transform is not None and has_full_limits(data, transform):
        exact, scale = quadratic.gradient(theta, transform), divisor * transform.bound
    else:
        compiled = loss.slope_formula is not None and repays_compiled(data.n_bytes)
        slopes = loss.slopes_in_place if loss.slope_formula is None else loss.slope_formula
        exact = sums.gradient(slopes, loss.slope_bound, theta, transform, batch, compiled=compiled)
        scale = sums.gradient_scale(divisor, loss.slope_bound, problem.bounds.weight_bound, transform)
    return add_rounded_gaussian_noise(exact.whole, exact.exponents, noise_std * scale, source) / scale
