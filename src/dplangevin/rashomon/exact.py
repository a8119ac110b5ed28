"""The exact twin of a region, for data that are NOT private: the same questions answered by convex optimisation.

For an input x, e(s) = min {F(theta): x' theta = s} - F(reference) is convex in s. Its level set {e <= psi} is the
viable range of scores, and e(0) is the flip cost, from which ambiguity follows at every threshold at once. All inputs
are solved together by accelerated gradient steps in the metric of the largest curvature.

References: Marx, Calmon and Ustun (2020); Watson-Daniels, Parkes and Ustun (2023).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.families.rashomon_region.objective import RegionObjective, majorant
from dplangevin.problem import Problem
from dplangevin.rashomon.public_rows import PublicRows
from dplangevin.rashomon.template import Template

_STEPS = 60
_ROWS = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactRegion:
    """The set itself, on data that are not private.

    Parameters
    ----------
    best : the minimiser of F. reference : the model that thresholds are relative to. gap : F(reference) - F(best).
    flip_costs : per input, how much worse a model must be to decide otherwise (infinite never happens: a convex loss
        has such a model). low, high : viable scores per threshold, [thresholds, inputs]; None unless asked for.
    """

    thresholds: tuple[float, ...]
    best: Floats
    reference: Floats
    gap: float
    flip_costs: Floats
    low: Floats | None
    high: Floats | None

    @property
    def ambiguity(self) -> tuple[float, ...]:
        """Share of inputs that some model of the set decides otherwise than the reference, per threshold."""
        return tuple(float(np.mean(self.flip_costs <= psi)) for psi in self.thresholds)


def exact_region(
    model: Any,
    X: Any,
    y: Any,
    thresholds: Any,
    *,
    inputs: Any = None,
    reference: Any = None,
    ranges: bool = True,
) -> ExactRegion:
    """The region of `model` (an estimator of this library) on X, y, which it reads as they are: NOT private.

    inputs : those asked about; X itself by default. reference : parameters, features first and then the intercept, or a
        fitted estimator; None is the best model. ranges : also the ends of the viable scores.

    Examples
    --------
    >>> from dplangevin import DPLogisticRegression
    >>> X, y = [[-0.6], [-0.2], [-0.1], [0.3], [0.8]] * 50, [0, 0, 1, 0, 1] * 50
    >>> model = DPLogisticRegression(data_norm=1.0, classes=[0, 1])
    >>> exact_region(model, X, y, [0.01, 0.1], inputs=X[:5]).ambiguity
    (0.2, 0.8)
    """
    psi = tuple(
        sorted({_check.positive("a threshold", value) for value in np.atleast_1d(thresholds).tolist()})
    )
    template = Template(model, None, 0.0, ledger=getattr(model, "ledger", None), owner=None, bounded=False)
    solver, problem = _read(template, X, y)
    asked = PublicRows.read(template, problem, X if inputs is None else inputs).rows
    best = solver.minimum()
    middle = best if reference is None else _parameters(reference, template, len(best), problem.fit_intercept)
    base = float(solver.values(middle[:, None])[0])
    lowest = float(solver.values(best[:, None])[0])
    walls = solver.profile(asked, np.zeros(len(asked)), best)[0]
    agree = (asked @ best > 0) == (asked @ middle > 0)  # else the best model itself decides otherwise
    costs = np.where(agree, walls, lowest) - base
    low, high = solver.ranges(asked, middle, base, psi) if ranges else (None, None)
    return ExactRegion(
        thresholds=psi,
        best=best,
        reference=middle,
        gap=base - lowest,
        flip_costs=np.maximum(costs, 0.0),
        low=low,
        high=high,
    )


def _read(template: Template, X: Any, y: Any) -> tuple[_Solver, Problem]:
    """The records as the estimator would clip them, with the plain objective."""
    rows, targets, encode = template.read(X, y)
    told = template.estimator.request(rows.shape[0], rows.shape[1], encode.n_classes)
    request = replace(told, mechanism="auto", theorem=None)
    loss = request.loss(None)
    if loss.score_dimension != 1:
        raise InvalidParameter(
            "the exact region is offered for models of one score; with more classes, ask about one against the rest."
        )
    bound = 2.0 if np.isinf(loss.slope_bound) else None  # the bounds of records do not depend on the clip
    problem = request.problem(bound, template.alpha)
    clipped, labels, _ = problem.bounds.clip(rows, encode(targets))
    joint = np.column_stack([clipped, np.ones(len(clipped))]) if problem.fit_intercept else clipped
    objective = RegionObjective.of(problem, loss, template.alpha)
    return _Solver(objective, np.asarray(joint, float), labels), problem


def _parameters(reference: Any, template: Template, size: int, intercept: bool) -> Floats:
    if hasattr(reference, "coef_"):
        half, centre = template.scale()
        given = np.ravel(reference.coef_) / half
        if intercept:
            given = np.append(given, (np.ravel(reference.intercept_)[0] - centre) / half)
    else:
        given = np.ravel(np.asarray(reference, float))
    if given.shape != (size,):
        raise InvalidParameter(f"reference must hold {size} parameters, features first, then the intercept.")
    return np.asarray(given, float)


class _Solver:
    """F on records in memory, and its minimisers under x' theta = s for many x at once."""

    def __init__(self, objective: RegionObjective, rows: Floats, labels: Floats) -> None:
        self.objective, self.rows, self.labels = objective, rows, labels
        moment = rows.T @ rows / objective.n * objective.loss.curvature_bound
        ridge = max(objective.ridge, 1e-9 * float(np.trace(moment)))
        self.metric = np.linalg.inv(moment + ridge * np.eye(rows.shape[1]))

    def values(self, theta: Floats) -> Floats:
        """F of each column."""
        losses = np.zeros(theta.shape[1])
        for part in self._parts():
            losses += self.objective.loss.total(self.rows[part] @ theta, self.labels[part, None])
        return np.asarray(losses / self.objective.n + self.objective.ridge / 2 * np.square(theta).sum(axis=0))

    def gradients(self, theta: Floats) -> Floats:
        """Of each column."""
        total = np.zeros(theta.shape)
        for part in self._parts():
            slopes = self.objective.loss.slope(self.rows[part] @ theta, self.labels[part, None])
            total += self.rows[part].T @ slopes
        return np.asarray(total / self.objective.n + self.objective.ridge * theta)

    def _parts(self) -> list[slice]:
        """Blocks of rows whose scores stay in the cache."""
        return [slice(first, first + _ROWS) for first in range(0, len(self.rows), _ROWS)]

    def minimum(self) -> Floats:
        """The best model."""
        found = minimize(  # type: ignore[call-overload]
            lambda theta: (float(self.values(theta[:, None])[0]), self.gradients(theta[:, None])[:, 0]),
            np.zeros(self.rows.shape[1]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10},
        )
        return np.asarray(found.x)

    def shape(self, centre: Floats) -> Floats:
        """The inverse of the majorant at the centre."""
        weights = majorant(self.objective.loss, self.rows @ centre, self.labels)
        matrix = self.rows.T @ (weights[:, None] * self.rows) / self.objective.n
        ridge = max(self.objective.ridge, 1e-9 * float(np.trace(matrix)))
        return np.asarray(np.linalg.inv(matrix + ridge * np.eye(len(centre))), np.float64)

    def profile(
        self, inputs: Floats, scores: Floats, start: Floats, steps: int = _STEPS
    ) -> tuple[Floats, Floats]:
        """min F over x' theta = s for every input, and the minimisers [p, k]; an upper bound, close after `steps`."""
        start = start if start.ndim == 2 else np.repeat(start[:, None], len(inputs), axis=1)
        ends = self.metric @ inputs.T
        lengths = np.maximum((inputs.T * ends).sum(axis=0), 1e-300)

        def on_plane(theta: Floats) -> Floats:
            return np.asarray(theta + ends * ((scores - (inputs.T * theta).sum(axis=0)) / lengths))

        point = ahead = on_plane(start)
        momentum = np.ones(len(inputs))
        for _ in range(steps):
            slopes = self.gradients(ahead)
            following = on_plane(ahead - self.metric @ slopes)
            turned = (slopes * (following - point)).sum(axis=0) > 0
            momentum = np.where(turned, 1.0, momentum)  # restart where the step went uphill
            grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = following + (momentum - 1) / grown * (following - point)
            point, momentum = following, grown
        return self.values(point), point

    def ranges(
        self, inputs: Floats, centre: Floats, base: float, thresholds: tuple[float, ...]
    ) -> tuple[Floats, Floats]:
        """Scores at which the profile meets each threshold; sqrt(e) is nearly linear in s, so a few secants do."""
        middle, found = inputs @ centre, []
        spread = np.sqrt(np.maximum((inputs.T * (self.shape(centre) @ inputs.T)).sum(axis=0), 1e-300))
        for side in (-1.0, 1.0):
            rows, start, step = [], np.repeat(centre[:, None], len(inputs), axis=1), 0.0 * spread
            for psi in thresholds:
                step = np.maximum(step, np.sqrt(2 * psi) * spread)
                low = np.zeros(len(inputs))
                for turn in range(8):
                    values, start = self.profile(inputs, middle + side * step, start, 25 if turn else _STEPS)
                    excess = values - base
                    low = np.where(excess <= psi, np.maximum(low, step), low)
                    step = step * np.sqrt(0.999 * psi / np.maximum(excess, 0.25 * psi))
                rows.append(middle + side * low)
            found.append(np.array(rows))
        return found[0], found[1]
