"""One Poisson-sampled Gaussian step under replace-one: two mixtures with opposite second components.

Units: the noise has standard deviation nm (the noise multiplier) and each record moves the mean by at most 1, with
probability q (the rate). The worst pair (docs/theory/accountant.md, section 5) is

    P = (1 - q) N(0, nm^2) + q N(1, nm^2)    against    Q = (1 - q) N(0, nm^2) + q N(-1, nm^2).

P is the mirror image of Q, so both directions have one curve. With r(x) = 1 - q + q exp((2x - 1) / (2 nm^2)) as in
`sampled_gaussian`, P/Q = r(x) / r(-x), which grows with x: the best tests are half-lines. The curve of C_q(G_{2/nm})
(every pair of means at distance 2) is above, and replaces it where the numerics here are not accurate.
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
from dplangevin.accounting import conversions as cv, sampled_gaussian as sg
from dplangevin.accounting.parts import PrivacyPart
from dplangevin.accounting.pld import gaussian_pld, symmetric_pld

_MIXTURE_BANDS = (  # (orders above, orders up to, fraction of the usual step)
    (1.0, 64.0, 0.5),
    (64.0, 256.0, 0.25),
)
_MAX_NOISE_MULTIPLIER = 1e8  # for larger ones, the threshold of the best test is lost in rounding


def mixture_hockey_stick(rate: float, noise_multiplier: float, epsilon: ArrayLike) -> Floats:
    """Return H_g(P || Q) = sup_S P(S) - g Q(S), g = e^eps above or below 1, rounded up; never below 1e-300.

    For g >= 1 the half-line x > t with P/Q(t) = g is best: z = e^{t / nm^2} solves
    c z^2 - (1 - q)(g - 1) z - g c = 0, c = q e^{-1/(2 nm^2)}. Below, 1 - g + g H_{1/g}(P || Q).

    Examples
    --------
    >>> print(f"{mixture_hockey_stick(0.3, 2.0, 0.5)[()]:.6e} {mixture_hockey_stick(1.0, 2.0, 0.0)[()]:.6f}")
    7.457547e-03 0.382925
    """
    upper_bound = sg.sampled_hockey_stick(rate, noise_multiplier / 2, epsilon)
    if rate == 1 or noise_multiplier > _MAX_NOISE_MULTIPLIER:
        return upper_bound
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
    return np.asarray(np.clip(np.minimum(np.where(eps >= 0, above, below), upper_bound), 1e-300, 1.0))


def max_mixture_loss(rate: float, noise_multiplier: float) -> float:
    """Return an eps above which `mixture_hockey_stick` is below 1e-30: it is at most q Phi((1 - t) / nm)."""
    if rate == 1 or noise_multiplier > _MAX_NOISE_MULTIPLIER:
        return sg.max_sampled_loss(rate, noise_multiplier / 2)
    end = 1 + noise_multiplier * math.sqrt(2 * max(math.log(rate) + 30 * math.log(10), 0.0))
    return float(_log_ratio(np.array([end]), rate, noise_multiplier)[0])


def renyi_opposite_mixtures(orders: ArrayLike, rate: float, noise_multiplier: float) -> Floats:
    """Return D_alpha(P || Q) = log(int phi r(x)^alpha r(-x)^{1 - alpha}) / (alpha - 1), by the trapezoid rule.

    In the strip |Im x| <= theta nm^2 the integrand is at most e^{(theta nm)^2 / 2} sec(theta / 2)^{alpha - 1} times
    its value at Re x, so with the steps of _MIXTURE_BANDS the relative error is below e^{-33}; larger orders take the
    curve of C_q(G_{2/nm}), which is above.

    Examples
    --------
    >>> print(f"{renyi_opposite_mixtures([2.0], 0.01, 1.0)[0]:.6e}")
    4.575544e-04
    """
    above = sg.renyi_without_replacement(orders, rate, noise_multiplier / 2)
    if rate == 1 or noise_multiplier > _MAX_NOISE_MULTIPLIER:
        return above
    alpha, nm = np.atleast_1d(np.asarray(orders, float)), noise_multiplier
    for low, high, fraction in _MIXTURE_BANDS:
        band = (alpha > low) & (alpha <= high)
        step, nodes = sg.trapezoid_grid(float(alpha[band].max(initial=1.0)) + 1, fraction, nm)
        if not band.any() or nodes > sg.MAX_NODES:
            continue
        x = -1 - 14 * nm + step * np.arange(math.ceil(nodes) + 1, dtype=np.float64)
        log_weight = sg.log_normal_weights(x, step, nm) + sg.log_density_ratio(-x, rate, nm)
        moments = sg.moments_by_rule(alpha[band], _log_ratio(x, rate, nm), log_weight)
        above[band] = np.fmin(above[band], moments / (alpha[band] - 1) * (1 + 1e-9))
    return np.asarray(np.maximum(above, 1e-300))


def _log_ratio(x: Floats, rate: float, noise_multiplier: float) -> Floats:
    """Return log P/Q at x."""
    return np.asarray(
        sg.log_density_ratio(x, rate, noise_multiplier) - sg.log_density_ratio(-x, rate, noise_multiplier)
    )


@lru_cache(maxsize=64)
def _mixture_pld(rate: float, noise_multiplier: float, grid: float) -> Any:
    span = max_mixture_loss(rate, noise_multiplier)
    return symmetric_pld(lambda eps: mixture_hockey_stick(rate, noise_multiplier, eps), span, grid)


@dataclass(frozen=True, kw_only=True)
class OppositeMixtures(PrivacyPart):
    """One Poisson-sampled step of the Gaussian mechanism under replace-one; noise_multiplier = noise / |gradient|."""

    kind: ClassVar[str] = "pld"
    rate: float
    noise_multiplier: float

    def delta(self, epsilon: float) -> float:
        return float(mixture_hockey_stick(self.rate, self.noise_multiplier, epsilon))

    def rdp(self, orders: Floats) -> Floats:
        return renyi_opposite_mixtures(orders, self.rate, self.noise_multiplier)

    def zcdp(self) -> float:
        # quasi-convexity, N(1) against N(-1); no amplification at large orders
        return cv.square_ratio_up(2 / self.noise_multiplier, 2)

    def pld(self, grid: float) -> Any:
        if self.rate == 1:
            return gaussian_pld(2 / self.noise_multiplier, grid)
        return _mixture_pld(self.rate, self.noise_multiplier, grid)
