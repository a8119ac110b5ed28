"""Many-run audit: tell two neighbouring data sets apart by a score, with a stated confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import beta

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.guarantee import Guarantee

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """What an attack proves about a run, beside what was claimed.

    epsilon_lower and mu_lower each hold with the stated confidence. `refuted` compares mu where the claim is
    GDP (the stronger test) and epsilon otherwise.
    """

    epsilon_lower: float
    mu_lower: float
    delta: float
    confidence: float
    runs: int
    claimed_epsilon: float
    claimed_mu: float | None

    @property
    def refuted(self) -> bool:
        """The claim is false with the stated confidence."""
        if self.claimed_mu is not None:
            return self.mu_lower > self.claimed_mu
        return self.epsilon_lower > self.claimed_epsilon


def attack(
    first: ArrayLike, second: ArrayLike, claim: Guarantee, *, delta: float, confidence: float = 0.999
) -> AuditResult:
    """Bound epsilon and mu from below, given scores of independent runs on two neighbouring data sets.

    Half of the runs choose the threshold and its direction; the other half certifies with Clopper-Pearson intervals,
    each error rate at level (1 - confidence) / 2:
    eps >= log((TPR - delta) / FPR), mu >= Phi^-1(TPR) - Phi^-1(FPR).
    """
    _check.open_unit("delta", delta)
    _check.open_unit("confidence", confidence)
    a, b = np.asarray(first, float).ravel(), np.asarray(second, float).ravel()
    if min(len(a), len(b)) < 100:
        raise InvalidParameter(
            f"{min(len(a), len(b))} runs are too few to conclude anything; use at least 100."
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InvalidParameter("the mechanism returned a score that is not finite.")
    choose, certify = (a[::2], b[::2]), (a[1::2], b[1::2])
    lower = {name: _certified(name, choose, certify, delta, confidence) for name in ("epsilon", "mu")}
    return AuditResult(
        epsilon_lower=lower["epsilon"],
        mu_lower=lower["mu"],
        delta=delta,
        confidence=confidence,
        runs=len(a) + len(b),
        claimed_epsilon=claim.epsilon(delta),
        claimed_mu=claim.mu,
    )


def _certified(
    name: str, choose: tuple[Floats, Floats], certify: tuple[Floats, Floats], delta: float, confidence: float
) -> float:
    tail = (1 - confidence) / 2
    best, plan = -math.inf, (1, 0, 0.0)
    for sign in (1, -1):
        for order in (0, 1):
            positives, negatives = sign * choose[order], sign * choose[1 - order]
            for cut in np.quantile(np.concatenate([positives, negatives]), np.linspace(0.002, 0.998, 250)):
                value = _bound(name, positives, negatives, float(cut), delta, tail)
                if value > best:
                    best, plan = value, (sign, order, float(cut))
    sign, order, cut = plan
    return max(0.0, _bound(name, sign * certify[order], sign * certify[1 - order], cut, delta, tail))


def _bound(name: str, positives: Floats, negatives: Floats, cut: float, delta: float, tail: float) -> float:
    """Lower bound from one threshold test {score > cut}."""
    hits, alarms = int(np.sum(positives > cut)), int(np.sum(negatives > cut))
    n, m = len(positives), len(negatives)
    power = float(beta.ppf(tail, hits, n - hits + 1)) if hits else 0.0
    size = float(beta.ppf(1 - tail, alarms + 1, m - alarms)) if alarms < m else 1.0
    if name == "mu":
        return float(ndtri(power) - ndtri(size)) if power > 0 and size < 1 else 0.0
    return math.log((power - delta) / size) if power > delta else 0.0
