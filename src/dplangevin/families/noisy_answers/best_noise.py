"""The errors of counts, exactly, and the noise with the smallest: a search over its shape, before any record is read.

Independent noise of shape p: Pr[max_i |x_i| <= u] = P(1/p, (u/sigma)^p)^k. Density exp(-max(|x|_inf, |x|_1 / m)):
x = R u with R ~ Gamma(k + 1) and u uniform in {|u|_inf <= 1, |u|_1 <= m}. With F_k the Irwin-Hall distribution
function, P(|u|_inf <= a) = a^k F_k(m / a) / F_k(m), and |u_1| has density F_{k-1}(m - a) / F_k(m) on [0, 1]. For m = k
the ball is the cube, |x|_inf ~ Gamma(k) and u_1 is uniform.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.special import gammaincc, gammainccinv, gammaincinv, gammaln

from dplangevin._arrays import Floats
from dplangevin._search import bisected, golden
from dplangevin.privacy.generalized_gaussian import (
    absolute_moment,
    fisher_information,
    norm_scale,
    smallest_sigma,
)
from dplangevin.samplers.cut_cube import cube_sampler, log_irwin_hall
from dplangevin.samplers.norm_lattice import lattice_acceptance

Objective = Literal["max", "rmse"]
_TINY = 1e-16
_SHAPES = (1.0, 1.3, 1.6, 2.0, 2.6, 3.4, 4.5, 6.0, 9.0)
_GAIN = 0.995  # dependent noise composes worse: it has to win by more than this
_LARGEST_COST = 5e8  # numbers drawn, on average, for one release
_LARGEST_SECURE_COST = 1e7
_MOST_SECURE = 2**17  # so that sums of sizes stay within 64 bits


@dataclass(frozen=True)
class IndependentError:
    """Errors of k counts with independent noise of shape p, for sigma = 1.

    Examples
    --------
    >>> round(IndependentError(10, 1).expected_maximum(), 6)  # Laplace: 1 + 1/2 + ... + 1/10
    2.928968
    """

    k: int
    p: float

    def expected_maximum(self) -> float:
        """E max_i |x_i|: the integral of 1 - P(1/p, t^p)^k."""
        k, p = self.k, self.p
        lowest = math.pow(float(gammaincinv(1 / p, math.exp(-42.0 / k))), 1 / p)
        highest = math.pow(float(gammainccinv(1 / p, 1e-18 / k)), 1 / p)
        nodes, weights = np.polynomial.legendre.leggauss(24)
        edges = np.linspace(lowest, highest, 65)
        half = np.diff(edges) / 2
        points = (edges[:-1] + half)[:, None] + half[:, None] * nodes
        values = -np.expm1(k * np.log1p(-gammaincc(1 / p, points**p)))
        return lowest + float(np.sum(half[:, None] * weights * values))

    def maximum_quantile(self, beta: float) -> float:
        """u with Pr[max_i |x_i| > u] = beta."""
        exceeded = -math.expm1(math.log1p(-beta) / self.k)
        return math.pow(float(gammainccinv(1 / self.p, exceeded)), 1 / self.p)

    def margin(self, level: float) -> float:
        """u with Pr[|x_1| <= u] = level."""
        return math.pow(float(gammaincinv(1 / self.p, level)), 1 / self.p)

    def power_mean(self, q: float) -> float:
        """(E |x_1|^q)^{1/q}."""
        return math.pow(absolute_moment(self.p, q), 1 / q)


@dataclass(frozen=True)
class CubeError:
    """Errors of k counts of which m may change, for scale 1.

    Examples
    --------
    >>> CubeError(1000, 1000).expected_maximum()
    1000.0
    >>> round(CubeError(10, 1).expected_maximum(), 6)  # the cross-polytope: Laplace noise
    2.928968
    """

    k: int
    m: int

    def expected_maximum(self) -> float:
        """E max_i |x_i|."""
        if self.m == self.k:
            return float(self.k)
        low, high = self._ends
        nodes, weights = _panels(low, high)
        return (self.k + 1) * (low + float(weights @ -np.expm1(self._log_maximum(nodes))))

    def maximum_quantile(self, beta: float) -> float:
        """u with Pr[max_i |x_i| > u] = beta."""
        if self.m == self.k:
            return float(gammainccinv(self.k, beta))
        table, (least, most) = self._table, self._ends
        top = float(gammainccinv(self.k + 1, _TINY))

        def excess(log_u: float) -> float:
            u = math.exp(log_u)
            radii, weights = _panels(u / most, max(top, u / most))  # a smaller radius never reaches u
            density = np.exp(self.k * np.log(radii) - radii - gammaln(self.k + 1))
            inside = np.where(u / radii < least, -np.inf, table(np.clip(u / radii, least, most)))
            return float((weights * density) @ -np.expm1(np.minimum(inside, 0.0))) - beta

        low, high = math.log(float(gammaincinv(self.k + 1, _TINY)) * least), math.log(top * most)
        return math.exp(float(brentq(excess, low, high, xtol=1e-12)))

    def margin(self, level: float) -> float:
        """u with Pr[|x_1| <= u] = level."""
        inside, most = self._inside
        ends = float(gammaincinv(self.k + 1, _TINY)), float(gammainccinv(self.k + 1, _TINY))

        def excess(log_u: float) -> float:
            u = math.exp(log_u)
            radii, weights = _panels(max(ends[0], u / most), max(ends[1], u / most))
            density = np.exp(self.k * np.log(radii) - radii - gammaln(self.k + 1))
            return float((weights * density) @ (1 - inside(u / radii))) - (1 - level)

        return math.exp(float(brentq(excess, math.log(1e-12), math.log(ends[1] * most), xtol=1e-12)))

    def power_mean(self, q: float) -> float:
        """(E |x_1|^q)^{1/q}."""
        places, weights = self._single
        radial = float(gammaln(self.k + 1 + q) - gammaln(self.k + 1))
        return math.exp((radial + math.log(float(weights @ places**q))) / q)

    def _log_maximum(self, places: Floats) -> Floats:
        """log P(|u|_inf <= a)."""
        inside = self.k * np.log(places) + log_irwin_hall(self.k, self.m / places) - self._log_volume
        return np.minimum(inside, 0.0)

    @cached_property
    def _log_volume(self) -> float:
        return float(log_irwin_hall(self.k, self.m)[0])

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """Places between which |u|_inf practically always is."""
        return self._place(math.log(_TINY)), min(1.0, self._place(-_TINY) * (1 + 1e-6))

    def _place(self, level: float) -> float:
        """Where log P(|u|_inf <= a) crosses the level."""

        def reached(place: float) -> bool:
            return not self._log_maximum(np.array([math.exp(place)]))[0] < level

        return math.exp(bisected(reached, 0.0, math.log(1e-3 / self.k), rounds=50))

    @cached_property
    def _table(self) -> CubicSpline:
        grid = np.linspace(*self._ends, 401)
        return CubicSpline(grid, self._log_maximum(grid))

    @cached_property
    def _single(self) -> tuple[Floats, Floats]:
        """Nodes and probabilities of |u_1|."""
        nodes, weights = _panels(0.0, self._widest)
        mass = weights * self._density(nodes)
        return nodes, mass / float(mass.sum())

    @cached_property
    def _inside(self) -> tuple[Callable[[Floats], Floats], float]:
        """P(|u_1| <= a), and where it is 1."""
        grid = np.linspace(0.0, self._widest, 801)
        total = CubicSpline(grid, self._density(grid)).antiderivative()
        return lambda places: np.minimum(total(places) / total(self._widest), 1.0), self._widest

    @property
    def _widest(self) -> float:
        return min(1.0, 45.0 * self.m / self.k)

    def _density(self, places: Floats) -> Floats:
        """Of |u_1|."""
        if self.m == self.k:
            return np.ones_like(places)
        return np.exp(log_irwin_hall(self.k - 1, self.m - places) - self._log_volume)


def error_law(k: int, changed: int, p: float) -> IndependentError | CubeError:
    """The errors of k counts under the noise of shape p and scale 1."""
    return CubeError(k, changed) if p == math.inf else IndependentError(k, p)


def _panels(low: float, high: float) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(low, high, 25)
    half = np.diff(edges) / 2
    places = (edges[:-1] + half)[:, None] + half[:, None] * nodes
    return places.ravel(), (half[:, None] * weights).ravel()


def within_reach(k: int, changed: int, *, secure: bool = False) -> bool:
    """Whether the noise of the largest norm is drawn in seconds."""
    if secure:
        return k <= min(_MOST_SECURE, _LARGEST_SECURE_COST * lattice_acceptance(k, changed)[1])
    return k <= _LARGEST_COST * cube_sampler(k, float(changed)).acceptance


def best_noise(
    k: int, changed: int, epsilon: float, delta: float, objective: Objective, *, secure: bool
) -> float:
    """The p with the smallest error, inf among them. When one count changes, p = inf is p = 1."""
    p = 1.0 if delta == 0 else best_shape(k, changed, epsilon, delta, objective)
    if changed == 1:
        return p
    most = _GAIN * _size(k, changed, p, objective) * smallest_sigma(p, changed, epsilon, delta)
    scale = norm_scale(epsilon, delta, secure=secure)
    if delta > 0 and scale * changed / 4 > most:  # both errors are at least changed / 4: see the theory page
        return p
    if not within_reach(k, changed, secure=secure):
        return p
    return math.inf if scale * _size(k, changed, math.inf, objective) < most else p


def best_shape(k: int, changed: int, epsilon: float, delta: float, objective: Objective) -> float:
    """The p with the smallest error: a rough search, then p = 1 and p = 2 as candidates beside its result."""

    def error(p: float, *, rough: bool = True) -> float:
        return _size(k, changed, p, objective) * smallest_sigma(p, changed, epsilon, delta, rough=rough)

    if changed >= 10_000:  # the loss is Gaussian enough: sigma grows as sqrt(I(p))
        found = golden(
            lambda p: math.sqrt(fisher_information(p)) * _size(k, changed, p, objective), 1.0, 12.0, 0.05
        )
    else:
        found = golden(error, *_bracket(error), 0.05)
    candidates = {round(found, 2), 1.0, 2.0}
    good = 1.005 * min(error(p) for p in candidates)  # rough errors are off by 0.1% or less
    return min((p for p in candidates if error(p) <= good), key=lambda p: error(p, rough=False))


def _size(k: int, changed: int, p: float, objective: Objective) -> float:
    """The error that is made small, for scale 1."""
    law = error_law(k, changed, p)
    return law.expected_maximum() if objective == "max" else law.power_mean(2.0)


def _bracket(function: Callable[[float], float]) -> tuple[float, float]:
    """Neighbours of the best shape on the list, walking downhill from p = 2."""
    values = {3: function(_SHAPES[3])}
    for step in (1, -1):
        place = 3 + step
        while 0 <= place < len(_SHAPES):
            values[place] = function(_SHAPES[place])
            if values[place] > values[place - step]:
                break
            place += step
    best = min(values, key=values.__getitem__)
    return _SHAPES[max(best - 1, 0)], _SHAPES[min(best + 1, len(_SHAPES) - 1)]
