"""audit: attack a plan, an estimator or any callable, and say what the attack proves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin._rng import generator
from dplangevin.audit.attack import attack, check_runs, checked_delta
from dplangevin.audit.canaries import Canary, Score, canaries, neighbours
from dplangevin.audit.chain import chain_attack
from dplangevin.audit.claim import as_guarantee, trade_off
from dplangevin.audit.one_run import one_run_attack
from dplangevin.audit.result import AuditResult
from dplangevin.audit.search import scores, strongest
from dplangevin.audit.targets import AuditTarget, as_target, outputs
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_gradient.lower_bounds import gaussian_mu
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Problem

METHODS = ("many-run", "one-run", "density")


def audit(
    target: Any,
    problem: Problem | None = None,
    *,
    claim: Guarantee | tuple[float, float] | None = None,
    canary: Canary | str | None = None,
    method: str = "many-run",
    runs: int = 20_000,
    delta: float | None = None,
    confidence: float = 0.95,
    score: Score | None = None,
    search: int = 0,
    pilot_runs: int = 100,
    guesses: int | None = None,
    n: int | None = None,
    n_features: int | None = None,
    random_state: object = None,
) -> AuditResult:
    """Attack a mechanism and bound its epsilon and mu from below, beside what it claims.

    Parameters
    ----------
    target : a Plan, an estimator (with n and n_features, the shape of its data), or any callable
        (X, y, rng) -> vector; a callable needs `claim`, and `problem` or a canary of its own.
    problem : states the bounds that canaries keep. Plans and this library's estimators bring their own.
    claim : a Guarantee or a pair (epsilon, delta); default: what the plan or the estimator promises.
    canary : a Canary, the name of one of `canaries(problem)`, or None to try all of them with `pilot_runs` runs a side.
    method : "many-run" (Clopper-Pearson on two thirds of the runs, the others choose the test), "one-run" (many
        canaries, one run) or "density" (exact kernels, no sampling; noisy gradient plans in one or two dimensions).
    runs : both data sets together; with "one-run" the number of canaries.
    delta : of the reported epsilon; default: the claim's. confidence : of every statement in the result.
    score : maps released vectors [runs, dimension] to [runs]; default: a direction learned from a third of the runs.
    search : number of random changes of the best canary that are tried, within the bounds.
    guesses : of a one-run audit. random_state : a seed or generator, for an audit that can be repeated.

    Examples
    --------
    >>> from dplangevin.audit import gaussian_claim
    >>> pair = Canary(name="one more", first=(np.zeros((1, 1)), np.zeros(1)), second=(np.zeros((1, 1)), np.ones(1)))
    >>> noisy_sum = lambda X, y, rng: y.sum() + 0.5 * rng.standard_normal()
    >>> result = audit(noisy_sum, claim=gaussian_claim(1.0, 1e-5), canary=pair, runs=4000, random_state=0)
    >>> result.refuted, result.mu_lower > 1.7
    (True, True)
    """
    _check.choice("method", method, METHODS)
    runs, rng = _check.count("runs", runs, least=2), generator(random_state)[0]
    _check.open_unit("confidence", confidence)
    prepared = as_target(target, problem, n, n_features)
    promise = as_guarantee(claim) if claim is not None else prepared.claim
    delta = checked_delta(_stated_delta(promise) if delta is None else delta, promise)
    if method == "one-run":
        return _one_run(prepared, promise, delta, confidence, runs, guesses, rng)
    if method == "many-run":  # refuse before anything runs
        check_runs(runs // 2, None if promise is None else trade_off(promise), confidence)
    candidates = _candidates(canary, prepared.problem)
    chosen = strongest(prepared, candidates, max(8, pilot_runs), _check.count("search", search, least=0), rng)
    if method == "density":
        return _with_ratio(_density(target, chosen, promise, delta), target)
    return _with_ratio(_many_run(prepared, promise, chosen, score, runs, delta, confidence, rng), target)


def _stated_delta(promise: Guarantee | None) -> float:
    """The delta that the claim is made for."""
    return promise.at_delta if promise is not None and promise.at_delta is not None else 0.0


def _many_run(
    target: AuditTarget,
    promise: Guarantee | None,
    chosen: Canary,
    score: Score | None,
    runs: int,
    delta: float,
    confidence: float,
    rng: np.random.Generator,
) -> AuditResult:
    """Run both data sets of the canary and compare scores."""
    first, second = (
        outputs(target, records, runs // 2, rng, chosen.name) for records in (chosen.first, chosen.second)
    )
    pair = scores(first, second, score or chosen.score)
    return attack(*pair, promise, delta=delta, confidence=confidence, canary=chosen.name)


def _density(target: Any, chosen: Canary, promise: Guarantee | None, delta: float) -> AuditResult:
    if not isinstance(target, Plan):
        raise InvalidParameter(
            "method='density' needs a Plan; for laws with known densities use density_attack."
        )
    return chain_attack(target, chosen, promise, delta=delta)


def _candidates(canary: Canary | str | None, problem: Problem | None) -> tuple[Canary, ...]:
    if isinstance(canary, Canary):
        if not neighbours(canary.first, canary.second):
            raise InvalidParameter(f"the data sets of canary {canary.name!r} differ in more than one record.")
        return (canary,)
    if problem is None:
        raise InvalidParameter(
            "state problem=Problem(...) so that canaries keep its bounds, or pass a Canary."
        )
    named = {one.name: one for one in canaries(problem)}
    if canary is None:
        return tuple(named.values())
    return (named[_check.choice("canary", canary, named)],)


def _one_run(
    target: AuditTarget,
    promise: Guarantee | None,
    delta: float,
    confidence: float,
    count: int,
    guesses: int | None,
    rng: np.random.Generator,
) -> AuditResult:
    """Orthogonal longest rows, each in the data by a fair coin (a blank row stands in under replace-one)."""
    problem = target.problem
    if problem is None:
        raise InvalidParameter(
            "method='one-run' needs problem=Problem(...): its canaries are rows within the bounds."
        )
    most = min(problem.n, problem.n_features)
    if count > most:
        raise InvalidParameter(
            f"runs = {count} canaries do not fit: each needs a record and a coordinate of its own, and there are "
            f"{problem.n} records and {problem.n_features} features. Use at most {most}."
        )
    coins = rng.random(count) < 0.5
    rows = problem.bounds.data_norm * np.eye(problem.n_features)[:count]
    blank = np.zeros((problem.n - count, problem.n_features))
    X, y = np.vstack([rows * coins[:, None], blank]), np.full(problem.n, problem.bounds.label_range[1])
    if problem.adjacency == "add-remove":
        X, y = rows[coins], y[: int(coins.sum())]
    released = outputs(target, (X, y), 1, rng, "the one run")[0]
    return one_run_attack(
        released[:count], coins, promise, delta=delta, confidence=confidence, guesses=guesses
    )


def _with_ratio(result: AuditResult, target: Any) -> AuditResult:
    """Exact over claimed mu, for plans whose worst case is a Gaussian path."""
    schedule = target.schedule if isinstance(target, Plan) else None
    if not isinstance(schedule, NoisyGradientSchedule) or not result.claimed_mu:
        return result
    plain = schedule.sampling in ("full", "cyclic") and schedule.order == "public" and not schedule.momentum
    if not plain or schedule.release == "average" or math.isfinite(target.constants.diameter):
        return result
    return replace(result, exact_ratio=gaussian_mu(target.constants, schedule) / result.claimed_mu)
