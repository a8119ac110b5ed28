"""One-run audit: many canaries, each included by a fair coin, and guesses of the coins from a single run."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import binom

from dplangevin import _check
from dplangevin._search import bisect_safe_side, expand_bracket
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.audit.claim import AuditResult, as_guarantee
from dplangevin.audit.many_run import check_audit_delta
from dplangevin.errors import InvalidParameter


def one_run_attack(
    scores: ArrayLike,
    included: ArrayLike,
    claim: Guarantee | tuple[float, float] | None,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: int | None = None,
) -> AuditResult:
    """Bound epsilon from below with one score per canary, and whether each canary was included.

    The `guesses`/2 largest scores are guessed "in", the `guesses`/2 smallest "out" (default: a fifth of the canaries,
    at least 20). The claim must be for adding, removing or blanking a record. The number of guesses is fixed
    before the scores are seen.

    References
    ----------
    Steinke, Nasr and Jagielski (2023), Theorem 5.2.
    """
    guarantee = as_guarantee(claim)
    delta = check_audit_delta(delta, guarantee)
    values, coins = np.asarray(scores, float).ravel(), np.asarray(included, bool).ravel()
    if len(values) != len(coins):
        raise InvalidParameter(
            f"there are {len(values)} scores for {len(coins)} canaries; give one score per canary."
        )
    if not np.isfinite(values).all():
        raise InvalidParameter("a canary's score is not finite (NaN or infinity); nothing can be concluded.")
    n_guesses = (
        min(len(coins), max(20, len(coins) // 5))
        if guesses is None
        else _check.check_count("guesses", guesses)
    )
    if n_guesses > len(coins):
        raise InvalidParameter(
            f"guesses = {n_guesses} is more than the {len(coins)} canaries; guess at most all of them."
        )
    half = max(1, n_guesses // 2)
    _check_n_guesses(2 * half, len(coins), guarantee, delta, confidence)
    order = np.argsort(values, kind="stable")
    correct = int(np.sum(coins[order[-half:]]) + np.sum(~coins[order[:half]]))
    epsilon = one_run_epsilon(correct, 2 * half, len(coins), delta=delta, confidence=confidence)
    claimed = None if guarantee is None else guarantee.to_dict(delta)
    mu = cv.gdp_mu(epsilon, delta) if delta > 0 and epsilon > 0 else 0.0
    return AuditResult(
        epsilon_lower=epsilon,
        mu_lower=mu,
        delta=delta,
        confidence=confidence,
        runs=1,
        refuted=claimed is not None and epsilon > claimed["epsilon"],
        method="one-run",
        canary=f"{len(coins)} canaries, {correct} of {2 * half} guesses correct",
        claimed=claimed,
    )


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Return the largest epsilon that `correct` out of `guesses` guesses refute; 0 when none.

    p-value of (eps, delta): Pr[B >= v] + 2 m delta max_i (1/i) Pr[v > B >= v - i], B ~ Bin(r, e^eps/(1 + e^eps)).

    Examples
    --------
    >>> round(one_run_epsilon(100, 100, 1000), 3), one_run_epsilon(50, 100, 1000)
    (3.493, 0.0)
    """
    _check.check_open_unit("confidence", confidence)
    significance = 1 - confidence

    def p_value(epsilon: float) -> float:
        probability = float(expit(epsilon))
        tail = float(binom.sf(correct - 1, guesses, probability))
        if delta == 0 or correct == 0:
            return tail
        tail_sums = np.cumsum(binom.pmf(correct - np.arange(1, correct + 1), guesses, probability))
        return tail + 2 * canaries * delta * float(np.max(tail_sums / np.arange(1, correct + 1)))

    if p_value(0.0) >= significance:
        return 0.0
    high = expand_bracket(lambda epsilon: p_value(epsilon) >= significance, 1.0, 700)
    if high is None:
        return math.inf
    low = high / 2 if high > 1 else 0.0
    return bisect_safe_side(lambda epsilon: p_value(epsilon) < significance, low, high)


def _check_n_guesses(
    guesses: int, canaries: int, guarantee: Guarantee | None, delta: float, confidence: float
) -> None:
    """Check that the claim could be refuted if every guess were correct."""
    claimed = 0.0 if guarantee is None else guarantee.epsilon(delta)
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
        f"{guesses} guesses are too few: even if all were correct, epsilon = {claimed:.4g} could not be refuted at "
        f"confidence {confidence:g}. Use about {needed} guesses ({5 * needed} canaries)."
    )
