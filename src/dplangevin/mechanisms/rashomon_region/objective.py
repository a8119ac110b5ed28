"""The objective of a region: its quadratic majorant, public bounds, ellipsoids, and sums over records.

F(theta) = (1/n) sum l(x_i' theta; y_i) + (m/2) |theta|^2 with the PLAIN loss l of the model (a clipped one only where
the plain one has no bound) and a stated ridge m. For every score t and every step d,

    l(t + d) <= l(t) + l'(t) d + a(t) d^2 / 2,

so that F lies below a quadratic with the matrix A = (1/n) sum a(x_i'c) x_i x_i' + m I around any centre c.
Proofs: docs/theory/rashomon_region.md, section 2.

Outer statements are about EVERY model of the set, where the noise allows them. On |d| <= rho, F(c + d) >= F(c) + g'd
+ om d'H d + (m/2) |d|^2 with g the gradient, H the mean of l'' x x' and om = 1/2 for the squared loss, (e^-r + r - 1)
/ r^2 at r = B rho for the logistic one. With a noisy gradient and a noisy H this confines d to a ball in the norm of
L = 2 om (H~ - q)_+ + m + nu; where that ball is strictly inside |d| <= rho, the set, which is convex and contains c,
lies in it. Proof: docs/theory/rashomon_region.md, section 6.

The sums are tasks of `Dataset.sum_over_blocks`: they run block by block, and part by part where the data are in
parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Block, Dataset
from dplangevin.data.integer_grids import RowGrid, Words, WordSum, piece_rows
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.noisy_answers.curvature import class_contrasts, pack_symmetric
from dplangevin.problem import Loss, Problem
from dplangevin.problem.constants import Adjacency

_ROUNDING_SLACK = 1 + 1e-12


def majorant_curvature(loss: Loss, scores: Floats, labels: Floats) -> Floats:
    """Return a(t) of each score, clipped to its bound whatever the record is."""
    largest = loss.majorant_bound
    weights = loss.majorant(scores, labels)
    return np.asarray(np.clip(np.nan_to_num(weights, nan=largest), 0.0, largest), np.float64)


@dataclass(frozen=True, kw_only=True)
class RegionObjective:
    """F with its public bounds.

    Parameters
    ----------
    loss : convex in the score. ridge : m. n : the public divisor.
    n_columns : of the joint row, intercept included. row_norm : B, of the joint row. label_bound : Y.
    adjacency : "replace-one" or "add-remove".
    """

    loss: Loss
    ridge: float
    n: int
    n_columns: int
    row_norm: float
    label_bound: float
    adjacency: Adjacency

    def __post_init__(self) -> None:
        if not self.loss.convex:
            raise AssumptionFailed(
                f"the {self.loss.name} loss is not convex, so no segment between two models can be certified; choose a "
                "model with a convex loss."
            )
        if math.isinf(self.loss.curvature_bound) or math.isinf(self.loss.slope_bound_within(1.0, 1.0)):
            raise AssumptionFailed(
                f"the {self.loss.name} loss has no bounded slope or curvature; wrap it in Clipped(loss, bound)."
            )

    @classmethod
    def from_problem(cls, problem: Problem, loss: Loss, ridge: float) -> RegionObjective:
        """Build the objective on the records of a problem (its bounds and its divisor), with this loss and ridge."""
        if problem.bounds.weight_bound != 1:
            raise InvalidParameter(
                "a region needs equally weighted records; leave weight_bound and sample_weight out."
            )
        return cls(
            loss=loss,
            ridge=ridge,
            n=problem.n,
            n_columns=problem.n_columns,
            row_norm=problem.row_norm,
            label_bound=max(map(abs, problem.bounds.label_range)),
            adjacency=problem.adjacency,
        )

    def __str__(self) -> str:
        ridge = f" + {self.ridge / 2:g} |theta|^2" if self.ridge else ""
        return f"mean {self.loss.name} loss of the records, clipped to their bounds{ridge}"

    @property
    def n_classes(self) -> int:
        """K, the number of scores of a record."""
        return self.loss.score_dimension

    @property
    def dimension(self) -> int:
        """Number of coordinates of theta."""
        return self.n_columns * self.n_classes

    @property
    def n_changed_records(self) -> int:
        """s: how many records' contributions differ between neighbours."""
        return 2 if self.adjacency == "replace-one" else 1

    @property
    def curvature_unit(self) -> float:
        """Bound on the Frobenius norm of one record's a x x'."""
        return self.loss.majorant_bound * self.row_norm**2 * _ROUNDING_SLACK

    @property
    def smoothness(self) -> float:
        """Bound on the largest eigenvalue of the Hessian of F."""
        return self.loss.curvature_bound * self.row_norm**2 + self.ridge

    @property
    def curvature_noise_factor(self) -> float:
        """Ratio of the noise on the matrix A to that on the released sum (times n)."""
        return self.loss.majorant_noise_factor

    def loss_difference_bounds(self, center: Floats, points: Floats) -> Floats:
        """Return Lam_v >= |l(x'v; y) - l(x'c; y)| for every record within the bounds; points[dimension, k]."""
        away = self.row_norm * np.sqrt(np.square(points - center[:, None]).sum(axis=0))
        both = self.row_norm * np.sqrt(np.square(points + center[:, None]).sum(axis=0))
        return np.asarray(self.loss.difference_bound(away, both, self.label_bound) * _ROUNDING_SLACK)

    def max_slope(self, center: Floats) -> float:
        """Return a bound on the slope of one record's loss at the centre."""
        score = self.row_norm * float(np.linalg.norm(center)) * _ROUNDING_SLACK
        return self.loss.slope_bound_within(score, self.label_bound)

    def penalty_difference(self, center: Floats, points: Floats) -> Floats:
        """Return (m/2) (|v|^2 - |c|^2), which is public once the centre is."""
        step = points - center[:, None]
        return np.asarray(self.ridge / 2 * (step * (points + center[:, None])).sum(axis=0))


MAX_COLUMNS = 11  # ten and the intercept; beyond, the noise leaves no informative outer statement
PAIR_WEIGHT = 2.0  # weight of a - l'' next to l'': (l'')^2 + PAIR_WEIGHT^2 (a - l'')^2 <= 1/16, logistic loss
RADIUS_GRID = np.geomspace(1e-2, 1e3, 60)  # rho, public


def check_outer(objective: RegionObjective) -> None:
    """Check that outer statements are possible: a loss with a curvature bounded from below, and few columns."""
    if not objective.loss.min_curvature_ratio(1.0) > 0:
        raise InvalidParameter(
            f"outer statements are proved for the logistic and the squared loss, not for the {objective.loss.name} "
            "loss, whose curvature may vanish; leave outer out."
        )
    if objective.n_columns > MAX_COLUMNS:
        raise InvalidParameter(
            f"outer statements are not informative beyond {MAX_COLUMNS - 1} columns (here {objective.n_columns}, "
            "intercept included): the noise is too large; leave outer out, or select columns."
        )


def min_curvature_ratio(objective: RegionObjective, rho: float) -> float:
    """Return om such that l(t + s) >= l(t) + l'(t) s + om l''(t) s^2 for |s| <= B rho.

    Examples
    --------
    >>> from dplangevin.problem import Logistic
    >>> objective = RegionObjective(loss=Logistic(), ridge=0.0, n=1, n_columns=1, row_norm=1.0, label_bound=1.0,
    ...                             adjacency="replace-one")
    >>> round(min_curvature_ratio(objective, 4.0), 14), round(min_curvature_ratio(objective, 1.0), 14)
    (0.18864472743055, 0.36787944117144)
    """
    return objective.loss.min_curvature_ratio(objective.row_norm * rho)


@dataclass(frozen=True, kw_only=True, eq=False)
class OuterEllipsoid:
    """An ellipsoid that contains every model of the set: |theta - center|_L <= radius; inverse is L^-1."""

    center: Floats
    inverse: Floats
    radius: float

    def score_ranges(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return the smallest and the largest score of each row over the ellipsoid."""
        scores = rows @ self.center
        half = self.radius * np.sqrt(np.maximum(((rows @ self.inverse) * rows).sum(axis=1), 0.0))
        return np.asarray(scores - half), np.asarray(scores + half)


def find_outer_ellipsoid(
    objective: RegionObjective,
    center: Floats,
    hessian: Floats,
    gradient: Floats,
    *,
    noise_eigenvalue: float,
    gradient_deviation: float,
    threshold: float,
    failure: float,
    gradient_error: float = 0.0,
) -> OuterEllipsoid | None:
    """Return the smallest ellipsoid (over a public grid of rho) proved to contain {F <= F(c) + psi}; None if none is.

    Parameters
    ----------
    hessian : H~, whose noise has no eigenvalue above noise_eigenvalue (its failure is accounted for by the caller).
    gradient : of F at the centre, ridge included, with Gaussian noise of gradient_deviation on every entry.
    failure : beta of the gradient's noise, split over the grid.
    gradient_error : length of what rounding adds to that noise.
    """
    values, vectors = np.linalg.eigh(hessian)
    values = values - noise_eigenvalue
    below, log_failures = max(0.0, -float(values.min())), math.log(len(RADIUS_GRID) / failure)
    ellipsoid: OuterEllipsoid | None = None
    size = math.inf
    for rho in RADIUS_GRID / objective.row_norm:
        om = min_curvature_ratio(objective, rho)
        nu = threshold / rho**2
        curvatures = 2 * om * np.maximum(values, 0.0) + objective.ridge + nu
        inverse = (vectors / curvatures) @ vectors.T
        inverse_curvatures = 1 / curvatures  # eigenvalues of L^-1; |e|_(L^-1) by Laurent and Massart
        spread = (
            inverse_curvatures.sum()
            + 2 * math.sqrt(log_failures * np.square(inverse_curvatures).sum())
            + 2 * log_failures * inverse_curvatures.max()
        )
        error = gradient_deviation * math.sqrt(spread)
        error += gradient_error * math.sqrt(float(inverse_curvatures.max()))
        slope = math.sqrt(max(float(gradient @ inverse @ gradient), 0.0))
        squared_budget = 2 * threshold + nu * rho**2 + 2 * om * below * rho**2
        away = slope + error + math.sqrt((slope + error) ** 2 + squared_budget)
        radius = away
        for _ in range(20):  # |w + h|^2 <= squared_budget + |h|^2 + 2 E |w|, and |w| <= |h| + radius
            radius = math.sqrt(squared_budget + slope**2 + 2 * error * away)
            away = min(away, slope + radius)
        if (
            away * math.sqrt(inverse_curvatures.max()) < rho * (1 - 1e-9)
            and radius**2 * inverse_curvatures.sum() < size
        ):
            size = radius**2 * float(inverse_curvatures.sum())
            ellipsoid = OuterEllipsoid(
                center=np.asarray(center - inverse @ gradient), inverse=np.asarray(inverse), radius=radius
            )
    return ellipsoid


_ROWS_PER_TILE, _POINTS_PER_TILE = 256, 256  # so that the scores of a tile stay in the cache


def majorant_sum(data: Dataset, objective: RegionObjective, center: Floats) -> Floats:
    """Return the packed triangle of sum a(x'c) x x' (softmax: of the second moment)."""
    matrix, n_rows = np.zeros((objective.n_columns, objective.n_columns)), 0
    for block in _unweighted_blocks(data):
        scores = block.rows @ center.reshape(objective.n_columns, -1)
        scores = np.nan_to_num(scores[:, 0], posinf=1e300, neginf=-1e300)
        weights = majorant_curvature(objective.loss, scores, block.labels)
        matrix += block.rows.T @ (weights[:, None] * block.rows)
        n_rows += len(scores)
    data.check_row_count(n_rows)
    return pack_symmetric(matrix)


def exact_majorant_sum(data: Dataset, objective: RegionObjective, center: Floats, grid: RowGrid) -> Words:
    """Return sum v v' in whole numbers, v = trunc(sqrt(a(x'c) / a_max) x) with |v| <= row_norm checked, as words.

    The rows are on the grid, and the centre [p, K] is one of `snap_point`, so that scores are exact.
    """
    size, n_rows = objective.n_columns, 0
    total = WordSum((size, size))
    for block in _unweighted_blocks(data):
        for start in range(0, len(block.labels), step := piece_rows(size)):
            rows, labels = block.rows[start : start + step], block.labels[start : start + step]
            weights = majorant_curvature(objective.loss, (rows @ center)[:, 0], labels)
            whole = np.trunc(rows / grid.unit * np.sqrt(weights / objective.loss.majorant_bound)[:, None])
            whole[~(np.einsum("ij,ij->i", whole, whole) <= grid.max_square)] = 0.0
            total.add(whole.T @ whole)
        n_rows += len(block.labels)
    data.check_row_count(n_rows)
    return total.words()


PAIR_SHRINKAGE = 1 - 2.0**-20
_PAIR_STEP = 2.0**15


def exact_majorant_and_hessian_sums(
    data: Dataset, objective: RegionObjective, center: Floats, grid: RowGrid
) -> Words:
    """Return sum v v' and sum w w' in whole numbers, words [2, 2, p, p]: of the Hessian, and of what is above it.

    v = trunc(s sqrt(l'' / a_max) x) and w = trunc(s sqrt(PAIR_WEIGHT (a - l'') / a_max) x), s a hair below 1, with
    |v|^4 + |w|^4 <= row_norm^4 checked in whole numbers: squares are rounded up to multiples of 2^15, so that their
    own squares are below 2^50.
    """
    size, n_rows = objective.n_columns, 0
    totals = [WordSum((size, size)) for _ in range(2)]
    most = float(grid.max_square // int(_PAIR_STEP)) ** 2
    for block in _unweighted_blocks(data):
        for start in range(0, len(block.labels), step := piece_rows(size)):
            rows, labels = block.rows[start : start + step], block.labels[start : start + step]
            scores = (rows @ center)[:, 0]
            weights = majorant_curvature(objective.loss, scores, labels)
            curvatures = np.clip(np.nan_to_num(objective.loss.curvature(scores, labels)), 0.0, weights)
            shares = (
                np.stack([curvatures, PAIR_WEIGHT * (weights - curvatures)]) / objective.loss.majorant_bound
            )
            pair = np.trunc(rows / grid.unit * (np.sqrt(shares) * PAIR_SHRINKAGE)[:, :, None])
            squares = np.ceil(np.einsum("cij,cij->ci", pair, pair) / _PAIR_STEP)
            pair[:, ~(np.square(squares).sum(axis=0) <= most)] = 0.0
            for total, whole in zip(totals, pair, strict=True):
                total.add(whole.T @ whole)
        n_rows += len(block.labels)
    data.check_row_count(n_rows)
    return np.stack([total.words() for total in totals], axis=1)


def truncation_bound(objective: RegionObjective, grid: RowGrid) -> float:
    """Bound the largest eigenvalue that rounding moves a mean sum v v' by, on either side.

    |v - s x| <= sqrt(p) + 1 in steps, for truncation and the hair that s may be short, and |s x| <= row_norm.
    """
    steps = 2 * (math.sqrt(objective.n_columns) + 1) * (grid.max_norm + 1)
    return objective.loss.majorant_bound * grid.unit**2 * steps


def majorant_and_hessian_sums(data: Dataset, objective: RegionObjective, center: Floats) -> Floats:
    """Return the packed triangles of sum l'' x x' and of PAIR_WEIGHT sum (a - l'') x x'.

    Together they are no more sensitive than one of them alone.
    """
    size = objective.n_columns
    hessian, more, n_rows = np.zeros((size, size)), np.zeros((size, size)), 0
    for block in _unweighted_blocks(data):
        scores = np.nan_to_num(block.rows @ center, posinf=1e300, neginf=-1e300)
        weights = majorant_curvature(objective.loss, scores, block.labels)
        curvatures = np.clip(objective.loss.curvature(scores, block.labels), 0.0, weights)
        hessian += block.rows.T @ (curvatures[:, None] * block.rows)
        more += block.rows.T @ ((PAIR_WEIGHT * (weights - curvatures))[:, None] * block.rows)
        n_rows += len(scores)
    data.check_row_count(n_rows)
    return np.concatenate([pack_symmetric(hessian), pack_symmetric(more)])


def scaled_gradient_sum(
    data: Dataset, objective: RegionObjective, center: Floats, max_slope: float
) -> Floats:
    """Return sum_i l'(x'c) x / (max_slope B), to which each record contributes a vector of norm at most 1."""
    total, n_rows = np.zeros(objective.n_columns), 0
    for block in _unweighted_blocks(data):
        scores = np.nan_to_num(block.rows @ center, posinf=1e150, neginf=-1e150)
        slopes = np.clip(objective.loss.slope(scores, block.labels), -max_slope, max_slope)
        total += block.rows.T @ slopes
        n_rows += len(scores)
    data.check_row_count(n_rows)
    return np.asarray(total / (max_slope * objective.row_norm))


def clipped_excess_sums(
    data: Dataset,
    objective: RegionObjective,
    center: Floats,
    directions: Floats,
    lengths: Floats,
    limits: Floats,
    step: float = 0.0,
) -> Floats:
    """Return sum_i clip(l(x'v) - l(x'c), -Lam_v, Lam_v) / Lam_v, flat [lengths, points].

    v = center + length direction. With a step, contributions are rounded up to whole multiples of it, and their
    number is returned: exact, if rows are on a grid and centre and directions are of `snap_point`.
    Every record is clipped on its own: in a difference of two sums rounding could exceed the bound. Lam is
    limits[lengths, directions], positive and finite.
    """
    total, n_rows = np.zeros(limits.shape, np.int64 if step else np.float64), 0
    tiles = range(0, directions.shape[1], _POINTS_PER_TILE)
    for block in _unweighted_blocks(data):
        for start in range(0, len(block.labels), _ROWS_PER_TILE):
            rows, labels = (
                block.rows[start : start + _ROWS_PER_TILE],
                block.labels[start : start + _ROWS_PER_TILE],
            )
            base = _finite_scores(rows, center, objective.n_classes)
            base_losses = objective.loss.value(base, labels[:, None])
            for first in tiles:
                tile = slice(first, first + _POINTS_PER_TILE)
                moves = _finite_scores(rows, directions[:, tile], objective.n_classes)
                for index, length in enumerate(lengths):
                    points = length * moves
                    points += base
                    increase = objective.loss.excess(points, labels[:, None], base_losses)
                    bound = limits[index, tile]
                    np.clip(increase, -bound, bound, out=increase)
                    if step:
                        increase = np.clip(np.ceil(increase / bound / step), -1 / step, 1 / step)
                    total[index, tile] += increase.sum(axis=0).astype(total.dtype)
        n_rows += len(block.labels)
    data.check_row_count(n_rows)
    return np.asarray(total if step else total / limits).ravel()


def _finite_scores(rows: Floats, theta: Floats, classes: int) -> Floats:
    """Return the scores [rows, points], or [rows, points, classes], with overflow made finite."""
    if classes == 1:
        return np.asarray(np.nan_to_num(rows @ theta.reshape(rows.shape[1], -1), posinf=1e150, neginf=-1e150))
    cube = theta.reshape(rows.shape[1], classes, -1).transpose(0, 2, 1)
    flat = rows @ np.ascontiguousarray(cube).reshape(rows.shape[1], -1)
    return np.asarray(np.nan_to_num(flat, posinf=1e150, neginf=-1e150)).reshape(len(rows), -1, classes)


def _unweighted_blocks(data: Dataset) -> Iterator[Block]:
    for block in data.blocks():
        if block.weights is not None:
            raise InvalidParameter("a region needs equally weighted records; leave sample_weight out.")
        yield block


@dataclass(frozen=True, kw_only=True, eq=False)
class Ellipsoid:
    """The ellipsoid of S = V diag(max(lam, q) + m) V'; lam, V are the eigenvalues and -vectors of the noisy majorant.

    For K classes it is S (x) I on K - 1 contrasts of the classes.

    Parameters
    ----------
    values, vectors : eigenvalues and eigenvectors of S. n_classes : K, 1 for a single score.
    unidentified : eigenvectors whose eigenvalues do not stand above the noise: along them the noise sets the width of
        the region.
    """

    values: Floats
    vectors: Floats
    n_classes: int
    unidentified: Floats

    @classmethod
    def from_matrix(cls, matrix: Floats, floor: float, ridge: float, n_classes: int) -> Ellipsoid:
        """Build the ellipsoid of a noisy matrix whose eigenvalues up to `floor` do not stand above the noise."""
        values, vectors = np.linalg.eigh(matrix)
        below_noise = values <= floor
        return cls(
            values=np.maximum(values, floor) + ridge,
            vectors=vectors,
            n_classes=n_classes,
            unidentified=vectors[:, below_noise].T,
        )

    @property
    def matrix(self) -> Floats:
        """S, a square matrix over the columns of a row."""
        return np.asarray((self.vectors * self.values) @ self.vectors.T)

    def row_directions(self, rows: Floats, weights: Floats | None = None) -> Floats:
        """Return the unit directions S^-1 x / sqrt(x' S^-1 x) of each row [k, columns], flat [dimension, k].

        With K classes the direction changes the class scores in proportion to `weights` [k, K], centred (summing to
        0).
        """
        scaled = self.vectors @ ((self.vectors.T @ rows.T) / self.values[:, None])
        sizes = np.sqrt(np.maximum((rows.T * scaled).sum(axis=0), 1e-300))
        directions = np.asarray(scaled / sizes)
        if self.n_classes == 1:
            return directions
        assert weights is not None
        length = np.sqrt(np.square(weights).sum(axis=1))
        return np.asarray(np.einsum("pk,kc->pck", directions, weights / length[:, None])).reshape(
            -1, len(rows)
        )

    def gradient_directions(self, gradients: Floats) -> Floats:
        """Return the unit directions S^-1 g / |g|_(S^-1) of gradients [dimension, k], the maximizers of g'd."""
        columns = len(self.values)
        cube = gradients.reshape(columns, self.n_classes, -1)
        if self.n_classes > 1:
            cube = cube - cube.mean(axis=1, keepdims=True)
        scaled = np.einsum("pj,jck->pck", (self.vectors / self.values) @ self.vectors.T, cube)
        sizes = np.sqrt(np.maximum((cube * scaled).sum(axis=(0, 1)), 1e-300))
        return np.asarray(scaled / sizes).reshape(gradients.shape)

    def inverse_norms(self, rows: Floats) -> Floats:
        """Return x' S^-1 x of each row."""
        return np.asarray(np.square(self.vectors.T @ rows.T / np.sqrt(self.values)[:, None]).sum(axis=0))

    def sample_uniform(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw S^-1/2 z with z uniform in the unit ball, flat [dimension, count]."""
        columns, free = len(self.values), max(self.n_classes - 1, 1)
        size = columns * free
        normal = rng.standard_normal((size, count))
        normal *= rng.random(count) ** (1 / size) / np.sqrt(np.square(normal).sum(axis=0))
        root = self.vectors / np.sqrt(self.values)
        cube = np.einsum("pj,jck->pck", root, normal.reshape(columns, free, count))
        basis = class_contrasts(self.n_classes)
        return np.asarray(np.einsum("pfk,cf->pck", cube, basis)).reshape(-1, count)


def certified_scales(slack: float, thresholds: Floats, limits: Floats) -> Floats:
    """Return sc = psi / (psi + tau Lam), 1 where tau <= 0: F(c + sc (v - c)) <= F(c) + psi whenever T <= tau.

    This follows from convexity; tau is the slack, Lam the limits.

    Examples
    --------
    >>> certified_scales(0.03, np.array([0.02]), np.array([[0.7391822818]])).round(10).tolist()
    [[0.4742093149]]
    """
    worst = max(slack, 0.0) * limits
    return np.asarray(thresholds[:, None] / (thresholds[:, None] + worst))


def inner_radius(gap: float, threshold: float, *, best: bool) -> float:
    """Return r such that EVERY model with |d|_U <= r is in the set, given gap >= F(c) - F(best); U = A~ + (q + m) I.

    F(c + d) - F* <= (r / sqrt 2 + sqrt gap)^2 and F(c + d) - F(c) <= r^2 / 2 + r sqrt(2 gap), solved for r.

    Examples
    --------
    >>> round(inner_radius(0.002, 0.02, best=True) ** 2 / 2, 12), round(inner_radius(0.002, 0.02, best=False), 12)
    (0.009350889359, 0.146516216431)
    """
    if best:
        return math.sqrt(2) * max(0.0, math.sqrt(threshold) - math.sqrt(gap))
    return math.sqrt(2 * gap + 2 * threshold) - math.sqrt(2 * gap)
