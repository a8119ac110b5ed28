"""Coordinates from noisy second moments with a floor under their eigenvalues: functions of released values alone.

With e the estimated second moments along the directions U of a release and f the edge of its noise, B = U (e + c f)
^ -1/2, c from 1/4 (uneven spectra) to 1 (even ones). Directions far above the floor become white; what noise hides is
scaled by one number, so that rows do not get long there, however many columns there are. R^2 = sum e / (e + c f) is an
effective dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dplangevin._arrays import Floats
from dplangevin.data.integer_grids import IntegerTransform, RowGrid
from dplangevin.mechanisms.whitened.whitening import Spectrum, WhiteningTransform, noisy_spectrum

MIN_FLOOR, UNEVENNESS_AT_MIN_FLOOR = 0.25, 0.5
"""The floor under eigenvalues, in units of the edge of the noise, of spectra at least this uneven. It is 1 for an even
spectrum, which has little to whiten, and geometric in between."""
MAX_FURTHER_EDGE = 1.0
"""Largest edge of the noise of a further moment, in coordinates whose floor is 1, at which it is worth its budget."""
MIN_SCORE_NOISE, MAX_SCORE_NOISE = 0.06, 0.14
"""The noise that a step may give to a score, for an even spectrum (or one that noise hides) and for one with all of the
second moment in few directions: a steep spectrum leaves more to be learned late. Without a release it is their mean."""


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
    unevenness : of the spectrum of the first of them, from 0 (even, or hidden by noise) to 1.
    """

    n_columns: int
    transform: WhiteningTransform | None = None
    effective_dimension: float = 1.0
    above_noise: Floats | None = None
    integer_transform: IntegerTransform | None = None
    n_releases: int = 0
    unevenness: float = 0.5

    @property
    def bound(self) -> float:
        """R."""
        return 1.0 if self.transform is None else self.transform.bound

    @property
    def score_noise(self) -> float:
        """Standard deviation of the noise that a step may give to a score."""
        return MIN_SCORE_NOISE + (MAX_SCORE_NOISE - MIN_SCORE_NOISE) * self.unevenness

    def refine(self, noisy: Floats, noise_std: float, grid: RowGrid | None) -> RidgeCoordinates:
        """Return the coordinates that another release gives: the second moment of rows over R in the present ones."""
        spectrum = noisy_spectrum(noisy, noise_std, two_releases=False)
        unevenness = self.unevenness if self.n_releases else measure_unevenness(spectrum)
        floor = MIN_FLOOR ** min(unevenness / UNEVENNESS_AT_MIN_FLOOR, 1.0)
        scales = (spectrum.values + floor * spectrum.edge) ** -0.5
        dimension = float(spectrum.values @ scales**2)
        basis = spectrum.vectors * scales
        if self.transform is not None:
            basis = (self.transform.basis / self.transform.bound) @ basis
        refined = replace(
            self,
            transform=WhiteningTransform(basis, math.sqrt(dimension)),
            effective_dimension=dimension,
            above_noise=spectrum.above_noise.astype(float),
            n_releases=self.n_releases + 1,
            unevenness=unevenness,
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


def measure_unevenness(spectrum: Spectrum) -> float:
    """Return the fraction of the second moment above the noise of a release, less what an even spectrum would have."""
    shown = float(spectrum.values[spectrum.above_noise].sum() / spectrum.values.sum())
    return max(shown - float(spectrum.above_noise.mean()), 0.0)
