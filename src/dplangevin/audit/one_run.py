"""One-run audit: many canaries, each in or out by a fair coin, and one run to guess the coins from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import binom

from dplangevin import _check
from dplangevin._search import bisected, grown_until
from dplangevin.audit.attack import checked_delta
from dplangevin.audit.claim import as_guarantee
from dplangevin.audit.result import AuditResult
from dplangevin.errors import InvalidParameter
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee


def one_run_attack(
    scores: ArrayLike,
    included: ArrayLike,
    claim: Guarantee | tuple[float, float] | None,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: int | None = None,
) -> AuditResult:
    """Bound epsilon from below with one score per canary and the coins that were tossed for them.

    The `guesses`/2 largest scores are guessed "in", the `guesses`/2 smallest "out" (default: a fifth of the canaries,
    at least 20). The claim must be for adding, removing or blanking a record. The number of guesses is fixed
    before the scores are seen.

    References
    ----------
    Steinke, Nasr and Jagielski (2023), Theorem 5.2.
    """
    promise = as_guarantee(claim)
    delta = checked_delta(delta, promise)
    values, coins = np.asarray(scores, float).ravel(), np.asarray(included, bool).ravel()
    if len(values) != len(coins):
        raise InvalidParameter(
            f"there are {len(values)} scores for {len(coins)} canaries; one each is needed."
        )
    if not np.isfinite(values).all():
        raise InvalidParameter("a canary's score is not finite (NaN or infinity); nothing can be concluded.")
    tried = min(len(coins), max(20, len(coins) // 5)) if guesses is None else _check.count("guesses", guesses)
    if tried > len(coins):
        raise InvalidParameter(
            f"guesses = {tried} is more than the {len(coins)} canaries; guess at most all of them."
        )
    half = max(1, tried // 2)
    _check_canaries(2 * half, len(coins), promise, delta, confidence)
    order = np.argsort(values, kind="stable")
    correct = int(np.sum(coins[order[-half:]]) + np.sum(~coins[order[:half]]))
    epsilon = one_run_epsilon(correct, 2 * half, len(coins), delta=delta, confidence=confidence)
    claimed = None if promise is None else promise.to_dict(delta)
    mu = cv.gdp_mu(epsilon, delta) if delta > 0 and epsilon > 0 else 0.0
    return AuditResult(
        epsilon_lower=epsilon,
        mu_lower=mu,
        delta=delta,
        confidence=confidence,
        runs=1,
        refuted=claimed is not None and epsilon > claimed["epsilon"],
        method="one-run",
        canary=f"{len(coins)} canaries, {correct} of {2 * half} guesses right",
        claimed=claimed,
    )


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """The largest epsilon that `correct` right guesses out of `guesses` refute; 0 when none.

    p-value of (eps, delta): Pr[B >= v] + 2 m delta max_i (1/i) Pr[v > B >= v - i], B ~ Bin(r, e^eps/(1 + e^eps)).

    Examples
    --------
    >>> round(one_run_epsilon(100, 100, 1000), 3), one_run_epsilon(50, 100, 1000)
    (3.493, 0.0)
    """
    _check.open_unit("confidence", confidence)
    allowed = 1 - confidence

    def p_value(epsilon: float) -> float:
        chance = float(expit(epsilon))
        tail = float(binom.sf(correct - 1, guesses, chance))
        if delta == 0 or correct == 0:
            return tail
        shares = np.cumsum(binom.pmf(correct - np.arange(1, correct + 1), guesses, chance))
        return tail + 2 * canaries * delta * float(np.max(shares / np.arange(1, correct + 1)))

    if p_value(0.0) >= allowed:
        return 0.0
    high = grown_until(lambda epsilon: p_value(epsilon) >= allowed, 1.0, 700)
    if high is None:
        return math.inf
    return bisected(lambda epsilon: p_value(epsilon) < allowed, high / 2 if high > 1 else 0.0, high)


def _check_canaries(
    guesses: int, canaries: int, promise: Guarantee | None, delta: float, confidence: float
) -> None:
    """Refuse an audit that proves nothing even with every guess right."""
    claimed = 0.0 if promise is None else promise.epsilon(delta)
    if one_run_epsilon(guesses, guesses, canaries, delta=delta, confidence=confidence) > claimed:
        return
    needed = 2
    while one_run_epsilon(needed, needed, 5 * needed, delta=delta, confidence=confidence) <= claimed:
        needed *= 2
        if needed > 10**7:
            raise InvalidParameter(
                f"a one-run audit cannot refute epsilon = {claimed:.4g} at delta = {delta:g}; use method='many-run'."
            )
    raise InvalidParameter(
        f"{guesses} guesses are too few: even if all were right, epsilon = {claimed:.4g} could not be refuted at "
        f"confidence {confidence:g}. Use about {needed} guesses ({5 * needed} canaries)."
    )
