"""The trade-off curve of a guarantee: how well any attacker can tell two neighbouring data sets apart."""

from __future__ import annotations

import numpy as np

from dplangevin.privacy.guarantee import Guarantee

ALPHAS = tuple(float(a) for a in np.unique(np.r_[0.0, 0.001, 0.01, 0.05, np.linspace(0.0, 1.0, 41)]))


def missed(guarantee: Guarantee, alphas: tuple[float, ...] = ALPHAS) -> tuple[float, ...]:
    """f(alpha) at each alpha, see `Guarantee.tradeoff`."""
    return tuple(float(b) for b in guarantee.tradeoff(np.asarray(alphas)))
