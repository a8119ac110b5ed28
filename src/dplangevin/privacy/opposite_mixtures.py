"""One Poisson-sampled step when one record replaces another: two mixtures with opposite second components.

Units: the noise has standard deviation nm (the noise multiplier) and each record moves the mean by at most 1, with
probability q (the rate). The worst pair (docs/theory/accountant.md, section 5) is

    P = (1 - q) N(0, nm^2) + q N(1, nm^2)    against    Q = (1 - q) N(0, nm^2) + q N(-1, nm^2).

P is the mirror image of Q, so both directions have one curve. With r(x) = 1 - q + q exp((2x - 1) / (2 nm^2)) as in
`sampled_gaussian`, P/Q = r(x) / r(-x), which grows with x: the best tests are half-lines. The curve of C_q(G_{2/nm})
(every pair of means at distance 2) is above, and stands in where the numerics here do not reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from dplangevin._arrays import Floats
from dplangevin.privacy import conversions as cv, sampled_gaussian as sg
from dplangevin.privacy._pld import gaussian_pld, symmetric_profile
from dplangevin.privacy.parts import Part

_BANDS = ((1.0, 64.0, 0.5), (64.0, 256.0, 0.25))  # orders above, up to, and the share of the usual step
_MOST_NOISE = 1e8  # beyond, the threshold of the best test is lost in rounding


def hockey_stick(rate: float, noise_multiplier: float, epsilon: ArrayLike) -> Floats:
    """H_g(P || Q) = sup_S P(S) - g Q(S), g = e^eps of either size, rounded up; never below 1e-300.

    For g >= 1 the half-line x > t with P/Q(t) = g is best: z = e^{t / nm^2} solves
    c z^2 - (1 - q)(g - 1) z - g c = 0, c = q e^{-1/(2 nm^2)}. Below, 1 - g + g H_{1/g}(P || Q).

    Examples
    --------
    >>> print(f"{hockey_stick(0.3, 2.0, 0.5)[()]:.6e} {hockey_stick(1.0, 2.0, 0.0)[()]:.6f}")
    7.457547e-03 0.382925
    """
    above_it = sg.hockey_stick(rate, noise_multiplier / 2, epsilon)
    if rate == 1 or noise_multiplier > _MOST_NOISE:
        return above_it
    nm, log_q = noise_multiplier, math.log(rate)
    eps = np.asarray(epsilon, float)
    size = np.abs(eps)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_common = math.log1p(-rate) + size + np.log(-np.expm1(-size))  # (1 - q)(g - 1)
        log_cross = math.log(2) + size / 2 + log_q - 0.5 / nm**2
        log_root = np.logaddexp(2 * log_common, 2 * log_cross) / 2
        threshold = nm * (np.logaddexp(log_common, log_root) - math.log(2) - log_q + 0.5 / nm**2)  # t / nm
        gained = log_q + log_ndtr(1 / nm - threshold)
        lost = np.logaddexp(log_common + log_ndtr(-threshold), size + log_q + log_ndtr(-1 / nm - threshold))
        slack = 1e-15 * (2 + np.abs(gained) + np.abs(lost) + size)  # rounding of the logarithms
        above = np.exp(gained) * -np.expm1(np.minimum(lost - gained, 0.0) - slack) * (1 + 1e-9)
    above = np.where(gained < -680, 1e-300, np.where(np.isnan(above), 1.0, above))
    below = (-np.expm1(-size) + np.exp(-size) * above) * (1 + 1e-15)
    return np.asarray(np.clip(np.minimum(np.where(eps >= 0, above, below), above_it), 1e-300, 1.0))


def largest_loss(rate: float, noise_multiplier: float) -> float:
    """An eps beyond which `hockey_stick` is below 1e-30: it is at most q Phi((1 - t) / nm), t its threshold."""
    if rate == 1 or noise_multiplier > _MOST_NOISE:
        return sg.largest_loss(rate, noise_multiplier / 2)
    end = 1 + noise_multiplier * math.sqrt(2 * max(math.log(rate) + 30 * math.log(10), 0.0))
    return float(_log_ratio(np.array([end]), rate, noise_multiplier)[0])


def renyi(orders: ArrayLike, rate: float, noise_multiplier: float) -> Floats:
    """D_alpha(P || Q) = log(int phi r(x)^alpha r(-x)^{1 - alpha}) / (alpha - 1), by the trapezoid rule.

    In the strip |Im x| <= theta nm^2 the integrand is at most e^{(theta nm)^2 / 2} sec(theta / 2)^{alpha - 1} times its
    value at Re x, so with the steps of _BANDS the relative error is below e^{-33}; larger orders take the curve above.

    Examples
    --------
    >>> print(f"{renyi([2.0], 0.01, 1.0)[0]:.6e}")
    4.575544e-04
    """
    above = sg.renyi_without_replacement(orders, rate, noise_multiplier / 2)
    if rate == 1 or noise_multiplier > _MOST_NOISE:
        return above
    alpha, nm = np.atleast_1d(np.asarray(orders, float)), noise_multiplier
    for low, high, share in _BANDS:
        band = (alpha > low) & (alpha <= high)
        step, nodes = sg.line(float(alpha[band].max(initial=1.0)) + 1, share, nm)
        if not band.any() or nodes > sg.MOST_NODES:
            continue
        x = -1 - 14 * nm + step * np.arange(math.ceil(nodes) + 1, dtype=np.float64)
        log_weight = sg.log_normal(x, step, nm) + sg.log_density_ratio(-x, rate, nm)
        moments = sg.moments_by_rule(alpha[band], _log_ratio(x, rate, nm), log_weight)
        above[band] = np.fmin(above[band], moments / (alpha[band] - 1) * (1 + 1e-9))
    return np.asarray(np.maximum(above, 1e-300))


def _log_ratio(x: Floats, rate: float, noise_multiplier: float) -> Floats:
    """log P/Q at x."""
    return np.asarray(
        sg.log_density_ratio(x, rate, noise_multiplier) - sg.log_density_ratio(-x, rate, noise_multiplier)
    )


@lru_cache(maxsize=64)
def _distribution(rate: float, noise_multiplier: float, grid: float) -> Any:
    span = largest_loss(rate, noise_multiplier)
    return symmetric_profile(lambda eps: hockey_stick(rate, noise_multiplier, eps), span, grid)


@dataclass(frozen=True, kw_only=True)
class OppositeMixtures(Part):
    """One Poisson-sampled step of the Gaussian mechanism under replace-one; noise_multiplier = noise / |gradient|."""

    kind: ClassVar[str] = "pld"
    rate: float
    noise_multiplier: float

    def delta(self, epsilon: float) -> float:
        return float(hockey_stick(self.rate, self.noise_multiplier, epsilon))

    def rdp(self, orders: Floats) -> Floats:
        return renyi(orders, self.rate, self.noise_multiplier)

    def zcdp(self) -> float:
        # quasi-convexity, N(1) against N(-1); sampling helps at no large order
        return cv.square_over(2 / self.noise_multiplier, 2)

    def pld(self, grid: float) -> Any:
        if self.rate == 1:
            return gaussian_pld(2 / self.noise_multiplier, grid)
        return _distribution(self.rate, self.noise_multiplier, grid)
