"""Coordinates from noisy second moments with a floor under their eigenvalues: functions of released values alone.

With e the estimated second moments along the directions U of a release and f the edge of its noise, B = U (e + f / 4)
^ -1/2. Directions far above the floor become white; what noise hides is scaled by one number, so that rows do not get
long there, however many columns there are. R^2 = sum e / (e + f / 4) is an effective dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data.integer_grids import IntegerTransform, RowGrid
from dplangevin.mechanisms.whitened.whitening import WhiteningTransform

FLOOR = 0.25
"""The floor under eigenvalues, in units of the edge of the noise."""
MAX_FURTHER_EDGE = 2.0
"""Largest edge of the noise of a further moment, in coordinates whose floor is 1, at which it is worth its budget."""
MIN_SCORE_NOISE, MAX_SCORE_NOISE = 0.09, 0.19
"""The noise that a step may give to a score, for an even spectrum and for one with all of the second moment in few
directions: a steep spectrum leaves more to be learned late. Without a release it is their mean."""
VISIBLE_EDGE, HIDDEN_POWER = 20.0, 0.25
"""The edge of a single release, in mean eigenvalues, beyond which that noise is less, and by which power: where most
directions are hidden, steps that go on mostly learn noise."""
REDUCTION_IN_WHITE_ROWS = 0.6
"""By how much of itself this noise is less where all directions are white: then little is left for more time."""
EIGENVALUES_PER_BLOCK = 256


class MomentEstimate(NamedTuple):
    """Estimated second moments along the eigenvectors of a noisy release.

    Parameters
    ----------
    values : u' M u for each eigenvector u of the release, M the second moment without noise. vectors : in columns.
    above_noise : which eigenvalues of the release are beyond the edge of the noise. edge : f = noise_std sqrt(2 p).
    """

    values: Floats
    vectors: Floats
    above_noise: NDArray[np.bool_]
    edge: float


def estimate_moments(noisy: Floats, noise_std: float) -> MomentEstimate:
    """Estimate the second moments along the directions of a release, for spectra of any shape.

    Let v_i, u_i be the eigenvalues and eigenvectors of M + N. By Stein's identity E u_i' N u_i = noise_std^2 E sum_j 1
    / (v_i - v_j) over j other than i, so that v_i less this sum estimates u_i' M u_i without bias, and all of them add
    up to the trace. Close pairs make single estimates noisy and move them towards each other's side; second moments
    rise with v, so that an isotonic regression pools such pairs, where their errors cancel.
    """
    size = len(noisy)
    edge = noise_std * math.sqrt(2 * size)
    eigenvalues, vectors = np.linalg.eigh(noisy)
    # signs are arbitrary; fix them, so that sums in another order give the same coordinates up to rounding
    vectors *= np.where(np.cos(1.0 + np.arange(size)) @ vectors < 0, -1.0, 1.0)
    shifts = np.empty(size)
    for start in range(0, size, EIGENVALUES_PER_BLOCK):
        block = slice(start, start + EIGENVALUES_PER_BLOCK)
        gaps = eigenvalues[block, None] - eigenvalues
        shifts[block] = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps != 0).sum(axis=1)
    from scipy.optimize import isotonic_regression  # slow to import, and a plan asks for the spec alone

    values = isotonic_regression(eigenvalues - noise_std**2 * shifts).x
    return MomentEstimate(np.maximum(values, edge / (2 * size)), vectors, eigenvalues > edge, edge)


@dataclass(frozen=True, kw_only=True, eq=False)
class RidgeCoordinates:
    """Coordinates q with theta = B q / row_norm.

    Parameters
    ----------
    transform : B and the bound R on rows of norm at most 1 in these coordinates; None for the rows as they are, where
        B = 1 and R = 1.
    effective_dimension : the expected squared length of a row.
    above_noise : which directions of the last release stand above its noise.
    integer_transform : the same in integers, for rows on a grid; else None.
    n_releases : how many second moments they are made of.
    unevenness : of the second moments that the first of them shows, from 0 (even, or hidden by noise) to 1.
    edge : of the noise of the first of them, in mean eigenvalues.
    """

    n_columns: int
    transform: WhiteningTransform | None = None
    effective_dimension: float = 1.0
    above_noise: Floats | None = None
    integer_transform: IntegerTransform | None = None
    n_releases: int = 0
    unevenness: float = 0.5
    edge: float = 0.0

    @property
    def bound(self) -> float:
        """R."""
        return 1.0 if self.transform is None else self.transform.bound

    @property
    def score_noise(self) -> float:
        """Standard deviation of the noise that a step may give to a score."""
        white = self.effective_dimension / self.n_columns
        spread = MIN_SCORE_NOISE + (MAX_SCORE_NOISE - MIN_SCORE_NOISE) * self.unevenness
        if self.n_releases == 1 and self.edge > VISIBLE_EDGE:
            spread *= (VISIBLE_EDGE / self.edge) ** HIDDEN_POWER
        return spread * (1 - REDUCTION_IN_WHITE_ROWS * white)

    def refine(self, noisy: Floats, noise_std: float, grid: RowGrid | None) -> RidgeCoordinates:
        """Return the coordinates that another release gives: the second moment of rows over R in the present ones."""
        estimate = estimate_moments(noisy, noise_std)
        scales = (estimate.values + FLOOR * estimate.edge) ** -0.5
        dimension = float(estimate.values @ scales**2)
        basis = estimate.vectors * scales
        if self.transform is not None:
            basis = (self.transform.basis / self.transform.bound) @ basis
        refined = replace(
            self,
            transform=WhiteningTransform(basis, math.sqrt(dimension)),
            effective_dimension=dimension,
            above_noise=estimate.above_noise.astype(float),
            n_releases=self.n_releases + 1,
            unevenness=self.unevenness if self.n_releases else measure_unevenness(estimate.values),
            edge=self.edge if self.n_releases else estimate.edge * self.n_columns / estimate.values.sum(),
        )
        return refined if grid is None else refined._round_to_integers(grid)

    def _round_to_integers(self, grid: RowGrid) -> RidgeCoordinates:
        """Return these coordinates rounded to few binary digits: from here on B and R are the rounded ones."""
        assert self.transform is not None
        # about half of the rows are longer than R, so that a filter for short ones would not save time
        rounded = IntegerTransform(self.transform.basis, self.transform.bound, grid, has_filter=False)
        transform = WhiteningTransform(rounded.real, rounded.unit_bound)
        return replace(self, transform=transform, integer_transform=rounded)

    def are_refinable(self, further_noise_std: float) -> bool:
        """Return whether a further moment, with this noise in units of R^2, would show what the floor still hides."""
        edge = further_noise_std * math.sqrt(2 * self.n_columns)
        return self.effective_dimension * edge <= MAX_FURTHER_EDGE


def measure_unevenness(moments: Floats) -> float:
    """Return 1 less the fraction of directions that as many equal ones with the same sums and squares would be."""
    return float(1 - moments.sum() ** 2 / (len(moments) * (moments**2).sum()))
