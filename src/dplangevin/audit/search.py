"""Adversarial search: which pair of neighbours, within the bounds, does a run tell apart best?"""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.audit.attack import certifying, chosen
from dplangevin.audit.canaries import Canary, Records, Score
from dplangevin.audit.targets import AuditTarget, outputs
from dplangevin.problem import Problem


def direction(first: Floats, second: Floats) -> Floats:
    """Fisher's linear discriminant: (pooled covariance + a little)^-1 (difference of means)."""
    gap = second.mean(axis=0) - first.mean(axis=0)
    pooled = np.atleast_2d(np.cov(first.T) + np.cov(second.T)) / 2
    ridge = 1e-6 * float(np.trace(pooled)) / len(gap) + 1e-300
    return np.asarray(np.linalg.solve(pooled + ridge * np.eye(len(gap)), gap))


def scores(first: Floats, second: Floats, score: Score | None) -> tuple[Floats, Floats]:
    """One number per run. A direction is learned from the runs that `attack` does not certify with."""
    if score is not None:
        return np.asarray(score(first), float), np.asarray(score(second), float)
    if first.shape[1] == 1:
        return first[:, 0], second[:, 0]
    along = direction(chosen(first), chosen(second))
    return first @ along, second @ along


def separation(first: Floats, second: Floats) -> float:
    """Distance of the means over the standard deviation: mu, if the scores were normal."""
    spread = float(np.sqrt((np.var(first) + np.var(second)) / 2))
    return abs(float(np.mean(first) - np.mean(second))) / (spread + 1e-300)


def pilot(target: AuditTarget, canary: Canary, runs: int, rng: np.random.Generator) -> float:
    """How well a few runs tell the pair apart, on runs that did not choose the direction."""
    first, second = (
        outputs(target, records, runs, rng, canary.name) for records in (canary.first, canary.second)
    )
    a, b = scores(first, second, canary.score)
    return separation(certifying(a), certifying(b))


def strongest(
    target: AuditTarget, candidates: tuple[Canary, ...], runs: int, mutations: int, rng: np.random.Generator
) -> Canary:
    """The candidate, or a mutation of the best, that a few runs tell apart best. Its runs are not certified."""
    if len(candidates) == 1 and not mutations:
        return candidates[0]
    rated = [(pilot(target, canary, runs, rng), canary) for canary in candidates]
    best, champion = max(rated, key=lambda item: item[0])
    for number in range(mutations):
        if target.problem is None:
            break
        rival = mutated(champion, target.problem, number, rng)
        value = pilot(target, rival, runs, rng)
        if value > best:
            best, champion = value, rival
    return champion


def mutated(canary: Canary, problem: Problem, number: int, rng: np.random.Generator) -> Canary:
    """The differing record turned or relabelled at random, in the first or in both data sets, within the bounds."""
    place = _differing(canary.first, canary.second)
    name = canary.name.split(", changed")[0] + f", changed by search ({number + 1})"
    first = _changed(canary.first, place, problem, rng)
    second = canary.second
    if problem.adjacency == "replace-one":
        second = _changed(canary.second, place, problem, rng)
    return Canary(name=name, first=first, second=second, score=canary.score)


def _changed(records: Records, place: int, problem: Problem, rng: np.random.Generator) -> Records:
    X, y = records[0].copy(), records[1].copy()
    row = X[place] + problem.bounds.data_norm * rng.choice([0.1, 0.5, 2.0]) * rng.standard_normal(X.shape[1])
    X[place] = row * problem.bounds.data_norm / max(float(np.linalg.norm(row)), 1e-300)
    low, high = problem.bounds.label_range
    if rng.random() < 0.3:
        y[place] = rng.choice([low, high])
    return X, y


def _differing(first: Records, second: Records) -> int:
    """The row of the first data set that the second exchanges or lacks."""
    rows, others = np.column_stack(first), np.column_stack(second)
    shared = min(len(rows), len(others))
    differs = np.flatnonzero(np.any(rows[:shared] != others[:shared], axis=1))
    return int(differs[0]) if differs.size else len(rows) - 1
