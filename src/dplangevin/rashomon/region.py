"""RashomonRegion: one release, then any number of certified models; and the exact set of data that are NOT private.

For an input x, e(s) = min {F(theta): x' theta = s} - F(reference) is convex in s. Its level set {e <= psi} is the
viable range of scores, and e(0) is the flip cost, from which ambiguity follows at every threshold at once. All inputs
are solved together by accelerated gradient steps in the metric of the largest curvature.

References: Marx, Calmon and Ustun (2020); Watson-Daniels, Parkes and Ustun (2023).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import SharedGenerator
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.adapter import (
    TargetEncoder,
    WithCallContext,
    have_shared_rows,
    plan_with_public_data,
    warn_about_shared_rows,
)
from dplangevin.mechanisms.mechanism import check_seed, run_plan
from dplangevin.mechanisms.rashomon_region.mechanism import RegionRelease, run_region
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective, majorant_curvature
from dplangevin.mechanisms.rashomon_region.planning import (
    DELTA_REQUIRED_MESSAGE,
    MIN_USEFUL_SCALE,
    RegionPlan,
    center_epsilon,
    plan_region,
)
from dplangevin.mechanisms.run_state import CheckpointPath
from dplangevin.planner.fit_plan import Request, plan_gaussian_fit
from dplangevin.problem import Problem
from dplangevin.rashomon.estimator_adapter import EstimatorAdapter
from dplangevin.rashomon.region_request import PublicRows, RegionRequest, threshold_index
from dplangevin.rashomon.region_table import RegionTable

REFERENCE_MODELS = ("released", "best")
SHARED_INPUTS_MESSAGE = (
    "public_inputs and X share rows of one array: public inputs are published as they are, so a record in both has no "
    "protection at all. Give separate public inputs."
)


@dataclass(eq=False, repr=False)
class RashomonRegion(WithCallContext, BaseEstimator):  # type: ignore[misc]
    """Certified models whose objective is within a threshold of the released model's (or of the best).

    `fit` makes three releases (a private centre, a majorising curvature, one slack) under one composed guarantee; all
    models, ranges and metrics are post-processing of them.

    Parameters
    ----------
    estimator : an unfitted estimator of this library; its model, data_norm or schema, classes or target_bounds, alpha,
        fit_intercept, adjacency, mechanism and public_data are used, its epsilon and delta are not.
    thresholds : psi, one or several, on F = (1/n) sum loss + (alpha/2) |theta|^2 with the model's plain loss (alpha = 0
        unless stated; regressors other than Poisson: of the target scaled to [-1, 1]). They share the release.
    epsilon, delta : the guarantee for everything together; delta > 0.
    public_inputs : PUBLIC inputs to compare the models on; models are certified at both ends of each input's range.
        Other inputs can be evaluated later, with narrower ranges.
    public_labels, groups : of these inputs, for reliance and fairness.
    n_models : number of models to draw per threshold. confidence : that ALL certified statements hold.
    reference : "released": relative to the released model. "best": relative to the best model within `radius` of it
        (the estimator's radius, or the planner's default), to which a bound is released with part of the budget.
    outer : also bound the predictions of EVERY model of the set (logistic and squared loss, at most ten columns); uses
        part of the budget, and may still prove nothing at small n or epsilon.
    flip_shares : also bound, from both sides, the threshold at which each of these fractions of the inputs (the first
        100) can be decided otherwise by a model within `radius`; two classes; uses part of the budget, and time.
    ledger, checkpoint, random_state, verbose : as in the estimators.

    Attributes
    ----------
    models_ : n_models fitted estimators of the largest threshold (`models(threshold)` gives the others), certified.
    center_ : the released model. scale_ : mean and smallest scale of the certified points per threshold.
    unidentified_ : directions whose eigenvalues are below the noise.
    gap_bound_ : bound on F(center) - F(best), None unless reference="best".
    inner_region_ : for reference="best", (U, radii): every model within the radii, in the norm of U, is certified; None
        where none is.
    flip_levels_ : one for each of flip_shares.
    privacy_ : the composed guarantee. plan_ : what was planned. release_ : everything released.

    Notes
    -----
    **Privacy.** privacy_ covers everything that is stored in the fitted object: (epsilon, delta) for centre,
    curvature and slack together, and for whatever is computed from them. The public inputs are not protected.

    Examples
    --------
    >>> from dplangevin import DPLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2)) / 2**0.5
    >>> y = X[:, 0] + 0.3 * rng.standard_normal(20_000) > 0
    >>> public = rng.uniform(-1, 1, (100, 2)) / 2**0.5
    >>> model = DPLogisticRegression(data_norm=1.0, classes=[False, True], fit_intercept=False)
    >>> region = RashomonRegion(model, thresholds=(0.01, 0.05), epsilon=1.0, delta=1e-6, public_inputs=public,
    ...                         random_state=0).fit(X, y)
    >>> len(region.models_), bool(region.privacy_.epsilon() <= 1.0), bool(region.scale_[0.05][0] > 0.7)
    (100, True, True)
    """

    estimator: Any = None
    _: KW_ONLY
    thresholds: Any = (0.01, 0.02, 0.05)
    epsilon: float = 1.0
    delta: float = 1e-6
    public_inputs: Any = None
    public_labels: Any = None
    groups: Any = None
    n_models: int = 100
    confidence: float = 0.95
    reference: str = "released"
    outer: bool = False
    flip_shares: Any = ()
    ledger: BudgetAccount | None = None
    checkpoint: CheckpointPath = None
    random_state: Any = None
    verbose: bool = False

    def plan(self, n: int, n_features: int, n_classes: int = 2) -> RegionPlan:
        """Plan the releases for n rows of n_features encoded columns, and what to expect; no data is needed."""
        adapter = self._build_adapter()
        return self._plan_release(
            adapter, adapter.estimator.planning_request(n, n_features, n_classes), None
        )[0]

    def fit(self, X: Any, y: Any) -> RashomonRegion:
        """Release the region; the guarantee covers everything that is stored."""
        adapter = self._build_adapter()
        warn_about_shared_rows(self.estimator.public_data, X)
        if have_shared_rows(self.public_inputs, X):
            warnings.warn(SHARED_INPUTS_MESSAGE, UserWarning, stacklevel=2)
        outline, target_encoder = adapter.outline(X, y)
        divisor = adapter.estimator.public_divisor(outline.shape[0])
        request = adapter.estimator.planning_request(divisor, outline.shape[1], target_encoder.n_classes)
        public_rows = PublicRows.from_inputs(
            adapter,
            request,
            self.public_inputs,
            labels=self.public_labels,
            groups=self.groups,
            target_encoder=target_encoder,
        )
        plan, mechanism = self._plan_release(adapter, request, target_encoder)
        self._warn_about_noise(plan)
        region_request = public_rows.build_request(plan.objective.loss, self.n_models)
        if self.verbose:
            print(plan)
        data = adapter.estimator.reader(outline, plan.center.problem, target_encoder)

        def release_center(shared: SharedGenerator) -> Any:
            if mechanism is None:
                return run_plan(plan.center, data, shared)
            return mechanism.run(plan.center, data, shared)

        self._print_stage("fitting the centre, then its curvature, then the slack of all points")
        release = run_region(
            plan,
            data,
            release_center,
            region_request.draw_directions,
            self.random_state,
            public=region_request.digest() + ("" if mechanism is None else str(mechanism._run_settings())),
            inputs=public_rows.rows,
            ledger=self.ledger,
            checkpoint=self.checkpoint,
        )
        self._store_release(adapter, plan, release, region_request, public_rows)
        return self

    def models(self, threshold: float | None = None) -> list[Any]:
        """Return the drawn models of a threshold (the largest by default) as fitted estimators; each is certified."""
        check_is_fitted(self, "release_")
        psi = self.plan_.thresholds
        index = threshold_index(psi[-1] if threshold is None else threshold, psi)
        return [
            self._build_model(theta) for theta in self.release_.certified_points(index)[:, : self.n_models].T
        ]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of the models' coefficients."""
        check_is_fitted(self, "models_")
        return self.models_[0].get_feature_names_out(input_features)  # type: ignore[no-any-return]

    def multiplicity(self, X: Any = None) -> RegionTable:
        """Return ranges, ambiguity, discrepancy, coefficients, capacity, reliance, fairness and flip costs.

        X : None for the public inputs that were stated. Other PUBLIC inputs are evaluated on the certified models at
        hand: the same confidence, but narrower ranges than if they had been stated.
        """
        check_is_fitted(self, "release_")
        if X is None:
            return RegionTable.from_release(
                self.release_, self.plan_, self._request, self._public_rows, inputs_were_stated=True
            )
        public_rows = PublicRows.from_inputs(self._adapter, self.plan_.center.problem, X)
        region_request = public_rows.build_request(self.plan_.objective.loss, self.n_models)
        return RegionTable.from_release(
            self.release_, self.plan_, region_request, public_rows, inputs_were_stated=False
        )

    def _store_release(
        self,
        adapter: EstimatorAdapter,
        plan: RegionPlan,
        release: RegionRelease,
        region_request: RegionRequest,
        public_rows: PublicRows,
    ) -> None:
        self._adapter, self._request, self._public_rows = adapter, region_request, public_rows
        self.plan_, self.release_, self.ledger_head_ = plan, release, release.ledger_head
        self.privacy_ = replace(
            adapter.guarantee_of_fit(plan.guarantee, release.seeded), at_delta=plan.center.delta
        )
        self.gap_bound_ = release.gap
        self.inner_region_, self.flip_levels_ = release.inner_region, release.flips
        self.unidentified_ = release.ellipsoid.unidentified
        self.scale_ = {
            psi: (float(scales.mean()), float(scales.min()))
            for psi, scales in zip(plan.thresholds, release.scales, strict=True)
        }
        self.center_ = self._build_model(release.center)
        self.models_ = self.models()
        self.feature_names_ = tuple(map(str, self.center_.get_feature_names_out()))
        self.n_features_in_ = adapter.estimator.n_features_in_
        if hasattr(adapter.estimator, "classes_"):
            self.classes_ = adapter.estimator.classes_
        for psi, (mean, _) in self.scale_.items():
            if mean < MIN_USEFUL_SCALE:
                warnings.warn(_narrow_region_message(psi, mean, plan, release), UserWarning, stacklevel=3)

    def _build_model(self, theta: Floats) -> Any:
        problem = self.plan_.center.problem
        loss, head = self.plan_.objective.loss, self.ledger_head_
        return self._adapter.build_model(theta, problem, self.privacy_, self.plan_, loss, head=head)

    def _build_adapter(self) -> EstimatorAdapter:
        """Return the adapter with the centre's budget; raise before anything is read if an option is not supported."""
        adapter = EstimatorAdapter(
            self.estimator, None, 0.0, ledger=self.ledger, owner=self, needs_radius=False
        )
        estimator = adapter.estimator
        if self.delta is None or self.delta == 0:
            raise InvalidParameter(DELTA_REQUIRED_MESSAGE)
        check_seed(estimator.secure, self.random_state)
        if estimator.intervals or estimator.compare:
            raise InvalidParameter("intervals and compare are not supported by a region; leave them out.")
        estimator.set_params(epsilon=center_epsilon(self.epsilon, self.delta), delta=self.delta)
        _check.check_count("n_models", self.n_models)
        _check.check_open_unit("confidence", self.confidence)
        _check.check_choice("reference", self.reference, REFERENCE_MODELS)
        self._sorted_thresholds()
        return adapter

    def _sorted_thresholds(self) -> tuple[float, ...]:
        values = np.atleast_1d(np.asarray(self.thresholds, object))
        if values.ndim != 1 or values.size == 0:
            raise InvalidParameter("thresholds must be one positive number or a list of them.")
        return tuple(sorted({_check.check_positive("a threshold", value) for value in values.tolist()}))

    def _sorted_flip_shares(self) -> tuple[float, ...]:
        values = (
            () if self.flip_shares is None else np.atleast_1d(np.asarray(self.flip_shares, object)).tolist()
        )
        return tuple(sorted({_check.check_open_unit("a flip share", value) for value in values}))

    def _plan_release(
        self, adapter: EstimatorAdapter, request: Request, target_encoder: TargetEncoder | None
    ) -> tuple[RegionPlan, Any]:
        """Return the joint plan, and the mechanism of the centre where it needs more than its plan."""
        estimator, mechanism = adapter.estimator, None
        if estimator.public_data is not None:
            target_encoder = (
                estimator.target_encoder(estimator.public_data[1])
                if target_encoder is None
                else target_encoder
            )
            center_plan, mechanism = plan_with_public_data(estimator, target_encoder, request)
        else:
            center_plan = plan_gaussian_fit(request).plan
        request = replace(request, mechanism="auto", theorem=None)
        objective = RegionObjective.from_problem(center_plan.problem, request.make_loss(None), adapter.alpha)
        coef_bound = estimator.radius or request.defaults.coef_bound / center_plan.problem.row_norm
        plan = plan_region(
            center_plan,
            objective,
            thresholds=self._sorted_thresholds(),
            epsilon=self.epsilon,
            delta=self.delta,
            confidence=self.confidence,
            best=self.reference == "best",
            radius=coef_bound,
            outer=_check.check_flag("outer", self.outer),
            flip_shares=self._sorted_flip_shares(),
            secure=estimator.secure,
        )
        return plan, mechanism

    def _warn_about_noise(self, plan: RegionPlan) -> None:
        """Warn of thresholds at which mostly noise is expected, before the budget is charged."""
        for psi in plan.thresholds:
            if plan.expected_scale(psi) < MIN_USEFUL_SCALE:
                warnings.warn(
                    f"at psi = {psi:g} the noise is expected to shrink the region below half its width where "
                    "eigenvalues "
                    f"are below the noise; about {plan.min_records(psi):,} records, a larger epsilon or psi = "
                    f"{plan.min_threshold:.2g} would avoid this.",
                    UserWarning,
                    stacklevel=3,
                )

    def _print_stage(self, stage: str) -> None:
        if self.verbose:
            print(f"Region: {stage}.")


def _narrow_region_message(psi: float, mean: float, plan: RegionPlan, release: RegionRelease) -> str:
    """Explain a small scale, and which n or epsilon would avoid it."""
    if release.gap is not None and release.gap >= psi:
        return (
            f"psi = {psi:g} certifies nothing relative to the best model: the bound on the gap is {release.gap:.3g}; "
            "ask for a larger threshold, or for reference='released'."
        )
    factor = (
        1 / max(mean, 1e-3) - 1
    ) ** 2  # the lost part falls about as 1 / sqrt(n), and as 1 / sqrt(epsilon)
    return (
        f"at psi = {psi:g} the certified points are scaled to {mean:.2f} of the region on average: about "
        f"{math.ceil(factor * plan.objective.n):,} records, or epsilon = {factor * _spent_epsilon(plan):.2g}, "
        "would give 0.5."
    )


def _spent_epsilon(plan: RegionPlan) -> float:
    return plan.guarantee.epsilon(plan.center.delta)


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
