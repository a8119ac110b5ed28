"""Flip-cost levels: how bad a model must be before a given share of the inputs can be decided otherwise, bounded twice.

e_j = min F(theta) - F(c) over the models within rho of the centre that decide input j otherwise. The k-th smallest e_j
is the threshold at which k inputs are ambiguous. Each e_j, times n / Lam, moves by one share a record, so its k-th
smallest does too; the minimiser's tolerance is paid for. Proof: docs/theory/rashomon_region.md, section 9.
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
from dplangevin.families.rashomon_region.objective import RegionObjective
from dplangevin.families.rashomon_region.sums import excess_sums

FLIP_TOLERANCE = 0.25  # of one record's largest share: the error of the minimisers
MOST_FLIPS = 100  # inputs, from the first, that levels are of
MOST_STEPS = 20_000


@dataclass(frozen=True, kw_only=True)
class FlipLevel:
    """The threshold at which `count` of the `inputs` are ambiguous among models within `radius` of the released one.

    With the confidence: at no psi below `low` are so many decided otherwise by some model each, at every psi above
    `high` they are. Both are infinite where no model within the radius decides as many otherwise.
    """

    share: float
    count: int
    inputs: int
    radius: float
    low: float
    high: float


def check_flips(objective: RegionObjective, radius: float) -> None:
    """Levels are of two classes, and of a loss whose minimisers end in a known number of steps."""
    if not objective.loss.sign_decides:
        raise InvalidParameter("flip_shares are for classifiers of two classes; leave them out.")
    if flip_steps(objective, radius) > MOST_STEPS:
        raise InvalidParameter(
            f"flip_shares would take {flip_steps(objective, radius):,} steps at this n and radius; state a smaller "
            "radius in the estimator, or leave them out."
        )


def largest_share(objective: RegionObjective, radius: float) -> float:
    """Lam: no record's loss differs more between two models that are rho apart."""
    return objective.loss.slope_bound * objective.row_norm * radius * (1 + 1e-12)


def flip_steps(objective: RegionObjective, radius: float) -> int:
    """Enough for the tolerance on every data set: 2 M rho^2 / (steps + 1)^2 <= tolerance."""
    tolerance = FLIP_TOLERANCE * largest_share(objective, radius) / objective.n
    return math.ceil(radius * math.sqrt(2 * objective.smoothness / tolerance))


def reachable(rows: Floats, centre: Floats, rho: float) -> NDArray[np.bool_]:
    """Which rows some model within rho of the centre decides otherwise: public once the centre is."""
    lengths = np.linalg.norm(rows, axis=1)
    return np.asarray((lengths > 0) & (np.abs(rows @ centre) <= lengths * rho * (1 - 1e-9)))


def flip_totals(
    data: Dataset, objective: RegionObjective, centre: Floats, rows: Floats, rho: float
) -> Floats:
    """n e_j / Lam of each row, at most the tolerance too large; infinite where no model within rho flips it."""
    scores = rows @ centre
    sides = np.where(scores > 0, -1.0, 1.0)
    lengths = np.maximum(np.linalg.norm(rows, axis=1), 1e-300)
    normals = (sides / lengths)[:, None] * rows  # a step d decides otherwise where normal'd >= offset
    offsets = -sides * scores / lengths
    totals = np.full(len(rows), math.inf)
    possible = np.flatnonzero(reachable(rows, centre, rho))
    if not possible.size:
        return totals
    steps = _least(data, objective, centre, normals[possible].T, offsets[possible], rho)
    lam = largest_share(objective, rho)
    limits = np.full((1, possible.size), lam)
    sums = data.summed(excess_sums, objective, centre, steps, np.ones(1), limits)
    totals[possible] = sums + objective.n * objective.penalty(centre, centre[:, None] + steps) / lam
    return totals


def _least(
    data: Dataset, objective: RegionObjective, centre: Floats, normals: Floats, offsets: Floats, rho: float
) -> Floats:
    """Accelerated projected gradient steps d[dimension, k] from the nearest allowed one, for a public number of turns.

    The start is within rho of every allowed step: it is the projection of 0, which is within rho of all of them.
    """
    point = ahead = projected(np.zeros(normals.shape), normals, offsets, rho)
    momentum = 1.0
    for _ in range(flip_steps(objective, rho)):
        theta = centre[:, None] + ahead
        slope = data.gradient_sum(objective.loss, theta) / objective.n + objective.ridge * theta
        following = projected(np.nan_to_num(ahead - slope / objective.smoothness), normals, offsets, rho)
        grown = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = following + (momentum - 1) / grown * (following - point)
        point, momentum = following, grown
    return point


def projected(steps: Floats, normals: Floats, offsets: Floats, rho: float) -> Floats:
    """The nearest point of {|d| <= rho, normal'd >= offset} to each column: half-space, else ball, else their edge."""
    short = offsets - (normals * steps).sum(axis=0)
    half = steps + np.maximum(short, 0.0) * normals
    size = np.maximum(np.sqrt(np.square(steps).sum(axis=0)), 1e-300)
    ball = steps * np.minimum(1.0, rho / size)
    across = steps - normals * (normals * steps).sum(axis=0)
    wide = np.maximum(np.sqrt(np.square(across).sum(axis=0)), 1e-300)
    edge = offsets * normals + across / wide * np.sqrt(np.maximum(rho**2 - offsets**2, 0.0))
    in_ball = np.square(half).sum(axis=0) <= rho**2
    in_half = (normals * ball).sum(axis=0) >= offsets
    return np.asarray(np.where(in_ball, half, np.where(in_half, ball, edge)))


def kept_flips(totals: Floats, shares: tuple[float, ...]) -> tuple[Floats, tuple[int, ...]]:
    """The k-th smallest total for k = share of the inputs, rounded up, and these k."""
    counts = tuple(max(1, math.ceil(share * len(totals))) for share in shares)
    return np.sort(totals)[np.array(counts) - 1], counts


def noise_reach(deviation: float, levels: int, failure: float) -> float:
    """No noise of any level exceeds it on either side, with probability 1 - failure."""
    return float(ndtri(1 - failure / (2 * levels))) * deviation


def told_levels(
    noisy: Floats,
    possible: int,
    counts: tuple[int, ...],
    shares: tuple[float, ...],
    *,
    inputs: int,
    radius: float,
    unit: float,
    deviation: float,
    failure: float,
) -> tuple[FlipLevel, ...]:
    """Bounds from noisy totals; `unit` is Lam / n, `failure` is shared by the two sides of every level."""
    reach = noise_reach(deviation, len(shares), failure)
    made = []
    for value, count, share in zip(noisy.tolist(), counts, shares, strict=True):
        low, high = unit * (value - reach - FLIP_TOLERANCE), unit * (value + reach)
        if count > possible:
            low = high = math.inf
        made.append(
            FlipLevel(
                share=share,
                count=count,
                inputs=inputs,
                radius=radius,
                low=max(0.0, low),
                high=max(0.0, high),
            )
        )
    return tuple(made)
