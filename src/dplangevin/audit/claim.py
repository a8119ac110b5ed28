"""The claim of an audit as a trade-off curve, and AuditResult: what an attack proves about the claim."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Guarantee, NotPrivate
from dplangevin.accounting.parts import Approximate, Gaussian, PrivacyPart, Pure
from dplangevin.errors import InvalidParameter


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Lower bounds on the privacy loss of a run, and whether they refute its claim.

    Parameters
    ----------
    epsilon_lower : no claim of (epsilon, delta) with a smaller epsilon holds, with the stated confidence.
    mu_lower : no claim of mu-GDP with a smaller mu holds, with the same confidence.
    refuted : whether the claim itself is false, with the same confidence. One test decides: the best threshold against
        the claim's whole trade-off curve, which for a GDP claim is the test on mu.
    delta, confidence, runs : of the audit; confidence 1 where densities were integrated instead of sampled.
    method, canary : method of the attack, and the pair of neighbouring data sets.
    claimed : the claim as JSON data (None when nothing was claimed).
    exact_ratio : exact value over claimed value (in mu, or in epsilon), where the exact distribution is known.
    tested : size and power (FPR and TPR) of the deciding test, both rounded to the safe side.
    measured, allowed : points (size, power) measured, and allowed by the claim, for plots.
    """

    epsilon_lower: float
    mu_lower: float
    delta: float
    confidence: float
    runs: int
    refuted: bool
    method: str = "many-run"
    canary: str = ""
    claimed: dict[str, Any] | None = None
    exact_ratio: float | None = None
    tested: tuple[float, float] = (1.0, 0.0)
    measured: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    allowed: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    @property
    def claimed_epsilon(self) -> float | None:
        """The claimed epsilon at the audit's delta."""
        return None if self.claimed is None else float(self.claimed["epsilon"])

    @property
    def claimed_mu(self) -> float | None:
        """The claimed mu, when the claim is Gaussian."""
        return None if self.claimed is None else self.claimed["mu"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "epsilon_lower": self.epsilon_lower,
            "mu_lower": self.mu_lower,
            "delta": self.delta,
            "confidence": self.confidence,
            "runs": self.runs,
            "refuted": self.refuted,
            "method": self.method,
            "canary": self.canary,
            "claimed": self.claimed,
            "exact_ratio": self.exact_ratio,
            "tested": {"false_positive_rate": self.tested[0], "true_positive_rate": self.tested[1]},
        }


_N_CURVE_POINTS = 64
_MIN_DELTA = 1e-7


def as_guarantee(
    claim: Guarantee | tuple[float, float] | None, adjacency: str = "replace-one"
) -> Guarantee | None:
    """Return the claim as a Guarantee; a pair (epsilon, delta) claims that pair and nothing more."""
    if claim is None or isinstance(claim, Guarantee):
        return claim
    if isinstance(claim, NotPrivate):
        raise InvalidParameter(f"claim has no guarantee ({claim.reason}); pass claim=None to only measure.")
    try:
        epsilon, delta = claim
    except (TypeError, ValueError):
        raise InvalidParameter(
            f"claim must be a Guarantee or a pair (epsilon, delta), got {claim!r}."
        ) from None
    epsilon = _check.check_nonnegative("the epsilon of claim", epsilon)
    part: PrivacyPart = Pure(value=epsilon)
    if delta != 0:
        part = Approximate(value=epsilon, slack=_check.check_open_unit("the delta of claim", delta))
    return _claimed_guarantee(part, adjacency, delta)


def gaussian_claim(mu: float, delta: float, adjacency: str = "replace-one") -> Guarantee:
    """Return the claim of mu-GDP, reported at delta; it bounds every test, and is tested by mu."""
    return _claimed_guarantee(
        Gaussian(mu=_check.check_positive("mu", mu)), adjacency, _check.check_open_unit("delta", delta)
    )


def _claimed_guarantee(part: PrivacyPart, adjacency: str, delta: float) -> Guarantee:
    return Guarantee(
        parts=(part,),
        adjacency=_check.check_choice("adjacency", adjacency, ("replace-one", "add-remove")),
        release="stated by the user",
        theorem="none: a claim to be tested",
        reference="",
        at_delta=delta,
    )


@dataclass(frozen=True, kw_only=True)
class TradeOffCurve:
    """The largest power that a claim allows a test of each size, in either direction.

    From (eps, delta) for every eps: power <= min over eps of delta + e^eps size and of
    1 - e^-eps (1 - delta - size). A mu-GDP claim allows Phi(Phi^-1(size) + mu). A finite grid of eps is weaker than
    the whole profile, so it allows more, never less (Dong, Roth and Su 2022, proposition 2.4 and section 2.4).
    """

    epsilons: Floats
    deltas: Floats
    mu: float | None

    def power(self, size: ArrayLike) -> Floats:
        """Return the largest power (TPR) allowed at this size (FPR)."""
        alpha = np.asarray(size, float)
        if self.mu is not None:
            return np.asarray(ndtr(ndtri(alpha) + self.mu))
        column, deltas = alpha[..., None], self.deltas
        with np.errstate(over="ignore"):
            first = deltas + np.exp(self.epsilons) * column
            second = 1 - np.exp(-self.epsilons) * (1 - deltas - column)
        return np.asarray(np.clip(np.minimum(first, second).min(axis=-1), 0.0, 1.0))


def trade_off_curve(claim: Guarantee) -> TradeOffCurve:
    """Return the trade-off curve of a guarantee."""
    mu = claim.mu
    if mu is not None:
        return TradeOffCurve(epsilons=np.zeros(0), deltas=np.zeros(0), mu=mu)
    max_epsilon = claim.epsilon(0.0)
    if not math.isfinite(max_epsilon):
        max_epsilon = claim.epsilon(max(_MIN_DELTA, 2 * claim.extra_delta))
    if not math.isfinite(max_epsilon):
        max_epsilon = 50.0
    grid = np.linspace(0.0, max_epsilon, _N_CURVE_POINTS)
    grid = np.unique(np.concatenate([grid, _reported_epsilon(claim)]))
    return TradeOffCurve(epsilons=grid, deltas=np.array([claim.delta(float(eps)) for eps in grid]), mu=None)


def _reported_epsilon(claim: Guarantee) -> Floats:
    """Return the epsilon at the claim's own delta, so that the grid contains it."""
    delta: Any = claim.at_delta
    epsilon = claim.epsilon(delta) if delta else math.inf
    return np.array([epsilon] if math.isfinite(epsilon) else [])
