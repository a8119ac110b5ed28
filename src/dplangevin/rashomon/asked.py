"""What is asked of a region: public inputs with labels and groups, and the directions in which models are certified.

Everything here is a function of public values, of the released centre and shape, and of fresh coins.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.families.rashomon_region.shape import Ellipsoid
from dplangevin.problem import Loss

MOST_ENDS = 4000  # inputs times classes that get ends of their own; the rest is answered through the hull
ASCENT_STEPS = 6
SHIFTS = 5  # rearrangements that a reliance averages over


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """Public rows (encoded, the intercept inside), and what is asked about them.

    labels : as the problem sees them. groups : a name per row. columns : encoded columns of each named column.
    """

    rows: Floats
    loss: Loss
    n_models: int
    labels: Floats | None = None
    groups: NDArray[np.str_] | None = None
    columns: dict[str, list[int]] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        """Scores per input."""
        return self.loss.score_dimension

    @property
    def own_ends(self) -> int:
        """How many inputs, from the first, have ends of their own."""
        return min(len(self.rows), MOST_ENDS // max(1, self.classes))

    def digest(self) -> str:
        """A hash of everything asked."""
        content = hashlib.sha256(np.ascontiguousarray(self.rows).tobytes())
        for more in (self.labels, self.groups):
            content.update(b"none" if more is None else np.ascontiguousarray(more).tobytes())
        content.update(repr((self.n_models, self.columns)).encode())
        return content.hexdigest()

    def directions(
        self, centre: Floats, shape: Ellipsoid, lengths: Floats, rng: np.random.Generator
    ) -> Floats:
        """Draws first, then both ends of every input and of every coefficient, then the extremes of the metrics."""
        draws = shape.uniform(self.n_models, rng)
        ends = [_ends(shape, self.rows[: self.own_ends]), _ends(shape, np.eye(len(shape.values)))]
        ends += self._extremes(centre, shape, float(lengths.max(initial=0.0)))
        return np.column_stack([draws, *(side * block for block in ends for side in (1.0, -1.0))])

    def _extremes(self, centre: Floats, shape: Ellipsoid, length: float) -> list[Floats]:
        """Directions of most changed decisions, of fairness gaps and of reliance: climbed on public rows."""
        if length == 0:
            return []
        found: list[Floats] = []
        if self.classes == 1:
            found.append(self._sweeps(centre, shape, length))
            if self.groups is not None and len(np.unique(self.groups)) > 1:
                found.append(self._fairness(centre, shape, length))
        if self.labels is not None and self.columns and len(self.rows) > 1:
            found.append(self._reliance(centre, shape, length))
        return found

    def _sweeps(self, centre: Floats, shape: Ellipsoid, length: float) -> Floats:
        """Towards and away from all inputs near their border, and flipping all at once."""
        scores = self.rows @ centre
        near = np.exp(-0.5 * np.square(scores) / (length**2 * shape.spread(self.rows) + 1e-300))
        moves = np.column_stack([near, near * np.sign(scores), near * (scores > 0), near * (scores <= 0)])
        return shape.along(self.rows.T @ moves + 1e-12)

    def _fairness(self, centre: Floats, shape: Ellipsoid, length: float) -> Floats:
        """Climb on the difference of mean probabilities between each group and the rest, from both sides."""
        assert self.groups is not None
        found = []
        for group in np.unique(self.groups):
            own = self.groups == group
            shares = np.where(own, 1 / own.sum(), -1 / max(1, (~own).sum()))
            for side in (1.0, -1.0):
                step = np.zeros_like(centre)
                for _ in range(ASCENT_STEPS):
                    chance = expit(4 * (self.rows @ (centre + length * step)))
                    step = shape.along((self.rows.T @ (side * shares * chance * (1 - chance)))[:, None])[:, 0]
                found.append(step)
        return np.column_stack(found)

    def _reliance(self, centre: Floats, shape: Ellipsoid, length: float) -> Floats:
        """Climb on the logarithm of each column's reliance, from both sides."""
        found = []
        for places in self.columns.values():
            tables = [self.rows, *exchanged(self.rows, places)]
            for side in (1.0, -1.0):
                step = np.zeros_like(centre)
                for _ in range(ASCENT_STEPS):
                    slope = self._log_reliance_slope(tables, centre + length * step)
                    step = shape.along(side * slope[:, None])[:, 0]
                found.append(step)
        return np.column_stack(found)

    def _log_reliance_slope(self, tables: list[Floats], theta: Floats) -> Floats:
        values, slopes = zip(*(self._mean_loss(rows, theta) for rows in tables), strict=True)
        switched, slope = sum(values[1:]), np.sum(slopes[1:], axis=0)
        return np.asarray(slope / max(switched, 1e-300) - slopes[0] / max(values[0], 1e-300))

    def _mean_loss(self, rows: Floats, theta: Floats) -> tuple[float, Floats]:
        assert self.labels is not None
        scores = rows @ theta.reshape(rows.shape[1], -1)
        scores = scores if self.classes > 1 else scores[:, 0]
        slopes = self.loss.slope(scores, self.labels)
        slope = rows.T @ (slopes if self.classes > 1 else slopes[:, None]) / len(rows)
        return float(self.loss.value(scores, self.labels).mean()), slope.ravel()

    def mean_losses(self, rows: Floats, points: Floats) -> Floats:
        """Of every point [dimension, k] on these rows with the public labels."""
        assert self.labels is not None
        if self.classes == 1:
            return np.asarray(self.loss.value(rows @ points, self.labels[:, None]).mean(axis=0))
        cube = points.reshape(rows.shape[1], self.classes, -1)
        scores = np.einsum("ip,pck->ikc", rows, cube)
        return np.asarray(self.loss.value(scores, self.labels[:, None]).mean(axis=0))

    def reliances(self, points: Floats) -> Floats:
        """Loss with a column exchanged between inputs over the loss as it is, [columns, points]."""
        plain = np.maximum(self.mean_losses(self.rows, points), 1e-300)
        table = []
        for places in self.columns.values():
            switched = [self.mean_losses(rows, points) for rows in exchanged(self.rows, places)]
            table.append(np.mean(switched, axis=0) / plain)
        return np.array(table)


def exchanged(rows: Floats, places: list[int]) -> list[Floats]:
    """The rows with these columns taken from rows further on, a few times."""
    made = []
    for shift in np.unique(np.linspace(1, len(rows) - 1, min(SHIFTS, len(rows) - 1)).round().astype(int)):
        other = rows.copy()
        other[:, places] = np.roll(rows[:, places], -int(shift), axis=0)
        made.append(other)
    return made


def _ends(shape: Ellipsoid, rows: Floats) -> Floats:
    """Unit directions towards each row; with K classes, of each class against the others."""
    if shape.classes == 1:
        return shape.ends(rows)
    weights = np.eye(shape.classes) - 1 / shape.classes
    return shape.ends(np.repeat(rows, shape.classes, axis=0), np.tile(weights, (len(rows), 1)))


def place_of(threshold: float, known: tuple[float, ...]) -> int:
    """Where this threshold is among those that were asked for."""
    if threshold not in known:
        raise InvalidParameter(
            f"threshold = {threshold!r} was not asked for; choose one of {', '.join(f'{psi:g}' for psi in known)}."
        )
    return known.index(threshold)
