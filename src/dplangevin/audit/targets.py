"""What can be audited: a plan, an estimator, or any callable (X, y, rng) -> vector."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._progress import progress
from dplangevin.audit.canaries import Records
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.families.mechanism import run
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Plan, Price
from dplangevin.problem import Problem

Runner = Callable[[np.random.Generator], Any]


@dataclass(frozen=True, kw_only=True)
class AuditTarget:
    """Something that is run many times: `on(X, y)` prepares a data set and gives a function of the generator."""

    on: Callable[[Floats, Floats], Runner]
    claim: Guarantee | None
    problem: Problem | None


def as_target(target: Any, problem: Problem | None, n: int | None, n_features: int | None) -> AuditTarget:
    """The target of an audit from what the user has: a Plan, an estimator or a callable."""
    if isinstance(target, Price) and not isinstance(target, Plan):
        raise InvalidParameter("this price has constants but no problem, so it cannot be run, nor audited.")
    if isinstance(target, Plan):
        return _plan_target(target)
    if hasattr(target, "fit") and hasattr(target, "get_params"):
        return _estimator_target(target, problem, n, n_features)
    if callable(target):
        return AuditTarget(on=lambda X, y: lambda rng: target(X, y, rng), claim=None, problem=problem)
    raise InvalidParameter(
        f"target must be a Plan, an estimator or a callable (X, y, rng) -> vector, got {type(target).__name__}."
    )


def _plan_target(plan: Plan) -> AuditTarget:
    problem = plan.problem

    def on(X: Floats, y: Floats) -> Runner:
        data = ArrayDataset(X, y, problem)
        return lambda rng: run(plan, data, rng).value

    return AuditTarget(on=on, claim=plan.guarantee, problem=problem)


def _estimator_target(
    estimator: Any, problem: Problem | None, n: int | None, n_features: int | None
) -> AuditTarget:
    """Fits of copies of the estimator; its plan is read from a fit on blank rows of the stated shape."""
    from sklearn.base import clone

    known = estimator.get_params()
    free = {"ledger": None} if "ledger" in known else {}

    def fitted(X: Floats, y: Floats, seed: int | None) -> Any:
        seeded = {"random_state": seed} if "random_state" in known else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # canaries are small and odd on purpose
            return clone(estimator).set_params(**free, **seeded).fit(X, y)

    claim = None
    if problem is None:
        if n is None or n_features is None:
            raise InvalidParameter(
                "an estimator needs n and n_features, the shape of the data that it would see."
            )
        ends = np.asarray(_labels(estimator, np.array([0.0, 1.0])))
        model = fitted(np.zeros((n, n_features)), ends[np.arange(n) % 2], 0)
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

    def on(X: Floats, y: Floats) -> Runner:
        labels = _labels(estimator, (y - low) / (high - low))

        def once(rng: np.random.Generator) -> Floats:
            model = fitted(X, labels, int(rng.integers(2**31)))
            return np.concatenate([np.ravel(model.coef_), np.ravel(model.intercept_)])

        return once

    return AuditTarget(on=on, claim=claim, problem=problem)


def _labels(estimator: Any, share: Floats) -> Any:
    """Labels in the estimator's own units, from their place between the lowest (0) and the highest (1)."""
    bounds = getattr(estimator, "target_bounds", None)
    if bounds is not None:
        return bounds[0] + share * (bounds[1] - bounds[0])
    classes = getattr(estimator, "classes", None)
    stated = np.array([0, 1]) if classes is None else np.unique(np.asarray(classes))
    return stated[np.rint(share * (len(stated) - 1)).astype(int)]


def outputs(target: AuditTarget, records: Records, runs: int, rng: np.random.Generator, name: str) -> Floats:
    """Released vectors [runs, dimension] on one data set; anything else is refused."""
    once = target.on(*records)
    first = _vector(once(rng), name, 0, None)
    found = np.empty((runs, len(first)))
    found[0] = first
    for i in progress(range(1, runs), f"runs on {name}"):
        found[i] = _vector(once(rng), name, i, len(first))
    return found


def _vector(value: Any, name: str, index: int, size: int | None) -> Floats:
    try:
        vector = np.atleast_1d(np.asarray(value, float))
    except (TypeError, ValueError):
        raise InvalidParameter(
            f"run {index} on {name} returned {type(value).__name__}; the mechanism must return a vector of numbers."
        ) from None
    if vector.ndim != 1 or (size is not None and len(vector) != size):
        wanted = "a vector" if size is None else f"shape ({size},), as the first run did"
        raise InvalidParameter(
            f"run {index} on {name} returned shape {vector.shape}; it must return {wanted}."
        )
    if not np.isfinite(vector).all():
        raise InvalidParameter(
            f"run {index} on {name} returned a value that is not finite (NaN or infinity); a release must be finite."
        )
    return vector
