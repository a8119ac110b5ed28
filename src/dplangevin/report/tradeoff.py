"""The trade-off curve of a guarantee: how well any attacker can tell two neighbouring data sets apart."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm

from dplangevin.privacy.guarantee import Guarantee

ALPHAS = tuple(float(a) for a in np.unique(np.r_[0.0, 0.001, 0.01, 0.05, np.linspace(0.0, 1.0, 41)]))
_LEVELS = 33


def missed(guarantee: Guarantee, alphas: tuple[float, ...] = ALPHAS) -> tuple[float, ...]:
    """f(alpha): the least share of members that a test missing them less often than this cannot have.

    f(alpha) = max over eps of max(0, 1 - delta(eps) - e^eps alpha, e^-eps (1 - delta(eps) - alpha)), from finitely many
    eps, hence rounded down; G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu) when the guarantee is mu-GDP.
    References: Wasserman and Zhou (2010); Dong, Roth and Su (2022), Proposition 2.12.
    """
    alpha = np.asarray(alphas)
    mu = guarantee.mu
    if mu is not None:
        return (
            tuple(float(b) for b in norm.cdf(norm.isf(alpha) - mu))
            if math.isfinite(mu)
            else (0.0,) * len(alpha)
        )
    best = np.zeros_like(alpha)
    for epsilon in _levels(guarantee):
        left = 1 - guarantee.delta(epsilon)
        best = np.maximum(
            best, np.maximum(left - math.exp(epsilon) * alpha, math.exp(-epsilon) * (left - alpha))
        )
    return tuple(float(b) for b in best)


def _levels(guarantee: Guarantee) -> list[float]:
    top = guarantee.epsilon(1e-6) if guarantee.extra_delta < 1e-6 else math.inf
    if not math.isfinite(top):
        top = guarantee.epsilon()
    top = min(top, 30.0) if math.isfinite(top) else 30.0
    return [float(e) for e in np.linspace(0.0, max(top, 1e-9), _LEVELS)]
