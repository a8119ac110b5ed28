"""Half-widths of intervals for an estimate with normal sampling error plus privacy noise of a known law."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainccinv, ndtr

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import each_bisected

_NODES = 64


def half_width(level: float, sampling: ArrayLike, noise: ArrayLike, dimension: int | None = None) -> Floats:
    """t with P(|N(0, sampling^2) + noise| <= t) = level; `sampling` and `noise` are standard deviations.

    dimension = None: Gaussian noise. dimension = d: a linear function of noise with density exp(-|z| / scale) in d
    dimensions (Laplace noise for d = 1), which is a normal variable whose variance is Gamma((d + 1) / 2) distributed.

    Examples
    --------
    >>> f"{half_width(0.95, 3.0, 4.0):.2f} {half_width(0.95, 0.0, 2**0.5, 1):.2f}"  # 1.96 * 5; -log 0.05 = 2.996
    '9.80 3.00'
    """
    _check.open_unit("level", level)
    own, added = np.broadcast_arrays(np.asarray(sampling, float), np.asarray(noise, float))
    mixture, weights = np.ones(1), np.ones(1)
    if dimension is not None:
        mixture, weights = _mixture((dimension + 1) / 2)
    spread = np.sqrt(own[..., None] ** 2 + added[..., None] ** 2 * mixture)
    total = np.sqrt(own**2 + added**2)
    finite = np.isfinite(total) & (total > 0)
    widest = np.where(finite, total / math.sqrt(1 - level), 0.0)  # Chebyshev

    def covers(width: Floats) -> NDArray[np.bool_]:
        return ~((2 * ndtr(width[..., None] / spread) - 1) @ weights < level)

    with np.errstate(invalid="ignore", divide="ignore"):
        found = each_bisected(covers, widest, np.zeros(total.shape), rounds=32)
    return np.where(finite, found, total)


def two_sided(estimate: ArrayLike, sampling: ArrayLike, noise: ArrayLike, dimension: int | None) -> Floats:
    """P(|N(0, sampling^2) + noise| >= |estimate|): p-values, by the law that `half_width` inverts.

    Examples
    --------
    >>> f"{two_sided(1.96, 0.6, 0.8, None):.3f} {two_sided(2.996, 0.0, 2**0.5, 1):.3f}"
    '0.050 0.050'
    """
    own, added, value = np.broadcast_arrays(
        *(np.asarray(part, float) for part in (sampling, noise, estimate))
    )
    mixture, weights = np.ones(1), np.ones(1)
    if dimension is not None:
        mixture, weights = _mixture((dimension + 1) / 2)
    spread = np.sqrt(own[..., None] ** 2 + added[..., None] ** 2 * mixture)
    with np.errstate(invalid="ignore", divide="ignore"):
        tails = 2 * ndtr(-np.abs(value)[..., None] / spread) @ weights
    return np.where(np.isfinite(own) & np.isfinite(added), tails, 1.0)


@lru_cache(maxsize=64)
def _mixture(shape: float) -> tuple[Floats, Floats]:
    """Nodes and weights for the mean over a Gamma(shape) variable of mean 1, dense in its upper tail."""
    rest = 1 - (np.arange(_NODES) + 0.5) / _NODES
    nodes = np.asarray(gammainccinv(shape, rest**3) / shape, np.float64)
    weights = rest**2 / np.sum(rest**2)
    return nodes, weights


def proportion_interval(
    estimate: float, size: float, noise: float, dimension: int | None, level: float
) -> tuple[float, float]:
    """Every p whose own two-sided interval, N(0, p (1 - p) / size) plus noise, reaches the estimate.

    For a mean of variables in [0, 1] as well: their variance is at most p (1 - p).
    """
    estimate = min(max(estimate, 0.0), 1.0)
    ends = []
    for end in (0.0, 1.0):
        p = estimate + (end - estimate) * np.linspace(0.0, 1.0, 33) ** 2
        spare = half_width(level, np.sqrt(p * (1 - p) / size), noise, dimension) - np.abs(estimate - p)
        if (spare >= 0).all():
            ends.append(end)
            continue
        after = max(int(np.argmax(spare < 0)), 1)  # spare[0] >= 0: a width is never negative
        before = after - 1
        share = spare[before] / (spare[before] - spare[after])
        ends.append(float(p[before] + share * (p[after] - p[before])))
    return ends[0], ends[1]
