"""The error of generalised Gaussian noise, exactly: Pr[max_i |x_i| <= u] = P(1/p, (u/sigma)^p)^k."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc, gammainccinv, gammaincinv

from dplangevin.privacy.generalized_gaussian import absolute_moment


def expected_maximum(k: int, p: float) -> float:
    """E max_i |x_i| of k coordinates for sigma = 1: the integral of 1 - P(1/p, t^p)^k.

    Examples
    --------
    >>> round(expected_maximum(10, 1), 6)  # Laplace: 1 + 1/2 + ... + 1/10
    2.928968
    """
    lowest = math.pow(float(gammaincinv(1 / p, math.exp(-42.0 / k))), 1 / p)
    highest = math.pow(float(gammainccinv(1 / p, 1e-18 / k)), 1 / p)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    edges = np.linspace(lowest, highest, 65)
    half = np.diff(edges) / 2
    points = (edges[:-1] + half)[:, None] + half[:, None] * nodes
    values = -np.expm1(k * np.log1p(-gammaincc(1 / p, points**p)))
    return lowest + float(np.sum(half[:, None] * weights * values))


def maximum_quantile(k: int, p: float, beta: float) -> float:
    """u with Pr[max_i |x_i| > u] = beta for sigma = 1."""
    return math.pow(float(gammainccinv(1 / p, -math.expm1(math.log1p(-beta) / k))), 1 / p)


def margin(p: float, level: float) -> float:
    """u with Pr[|x| <= u] = level for one coordinate and sigma = 1."""
    return math.pow(float(gammaincinv(1 / p, level)), 1 / p)


def root_mean_square(p: float) -> float:
    """Standard deviation of one coordinate for sigma = 1."""
    return math.sqrt(absolute_moment(p, 2))


@dataclass(frozen=True)
class IndependentError:
    """Errors of k counts with independent noise of shape p, for sigma = 1."""

    k: int
    p: float

    def expected_maximum(self) -> float:
        """E max_i |x_i|."""
        return expected_maximum(self.k, self.p)

    def maximum_quantile(self, beta: float) -> float:
        """u with Pr[max_i |x_i| > u] = beta."""
        return maximum_quantile(self.k, self.p, beta)

    def margin(self, level: float) -> float:
        """u with Pr[|x_1| <= u] = level."""
        return margin(self.p, level)

    def power_mean(self, q: float) -> float:
        """(E |x_1|^q)^{1/q}."""
        return math.pow(absolute_moment(self.p, q), 1 / q)
