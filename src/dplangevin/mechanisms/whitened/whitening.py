"""Whitened coordinates from noisy second moments, and sums over records in these coordinates.

Coordinates are functions of released matrices and public numbers. A row that is too long in them gets a weight below
1, a function of released matrices and of the row alone; a filter finds rows of weight 1 without computing
coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Block, Dataset
from dplangevin.data.integer_grids import IntegerTransform, RowGrid

PARTIAL_WHITENING_POWER = 0.4
"""Whitening power after one moment release: less than 1/2, since eigenvalues below the noise are guesses."""
FULL_WHITENING_POWER = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrum:
    """Estimated eigenvalues and eigenvectors of a second moment, from its noisy release.

    Parameters
    ----------
    values : eigenvalues, corrected for the inflation by noise where they stand above it; all equal elsewhere.
    vectors : eigenvectors, in columns.
    above_noise : which eigenvalues stand above the noise.
    upper_bounds : bounds on the second moment along the vectors, for step sizes only.
    edge : the edge of the spectrum of the noise.
    hidden_z : estimated total of the eigenvalues that do not stand above the noise, in standard deviations of this
        estimate: about N(0, 1) where they are 0, as those of a table with every level of a category and a constant are.
    """

    values: Floats
    vectors: Floats
    above_noise: NDArray[np.bool_]
    upper_bounds: Floats
    edge: float
    hidden_z: float = 0.0


def noisy_spectrum(noisy: Floats, noise: float, two_releases: bool) -> Spectrum:
    """Estimate the spectrum of a second moment from its noisy release.

    Symmetric noise of standard deviation `noise` has its spectrum within f = noise sqrt(2 p) (the semicircle's edge).
    An eigenvalue e > f / 2 appears as v = e + f^2 / (4 e) > f, which is inverted. The rest of the trace (at most 1)
    is divided equally among the eigenvalues below the noise: at most f / 2 each, or f with two releases
    (`two_releases`), since noise may then have put one of many nearly equal eigenvalues below f.

    To second order each eigenvalue v above the noise pushes one below it down by noise^2 / (2 v), which is put back in
    their total.
    """
    size = len(noisy)
    edge = noise * math.sqrt(2 * size)
    eigenvalues, vectors = np.linalg.eigh(noisy)
    # signs are arbitrary; fix them, so that sums in another order give the same coordinates up to rounding
    vectors *= np.where(np.cos(1.0 + np.arange(size)) @ vectors < 0, -1.0, 1.0)
    above_noise = eigenvalues > edge
    values = np.empty(size)
    hidden_z, n_hidden = 0.0, size - int(above_noise.sum())
    values[above_noise] = (
        eigenvalues[above_noise]
        + np.sqrt((eigenvalues[above_noise] - edge) * (eigenvalues[above_noise] + edge))
    ) / 2
    if n_hidden:
        mean_rest = (min(float(np.trace(noisy)), 1.0) - values[above_noise].sum()) / n_hidden
        low, high = (edge / 8, edge) if two_releases else (edge / (2 * size), edge / 2)
        values[~above_noise] = min(max(mean_rest, low), high)
        pushed = n_hidden * (noise**2 / 2 / eigenvalues[above_noise]).sum()
        hidden_z = float(eigenvalues[~above_noise].sum() + pushed) / (noise * math.sqrt(n_hidden))
    upper_bounds = np.where(above_noise, eigenvalues, np.maximum(values, edge / 4)) + edge / 2
    return Spectrum(
        values=values,
        vectors=vectors,
        above_noise=above_noise,
        upper_bounds=upper_bounds,
        edge=edge,
        hidden_z=hidden_z,
    )


class WhiteningTransform(NamedTuple):
    """Whitened coordinates B (in columns) and the bound R on the norm of a row in them."""

    basis: Floats
    bound: float


@dataclass(frozen=True, kw_only=True, eq=False)
class WhitenedGeometry:
    """Coordinates q with theta = B q, for rows of norm at most 1.

    Parameters
    ----------
    transform : B and R. Rows have the weights w = min(1, R / |B' x|).
    moments : expected second moment of each coordinate.
    curvature_bounds : bounds on these moments, for step sizes.
    spectrum : of the last release.
    n_releases : number of releases that they were made from.
    integer_transform : the same coordinates in integers, for exact sums over records; else None.
    """

    transform: WhiteningTransform
    moments: Floats
    curvature_bounds: Floats
    spectrum: Spectrum
    n_releases: int = 1
    integer_transform: IntegerTransform | None = None

    def round_to_integers(self, grid: RowGrid) -> WhitenedGeometry:
        """Return these coordinates rounded to few binary digits: from here on B and R are the rounded ones."""
        rounded = IntegerTransform(self.transform.basis, self.transform.bound, grid)
        transform = WhiteningTransform(rounded.real, rounded.unit_bound)
        return replace(self, transform=transform, integer_transform=rounded)


def whiten_first_release(
    noisy: Floats, noise: float, two_releases: bool, row_norm_factor: float = 1.0
) -> WhitenedGeometry:
    """Return B = U e^-power and R = row_norm_factor sqrt(sum of the expected second moments)."""
    spectrum = noisy_spectrum(noisy, noise, two_releases)
    power = FULL_WHITENING_POWER if two_releases else PARTIAL_WHITENING_POWER
    basis = spectrum.vectors * spectrum.values**-power
    moments = np.ones(len(noisy)) if two_releases else spectrum.values ** (1 - 2 * power)
    transform = WhiteningTransform(basis, row_norm_factor * math.sqrt(float(moments.sum())))
    return WhitenedGeometry(
        transform=transform,
        moments=moments,
        curvature_bounds=spectrum.upper_bounds * spectrum.values ** (-2 * power),
        spectrum=spectrum,
    )


def whiten_second_release(
    first: WhitenedGeometry, noisy: Floats, noise: float, row_norm_factor: float = 1.0
) -> WhitenedGeometry:
    """Return the coordinates, composed with the first ones, from the second moment of w B_1' x / R_1.

    Gradients give long rows more weight than this second moment did (w and not w^2), so their curvature may exceed the
    bound where tails are heavy (docs/theory/converging_fits.md, section 3).
    """
    spectrum = noisy_spectrum(noisy, noise, True)
    basis = (first.transform.basis / first.transform.bound) @ (
        spectrum.vectors * spectrum.values**-FULL_WHITENING_POWER
    )
    return WhitenedGeometry(
        transform=WhiteningTransform(basis, row_norm_factor * math.sqrt(len(noisy))),
        moments=np.ones(len(noisy)),
        curvature_bounds=spectrum.upper_bounds / spectrum.values,
        spectrum=spectrum,
        n_releases=2,
    )


def whiten_rows(rows: Floats, transform: WhiteningTransform) -> tuple[Floats, Floats]:
    """Return the weights w of rows x with |w B' x| <= R, and B' x.

    A weight depends on its own row and on released values only. The guarantee rests on the final comparison, which
    holds for every B, R and row, finite or not.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        coordinates = rows @ transform.basis
        lengths = np.sqrt(np.einsum("ij,ij->i", coordinates, coordinates))
        weights = np.minimum(1.0, transform.bound / lengths)
        inside = weights * lengths <= transform.bound * (1 + 1e-12)
    return np.where(inside, weights, 0.0), coordinates


CHUNK_BYTES = 1 << 19
"""Bytes of rows processed at a time, so that they and their coordinates stay in the cache."""
ROUNDING_SLACK = 1e-6
"""Slack for rounding, and for single-precision rows slightly above the largest norm."""
MAX_EXPECTED_SQUARE = 0.25
"""Largest expected value of the filter's bound at which it recognises most rows as short."""
MIN_DIRECTIONS_RATIO = 3
"""A filter with more than 1 / MIN_DIRECTIONS_RATIO of all directions does not save time."""
MAX_ROUNDING_GROWTH = 1e6
"""Largest squared factor by which factoring the transform out of a sum may enlarge its rounding error."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShortRowFilter:
    """A cheap upper bound, top |x|^2 - sum_j reductions_j (u_j' x)^2, on the squared whitened norm of a row over R^2.

    With B B' / R^2 = sum s_j^2 u_j u_j', top = max s^2, and reductions = top - s_j^2 for a few directions u_j, those
    in which rows are longest.
    all_short : whether no row of norm 1 is too long.
    """

    top: float
    vectors: Floats
    reductions: Floats
    all_short: bool

    def find_short_rows(self, rows: Floats, unit: float) -> NDArray[np.bool_]:
        """Return which of these rows, of norm at most `unit`, certainly have weight 1."""
        squares = self.top * np.einsum("ij,ij->i", rows, rows)
        if self.reductions.size:
            inside = rows @ self.vectors
            inside *= inside
            squares -= inside @ self.reductions
        return np.asarray(squares <= (1 - ROUNDING_SLACK) * unit**2)


def make_short_row_filter(transform: WhiteningTransform) -> ShortRowFilter | None:
    """Return the filter of a transform with the fewest directions; None where too many would be needed."""
    inside = transform.basis / transform.bound
    if not np.isfinite(inside).all():
        return None
    vectors, roots, _ = np.linalg.svd(inside)
    squares = roots**2
    if not 0 < squares[0] <= MAX_ROUNDING_GROWTH or not squares[-1] > 0:
        return None
    # rows are white in these coordinates: direction j contributes about 1 / s_j^2
    fractions = squares[0] / squares
    # expected bound if the first i + 1 directions are bounded by top and the others are exact
    expected = np.cumsum(fractions) + np.arange(len(fractions))[::-1]
    sufficient = np.flatnonzero(expected / transform.bound**2 <= MAX_EXPECTED_SQUARE)
    n_directions = len(squares) if not sufficient.size else len(squares) - 1 - int(sufficient[-1])
    all_short = bool(roots[0] <= 1 - ROUNDING_SLACK)
    if n_directions > len(squares) // MIN_DIRECTIONS_RATIO and not all_short:
        return None
    last = slice(len(squares) - n_directions, None)
    return ShortRowFilter(
        top=float(squares[0]),
        vectors=vectors[:, last],
        reductions=squares[0] - squares[last],
        all_short=all_short,
    )


def row_chunks(rows: Floats) -> Iterator[Floats]:
    """Iterate over the rows in order, in chunks."""
    step = max(64, CHUNK_BYTES // (8 * rows.shape[1]))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def clip_rows(rows: Floats, bound: float) -> Floats:
    """Return the rows, scaled back to `bound` where rounding left them above it."""
    squares = np.einsum("ij,ij->i", rows, rows)
    if squares.max(initial=0.0) > bound**2:
        rows = rows / np.maximum(np.sqrt(squares) / bound, 1.0)[:, None]
    return rows


def second_moment_sum(data: Dataset, transform: WhiteningTransform | None = None) -> Floats:
    """Return sum z z' over rows z = x / row_norm, or z = w B' x / R for a transform. Labels are not used.

    B is applied inside the sum: factored out, it would enlarge the rounding error.
    """
    size, unit = data.problem.n_columns, data.problem.row_norm
    total, n_rows = np.zeros((size, size)), 0
    scaled = None if transform is None else _scale_transform(data, transform)
    for block in data.blocks():
        for rows in row_chunks(block.rows):
            if scaled is None:
                rows = clip_rows(rows, unit)
            else:
                weights, rows = whiten_rows(rows, scaled)
                rows[weights == 0] = 0.0  # finite or not
                rows *= (weights / scaled.bound)[:, None]
            total += rows.T @ rows
        n_rows += len(block.rows)
    data.check_row_count(n_rows)
    return total / unit**2 if transform is None else total


def transformed_second_moment(data: Dataset, transform: WhiteningTransform, moment: Floats) -> Floats:
    """Return second_moment_sum(data, transform) / n, where possible from `moment` and a correction for long rows."""
    row_filter, n = make_short_row_filter(transform), data.problem.n
    if row_filter is None:
        return np.asarray(data.sum_over_blocks(second_moment_sum, transform) / n)
    inside = transform.basis / transform.bound
    transformed = inside.T @ moment @ inside
    return np.asarray(
        transformed
        if row_filter.all_short
        else transformed - data.sum_over_blocks(long_row_correction, transform, row_filter) / n
    )


def long_row_correction(data: Dataset, transform: WhiteningTransform, row_filter: ShortRowFilter) -> Floats:
    """Return sum (1 - w^2) z z', z = B' x / R: what the weights of long rows take from a second moment."""
    size, unit, scaled = data.problem.n_columns, data.problem.row_norm, _scale_transform(data, transform)
    total, n_rows = np.zeros((size, size)), 0
    for block in data.blocks():
        for rows in row_chunks(block.rows):
            long = clip_rows(rows[~row_filter.find_short_rows(rows, unit)], unit)
            weights, long = whiten_rows(long, scaled)
            long *= (np.sqrt((1 - weights) * (1 + weights)) / scaled.bound)[:, None]
            total += long.T @ long
        n_rows += len(block.rows)
    data.check_row_count(n_rows)
    return total


def row_weights(
    data: Dataset, block: Block, transform: WhiteningTransform, row_filter: ShortRowFilter | None = None
) -> Floats:
    """Return the weight w of each record, for its gradient."""
    scaled, unit = _scale_transform(data, transform), data.problem.row_norm
    weights = np.ones(len(block.rows))
    start = 0
    for rows in row_chunks(block.rows):
        part = weights[start : start + len(rows)]
        start += len(rows)
        if row_filter is None:
            part[:] = whiten_rows(rows, scaled)[0]
        else:
            long = ~row_filter.find_short_rows(rows, unit)
            part[long] = whiten_rows(rows[long], scaled)[0]
    return weights


def _scale_transform(data: Dataset, transform: WhiteningTransform) -> WhiteningTransform:
    """Return the transform for rows that are not divided by the largest norm."""
    return transform._replace(basis=transform.basis / data.problem.row_norm)
