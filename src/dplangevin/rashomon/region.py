"""RashomonRegion: one release, then any number of certified models and measures of multiplicity."""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import SharedGenerator
from dplangevin.accounting.budget_account import BudgetAccount
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.adapter import (
    TargetEncoder,
    WithCallContext,
    have_shared_rows,
    plan_with_public_data,
    warn_about_shared_rows,
)
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.rashomon_region.mechanism import RegionRelease, run_region
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective
from dplangevin.mechanisms.rashomon_region.planning import (
    DELTA_REQUIRED_MESSAGE,
    MIN_USEFUL_SCALE,
    RegionPlan,
    center_epsilon,
    plan_region,
)
from dplangevin.mechanisms.release import check_seed
from dplangevin.mechanisms.run_state import CheckpointPath
from dplangevin.planner.fit_plan import Request, plan_gaussian_fit
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
