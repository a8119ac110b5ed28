"""Choose the exponent p of the noise on counts that minimizes their error, computed exactly from public numbers.

Independent generalized Gaussian noise with exponent p: Pr[max_i |x_i| <= u] = P(1/p, (u/sigma)^p)^k. Noise of density
exp(-max(|x|_inf, |x|_1 / m)): x = R u with R ~ Gamma(k + 1) and u uniform in {|u|_inf <= 1, |u|_1 <= m}. With F_k the
Irwin-Hall distribution function, P(|u|_inf <= a) = a^k F_k(m / a) / F_k(m), and |u_1| has density F_{k-1}(m - a) /
F_k(m) on [0, 1]. For m = k the ball is the cube, |x|_inf ~ Gamma(k) and u_1 is uniform.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy.special import gammaincc, gammainccinv, gammaincinv, gammaln

from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side, find_root, golden_section_minimum
from dplangevin.accounting.generalized_gaussian import (
    absolute_moment,
    fisher_information,
    norm_scale,
    smallest_sigma,
)
from dplangevin.errors import CalibrationFailed
from dplangevin.sampling.exact_noise import choose_lattice_proposal
from dplangevin.sampling.float_noise import log_irwin_hall, make_cube_sampler

ErrorCriterion = Literal["max", "rmse"]
_TAIL_PROBABILITY = 1e-16
_EXPONENT_GRID = (1.0, 1.3, 1.6, 2.0, 2.6, 3.4, 4.5, 6.0, 9.0)
_MAX_ERROR_RATIO = 0.995  # dependent noise composes worse, so its error must be smaller by this factor
_MAX_NUMBERS_DRAWN = 5e8  # random numbers drawn, on average, for one release
_MAX_SECURE_NUMBERS_DRAWN = 1e7
_MAX_SECURE_COUNTS = 2**17  # so that sums of magnitudes stay within 64 bits


@dataclass(frozen=True)
class IndependentNoiseError:
    """Errors of k counts with independent generalized Gaussian noise of exponent p, for sigma = 1.

    Examples
    --------
    >>> round(IndependentNoiseError(10, 1).expected_maximum(), 6)  # Laplace: 1 + 1/2 + ... + 1/10
    2.928968
    """

    k: int
    p: float

    def expected_maximum(self) -> float:
        """Return E max_i |x_i|, the integral of 1 - P(1/p, t^p)^k."""
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
        """Return the u with Pr[max_i |x_i| > u] = beta."""
        exceeded = -math.expm1(math.log1p(-beta) / self.k)
        return math.pow(float(gammainccinv(1 / self.p, exceeded)), 1 / self.p)

    def margin(self, level: float) -> float:
        """Return the u with Pr[|x_1| <= u] = level."""
        return math.pow(float(gammaincinv(1 / self.p, level)), 1 / self.p)

    def power_mean(self, q: float) -> float:
        """Return (E |x_1|^q)^{1/q}."""
        return math.pow(absolute_moment(self.p, q), 1 / q)


@dataclass(frozen=True)
class CubeNoiseError:
    """Errors of k counts of which m may change, with noise of density exp(-max(|x|_inf, |x|_1 / m)).

    Examples
    --------
    >>> CubeNoiseError(1000, 1000).expected_maximum()
    1000.0
    >>> round(CubeNoiseError(10, 1).expected_maximum(), 6)  # the cross-polytope: Laplace noise
    2.928968
    """

    k: int
    m: int

    def expected_maximum(self) -> float:
        """Return E max_i |x_i|."""
        if self.m == self.k:
            return float(self.k)
        low, high = self._max_range
        nodes, weights = _gauss_legendre_panels(low, high)
        return (self.k + 1) * (low + float(weights @ -np.expm1(self._log_max_cdf(nodes))))

    def maximum_quantile(self, beta: float) -> float:
        """Return the u with Pr[max_i |x_i| > u] = beta."""
        if self.m == self.k:
            return float(gammainccinv(self.k, beta))
        table, (least, most) = self._log_cdf_spline, self._max_range
        top = float(gammainccinv(self.k + 1, _TAIL_PROBABILITY))

        def excess(log_u: float) -> float:
            u = math.exp(log_u)
            # a radius below u / most never reaches u
            radii, weights = _gauss_legendre_panels(u / most, max(top, u / most))
            density = np.exp(self.k * np.log(radii) - radii - gammaln(self.k + 1))
            inside = np.where(u / radii < least, -np.inf, table(np.clip(u / radii, least, most)))
            return float((weights * density) @ -np.expm1(np.minimum(inside, 0.0))) - beta

        low, high = math.log(float(gammaincinv(self.k + 1, _TAIL_PROBABILITY)) * least), math.log(top * most)
        return math.exp(float(find_root(excess, low, high, xtol=1e-12)))

    def margin(self, level: float) -> float:
        """Return the u with Pr[|x_1| <= u] = level."""
        inside, most = self._marginal_cdf
        ends = (
            float(gammaincinv(self.k + 1, _TAIL_PROBABILITY)),
            float(gammainccinv(self.k + 1, _TAIL_PROBABILITY)),
        )

        def excess(log_u: float) -> float:
            u = math.exp(log_u)
            radii, weights = _gauss_legendre_panels(max(ends[0], u / most), max(ends[1], u / most))
            density = np.exp(self.k * np.log(radii) - radii - gammaln(self.k + 1))
            return float((weights * density) @ (1 - inside(u / radii))) - (1 - level)

        return math.exp(float(find_root(excess, math.log(1e-12), math.log(ends[1] * most), xtol=1e-12)))

    def power_mean(self, q: float) -> float:
        """Return (E |x_1|^q)^{1/q}."""
        nodes, weights = self._marginal_nodes
        radial = float(gammaln(self.k + 1 + q) - gammaln(self.k + 1))
        return math.exp((radial + math.log(float(weights @ nodes**q))) / q)

    def _log_max_cdf(self, levels: Floats) -> Floats:
        """Return log P(|u|_inf <= a) at each level a."""
        inside = self.k * np.log(levels) + log_irwin_hall(self.k, self.m / levels) - self._log_volume
        return np.minimum(inside, 0.0)

    @cached_property
    def _log_volume(self) -> float:
        return float(log_irwin_hall(self.k, self.m)[0])

    @cached_property
    def _max_range(self) -> tuple[float, float]:
        """The levels between which |u|_inf lies, up to a probability of 1e-16 on either side."""
        return self._find_level(math.log(_TAIL_PROBABILITY)), min(
            1.0, self._find_level(-_TAIL_PROBABILITY) * (1 + 1e-6)
        )

    def _find_level(self, level: float) -> float:
        """Return the a at which log P(|u|_inf <= a) crosses the level."""

        def is_above(log_level: float) -> bool:
            return not self._log_max_cdf(np.array([math.exp(log_level)]))[0] < level

        return math.exp(bisect_safe_side(is_above, 0.0, math.log(1e-3 / self.k), rounds=50))

    @cached_property
    def _log_cdf_spline(self) -> Any:
        from scipy.interpolate import CubicSpline  # slow to import

        grid = np.linspace(*self._max_range, 401)
        return CubicSpline(grid, self._log_max_cdf(grid))

    @cached_property
    def _marginal_nodes(self) -> tuple[Floats, Floats]:
        """Quadrature nodes and probabilities of |u_1|."""
        nodes, weights = _gauss_legendre_panels(0.0, self._max_coordinate)
        mass = weights * self._marginal_density(nodes)
        return nodes, mass / float(mass.sum())

    @cached_property
    def _marginal_cdf(self) -> tuple[Callable[[Floats], Floats], float]:
        """The distribution function P(|u_1| <= a), and the smallest a at which it is 1."""
        from scipy.interpolate import CubicSpline  # slow to import

        grid = np.linspace(0.0, self._max_coordinate, 801)
        total = CubicSpline(grid, self._marginal_density(grid)).antiderivative()
        return lambda levels: np.minimum(
            total(levels) / total(self._max_coordinate), 1.0
        ), self._max_coordinate

    @property
    def _max_coordinate(self) -> float:
        return min(1.0, 45.0 * self.m / self.k)

    def _marginal_density(self, coordinates: Floats) -> Floats:
        """Return the density of |u_1|."""
        if self.m == self.k:
            return np.ones_like(coordinates)
        return np.exp(log_irwin_hall(self.k - 1, self.m - coordinates) - self._log_volume)


def noise_error_law(k: int, changed: int, p: float) -> IndependentNoiseError | CubeNoiseError:
    """Return the error law of k counts under noise of exponent p (inf included) and scale 1."""
    return CubeNoiseError(k, changed) if p == math.inf else IndependentNoiseError(k, p)


def _gauss_legendre_panels(low: float, high: float) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(low, high, 25)
    half = np.diff(edges) / 2
    nodes_on_panels = (edges[:-1] + half)[:, None] + half[:, None] * nodes
    return nodes_on_panels.ravel(), (half[:, None] * weights).ravel()


def can_sample_norm_noise(k: int, changed: int, *, secure: bool = False) -> bool:
    """Return whether the noise of p = inf can be drawn in seconds."""
    if secure:
        return k <= min(
            _MAX_SECURE_COUNTS, _MAX_SECURE_NUMBERS_DRAWN * choose_lattice_proposal(k, changed)[1]
        )
    return k <= _MAX_NUMBERS_DRAWN * make_cube_sampler(k, float(changed)).acceptance


def choose_noise_exponent(
    k: int, changed: int, epsilon: float, delta: float, objective: ErrorCriterion, *, secure: bool
) -> float:
    """Return the p with the smallest error, inf included. When one count changes, p = inf equals p = 1."""
    try:
        p = 1.0 if delta == 0 else choose_independent_exponent(k, changed, epsilon, delta, objective)
    except CalibrationFailed:  # delta is below what double precision resolves: closed forms are left
        p = min(
            (1.0, 2.0),
            key=lambda p: _unit_error(k, changed, p, objective) * smallest_sigma(p, changed, epsilon, delta),
        )
    if changed == 1:
        return p
    max_error = (
        _MAX_ERROR_RATIO * _unit_error(k, changed, p, objective) * smallest_sigma(p, changed, epsilon, delta)
    )
    scale = norm_scale(epsilon, delta, secure=secure)
    # both error criteria are at least changed / 4 for p = inf: docs/theory/thesis.md
    if delta > 0 and scale * changed / 4 > max_error:
        return p
    if not can_sample_norm_noise(k, changed, secure=secure):
        return p
    return math.inf if scale * _unit_error(k, changed, math.inf, objective) < max_error else p


def choose_independent_exponent(
    k: int, changed: int, epsilon: float, delta: float, objective: ErrorCriterion
) -> float:
    """Return the finite p with the smallest error: a coarse search, then its result against p = 1 and p = 2."""

    def error(p: float, *, coarse: bool = True) -> float:
        return _unit_error(k, changed, p, objective) * smallest_sigma(
            p, changed, epsilon, delta, coarse=coarse
        )

    if changed >= 10_000:  # the privacy loss is nearly Gaussian: sigma grows as sqrt(I(p))
        exponent = golden_section_minimum(
            lambda p: math.sqrt(fisher_information(p)) * _unit_error(k, changed, p, objective),
            1.0,
            12.0,
            0.05,
        )
    else:
        exponent = golden_section_minimum(error, *_bracket_minimum(error), 0.05)
    candidates = {round(exponent, 2), 1.0, 2.0}
    max_error = 1.005 * min(error(p) for p in candidates)  # coarse errors are off by 0.1% or less
    return min((p for p in candidates if error(p) <= max_error), key=lambda p: error(p, coarse=False))


def _unit_error(k: int, changed: int, p: float, objective: ErrorCriterion) -> float:
    """Return the error to be minimized, for scale 1."""
    law = noise_error_law(k, changed, p)
    return law.expected_maximum() if objective == "max" else law.power_mean(2.0)


def _bracket_minimum(function: Callable[[float], float]) -> tuple[float, float]:
    """Return the neighbours of the best exponent on the grid, searching downhill from p = 2."""
    values = {3: function(_EXPONENT_GRID[3])}
    for step in (1, -1):
        index = 3 + step
        while 0 <= index < len(_EXPONENT_GRID):
            values[index] = function(_EXPONENT_GRID[index])
            if values[index] > values[index - step]:
                break
            index += step
    best = min(values, key=values.__getitem__)
    return _EXPONENT_GRID[max(best - 1, 0)], _EXPONENT_GRID[min(best + 1, len(_EXPONENT_GRID) - 1)]
