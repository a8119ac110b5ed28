"""Coordinates from noisy second moments with a floor under their eigenvalues: functions of released values alone.

With e the estimated second moments along the directions U of a release and f the edge of its noise, B = U (e + f / 4)
^ -1/2. Directions far above the floor become white; what noise hides is scaled by one number, so that rows do not get
long there, however many columns there are. R^2 = sum e / (e + f / 4) is an effective dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dplangevin._arrays import Floats
from dplangevin.data.integer_grids import IntegerTransform, RowGrid
from dplangevin.mechanisms.whitened.whitening import Spectrum, WhiteningTransform, noisy_spectrum

FLOOR = 0.25
"""The floor under eigenvalues, in units of the edge of the noise."""
MAX_FURTHER_EDGE = 1.0
"""Largest edge of the noise of a further moment, in coordinates whose floor is 1, at which it is worth its budget."""
MIN_SCORE_NOISE, MAX_SCORE_NOISE = 0.06, 0.14
"""The noise that a step may give to a score, where the first release shows nothing and where it shows everything: a
steep spectrum, of which a release shows most, leaves more to be learned late."""
EVEN_SCORE_NOISE = 0.1


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
    score_noise : standard deviation of the noise that a step may give to a score, from the first of them.
    """

    n_columns: int
    transform: WhiteningTransform | None = None
    effective_dimension: float = 1.0
    above_noise: Floats | None = None
    integer_transform: IntegerTransform | None = None
    n_releases: int = 0
    score_noise: float = EVEN_SCORE_NOISE

    @property
    def bound(self) -> float:
        """R."""
        return 1.0 if self.transform is None else self.transform.bound

    def refine(self, noisy: Floats, noise_std: float, grid: RowGrid | None) -> RidgeCoordinates:
        """Return the coordinates that another release gives: the second moment of rows over R in the present ones."""
        spectrum = noisy_spectrum(noisy, noise_std, two_releases=False)
        scales = (spectrum.values + FLOOR * spectrum.edge) ** -0.5
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
            score_noise=self.score_noise if self.n_releases else allow_noise(spectrum),
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


def allow_noise(spectrum: Spectrum) -> float:
    """Return the noise of a score, by the fraction of the second moment that stands above the noise of a release."""
    shown = float(spectrum.values[spectrum.above_noise].sum() / spectrum.values.sum())
    return MIN_SCORE_NOISE + (MAX_SCORE_NOISE - MIN_SCORE_NOISE) * shown
