"""The privacy profile of a draw from exp(-beta max(F - F* - psi, 0)), from one integral over the excess f = F - F*.

F is m-strongly convex on a convex set, and neighbours' objectives differ by a Delta-Lipschitz function. The score of a
draw moves by at most Delta times its distance to a minimiser, which is at most sqrt(2 f / m): draws near the set
lose little, and the excess of every data set is stochastically below that of a cone, whose law is known:

    c(s) ~ s^(p - 1) exp(-beta max(s - psi, 0)),     a(s) = min(D, sqrt(2 s / m)),  b(s) = min(D, a(s) + Delta / m)
    k = log(1 + E_c[exp(beta min(Delta a + e, s - psi)) - 1; s > psi])
    lam = beta min(Delta b + e, (s - psi + Delta b)+)
    delta(eps) <= E_c[1 - exp(eps - k - lam)]+,      e the error of the computed minimum.

Proof, and exact laws that come within a few percent of it: docs/theory/rashomon.md, section 6. All expectations are
computed as upper sums: the integrands do not decrease with s, so every cell takes the value at its right end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.parts import Profile
from dplangevin.errors import AssumptionFailed

_INNER_CELLS, _OUTER_CELLS, _NODES = 600, 3000, 6
_PROFILE_POINTS = 150
_PROFILE_RANGE = (1e-2, 1e-25)
"""Deltas between which the profile has most of its points: the curve falls steeply there."""
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, kw_only=True)
class LocalRange:
    """One draw of the flat score, by the public numbers that its guarantee depends on.

    Parameters
    ----------
    dimension : p. inverse_temperature : beta. threshold : psi.
    strong_convexity : m of every data set's F. gradient_sensitivity : Delta, of the MEAN gradient.
    diameter : D of the set; infinity is allowed. minimum_error : e, a bound on the error of the computed minimum.

    Examples
    --------
    >>> draw = LocalRange(dimension=20, inverse_temperature=3.11e5, threshold=1e-3, strong_convexity=1.0,
    ...                   gradient_sensitivity=2 / 30_000, diameter=2.0)
    >>> draw.delta(1.0) < 1e-6, round(draw.tail_mass(0.0), 3)  # (1, 1e-6), and 94% of the draws in the set
    (True, 0.064)
    """

    dimension: int
    inverse_temperature: float
    threshold: float
    strong_convexity: float
    gradient_sensitivity: float
    diameter: float = math.inf
    minimum_error: float = 0.0

    def __post_init__(self) -> None:
        _check.validate_fields(
            self,
            dimension=_check.check_count,
            inverse_temperature=_check.check_positive,
            threshold=_check.check_positive,
            strong_convexity=_check.check_positive,
            gradient_sensitivity=_check.check_positive,
            minimum_error=_check.check_nonnegative,
        )
        _check.set_frozen(self, diameter=_check.check_positive("diameter", self.diameter, infinite=True))

    def _distance_from_own(self, excess: Floats) -> Floats:
        """Return a(s): how far a point of this excess may be from the minimiser of its own data set."""
        return np.minimum(self.diameter, np.sqrt(2 * excess / self.strong_convexity))

    def _distance_from_neighbour(self, excess: Floats) -> Floats:
        """Return b(s): the same from the minimiser of a neighbour, which is at most Delta / m away."""
        apart = self.gradient_sensitivity / self.strong_convexity
        return np.minimum(self.diameter, np.sqrt(2 * excess / self.strong_convexity) + apart)

    @cached_property
    def _cells(self) -> tuple[Floats, Floats]:
        """The cone law of the excess: right ends of cells, and upper bounds on the logarithms of their masses.

        The law is that of the threshold psi + e. Its masses are relative to psi^p / p, divided by the total.
        """
        p, beta = self.dimension, self.inverse_temperature
        flat = self.threshold + self.minimum_error
        reach = float(self.gradient_sensitivity * self._distance_from_neighbour(np.array(flat)))
        first = max(0.0, flat - reach - 2 * self.minimum_error)
        inner = np.linspace(first, flat, _INNER_CELLS + 1)
        with np.errstate(divide="ignore"):
            powers = p * (np.log(inner) - math.log(flat))
        inside = np.exp(powers[1:]) - np.exp(powers[:-1])
        last = 60.0 + 4 * p
        t = last * np.linspace(0.0, 1.0, _OUTER_CELLS + 1) ** 1.5  # finer near the threshold
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        half = np.diff(t)[:, None] / 2
        points = t[:-1, None] + half * (nodes + 1)
        x = beta * flat
        logs = (p - 1) * np.log1p(points / x) - points + np.log(half * weights) + math.log(p / x)
        outside = logsumexp(logs, axis=1)
        # beyond the last cell (1 + t/x)^(p-1) e^-t falls at least as fast as e^-(1 - (p-1)/(x + last)) t
        decay = 1 - (p - 1) / (x + last)
        rest = (p - 1) * math.log1p(last / x) - last + math.log(p / x) - math.log(decay)
        with np.errstate(divide="ignore"):
            masses = np.concatenate([[p * math.log(first / flat) if first > 0 else -np.inf], np.log(inside)])
        masses = np.concatenate([masses, outside])
        total = float(logsumexp(np.append(masses, rest)))
        ends = np.concatenate([[first], inner[1:], flat + t[1:] / beta])
        return ends, np.append(masses, rest) - total + math.log(_ROUNDING)

    @cached_property
    def normaliser_bound(self) -> float:
        """k, a bound on the log ratio of the normalising constants of neighbours."""
        ends, logs = self._cells
        beta, delta = self.inverse_temperature, self.gradient_sensitivity
        excess = np.maximum(ends - self.threshold, 0.0)
        own = delta * self._distance_from_own(ends) + self.minimum_error
        exponents = beta * np.minimum(own, excess)
        with np.errstate(over="ignore"):
            total = float(np.sum(np.exp(logs[:-1]) * np.expm1(exponents)))
        # beyond the last cell the exponent lies below its tangent, of slope at most beta Delta / (2 m a) d s
        last = float(ends[-1])
        distance = float(self._distance_from_own(np.array(last)))
        slope = delta / (self.strong_convexity * distance) if distance < self.diameter else 0.0
        x = beta * (self.threshold + self.minimum_error)
        decay = 1 - (self.dimension - 1) / (x + beta * (last - self.threshold))
        if not slope < 0.5 * decay:
            raise AssumptionFailed(
                "the sensitivity is too large for a local bound; use the bounded range of the score."
            )
        total += math.exp(float(logs[-1]) + float(exponents[-1])) * decay / (decay - slope)
        return math.log1p(total) * _ROUNDING

    @cached_property
    def _losses(self) -> Floats:
        """k + lam at the right ends of the cells; infinite beyond the last one."""
        ends, _ = self._cells
        beta, delta = self.inverse_temperature, self.gradient_sensitivity
        shift = delta * self._distance_from_neighbour(ends)
        local = np.minimum(shift + self.minimum_error, np.maximum(ends - self.threshold + shift, 0.0))
        return np.append(self.normaliser_bound + beta * local * _ROUNDING, np.inf)

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon, in both directions, for every pair of neighbours."""
        _, logs = self._cells
        gains = -np.expm1(np.minimum(epsilon - self._losses, 0.0))
        return min(1.0, float(np.exp(logs) @ gains))

    def profile(self) -> Profile:
        """Return the whole curve, on a grid of epsilons up to where delta is that of the last cell."""
        epsilons = float(self._losses[-2]) * np.linspace(0.0, 1.0, _PROFILE_POINTS)
        for _ in range(2):
            deltas = np.array([self.delta(float(epsilon)) for epsilon in epsilons])
            high, low = _PROFILE_RANGE
            steep = np.flatnonzero((deltas < high) & (deltas > low))
            if steep.size == 0:
                break
            ends = epsilons[max(steep[0] - 1, 0)], epsilons[min(steep[-1] + 1, epsilons.size - 1)]
            epsilons = np.unique(np.concatenate([epsilons, np.linspace(*ends, _PROFILE_POINTS)]))
        deltas = np.minimum.accumulate([self.delta(float(epsilon)) for epsilon in epsilons])
        return Profile(epsilons=tuple(epsilons.tolist()), deltas=tuple(deltas.tolist()))

    def tail_mass(self, slack: float) -> float:
        """Bound the probability that the excess of a draw is above psi + slack, for every data set."""
        p, x = self.dimension, self.inverse_temperature * (self.threshold + self.minimum_error)
        t = self.inverse_temperature * _check.check_nonnegative("slack", slack)
        edges = t + (60.0 + 4 * p) * np.linspace(0.0, 1.0, 401) ** 1.5
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        half = np.diff(edges)[:, None] / 2
        points = edges[:-1, None] + half * (nodes + 1)
        logs = (p - 1) * np.log1p(points / x) - points + np.log(half * weights) + math.log(p / x)
        decay = 1 - (p - 1) / (x + edges[-1])
        rest = (p - 1) * math.log1p(edges[-1] / x) - edges[-1] + math.log(p / x / decay)
        beyond = float(logsumexp(np.append(logs.ravel(), rest)))
        # the whole outer mass, for the denominator, is at least what lies beyond
        if slack == 0:
            return 1 / (1 + math.exp(-beyond)) * _ROUNDING
        return min(1.0, math.exp(beyond) / (1 + self._outer_mass()) * _ROUNDING)

    def _outer_mass(self) -> float:
        """Return B / A: the mass above the threshold over that below."""
        tail = self.tail_mass(0.0) / _ROUNDING
        return tail / (1 - tail) if tail < 1 else math.inf
