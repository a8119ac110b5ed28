"""audit: attack a plan, an estimator or any callable on the strongest canary, and bound its epsilon from below."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin._rng import make_generator
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.audit.attacks import (
    AuditResult,
    Canary,
    Records,
    Score,
    are_neighbors,
    as_guarantee,
    certifying_runs,
    check_audit_delta,
    check_n_runs,
    choosing_runs,
    make_canaries,
    many_run_attack,
    one_run_attack,
    trade_off_curve,
)
from dplangevin.audit.density import exact_law_attack
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient.lower_bounds import gaussian_path_mu
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import Problem

Runner = Callable[[np.random.Generator], Any]


@dataclass(frozen=True, kw_only=True)
class AuditTarget:
    """What is run many times: `prepare_run(X, y)` takes a data set and returns a function of the generator.

    claim : the target's own guarantee, if any. problem : states the bounds that canaries respect, if known.
    """

    prepare_run: Callable[[Floats, Floats], Runner]
    claim: Guarantee | None
    problem: Problem | None


def as_target(target: Any, problem: Problem | None, n: int | None, n_features: int | None) -> AuditTarget:
    """Return a Plan, an estimator or a callable as the target of an audit."""
    if isinstance(target, CertifiedSpec) and not isinstance(target, Plan):
        raise InvalidParameter(
            "this CertifiedSpec has constants but no problem, so it cannot be run or audited; pass a Plan."
        )
    if isinstance(target, Plan):
        return _plan_target(target)
    if hasattr(target, "fit") and hasattr(target, "get_params"):
        return _estimator_target(target, problem, n, n_features)
    if callable(target):
        return AuditTarget(
            prepare_run=lambda X, y: lambda rng: target(X, y, rng), claim=None, problem=problem
        )
    raise InvalidParameter(
        f"target must be a Plan, an estimator or a callable (X, y, rng) -> vector, got {type(target).__name__}."
    )


def _plan_target(plan: Plan) -> AuditTarget:
    problem = plan.problem

    def prepare_run(X: Floats, y: Floats) -> Runner:
        data = ArrayDataset(X, y, problem)
        return lambda rng: run_plan(plan, data, rng).value

    return AuditTarget(prepare_run=prepare_run, claim=plan.guarantee, problem=problem)


def _estimator_target(
    estimator: Any, problem: Problem | None, n: int | None, n_features: int | None
) -> AuditTarget:
    """Return fits of copies of the estimator as a target; its plan comes from a fit on blank rows of that shape."""
    from sklearn.base import clone

    parameters = estimator.get_params()
    overrides = {"ledger": None} if "ledger" in parameters else {}

    def fit_copy(X: Floats, y: Floats, seed: int | None) -> Any:
        seed_option = {"random_state": seed} if "random_state" in parameters else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # canaries are small and extreme on purpose
            return clone(estimator).set_params(**overrides, **seed_option).fit(X, y)

    claim = None
    if problem is None:
        if n is None or n_features is None:
            raise InvalidParameter("an estimator needs n and n_features, the shape of its data; state both.")
        ends = np.asarray(_labels_at(estimator, np.array([0.0, 1.0])))
        model = fit_copy(np.zeros((n, n_features)), ends[np.arange(n) % 2], 0)
        problem, claim = (
            getattr(getattr(model, "plan_", None), "plan", None),
            getattr(model, "privacy_", None),
        )
        problem = None if problem is None else problem.problem
    if problem is None:
        raise InvalidParameter(
            "this estimator has no plan_; state problem=Problem(...) for the canaries, and claim."
        )
    low, high = problem.bounds.label_range

    def prepare_run(X: Floats, y: Floats) -> Runner:
        labels = _labels_at(estimator, (y - low) / (high - low))

        def run_once(rng: np.random.Generator) -> Floats:
            model = fit_copy(X, labels, int(rng.integers(2**31)))
            return np.concatenate([np.ravel(model.coef_), np.ravel(model.intercept_)])

        return run_once

    return AuditTarget(prepare_run=prepare_run, claim=claim, problem=problem)


def _labels_at(estimator: Any, position: Floats) -> Any:
    """Return labels in the estimator's units, from their position between the lowest (0) and the highest (1)."""
    bounds = getattr(estimator, "target_bounds", None)
    if bounds is not None:
        return bounds[0] + position * (bounds[1] - bounds[0])
    classes = getattr(estimator, "classes", None)
    labels = np.array([0, 1]) if classes is None else np.unique(np.asarray(classes))
    return labels[np.rint(position * (len(labels) - 1)).astype(int)]


def collect_outputs(
    target: AuditTarget, records: Records, runs: int, rng: np.random.Generator, name: str
) -> Floats:
    """Run the target on one data set and return the released vectors [runs, dimension]."""
    run_once = target.prepare_run(*records)
    first = _check_vector(run_once(rng), name, 0, None)
    vectors = np.empty((runs, len(first)))
    vectors[0] = first
    for i in iterate_with_progress(range(1, runs), f"runs on {name}"):
        vectors[i] = _check_vector(run_once(rng), name, i, len(first))
    return vectors


def _check_vector(value: Any, name: str, index: int, size: int | None) -> Floats:
    try:
        vector = np.atleast_1d(np.asarray(value, float))
    except (TypeError, ValueError):
        raise InvalidParameter(
            f"run {index} on {name} returned {type(value).__name__}; the mechanism must return a vector of numbers."
        ) from None
    if vector.ndim != 1 or (size is not None and len(vector) != size):
        expected = "a vector" if size is None else f"shape ({size},), as the first run did"
        raise InvalidParameter(
            f"run {index} on {name} returned shape {vector.shape}; it must return {expected}."
        )
    if not np.isfinite(vector).all():
        raise InvalidParameter(
            f"run {index} on {name} returned a value that is not finite (NaN or infinity); a release must be finite."
        )
    return vector


def discriminant_direction(first: Floats, second: Floats) -> Floats:
    """Return Fisher's linear discriminant: (pooled covariance + a small ridge)^-1 (difference of means)."""
    gap = second.mean(axis=0) - first.mean(axis=0)
    pooled = np.atleast_2d(np.cov(first.T) + np.cov(second.T)) / 2
    ridge = 1e-6 * float(np.trace(pooled)) / len(gap) + 1e-300
    return np.asarray(np.linalg.solve(pooled + ridge * np.eye(len(gap)), gap))


def score_runs(first: Floats, second: Floats, score: Score | None) -> tuple[Floats, Floats]:
    """Return one score per run; a direction is learned from the runs that do not certify in `many_run_attack`."""
    if score is not None:
        return np.asarray(score(first), float), np.asarray(score(second), float)
    if first.shape[1] == 1:
        return first[:, 0], second[:, 0]
    along = discriminant_direction(choosing_runs(first), choosing_runs(second))
    return first @ along, second @ along


def mean_separation(first: Floats, second: Floats) -> float:
    """Return the distance of the means divided by the standard deviation: mu, if the scores are normal."""
    spread = float(np.sqrt((np.var(first) + np.var(second)) / 2))
    return abs(float(np.mean(first) - np.mean(second))) / (spread + 1e-300)


def run_pilot(target: AuditTarget, canary: Canary, runs: int, rng: np.random.Generator) -> float:
    """Return how well a few runs separate the pair, measured on runs that did not choose the direction."""
    first, second = (
        collect_outputs(target, records, runs, rng, canary.name) for records in (canary.first, canary.second)
    )
    a, b = score_runs(first, second, canary.score)
    return mean_separation(certifying_runs(a), certifying_runs(b))


def find_strongest_canary(
    target: AuditTarget, candidates: tuple[Canary, ...], runs: int, n_mutations: int, rng: np.random.Generator
) -> Canary:
    """Return the candidate, or mutation of the best, that a few pilot runs separate best; they certify nothing."""
    if len(candidates) == 1 and not n_mutations:
        return candidates[0]
    separations = [(run_pilot(target, canary, runs, rng), canary) for canary in candidates]
    best_separation, strongest = max(separations, key=lambda item: item[0])
    for number in range(n_mutations):
        if target.problem is None:
            break
        mutation = mutate_canary(strongest, target.problem, number, rng)
        separation = run_pilot(target, mutation, runs, rng)
        if separation > best_separation:
            best_separation, strongest = separation, mutation
    return strongest


def mutate_canary(canary: Canary, problem: Problem, number: int, rng: np.random.Generator) -> Canary:
    """Rotate or relabel the differing record at random, within the bounds (in both data sets under replace-one)."""
    row = _differing_row(canary.first, canary.second)
    name = canary.name.split(", changed")[0] + f", changed by search ({number + 1})"
    first = _mutate_record(canary.first, row, problem, rng)
    second = canary.second
    if problem.adjacency == "replace-one":
        second = _mutate_record(canary.second, row, problem, rng)
    return Canary(name=name, first=first, second=second, score=canary.score)


def _mutate_record(records: Records, row_index: int, problem: Problem, rng: np.random.Generator) -> Records:
    X, y = records[0].copy(), records[1].copy()
    row = X[row_index] + problem.bounds.data_norm * rng.choice([0.1, 0.5, 2.0]) * rng.standard_normal(
        X.shape[1]
    )
    X[row_index] = row * problem.bounds.data_norm / max(float(np.linalg.norm(row)), 1e-300)
    low, high = problem.bounds.label_range
    if rng.random() < 0.3:
        y[row_index] = rng.choice([low, high])
    return X, y


def _differing_row(first: Records, second: Records) -> int:
    """Return the row of the first data set that the second one replaces or lacks."""
    rows, others = np.column_stack(first), np.column_stack(second)
    shared = min(len(rows), len(others))
    differs = np.flatnonzero(np.any(rows[:shared] != others[:shared], axis=1))
    return int(differs[0]) if differs.size else len(rows) - 1


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
    """Attack a mechanism, bound its epsilon and mu from below, and compare them with its claim.

    Parameters
    ----------
    target : a Plan, an estimator (with n and n_features, the shape of its data), or any callable
        (X, y, rng) -> vector; a callable needs `claim`, and `problem` or a canary of its own.
    problem : states the bounds that canaries respect. Plans and this library's estimators have their own.
    claim : a Guarantee or a pair (epsilon, delta); default: the guarantee of the plan or the estimator.
    canary : a Canary, the name of one of `make_canaries(problem)`, or None to try all of them with `pilot_runs` runs on
        each data set.
    method : "many-run" (Clopper-Pearson on two thirds of the runs, the others choose the test), "one-run" (many
        canaries, one run) or "density" (exact kernels, no sampling; noisy gradient plans in one or two dimensions).
    runs : number of runs, both data sets together; with "one-run" the number of canaries.
    delta : of the reported epsilon; default: the claim's. confidence : of every statement in the result.
    score : maps released vectors [runs, dimension] to [runs]; default: a direction learned from a third of the runs.
    search : number of random changes of the best canary that are tried, within the bounds.
    guesses : number of guesses in a one-run audit.
    n, n_features : shape of the data of an estimator.
    random_state : a seed or generator, for an audit that can be repeated.

    Returns
    -------
    An AuditResult.

    Examples
    --------
    >>> from dplangevin.audit import gaussian_claim
    >>> row = np.zeros((1, 1))
    >>> pair = Canary(name="one more", first=(row, np.zeros(1)), second=(row, np.ones(1)))
    >>> noisy_sum = lambda X, y, rng: y.sum() + 0.5 * rng.standard_normal()
    >>> result = audit(noisy_sum, claim=gaussian_claim(1.0, 1e-5), canary=pair, runs=4000, random_state=0)
    >>> result.refuted, result.mu_lower > 1.7
    (True, True)
    """
    _check.check_choice("method", method, METHODS)
    runs, rng = _check.check_count("runs", runs, minimum=2), make_generator(random_state)[0]
    _check.check_open_unit("confidence", confidence)
    audit_target = as_target(target, problem, n, n_features)
    guarantee = as_guarantee(claim) if claim is not None else audit_target.claim
    delta = check_audit_delta(_claim_delta(guarantee) if delta is None else delta, guarantee)
    if method == "one-run":
        return _audit_one_run(audit_target, guarantee, delta, confidence, runs, guesses, rng)
    if method == "many-run":  # refuse before anything runs
        check_n_runs(runs // 2, None if guarantee is None else trade_off_curve(guarantee), confidence)
    candidates = _candidate_canaries(canary, audit_target.problem)
    strongest_canary = find_strongest_canary(
        audit_target, candidates, max(8, pilot_runs), _check.check_count("search", search, minimum=0), rng
    )
    if method == "density":
        return _add_exact_ratio(_audit_density(target, strongest_canary, guarantee, delta), target)
    return _add_exact_ratio(
        _audit_many_runs(audit_target, guarantee, strongest_canary, score, runs, delta, confidence, rng),
        target,
    )


def _claim_delta(guarantee: Guarantee | None) -> float:
    """Return the delta that the claim is made for."""
    return guarantee.at_delta if guarantee is not None and guarantee.at_delta is not None else 0.0


def _audit_many_runs(
    target: AuditTarget,
    guarantee: Guarantee | None,
    canary: Canary,
    score: Score | None,
    runs: int,
    delta: float,
    confidence: float,
    rng: np.random.Generator,
) -> AuditResult:
    """Run both data sets of the canary and compare scores."""
    first, second = (
        collect_outputs(target, records, runs // 2, rng, canary.name)
        for records in (canary.first, canary.second)
    )
    pair = score_runs(first, second, score or canary.score)
    return many_run_attack(*pair, guarantee, delta=delta, confidence=confidence, canary=canary.name)


def _audit_density(target: Any, canary: Canary, guarantee: Guarantee | None, delta: float) -> AuditResult:
    if not isinstance(target, Plan):
        raise InvalidParameter(
            "method='density' needs a Plan; for distributions with known densities use density_attack."
        )
    return exact_law_attack(target, canary, guarantee, delta=delta)


def _candidate_canaries(canary: Canary | str | None, problem: Problem | None) -> tuple[Canary, ...]:
    if isinstance(canary, Canary):
        if not are_neighbors(canary.first, canary.second):
            raise InvalidParameter(f"the data sets of canary {canary.name!r} differ in more than one record.")
        return (canary,)
    if problem is None:
        raise InvalidParameter(
            "state problem=Problem(...) so that canaries respect its bounds, or pass a Canary."
        )
    canary_by_name = {one.name: one for one in make_canaries(problem)}
    if canary is None:
        return tuple(canary_by_name.values())
    return (canary_by_name[_check.check_choice("canary", canary, canary_by_name)],)


def _audit_one_run(
    target: AuditTarget,
    guarantee: Guarantee | None,
    delta: float,
    confidence: float,
    n_canaries: int,
    guesses: int | None,
    rng: np.random.Generator,
) -> AuditResult:
    """Run once on orthogonal rows of maximal norm, each included by a fair coin (else blank, under replace-one)."""
    problem = target.problem
    if problem is None:
        raise InvalidParameter(
            "method='one-run' needs problem=Problem(...): its canaries are rows within the bounds."
        )
    max_canaries = min(problem.n, problem.n_features)
    if n_canaries > max_canaries:
        raise InvalidParameter(
            f"runs = {n_canaries} canaries are too many: each needs its own record and coordinate, and there are "
            f"{problem.n} records and {problem.n_features} features. Use at most {max_canaries}."
        )
    coins = rng.random(n_canaries) < 0.5
    rows = problem.bounds.data_norm * np.eye(problem.n_features)[:n_canaries]
    blank = np.zeros((problem.n - n_canaries, problem.n_features))
    X, y = np.vstack([rows * coins[:, None], blank]), np.full(problem.n, problem.bounds.label_range[1])
    if problem.adjacency == "add-remove":
        X, y = rows[coins], y[: int(coins.sum())]
    released = collect_outputs(target, (X, y), 1, rng, "the one run")[0]
    return one_run_attack(
        released[:n_canaries], coins, guarantee, delta=delta, confidence=confidence, guesses=guesses
    )


def _add_exact_ratio(result: AuditResult, target: Any) -> AuditResult:
    """Add the ratio of exact to claimed mu, for plans whose worst case is a Gaussian path."""
    spec = target.spec if isinstance(target, Plan) else None
    if not isinstance(spec, NoisyGradientSpec) or not result.claimed_mu:
        return result
    is_plain = spec.sampling in ("full", "cyclic") and spec.order == "public" and not spec.momentum
    if not is_plain or spec.release == "average" or math.isfinite(target.constants.diameter):
        return result
    return replace(result, exact_ratio=gaussian_path_mu(target.constants, spec) / result.claimed_mu)
