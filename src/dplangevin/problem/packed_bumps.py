"""The hard instance of the lower bound for nonconvex losses: votes for the centres of a packing.

Record i votes for some centres c_j; its loss is width min(0, min over its votes of |theta - c_j| / width - 1), which
is 1-Lipschitz and equal to -width at those centres. Centres at least 2 width apart keep the bumps disjoint, so the
minimum of the mean loss is -width times the largest fraction of votes: finding it is private selection among
exponentially many centres, which no (epsilon, delta) mechanism does within o(p / (epsilon n)).

Reference: Ganesh, Thakurta and Upadhyay (2022), Theorem G.1, with the packing's distance and the scale corrected.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constants import Adjacency, Constants


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedBumps:
    """Bumps of one width around the columns of centres[p, s], in the unit ball.

    Examples
    --------
    >>> bumps = PackedBumps.from_grid(dimension=2, width=0.25)
    >>> bumps.centers.shape
    (2, 13)
    """

    centers: Floats
    width: float

    def __post_init__(self) -> None:
        width = _check.check_positive("width", self.width)
        points = np.asarray(self.centers, float)
        if points.ndim != 2 or not np.all(np.linalg.norm(points, axis=0) <= 1 + 1e-12):
            raise InvalidParameter("centers must be columns [p, s] in the unit ball; rescale them.")
        gaps = np.linalg.norm(points[:, :, None] - points[:, None, :], axis=0)
        np.fill_diagonal(gaps, np.inf)
        if gaps.min() < 2 * width * (1 - 1e-12):
            raise InvalidParameter(
                f"two centres are {gaps.min():.4g} apart, less than 2 width = {2 * width:.4g}: bumps would overlap and "
                "the minimum would leave the centres. Take a smaller width."
            )
        _check.set_frozen(self, centers=points, width=width)

    @classmethod
    def from_grid(cls, *, dimension: int, width: float) -> PackedBumps:
        """Build the bumps around the points of the grid of spacing 2 width in the unit ball."""
        max_index = math.floor(1 / (2 * _check.check_positive("width", width)) + 1e-12)
        steps = range(-max_index, max_index + 1)
        grid = (
            2
            * width
            * np.array(
                list(itertools.product(steps, repeat=_check.check_count("dimension", dimension))), float
            )
        )
        return cls(centers=grid[np.linalg.norm(grid, axis=1) <= 1 + 1e-12].T, width=width)

    def constants(self, n: int, adjacency: Adjacency = "replace-one") -> Constants:
        """Return the constants of the mean of n such losses on the unit ball."""
        return Constants(
            n=n,
            lipschitz=1.0,
            diameter=2.0,
            adjacency=adjacency,
            convex=False,
            dimension=int(self.centers.shape[0]),
            assumptions=("each record votes for centres of a public packing",),
        )

    def sample_records(self, n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw n records [n, s] of the hard distribution: column j is Bernoulli(P_j), P_j ~ Beta(b, b)."""
        size = self.centers.shape[1]
        shape = 1 + 0.5 * math.log(size / 224)
        if shape <= 0:
            raise InvalidParameter(
                f"the hard distribution needs more than 30 centres, got {size}; narrow the bumps."
            )
        return rng.random((_check.check_count("n", n), size)) < rng.beta(shape, shape, size)

    def mean_losses(self, theta: Floats, votes: NDArray[np.bool_]) -> Floats:
        """Return the mean loss at every column of theta[p, k], for votes[n, s]."""
        depth = np.linalg.norm(theta[:, None, :] - self.centers[:, :, None], axis=0) / self.width - 1
        # disjoint bumps: at most one is below 0 at any theta
        return np.asarray(self.width * (votes.mean(axis=0) @ np.minimum(depth, 0.0)))

    def risk_lower_bound(self, n: int, epsilon: float, delta: float = 0.0) -> float:
        """Return a number below which no (epsilon, delta)-DP mechanism keeps its mean excess risk for all n records.

        D_j has k votes for centre j and n - k for nothing, so D_i and D_j are k replacements apart. With q the mean of
        the probabilities P_j(|theta - c_j| < width), group privacy and the disjointness of the balls give
        q (s - 1 + e^(k eps)) <= e^(k eps) + (s - 1) delta_k, delta_k = delta (e^(k eps) - 1) / (e^eps - 1). The excess
        at D_j is (k / n) min(width, |theta - c_j|), so its mean over j is at least (k width / n) (1 - q). The best k is
        taken; proof: docs/theory/langevin_and_gibbs.md, section 6.

        Examples
        --------
        >>> bumps = PackedBumps.from_grid(dimension=2, width=0.25)
        >>> [f"{bumps.risk_lower_bound(n, 1.0):.3g}" for n in (100, 1000)]  # of order p log(1 / width) width / (eps n)
        ['0.00309', '0.000309']
        """
        n, epsilon = _check.check_count("n", n), _check.check_positive("epsilon", epsilon)
        others = self.centers.shape[1] - 1
        if not others or epsilon > 700:
            return 0.0
        max_votes = min(n, math.ceil((math.log(others) + 40) / epsilon))  # beyond, k e^(-k eps) only falls
        votes = np.unique(
            np.geomspace(1, max_votes, min(max_votes, 10_000)).round()
        )  # every k gives a valid bound
        with np.errstate(over="ignore"):
            growth = np.exp(votes * epsilon)
            group_delta = np.minimum(delta * (growth - 1) / math.expm1(epsilon), 1.0) if delta else 0.0
            missed = others * (1 - group_delta) / (others + growth)
        return float(np.max(votes * missed)) * self.width / n

    def min_mean_loss(self, votes: NDArray[np.bool_]) -> float:
        """Return the minimum of the mean loss: -width times the largest fraction of votes."""
        return -self.width * float(votes.mean(axis=0).max())
