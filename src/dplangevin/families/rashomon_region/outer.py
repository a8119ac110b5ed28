"""Outer statements: an ellipsoid that holds EVERY model of the set, where the noise allows one.

On |d| <= rho, F(c + d) >= F(c) + g'd + om d'H d + (m/2) |d|^2 with g the gradient, H the mean of l'' x x' and om = 1/2
for the squared loss, (e^-r + r - 1) / r^2 at r = B rho for the logistic one. With a noisy gradient and a noisy H this
leaves a ball in the norm of L = 2 om (H~ - q)_+ + m + nu; where the ball is strictly inside |d| <= rho, the set, which
is convex and holds c, cannot leave it. Proof: docs/theory/rashomon_region.md, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.families.rashomon_region.objective import RegionObjective

MOST_COLUMNS = 11  # ten and the intercept; beyond, the noise leaves nothing to say
PAIR = 2.0  # weight of a - l'' beside l'': (l'')^2 + PAIR^2 (a - l'')^2 <= 1/16 for the logistic loss
REACHES = np.geomspace(1e-2, 1e3, 60)  # rho, public


def check_outer(objective: RegionObjective) -> None:
    """Outer statements need a curvature from below, and few columns."""
    if not objective.loss.least_curvature_share(1.0) > 0:
        raise InvalidParameter(
            f"outer statements are proved for the logistic and the squared loss, not for the {objective.loss.name} "
            "loss, whose curvature may vanish; leave outer out."
        )
    if objective.n_columns > MOST_COLUMNS:
        raise InvalidParameter(
            f"outer statements say nothing beyond {MOST_COLUMNS - 1} columns (here {objective.n_columns}, the "
            "intercept inside): the noise hides too much; leave outer out, or choose columns."
        )


def least_curvature(objective: RegionObjective, rho: float) -> float:
    """om: l(t + s) >= l(t) + l'(t) s + om l''(t) s^2 for |s| <= B rho.

    Examples
    --------
    >>> from dplangevin.problem import Logistic
    >>> of = RegionObjective(loss=Logistic(), ridge=0.0, n=1, n_columns=1, row_norm=1.0, label_bound=1.0,
    ...                      adjacency="replace-one")
    >>> round(least_curvature(of, 4.0), 14), round(least_curvature(of, 1.0), 14)
    (0.18864472743055, 0.36787944117144)
    """
    return objective.loss.least_curvature_share(objective.row_norm * rho)


@dataclass(frozen=True, kw_only=True, eq=False)
class OuterEllipsoid:
    """Every model of the set is within `radius` of middle in the norm of L; inverse is L^-1."""

    middle: Floats
    inverse: Floats
    radius: float

    def ranges(self, rows: Floats) -> tuple[Floats, Floats]:
        """Least and largest score of each row over the ellipsoid."""
        centre = rows @ self.middle
        half = self.radius * np.sqrt(np.maximum(((rows @ self.inverse) * rows).sum(axis=1), 0.0))
        return np.asarray(centre - half), np.asarray(centre + half)


def outer_ellipsoid(
    objective: RegionObjective,
    centre: Floats,
    hessian: Floats,
    gradient: Floats,
    *,
    noise_eigenvalue: float,
    gradient_deviation: float,
    threshold: float,
    failure: float,
) -> OuterEllipsoid | None:
    """The smallest ellipsoid (of a public list of rho) that holds {F <= F(c) + psi}; None where none is proved.

    hessian : H~, whose noise has no eigenvalue above noise_eigenvalue (its failure is counted by the caller).
    gradient : of F at the centre, ridge inside, with Gaussian noise of gradient_deviation on every entry.
    failure : beta of the gradient's noise, shared over the list.
    """
    values, vectors = np.linalg.eigh(hessian)
    values = values - noise_eigenvalue
    below, chance = max(0.0, -float(values.min())), math.log(len(REACHES) / failure)
    found: OuterEllipsoid | None = None
    size = math.inf
    for rho in REACHES / objective.row_norm:
        om = least_curvature(objective, rho)
        nu = threshold / rho**2
        bends = 2 * om * np.maximum(values, 0.0) + objective.ridge + nu
        inverse = (vectors / bends) @ vectors.T
        heights = 1 / bends  # eigenvalues of L^-1; |e|_(L^-1) by Laurent and Massart
        spread = heights.sum() + 2 * math.sqrt(chance * np.square(heights).sum()) + 2 * chance * heights.max()
        error = gradient_deviation * math.sqrt(spread)
        slope = math.sqrt(max(float(gradient @ inverse @ gradient), 0.0))
        room = 2 * threshold + nu * rho**2 + 2 * om * below * rho**2
        away = slope + error + math.sqrt((slope + error) ** 2 + room)
        radius = away
        for _ in range(20):  # |w + h|^2 <= room + |h|^2 + 2 E |w|, and |w| <= |h| + radius
            radius = math.sqrt(room + slope**2 + 2 * error * away)
            away = min(away, slope + radius)
        if away * math.sqrt(heights.max()) < rho * (1 - 1e-9) and radius**2 * heights.sum() < size:
            size = radius**2 * float(heights.sum())
            found = OuterEllipsoid(
                middle=np.asarray(centre - inverse @ gradient), inverse=np.asarray(inverse), radius=radius
            )
    return found
