"""Flip-cost levels: bounds on the excess loss at which a given fraction of the inputs can be classified differently.

e_j = min F(theta) - F(c) over the models within rho of the centre that classify input j differently. The k-th
smallest e_j is the threshold at which k inputs are ambiguous. Each e_j, times n / Lam, changes by at most one
contribution per record, hence so does the k-th smallest; the minimisers' tolerance is part of the sensitivity. Proof:
docs/theory/rashomon_region.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.rashomon_region.minimizers import (
    ROUNDING_TOLERANCE,
    excess_totals,
    minimize_near,
    rounding_error,
)
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective

FLIP_TOLERANCE = 0.25  # error of the minimisers, as a fraction of one record's largest contribution
MAX_FLIP_INPUTS = 100  # levels refer to the first so many inputs
MAX_FLIP_STEPS = 20_000


@dataclass(frozen=True, kw_only=True)
class FlipLevel:
    """The threshold at which `count` of the `inputs` are ambiguous among models within `radius` of the released one.

    With the stated confidence: at every psi below `low` fewer than `count` inputs are each classified differently by
    some model, and at every psi above `high` at least `count` are. Both are infinite where no models within the
    radius classify that many differently.
    """

    fraction: float
    count: int
    n_inputs: int
    radius: float
    low: float
    high: float


def check_flips(objective: RegionObjective, radius: float) -> None:
    """Check that there are two classes, and that a public and affordable number of steps finds the minimisers."""
    if not objective.loss.sign_decides:
        raise InvalidParameter("flip_shares are for classifiers of two classes; leave them out.")
    if n_flip_steps(objective, radius) > MAX_FLIP_STEPS:
        raise InvalidParameter(
            f"flip_shares would take {n_flip_steps(objective, radius):,} steps at this n and radius; state a smaller "
            "radius in the estimator, or leave them out."
        )


def max_loss_difference(objective: RegionObjective, radius: float) -> float:
    """Return Lam, a bound on the difference of one record's loss between two models at distance `radius`."""
    return objective.loss.slope_bound * objective.row_norm * radius * (1 + 1e-12)


def n_flip_steps(objective: RegionObjective, radius: float) -> int:
    """Return the steps that reach the tolerance, less rounding, on every data set: 2 M rho^2 / (steps + 1)^2."""
    tolerance = (
        (FLIP_TOLERANCE - 2 * ROUNDING_TOLERANCE) * max_loss_difference(objective, radius) / objective.n
    )
    return math.ceil(radius * math.sqrt(2 * objective.smoothness / tolerance))


def can_flip(rows: Floats, center: Floats, rho: float) -> NDArray[np.bool_]:
    """Return which rows some model within rho of the centre classifies differently: public once the centre is."""
    lengths = np.linalg.norm(rows, axis=1)
    return np.asarray((lengths > 0) & (np.abs(rows @ center) <= lengths * rho * (1 - 1e-9)))


def flip_totals(
    data: Dataset,
    objective: RegionObjective,
    center: Floats,
    rows: Floats,
    rho: float,
    *,
    proved: bool = True,
) -> Floats:
    """Return n e_j / Lam of each row, too large by at most the tolerance; inf where no model within rho flips it."""
    scores = rows @ center
    target_signs = np.where(scores > 0, -1.0, 1.0)
    lengths = np.maximum(np.linalg.norm(rows, axis=1), 1e-300)
    normals = (target_signs / lengths)[:, None] * rows  # a step d flips the row where normal'd >= offset
    offsets = -target_signs * scores / lengths
    totals = np.full(len(rows), math.inf)
    possible = np.flatnonzero(can_flip(rows, center, rho))
    if not possible.size:
        return totals
    sides, ends = normals[possible].T, offsets[possible]

    def project(steps: Floats) -> Floats:
        return project_on_flip_set(steps, sides, ends, rho)

    # the projection of 0 is within rho of every feasible step, because 0 is
    start = project(np.zeros(sides.shape))
    n_steps = n_flip_steps(objective, rho)
    steps = minimize_near(data, objective, center, start, project, rho, n_steps, proved=proved)
    totals[possible] = excess_totals(data, objective, center, steps, max_loss_difference(objective, rho))
    return totals


def has_proved_flips(objective: RegionObjective, center: Floats, rho: float) -> bool:
    """Return whether the totals are within their tolerance on every data set: public once the centre is."""
    limit, steps = max_loss_difference(objective, rho), n_flip_steps(objective, rho)
    return rounding_error(objective, center, rho, steps, limit) <= ROUNDING_TOLERANCE


def project_on_flip_set(steps: Floats, normals: Floats, offsets: Floats, rho: float) -> Floats:
    """Project each column onto {|d| <= rho, normal'd >= offset}: onto half-space, ball, or their common edge."""
    shortfall = offsets - (normals * steps).sum(axis=0)
    half = steps + np.maximum(shortfall, 0.0) * normals
    size = np.maximum(np.sqrt(np.square(steps).sum(axis=0)), 1e-300)
    ball = steps * np.minimum(1.0, rho / size)
    across = steps - normals * (normals * steps).sum(axis=0)
    wide = np.maximum(np.sqrt(np.square(across).sum(axis=0)), 1e-300)
    edge = offsets * normals + across / wide * np.sqrt(np.maximum((rho - offsets) * (rho + offsets), 0.0))
    in_ball = np.square(half).sum(axis=0) <= rho**2
    in_half = (normals * ball).sum(axis=0) >= offsets
    return np.asarray(np.where(in_ball, half, np.where(in_half, ball, edge)))


def smallest_totals(totals: Floats, fractions: tuple[float, ...]) -> tuple[Floats, tuple[int, ...]]:
    """Return the k-th smallest total for each fraction of the inputs (k rounded up), and these k."""
    counts = tuple(max(1, math.ceil(fraction * len(totals))) for fraction in fractions)
    return np.sort(totals)[np.array(counts) - 1], counts


def noise_bound(deviation: float, levels: int, failure: float) -> float:
    """Return a bound that no level's noise exceeds in absolute value, with probability 1 - failure."""
    return float(ndtri(1 - failure / (2 * levels))) * deviation


def bound_levels(
    noisy: Floats,
    possible: int,
    counts: tuple[int, ...],
    fractions: tuple[float, ...],
    *,
    n_inputs: int,
    radius: float,
    unit: float,
    deviation: float,
    failure: float,
) -> tuple[FlipLevel, ...]:
    """Return the bounds that noisy totals imply; unit is Lam / n, failure is split over both sides of all levels."""
    noise_margin = noise_bound(deviation, len(fractions), failure)
    levels = []
    for value, count, fraction in zip(noisy.tolist(), counts, fractions, strict=True):
        low = unit * (value - noise_margin - FLIP_TOLERANCE)
        high = unit * (value + noise_margin + ROUNDING_TOLERANCE)
        if count > possible:
            low = high = math.inf
        levels.append(
            FlipLevel(
                fraction=fraction,
                count=count,
                n_inputs=n_inputs,
                radius=radius,
                low=max(0.0, low),
                high=max(0.0, high),
            )
        )
    return tuple(levels)
