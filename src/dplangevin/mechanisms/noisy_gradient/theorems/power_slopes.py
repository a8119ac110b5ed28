"""The recursion of slopes of the power function (B6): mu of runs on a bounded set, from one start or from any two.

Let W(x), W'(x) be the probits of the probabilities that two runs on neighbouring data, at x with k steps to go, end in
some set. If W <= W' + m and W has Lipschitz constant at most lambda, another step with shift s and noise v gives, with
sigma = s / v,

    m_{k+1} = (m_k + lambda_k sigma) / sqrt(1 + lambda_k^2),      m_1 = sigma.

Among all runs of nonexpansive maps on sets of diameter D the walk x -> clamp(c x + N(0, v^2)) on an interval has the
largest lambda_k and omega_k, by which W varies over the set. So k steps from one start are m_k-GDP, and from any two
starts (m_k + omega_k)-GDP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import erf, erfinv, ndtr

from dplangevin._arrays import Floats

MAX_WIDTH = 40.0  # of the interval, in noises of one step; on wider ones several steps are taken as one
_MIN_WIDTH = 0.5  # on narrower ones rounding leaves too little of differences of probabilities
_MIN_SPREAD = 1e-6  # longer walks are bounded by products
_N_NODES = 128
_UP = (
    1 + 1e-11
)  # covers what one step rounds: sums of positive terms, each off by some units in the last place


@dataclass(frozen=True, kw_only=True)
class PowerSlopes:
    """Upper bounds for noise 1 on one interval, for k = 1, 2, ... steps.

    slopes : lambda_k.
    spreads : total variation between the walks from both ends, which is what omega_k depends on.
    """

    slopes: Floats
    spreads: Floats

    def probit_spread(self, n_steps: float) -> float:
        """Return omega_k: of k = i n + j steps, at least a fraction spread_n^i spread_j is forgotten."""
        rounds, rest = divmod(n_steps - 1, len(self.spreads))
        left = float(self.spreads[-1]) ** min(rounds, 99.0) * float(self.spreads[int(rest)]) * _UP
        return 2 * math.sqrt(2) * float(erfinv(min(left, 1.0))) * _UP

    def same_start_mus(self, sigma: float) -> Floats:
        """Return m_k for every k, and last a bound for any number of steps."""
        mu, mus = sigma, [sigma]
        for slope in self.slopes[:-1].tolist():
            # the shift cannot use up a slope above sigma / m: then it costs as much as composition
            unused = max(slope * mu - sigma, 0.0)
            mu = math.hypot(mu + slope * sigma, unused) / math.hypot(1.0, slope) * _UP
            mus.append(mu)
        left = float(self.spreads[-1])  # n steps later slopes are smaller by this factor
        later = float(self.slopes[-1]) + float(np.sum(self.slopes)) * left / (1 - left)
        return np.array([*mus, (mu + sigma * later) * _UP])


@lru_cache(maxsize=1)
def _half_quadrature() -> tuple[Floats, Floats]:
    """Return the positive nodes, and their weights, of a Gauss-Legendre rule on [-1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(2 * _N_NODES)
    return nodes[_N_NODES:], weights[_N_NODES:]


@lru_cache(maxsize=64)
def compute_power_slopes(width: float, contraction: float) -> PowerSlopes:
    """Return the bounds for an interval of at most `MAX_WIDTH` noises and maps of Lipschitz constant at most 1.

    v_k(x) = Pr[x_k > 0 | x_0 = x] - 1/2 is odd, entire and at most exp(y^2 / 2) / 2 at x + iy, so the rule errs by less
    than 1e-50; on the right half all terms are positive, so rounding each step up rounds all that follows up.
    """
    nodes, weights = _half_quadrature()
    end = max(width, _MIN_WIDTH) / 2 * _UP
    at, mass = nodes * end, weights * (end / math.sqrt(2 * math.pi))
    moved = contraction * np.append(at, end)
    kernel = np.exp(-((at - moved[:, None]) ** 2) / 2) * -np.expm1(-2 * at * moved[:, None]) * mass
    clamped = ndtr(moved - end) - ndtr(-moved - end)
    kernel = np.column_stack([kernel, clamped]) * _UP
    slope_at_middle = np.append(
        2 * at * np.exp(-(at**2) / 2) * mass * math.sqrt(2 * math.pi), 2 * math.exp(-(end**2) / 2)
    )
    slope_at_middle *= contraction * _UP
    value = erf(moved / math.sqrt(2)) / 2 * _UP
    slopes, spreads = [contraction], [2 * float(value[-1])]
    while spreads[-1] > _MIN_SPREAD:
        slopes.append(float(slope_at_middle @ value))
        value = kernel @ value
        spreads.append(2 * float(value[-1]))
    return PowerSlopes(slopes=np.array(slopes), spreads=np.array(spreads))


@dataclass(frozen=True, kw_only=True)
class SlopeRecursion:
    """The bounds of B6 for one set, shift, noise and contraction.

    joined : number of steps that are taken as one.
    mus : mu of `joined`, 2 `joined`, ... steps from one start, and last of any number.
    """

    joined: float
    slopes: PowerSlopes
    mus: Floats

    def same_start_mu(self, n_steps: float) -> float:
        """Return mu of at most n_steps steps from one start."""
        rounds = math.ceil(n_steps / self.joined) if math.isfinite(n_steps) else len(self.mus)
        return float(self.mus[min(rounds, len(self.mus)) - 1])

    def two_starts_mu(self, n_steps: float) -> float:
        """Return mu of n_steps steps from any two starts in the set."""
        rounds = n_steps // self.joined
        return self.same_start_mu(n_steps) + self.slopes.probit_spread(rounds) if rounds >= 1 else math.inf


@lru_cache(maxsize=256)
def make_slope_recursion(
    shift: float, noise: float, contraction: float, diameter: float
) -> SlopeRecursion | None:
    """Return the recursion for s, v, c <= 1 and D of one step; None where contraction keeps runs away from the walls.

    Leaving projections out brings no two points closer together, so on wide sets the bounds are those of several steps
    taken as one: their maps contract by c^n, a record moves them by s (1 + c + ... + c^(n-1)), and the variance of
    their noise is v^2 (1 + c^2 + ... + c^(2n-2)).

    Examples
    --------
    >>> round(make_slope_recursion(0.05, 1.0, 1.0, 20.0).same_start_mu(math.inf), 3)
    0.775
    """
    if contraction > 1:
        raise ValueError("the recursion needs a contraction constant of at most 1")
    width, sigma = diameter / noise, shift / noise
    variance, needed = (1 - contraction) * (1 + contraction), (width / MAX_WIDTH) * (width / MAX_WIDTH)
    if not (needed * variance < 1 and math.isfinite(needed)):
        return None
    log = math.log(contraction) if contraction > 0 else -math.inf
    joined = 1.0
    if needed > 1:
        joined = math.ceil(needed if log == 0 else math.log1p(-needed * variance) / (2 * log))
    if joined > 1:
        moves = joined if log == 0 else math.expm1(joined * log) / math.expm1(log)
        deviation = math.sqrt(joined if log == 0 else math.expm1(2 * joined * log) / math.expm1(2 * log))
        width, sigma, contraction = width / deviation, sigma * moves / deviation, math.exp(joined * log)
    slopes = compute_power_slopes(width * _UP, min(contraction * _UP, 1.0))
    return SlopeRecursion(joined=joined, slopes=slopes, mus=slopes.same_start_mus(sigma * _UP))
