"""Many-run audit: tell two neighbouring data sets apart by a score, with a stated confidence."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import beta

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import grown_until, whole_bisected
from dplangevin.audit.claim import TradeOff, as_guarantee, trade_off
from dplangevin.audit.result import AuditResult
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.guarantee import Guarantee

Gain = Callable[[Floats, Floats], Floats]
_CUTS = 250
CHOOSING = 3
"""Every third run chooses the test; the others certify it."""


def attack(
    first: ArrayLike,
    second: ArrayLike,
    claim: Guarantee | tuple[float, float] | None,
    *,
    delta: float,
    confidence: float = 0.95,
    canary: str = "",
) -> AuditResult:
    """Bound epsilon and mu from below, given scores of independent runs on two neighbouring data sets.

    Every third run helps to choose a cut and its direction; the others certify that one test with two one-sided
    Clopper-Pearson bounds at level (1 - confidence)/2 each, so that with the stated confidence the true size is at
    most FPR and the true power at least TPR. Then
    eps >= log((TPR - delta)/FPR), mu >= Phi^-1(TPR) - Phi^-1(FPR),
    and the claim is refuted when TPR exceeds the power that its trade-off curve allows at FPR.
    """
    promise = as_guarantee(claim)
    delta = checked_delta(delta, promise)
    _check.open_unit("confidence", confidence)
    a, b = np.asarray(first, float).ravel(), np.asarray(second, float).ravel()
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InvalidParameter("the mechanism returned a score that is not finite; nothing can be concluded.")
    curve = None if promise is None else trade_off(promise)
    check_runs(min(len(a), len(b)), curve, confidence)
    choose, certify = (chosen(a), chosen(b)), (certifying(a), certifying(b))
    tail = (1 - confidence) / 2

    def best(gain: Gain) -> tuple[float, float]:
        return _certified(gain, choose, certify, tail)

    size, power = best(lambda fpr, tpr: _epsilon(fpr, tpr, delta))
    epsilon = max(0.0, float(_epsilon(np.array(size), np.array(power), delta)))
    size, power = best(_mu)
    mu = max(0.0, float(_mu(np.array(size), np.array(power))))
    refuted = False
    if curve is not None:
        size, power = best(lambda fpr, tpr: _margin(fpr, tpr, curve))
        refuted = power > float(curve.power(size))
    return AuditResult(
        epsilon_lower=epsilon,
        mu_lower=mu,
        delta=delta,
        confidence=confidence,
        runs=len(a) + len(b),
        refuted=refuted,
        canary=canary,
        claimed=None if promise is None else promise.to_dict(delta),
        tested=(size, power),
        measured=_points(*certify),
        allowed=allowed_points(curve),
    )


def chosen(values: Floats) -> Floats:
    """The runs that may choose the test: the first, the fourth, ..."""
    return values[::CHOOSING]


def certifying(values: Floats) -> Floats:
    """The runs that certify: all others."""
    return np.delete(values, np.s_[::CHOOSING], axis=0)


def checked_delta(delta: float, promise: Guarantee | None) -> float:
    """The delta of an audit: in [0, 1), and not above the one the claim was made for."""
    if delta != 0:
        _check.open_unit("delta", delta)
    stated = None if promise is None else promise.at_delta
    if stated is not None and delta > stated:
        raise InvalidParameter(
            f"delta = {delta:g} is larger than the claim's {stated:g}: an audit there says less than the claim. "
            f"Audit at delta = {stated:g} or below."
        )
    return float(delta)


def runs_needed(claim: Guarantee | tuple[float, float] | None, confidence: float = 0.95) -> int:
    """The least number of runs, both data sets together, that could refute the claim if every run were told apart.

    Examples
    --------
    >>> runs_needed((1.0, 1e-5)), runs_needed((8.0, 1e-5))
    (36, 32998)
    """
    promise = as_guarantee(claim)
    return _runs_needed(None if promise is None else trade_off(promise), confidence)


def _runs_needed(curve: TradeOff | None, confidence: float) -> int:
    tail = (1 - confidence) / 2

    def enough(count: int) -> bool:
        power = math.exp(math.log(tail) / count)
        size = -math.expm1(math.log(tail) / count)
        return power > (float(curve.power(size)) if curve is not None else size)

    high = grown_until(enough, 1, 2**50)
    if high is None:
        return 2**53
    per_side = high = whole_bisected(enough, high, high // 2)
    while per_side - math.ceil(per_side / CHOOSING) < high:
        per_side += 1 + (high - per_side + per_side // CHOOSING) // 2
    return 2 * per_side


def check_runs(per_side: int, curve: TradeOff | None, confidence: float) -> None:
    """Refuse an audit whose best outcome would still prove nothing."""
    needed = _runs_needed(curve, confidence)
    if 2 * per_side < needed:
        many = (
            f"at least {needed:,} runs"
            if needed < 2**53
            else "a stronger method: no number of runs is enough"
        )
        raise InvalidParameter(
            f"{2 * per_side:,} runs are too few: even if every run were told apart, the claim could not be refuted "
            f"at confidence {confidence:g}. Use {many}."
        )


def _certified(
    gain: Gain, choose: tuple[Floats, Floats], certify: tuple[Floats, Floats], tail: float
) -> tuple[float, float]:
    """(size, power) of the test that looks best on the first half, certified on the second."""
    best, plan = -math.inf, (1, 0, 0.0)
    cuts = np.unique(np.quantile(np.concatenate(choose), np.linspace(0.002, 0.998, _CUTS)))
    for sign in (1, -1):
        for order in (0, 1):
            rates = _rates(sign * choose[order], sign * choose[1 - order], sign * cuts, tail)
            values = gain(*rates)
            place = int(np.argmax(values))
            if values[place] > best:
                best, plan = float(values[place]), (sign, order, float(cuts[place]))
    sign, order, cut = plan
    size, power = _rates(sign * certify[order], sign * certify[1 - order], np.array([sign * cut]), tail)
    return float(size[0]), float(power[0])


def _rates(positives: Floats, negatives: Floats, cuts: Floats, tail: float) -> tuple[Floats, Floats]:
    """Upper bound on the size and lower bound on the power of the tests {score > cut}."""
    n, m = len(positives), len(negatives)
    hits = n - np.searchsorted(np.sort(positives), cuts, side="right")
    alarms = m - np.searchsorted(np.sort(negatives), cuts, side="right")
    power = np.where(hits > 0, beta.ppf(tail, np.maximum(hits, 1), n - hits + 1), 0.0)
    size = np.where(alarms < m, beta.ppf(1 - tail, alarms + 1, np.maximum(m - alarms, 1)), 1.0)
    return np.asarray(size), np.asarray(power)


def _epsilon(size: Floats, power: Floats, delta: float) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(power - delta, 0.0)) - np.log(size)


def _mu(size: Floats, power: Floats) -> Floats:
    known = (power > 0) & (size < 1)
    return np.where(known, ndtri(np.where(known, power, 0.5)) - ndtri(np.where(known, size, 0.5)), -np.inf)


def _margin(size: Floats, power: Floats, curve: TradeOff) -> Floats:
    """By how much a test beats the claim, in standard deviations of a normal score; at least -inf, never NaN."""
    return _mu(np.clip(curve.power(size), 0.0, 1.0), power)


def _points(first: Floats, second: Floats) -> tuple[tuple[float, float], ...]:
    """The measured size and power of half-line tests, the second data set against the first, for the picture."""
    if np.median(second) < np.median(first):
        first, second = -first, -second
    cuts = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, 101)))
    size = 1 - np.searchsorted(np.sort(first), cuts, side="right") / len(first)
    power = 1 - np.searchsorted(np.sort(second), cuts, side="right") / len(second)
    return tuple((float(x), float(y)) for x, y in zip(size, power, strict=True))


def allowed_points(curve: TradeOff | None) -> tuple[tuple[float, float], ...]:
    """The claim's curve at a few sizes, for the picture."""
    if curve is None:
        return ()
    sizes = np.concatenate([np.geomspace(1e-6, 0.01, 25)[:-1], np.linspace(0.01, 1.0, 100)])
    return tuple((float(x), float(y)) for x, y in zip(sizes, curve.power(sizes), strict=True))
