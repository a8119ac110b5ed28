"""What is assumed of rows where no release shows it: elliptical rows, with the second moment that was released.

Scores of such rows are normal at every point, so that mean slopes and curvatures are integrals over one normal
variable. `one_step.py` takes from them the nonlinearity of the loss and a guess of its curvature; the release of a
curvature takes from them the curvature of a record that counts at most. Both are functions of released and public
values alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from dplangevin._arrays import Floats
from dplangevin.mechanisms.whitened.curvature import CurvatureLimit
from dplangevin.mechanisms.whitened.spec import CURVATURE_ROW_FACTOR
from dplangevin.mechanisms.whitened.whitening import WhitenedGeometry
from dplangevin.problem import Problem

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
