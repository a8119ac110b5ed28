"""Release the curvature of the loss in whitened coordinates, or estimate it where no release shows it.

In whitened coordinates the curvature is near a multiple of the identity, so that a small fraction of the budget shows
all of it. A record adds v v' with v = sqrt(min(w h'' / (k M), R^2 / |B' x|^2)) B' x / R, M a function of what was
released before (`elliptical_rows.limit_curvature`): |v| <= 1 is checked on the very numbers that are summed,
whatever B, R, M and the record are. Exact runs truncate v to whole steps, and their sums over records have no rounding
error (docs/theory/one_step_intervals.md, section 2).

Scores of such rows are normal at every point, so that mean slopes and curvatures are integrals over one normal
variable. `one_step.py` takes from them the nonlinearity of the loss and a guess of its curvature; the release of a
curvature takes from them the curvature of a record that counts at most. Both are functions of released and public
values alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Block, Dataset
from dplangevin.data.exact_sums import bound_lengths, limit_rows
from dplangevin.data.integer_grids import (
    INWARD,
    IntegerTransform,
    WordSum,
    carry,
    piece_rows,
    snap_point,
    to_integers,
)
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import NoiseDraws
from dplangevin.mechanisms.moments.mechanism import sample_symmetric_noise
from dplangevin.mechanisms.whitened.spec import CURVATURE_ROW_FACTOR, N_SLOPE_MEANS, WhitenedSpec
from dplangevin.mechanisms.whitened.whitening import (
    WhitenedGeometry,
    WhiteningTransform,
    row_chunks,
    whiten_rows,
)
from dplangevin.problem import Loss, Problem
from dplangevin.sampling.exact_noise import (
    ByteSource,
    add_rounded_gaussian_noise,
    add_symmetric_gaussian_noise,
)

SLOPE_STEPS = 2.0**20
"""Steps in which an exact run counts a squared slope between 0 and 1."""
Z_UPPER_BOUND = 1.645
"""Deviations of noise that an upper 95% confidence bound adds."""


class WhitenedCurvature(NamedTuple):
    """Noisy curvature of the mean loss in whitened coordinates q, and noisy means of squared slopes.

    Parameters
    ----------
    matrix : mean w h'' (B' x)(B' x)', limited, with noise of standard deviation `noise_std` on its diagonal.
    weighted_square : mean min(w^2 |B' x|^2, R^2) r^2, the trace of the covariance of gradients; None if not released.
    weighted_noise_std : standard deviation of its noise.
    mean_square : an upper 95% confidence bound on mean r^2: intervals for new targets must not shrink with its noise.
    """

    matrix: Floats
    noise_std: float
    weighted_square: float | None = None
    weighted_noise_std: float = 0.0
    mean_square: float | None = None

    def to_array(self) -> Floats:
        """Return all of it in one array, for the state of a run."""
        numbers = (self.noise_std, self.weighted_square, self.weighted_noise_std, self.mean_square)
        return np.append(self.matrix.ravel(), [np.nan if number is None else number for number in numbers])

    @classmethod
    def from_array(cls, array: Floats) -> WhitenedCurvature:
        """Return the release that `to_array` made an array of."""
        size = math.isqrt(len(array) - 4)
        noise_std, weighted, weighted_noise_std, mean = map(float, array[-4:])
        squares = (None, 0.0, None) if math.isnan(weighted) else (weighted, weighted_noise_std, mean)
        return cls(array[:-4].reshape(size, size), noise_std, *squares)


class CurvatureLimit(NamedTuple):
    """A limit M on the curvature of a record's loss, and the share of the mean curvature that it keeps.

    A row of length R counts in full up to k M, a longer one up to less. Both numbers are functions of public and
    released values; M is at most the bound of the loss.
    """

    largest: float
    kept_share: float = 1.0


def check_curvature_problem(problem: Problem) -> None:
    """Refuse losses and weights for which the curvature in whitened coordinates gives no intervals."""
    loss = problem.loss
    if loss.score_dimension != 1 or loss.unclipped_loss.slope_variance == "measured":
        raise InvalidParameter(
            f"whitened-gd has no intervals for the {loss.unclipped_loss.name} loss; leave mechanism='auto', which "
            "then uses objective perturbation."
        )
    if problem.bounds.weight_bound != 1:
        raise InvalidParameter("curvatures are released for equally weighted records only.")


def release_curvature(
    spec: WhitenedSpec,
    data: Dataset,
    geometry: WhitenedGeometry,
    theta: Floats,
    draws: NoiseDraws,
    limit: CurvatureLimit,
) -> WhitenedCurvature:
    """Release the curvature at theta, a point that was itself released; rows of a secure run are on their grid."""
    problem, bound = data.problem, geometry.transform.bound
    size = problem.n_columns
    if geometry.integer_transform is None:
        means = data.sum_over_blocks(sum_curvatures, geometry.transform, theta, limit.largest) / problem.n
        matrix, rng = means[: size**2].reshape(size, size), draws.rng
        matrix = (matrix + matrix.T) / 2 + spec.curvature_noise_std * sample_symmetric_noise(size, rng)
        squares = means[size**2 :]
        if spec.slope_noise_std:
            squares = squares + spec.slope_noise_std * rng.standard_normal(N_SLOPE_MEANS)
    else:
        matrix, squares = _release_exact_curvature(
            spec, data, geometry.integer_transform, theta, limit.largest, draws.source
        )
    unit = CURVATURE_ROW_FACTOR * limit.largest * bound**2 / limit.kept_share
    released = WhitenedCurvature(matrix=unit * matrix, noise_std=unit * spec.curvature_noise_std)
    if not spec.slope_noise_std:
        return released
    square = problem.loss.slope_bound**2
    return released._replace(
        weighted_square=float(squares[0]) * square * bound**2,
        weighted_noise_std=spec.slope_noise_std * square * bound**2,
        mean_square=(max(float(squares[1]), 0.0) + Z_UPPER_BOUND * spec.slope_noise_std) * square,
    )


def sum_curvatures(data: Dataset, transform: WhiteningTransform, theta: Floats, largest: float) -> Floats:
    """Return the sums over records of v v' (flattened) and of both squared slopes, in floating point."""
    problem = data.problem
    scaled = transform._replace(basis=transform.basis / problem.row_norm)
    matrix, squares, n_rows = np.zeros((problem.n_columns,) * 2), np.zeros(N_SLOPE_MEANS), 0
    for block in data.blocks():
        _check_unweighted(block)
        start = 0
        for rows in row_chunks(block.rows):
            labels = block.labels[start : start + len(rows)]
            start += len(rows)
            weights, whitened = whiten_rows(rows, scaled)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                lengths = np.sqrt(np.einsum("ij,ij->i", whitened, whitened)) / scaled.bound
                factors, slopes = _record_factors(
                    problem.loss, rows @ theta, labels, weights, lengths, largest
                )
                slopes *= rows.any(axis=1)  # a zero row stands for no record
                whitened *= (factors / scaled.bound)[:, None]
                inside = np.einsum("ij,ij->i", whitened, whitened) <= 1 + 1e-12
            whitened[~inside] = 0.0
            matrix += whitened.T @ whitened
            squares += slopes.sum(axis=1)
        n_rows += len(block.rows)
    data.check_row_count(n_rows)
    return np.concatenate([matrix.ravel(), squares])


def sum_exact_curvatures(
    data: Dataset, transform: IntegerTransform, theta: Floats, largest: float
) -> NDArray[np.int64]:
    """Return the same sums in whole numbers, v in steps of R / max_steps and squared slopes in 1 / SLOPE_STEPS.

    Words [2, p^2 + 2]. Every number of a record is a function of it and of public or released values alone.
    """
    problem, size = data.problem, data.problem.n_columns
    point, total, n_rows = snap_point(theta[:, None], transform.grid)[:, 0], WordSum((size**2 + 2,)), 0
    for block in data.blocks():
        _check_unweighted(block)
        step = piece_rows(size)
        for start in range(0, len(block.rows), step):
            rows = block.rows[start : start + step].astype(np.float64, copy=False)
            labels = block.labels[start : start + step]
            weights = limit_rows(rows, None, 1.0, transform) / transform.grid.max_limit
            whole = transform.coordinates(rows)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                lengths = bound_lengths(whole) / transform.max_steps
                factors, slopes = _record_factors(
                    problem.loss, rows @ point, labels, weights, lengths, largest
                )
                slopes *= rows.any(axis=1)
                whole *= (factors * INWARD)[:, None]
                np.trunc(whole, out=whole)
                inside = np.einsum("ij,ij->i", whole, whole) <= transform.max_steps_square
            whole[~inside] = 0.0
            counts = np.floor(slopes * SLOPE_STEPS).sum(axis=1)
            total.add(np.concatenate([(whole.T @ whole).ravel(), counts]))
        n_rows += len(block.rows)
    data.check_row_count(n_rows)
    return total.words()


def _release_exact_curvature(
    spec: WhitenedSpec,
    data: Dataset,
    transform: IntegerTransform,
    theta: Floats,
    largest: float,
    source: ByteSource,
) -> tuple[Floats, Floats]:
    """Release both from exact sums, to which a record adds a matrix of norm at most max_steps^2 and whole numbers."""
    size, n = data.problem.n_columns, data.problem.n
    sums: NDArray[Any] = to_integers(
        carry(data.sum_over_blocks(sum_exact_curvatures, transform, theta, largest, whole=True))
    )
    scale = n * transform.max_steps**2
    matrix = add_symmetric_gaussian_noise(
        sums[: size**2].reshape(size, size), np.asarray(0), spec.curvature_noise_std * scale, source
    )
    if not spec.slope_noise_std:
        return matrix / scale, np.zeros(N_SLOPE_MEANS)
    steps = n * SLOPE_STEPS
    squares = add_rounded_gaussian_noise(sums[size**2 :], np.asarray(0), spec.slope_noise_std * steps, source)
    return matrix / scale, squares / steps


def _record_factors(
    loss: Loss, scores: Floats, labels: Floats, weights: Floats, lengths: Floats, largest: float
) -> tuple[Floats, Floats]:
    """Return sqrt(min(w h'' / (k M), R^2 / |B' x|^2)) of each record, M `largest`, and its squared slopes in [0, 1].

    lengths : |B' x| / R.
    """
    scores = np.nan_to_num(scores, nan=0.0, posinf=1e300, neginf=-1e300)
    curvatures = np.maximum(np.nan_to_num(loss.curvature(scores, labels)), 0.0)
    slopes = np.nan_to_num(np.clip(loss.slope(scores, labels) / loss.slope_bound, -1.0, 1.0)) ** 2
    shares = np.minimum(weights * curvatures / (CURVATURE_ROW_FACTOR * largest), 1 / lengths**2)
    factors = np.sqrt(np.nan_to_num(shares, nan=0.0, posinf=0.0))
    weighted = np.clip(np.nan_to_num((weights * lengths) ** 2, nan=0.0, posinf=0.0), 0.0, 1.0) * slopes
    return factors, np.stack([weighted, slopes])


def _check_unweighted(block: Block) -> None:
    if block.weights is not None:
        raise InvalidParameter("curvatures are released for equally weighted records only.")


MIN_GUESS_EIGENVALUE = 0.02
"""Smallest eigenvalue of the guess over the curvature across the coefficients."""
MAX_CUT_SHARES, MIN_CURVATURE_SHARE = {"logistic": 0.01, "exponential": 0.1}, 0.01
"""Share of their curvature that elliptical rows have above the limit M, and the least limit over the bound. Decisions
depend on the curvature of rows near the boundary, which a logistic loss has most of; rates have a longer tail."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_QUANTILES = ndtri((np.arange(500) + 0.5) / 500)


class EllipticalRows(NamedTuple):
    """What is assumed of the rows where the path does not show it: z = A (c + (I - c c') g), g elliptical.

    A is the root of their second moment, c the direction in which they are constant.
    """

    root: Floats
    constant: Floats
    kind: str
    largest: float

    def split(self, point: Floats) -> tuple[float, Floats, float]:
        """Return the mean of the scores at q = A^-1 point, the rest of the point, and their standard deviation."""
        mean = float(self.constant @ point)
        across = point - mean * self.constant
        return mean, across, float(np.linalg.norm(across))

    def slopes_at(self, scores: Floats) -> tuple[Floats, Floats]:
        """Return the slopes of these scores, without labels, and their curvatures."""
        if self.kind == "logistic":
            slopes = expit(scores)
            return slopes, slopes * (1 - slopes)
        slopes = np.exp(np.minimum(scores, math.log(self.largest) + 1))
        return slopes, slopes

    def law_at(self, point: Floats) -> tuple[Floats, Floats]:
        """Return the mean slope times row, without labels, and the mean curvature, at q = A^-1 point."""
        c, (mean, across, spread) = self.constant, self.split(point)
        along = across / max(spread, 1e-300)
        slopes, curvatures = self.slopes_at(mean + spread * _NODES)
        b0, b1 = float(_WEIGHTS @ slopes), float(_WEIGHTS @ (slopes * _NODES))
        a0, a1, a2 = (float(_WEIGHTS @ (curvatures * _NODES**j)) for j in range(3))
        curvature = a0 * np.eye(len(point)) + (a2 - a0) * np.outer(along, along)
        curvature += a1 * (np.outer(c, along) + np.outer(along, c))
        return b0 * c + b1 * along, curvature

    def curvature_at(self, q: Floats) -> Floats:
        """Return the mean curvature at q, in its coordinates, none of whose directions is quite flat."""
        values, vectors = np.linalg.eigh(self.law_at(self.root * q)[1])
        level = max(float(np.median(values)), 1e-12)
        shape = (vectors * np.maximum(values, MIN_GUESS_EIGENVALUE * level)) @ vectors.T
        return np.asarray(shape * np.outer(self.root, self.root))

    def move_center(self, q: Floats, move: Floats, covariance: Floats) -> Floats:
        """Return q after a move of this noise: of its mean score, and of the rest as far as that exceeds the noise."""
        mean, across, spread = self.split(self.root * move)
        noise = float(self.root**2 @ np.diag(covariance))
        factor = max(1 - noise / max(spread**2, 1e-300), 0.0)
        return np.asarray(q + (mean * self.constant + factor * across) / self.root)


def limit_curvature(
    geometry: WhitenedGeometry, problem: Problem, first_moment: Floats, answer: Floats
) -> CurvatureLimit:
    """Return the curvature of a record's loss that counts at most, a function of released and public values alone.

    The noise of the released curvature is scaled to it. The bound of the loss may be far above the curvature of any
    record: at rare labels and small rates. The smallest limit is taken that elliptical rows exceed by no more than a
    fixed share of their mean curvature at the released answer.
    """
    bound, rows = problem.loss.typical_curvature_bound, describe_rows(geometry, problem, first_moment)
    if rows is None:
        return CurvatureLimit(bound)
    mean, _, spread = rows.split(rows.root * answer)
    curvatures = np.sort(np.minimum(rows.slopes_at(mean + spread * _QUANTILES)[1], bound))[::-1]
    sums = np.cumsum(curvatures)
    above = sums - np.arange(1, len(sums) + 1) * curvatures  # what exceeds each of them
    index = int(np.searchsorted(above, MAX_CUT_SHARES[rows.kind] * sums[-1], side="right")) - 1
    limit = max(float(curvatures[index]), MIN_CURVATURE_SHARE * bound)
    kept = np.minimum(curvatures, CURVATURE_ROW_FACTOR * limit).sum() / max(float(sums[-1]), 1e-300)
    return CurvatureLimit(limit, float(kept))


def describe_rows(
    geometry: WhitenedGeometry, problem: Problem, first_moment: Floats
) -> EllipticalRows | None:
    """Return elliptical rows with the second moment of the geometry; None for losses that are quadratic."""
    formula = problem.loss.slope_formula
    if formula is None or formula.kind not in ("logistic", "exponential"):
        return None
    size = len(geometry.moments)
    # without a constant column, the direction of largest second moment is nearly constant
    constant = np.eye(size)[-1] if problem.fit_intercept else np.linalg.eigh(first_moment)[1][:, -1]
    root = np.sqrt(geometry.moments)
    direction = root * np.linalg.solve(geometry.transform.basis, constant)
    return EllipticalRows(
        root=root,
        constant=direction / max(float(np.linalg.norm(direction)), 1e-300),
        kind=formula.kind,
        largest=problem.loss.typical_curvature_bound,
    )
