"""Exact Rashomon sets of data that are NOT private, by convex optimisation: a reference for the private region.

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
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective, majorant_curvature
from dplangevin.problem import Problem
from dplangevin.rashomon.estimator_adapter import EstimatorAdapter
from dplangevin.rashomon.region_request import PublicRows

_N_PROFILE_STEPS = 60
_ROWS_PER_BLOCK = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactRegion:
    """An exact Rashomon set, of data that are not private.

    Parameters
    ----------
    thresholds : the thresholds psi, increasing.
    best : the minimiser of F.
    reference : the model that thresholds are relative to.
    gap : F(reference) - F(best).
    flip_costs : per input, how much worse than the reference a model must be to decide otherwise; always finite.
    low, high : viable scores per threshold, [thresholds, inputs]; None unless requested.
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
        """Fraction of inputs that some model of the set decides otherwise than the reference, per threshold."""
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
    """Compute the exact Rashomon set of `model` (an estimator of this library) on X, y: NOT private.

    Parameters
    ----------
    inputs : inputs to be decided; X itself by default.
    reference : parameters, features first and then the intercept, or a fitted estimator; None is the best model.
    ranges : also compute the ranges of viable scores.

    Examples
    --------
    >>> from dplangevin import DPLogisticRegression
    >>> X, y = [[-0.6], [-0.2], [-0.1], [0.3], [0.8]] * 50, [0, 0, 1, 0, 1] * 50
    >>> model = DPLogisticRegression(data_norm=1.0, classes=[0, 1])
    >>> exact_region(model, X, y, [0.01, 0.1], inputs=X[:5]).ambiguity
    (0.2, 0.8)
    """
    sorted_thresholds = tuple(
        sorted({_check.check_positive("a threshold", value) for value in np.atleast_1d(thresholds).tolist()})
    )
    adapter = EstimatorAdapter(
        model, None, 0.0, ledger=getattr(model, "ledger", None), owner=None, needs_radius=False
    )
    solver, problem = _read_problem(adapter, X, y)
    input_rows = PublicRows.from_inputs(adapter, problem, X if inputs is None else inputs).rows
    best = solver.find_minimum()
    reference_parameters = (
        best
        if reference is None
        else _reference_parameters(reference, adapter, len(best), problem.fit_intercept)
    )
    reference_value = float(solver.objective_values(reference_parameters[:, None])[0])
    best_value = float(solver.objective_values(best[:, None])[0])
    flip_values = solver.profile_objective(input_rows, np.zeros(len(input_rows)), best)[0]
    decides_as_reference = (input_rows @ best > 0) == (
        input_rows @ reference_parameters > 0
    )  # otherwise the best model itself decides otherwise
    costs = np.where(decides_as_reference, flip_values, best_value) - reference_value
    low, high = (
        solver.score_ranges(input_rows, reference_parameters, reference_value, sorted_thresholds)
        if ranges
        else (None, None)
    )
    return ExactRegion(
        thresholds=sorted_thresholds,
        best=best,
        reference=reference_parameters,
        gap=reference_value - best_value,
        flip_costs=np.maximum(costs, 0.0),
        low=low,
        high=high,
    )


def _read_problem(adapter: EstimatorAdapter, X: Any, y: Any) -> tuple[_ProfileSolver, Problem]:
    """Return a solver of the objective on the records, clipped as the estimator clips them, and the problem."""
    rows, targets, target_encoder = adapter.read_records(X, y)
    stated_request = adapter.estimator.planning_request(
        rows.shape[0], rows.shape[1], target_encoder.n_classes
    )
    request = replace(stated_request, mechanism="auto", theorem=None)
    loss = request.make_loss(None)
    if loss.score_dimension != 1:
        raise InvalidParameter(
            "the exact region needs a model with one score; with more than two classes, compare one class with "
            "the rest."
        )
    bound = 2.0 if np.isinf(loss.slope_bound) else None  # the bounds of records do not depend on the clip
    problem = request.make_problem(bound, adapter.alpha)
    clipped, labels, _ = problem.bounds.clip(rows, target_encoder(targets))
    joint = np.column_stack([clipped, np.ones(len(clipped))]) if problem.fit_intercept else clipped
    objective = RegionObjective.from_problem(problem, loss, adapter.alpha)
    return _ProfileSolver(objective, np.asarray(joint, float), labels), problem


def _reference_parameters(reference: Any, adapter: EstimatorAdapter, size: int, intercept: bool) -> Floats:
    if hasattr(reference, "coef_"):
        half_range, center = adapter.prediction_scale()
        parameters = np.ravel(reference.coef_) / half_range
        if intercept:
            parameters = np.append(parameters, (np.ravel(reference.intercept_)[0] - center) / half_range)
    else:
        parameters = np.ravel(np.asarray(reference, float))
    if parameters.shape != (size,):
        raise InvalidParameter(f"reference must hold {size} parameters, features first, then the intercept.")
    return np.asarray(parameters, float)


class _ProfileSolver:
    """The objective F on records in memory, and its minimisers under x' theta = s for many x at once."""

    def __init__(self, objective: RegionObjective, rows: Floats, labels: Floats) -> None:
        self.objective, self.rows, self.labels = objective, rows, labels
        moment = rows.T @ rows / objective.n * objective.loss.curvature_bound
        ridge = max(objective.ridge, 1e-9 * float(np.trace(moment)))
        self.metric = np.linalg.inv(moment + ridge * np.eye(rows.shape[1]))

    def objective_values(self, theta: Floats) -> Floats:
        """Return F of each column of theta."""
        losses = np.zeros(theta.shape[1])
        for part in self._row_blocks():
            losses += self.objective.loss.sum_values(self.rows[part] @ theta, self.labels[part, None])
        return np.asarray(losses / self.objective.n + self.objective.ridge / 2 * np.square(theta).sum(axis=0))

    def objective_gradients(self, theta: Floats) -> Floats:
        """Return the gradient of F at each column of theta."""
        total = np.zeros(theta.shape)
        for part in self._row_blocks():
            slopes = self.objective.loss.slope(self.rows[part] @ theta, self.labels[part, None])
            total += self.rows[part].T @ slopes
        return np.asarray(total / self.objective.n + self.objective.ridge * theta)

    def _row_blocks(self) -> list[slice]:
        """Return blocks of rows small enough for their scores to stay in the processor's cache."""
        return [slice(first, first + _ROWS_PER_BLOCK) for first in range(0, len(self.rows), _ROWS_PER_BLOCK)]

    def find_minimum(self) -> Floats:
        """Return the minimiser of F."""
        solution = minimize(  # type: ignore[call-overload]
            lambda theta: (
                float(self.objective_values(theta[:, None])[0]),
                self.objective_gradients(theta[:, None])[:, 0],
            ),
            np.zeros(self.rows.shape[1]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10},
        )
        return np.asarray(solution.x)

    def inverse_majorant(self, center: Floats) -> Floats:
        """Return the inverse of the majorising curvature at the centre."""
        weights = majorant_curvature(self.objective.loss, self.rows @ center, self.labels)
        matrix = self.rows.T @ (weights[:, None] * self.rows) / self.objective.n
        ridge = max(self.objective.ridge, 1e-9 * float(np.trace(matrix)))
        return np.asarray(np.linalg.inv(matrix + ridge * np.eye(len(center))), np.float64)

    def profile_objective(
        self, inputs: Floats, scores: Floats, start: Floats, steps: int = _N_PROFILE_STEPS
    ) -> tuple[Floats, Floats]:
        """Return min F over x' theta = s for every input, and the minimisers [p, k].

        After finitely many `steps` the minimum is an upper bound, and close.
        """
        start = start if start.ndim == 2 else np.repeat(start[:, None], len(inputs), axis=1)
        ends = self.metric @ inputs.T
        lengths = np.maximum((inputs.T * ends).sum(axis=0), 1e-300)

        def project_on_plane(theta: Floats) -> Floats:
            return np.asarray(theta + ends * ((scores - (inputs.T * theta).sum(axis=0)) / lengths))

        point = ahead = project_on_plane(start)
        momentum = np.ones(len(inputs))
        for _ in range(steps):
            slopes = self.objective_gradients(ahead)
            following = project_on_plane(ahead - self.metric @ slopes)
            went_uphill = (slopes * (following - point)).sum(axis=0) > 0
            momentum = np.where(went_uphill, 1.0, momentum)  # restart there
            next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = following + (momentum - 1) / next_momentum * (following - point)
            point, momentum = following, next_momentum
        return self.objective_values(point), point

    def score_ranges(
        self, inputs: Floats, center: Floats, base: float, thresholds: tuple[float, ...]
    ) -> tuple[Floats, Floats]:
        """Return the scores at which the profile meets each threshold.

        sqrt(e) is nearly linear in s, so a few secant steps are enough.
        """
        middle, ends = inputs @ center, []
        spread = np.sqrt(
            np.maximum((inputs.T * (self.inverse_majorant(center) @ inputs.T)).sum(axis=0), 1e-300)
        )
        for side in (-1.0, 1.0):
            rows, start, step = [], np.repeat(center[:, None], len(inputs), axis=1), 0.0 * spread
            for psi in thresholds:
                step = np.maximum(step, np.sqrt(2 * psi) * spread)
                low = np.zeros(len(inputs))
                for turn in range(8):
                    values, start = self.profile_objective(
                        inputs, middle + side * step, start, 25 if turn else _N_PROFILE_STEPS
                    )
                    excess = values - base
                    low = np.where(excess <= psi, np.maximum(low, step), low)
                    step = step * np.sqrt(0.999 * psi / np.maximum(excess, 0.25 * psi))
                rows.append(middle + side * low)
            ends.append(np.array(rows))
        return ends[0], ends[1]
