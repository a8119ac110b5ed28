"""RashomonRegion: one release, then as many certified models and answers about multiplicity as wanted."""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.adapter import TargetEncoder, WithCallContext, shares_rows, tuned_plan, warn_shared
from dplangevin.families.mechanism import run
from dplangevin.families.rashomon_region.objective import RegionObjective
from dplangevin.families.rashomon_region.plan import (
    NEEDS_DELTA,
    WORTHWHILE,
    RegionPlan,
    centre_epsilon,
    plan_region,
)
from dplangevin.families.rashomon_region.release import RegionRelease, run_region
from dplangevin.families.run_state import StatePath
from dplangevin.planner.choose import plan_gaussian_fit
from dplangevin.planner.request import Request
from dplangevin.privacy.spender import Spender
from dplangevin.rashomon.asked import Asked, place_of
from dplangevin.rashomon.public_rows import PublicRows
from dplangevin.rashomon.region_table import RegionTable
from dplangevin.rashomon.template import Template

REFERENCES = ("released", "best")
PRIVATE_INPUTS = (
    "public_inputs and X share rows of one array: an input is published as it is, so a record in both has no "
    "protection at all. Give public inputs of their own."
)


@dataclass(eq=False, repr=False)
class RashomonRegion(WithCallContext, BaseEstimator):  # type: ignore[misc]
    """The models whose objective is within a threshold of the released one (or of the best), certified.

    Three numbers' worth of releases (a private centre, a majorising curvature, one slack) under one composed guarantee;
    all models, ranges and metrics are post-processing, however many.

    Parameters
    ----------
    estimator : an unfitted estimator of this library; its model, data_norm or schema, classes or target_bounds, alpha,
        fit_intercept, adjacency, mechanism and public_data are used, its epsilon and delta are not.
    thresholds : psi, one or several, on F = (1/n) sum loss + (alpha/2) |theta|^2 with the model's plain loss (alpha = 0
        unless stated; regressors other than Poisson: of the target scaled to [-1, 1]). They share the release.
    epsilon, delta : the promise for everything together; delta > 0.
    public_inputs : the inputs to be asked about, PUBLIC; each gets ends of its own. Others are answered later, more
        narrowly. public_labels, groups : of these inputs, for reliance and fairness.
    n_models : how many models to draw per threshold. confidence : that ALL certified statements hold.
    reference : "released": relative to the released model. "best": relative to the best model within `radius` of it
        (the estimator's radius, or what the planner's rule expects), whose distance costs a part of the budget.
    outer : also bound what EVERY model of the set says (logistic and squared loss, at most ten columns); costs a part
        of the budget, and may still prove nothing at small n or epsilon.
    flip_shares : also bound, from both sides, the threshold at which each of these shares of the inputs (the first 100)
        can be decided otherwise by a model within `radius`; two classes; costs a part of the budget, and time.
    ledger, state, random_state, verbose : as in the estimators.

    Attributes
    ----------
    models_ : n_models fitted estimators of the largest threshold (`models(threshold)` gives the others), certified.
    centre_ : the released model. scale_ : mean and least scale of the certified points per threshold.
    unidentified_ : directions that the noise hides. gap_bound_ : bound on F(centre) - F(best), None unless asked.
    whole_ : for reference="best", (U, radii): every model within, in the norm of U, is certified; None where none is.
    flip_levels_ : one for each of flip_shares.
    privacy_ : the composed promise. plan_ : what was planned. release_ : everything released.

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
    ledger: Spender | None = None
    state: StatePath = None
    random_state: Any = None
    verbose: bool = False

    def plan(self, n: int, n_features: int, n_classes: int = 2) -> RegionPlan:
        """What fit would release on n rows of n_features encoded columns, and what to expect; no data is needed."""
        template = self._template()
        return self._plan(template, template.estimator.request(n, n_features, n_classes), None)[0]

    def fit(self, X: Any, y: Any) -> RashomonRegion:
        """Release the region. The guarantee covers everything that is kept."""
        template = self._template()
        warn_shared(self.estimator.public_data, X)
        if shares_rows(self.public_inputs, X):
            warnings.warn(PRIVATE_INPUTS, UserWarning, stacklevel=2)
        outline, encode = template.outline(X, y)
        divisor = template.estimator.divisor(outline.shape[0])
        request = template.estimator.request(divisor, outline.shape[1], encode.n_classes)
        public = PublicRows.read(
            template,
            request,
            self.public_inputs,
            labels=self.public_labels,
            groups=self.groups,
            encode=encode,
        )
        plan, mechanism = self._plan(template, request, encode)
        self._caution(plan)
        asked = public.asked(plan.objective.loss, self.n_models)
        if self.verbose:
            print(plan)
        data = template.estimator.reader(outline, plan.centre.problem, encode)

        def centre(rng: np.random.Generator) -> Any:
            if mechanism is None:
                return run(plan.centre, data, rng)
            return mechanism.run(plan.centre, data, rng)

        self._told("fitting the centre, then its curvature, then the slack of all points")
        release = run_region(
            plan,
            data,
            centre,
            asked.directions,
            self.random_state,
            public=asked.digest() + ("" if mechanism is None else str(mechanism._settings())),
            inputs=public.rows,
            ledger=self.ledger,
            state=self.state,
        )
        self._keep(template, plan, release, asked, public)
        return self

    def models(self, threshold: float | None = None) -> list[Any]:
        """The drawn models of a threshold (the largest by default), as fitted estimators; each is certified."""
        check_is_fitted(self, "release_")
        psi = self.plan_.thresholds
        index = place_of(psi[-1] if threshold is None else threshold, psi)
        return [self._model(theta) for theta in self.release_.points(index)[:, : self.n_models].T]

    def multiplicity(self, X: Any = None) -> RegionTable:
        """Ranges, ambiguity, discrepancy, coefficients, capacity, reliance, fairness and flip costs.

        X : None for the public inputs that were stated. Other PUBLIC inputs are answered through the hull of the
        certified models: as certain, but narrower than if they had been stated.
        """
        check_is_fitted(self, "release_")
        if X is None:
            return RegionTable.of(self.release_, self.plan_, self._asked, self._public, own=True)
        public = PublicRows.read(self._template_, self.plan_.centre.problem, X)
        asked = public.asked(self.plan_.objective.loss, self.n_models)
        return RegionTable.of(self.release_, self.plan_, asked, public, own=False)

    def _keep(
        self, template: Template, plan: RegionPlan, release: RegionRelease, asked: Asked, public: PublicRows
    ) -> None:
        self._template_, self._asked, self._public = template, asked, public
        self.plan_, self.release_, self.ledger_head_ = plan, release, release.ledger_head
        self.privacy_ = replace(template.promise(plan.guarantee, release.seeded), at_delta=plan.centre.delta)
        self.gap_bound_ = release.gap
        self.whole_, self.flip_levels_ = release.whole, release.flips
        self.unidentified_ = release.shape.unidentified
        self.scale_ = {
            psi: (float(scales.mean()), float(scales.min()))
            for psi, scales in zip(plan.thresholds, release.scales, strict=True)
        }
        self.centre_ = self._model(release.centre)
        self.models_ = self.models()
        self.feature_names_ = tuple(map(str, self.centre_.get_feature_names_out()))
        self.n_features_in_ = template.estimator.n_features_in_
        if hasattr(template.estimator, "classes_"):
            self.classes_ = template.estimator.classes_
        for psi, (mean, _) in self.scale_.items():
            if mean < WORTHWHILE:
                warnings.warn(_narrow(psi, mean, plan, release), UserWarning, stacklevel=3)

    def _model(self, theta: Floats) -> Any:
        problem = self.plan_.centre.problem
        loss, head = self.plan_.objective.loss, self.ledger_head_
        return self._template_.model(theta, problem, self.privacy_, self.plan_, loss, head=head)

    def _template(self) -> Template:
        """The estimator with the centre's budget; what cannot be done is refused before anything is read."""
        template = Template(self.estimator, None, 0.0, ledger=self.ledger, owner=self, bounded=False)
        made = template.estimator
        if self.delta is None or self.delta == 0:
            raise InvalidParameter(NEEDS_DELTA)
        if made.secure or made.intervals or made.compare:
            raise InvalidParameter(
                "secure, intervals and compare have no form with a region; leave them out."
            )
        made.set_params(epsilon=centre_epsilon(self.epsilon, self.delta), delta=self.delta)
        _check.count("n_models", self.n_models)
        _check.open_unit("confidence", self.confidence)
        _check.choice("reference", self.reference, REFERENCES)
        self._psi()
        return template

    def _psi(self) -> tuple[float, ...]:
        given = np.atleast_1d(np.asarray(self.thresholds, object))
        if given.ndim != 1 or given.size == 0:
            raise InvalidParameter("thresholds must be one positive number or a list of them.")
        return tuple(sorted({_check.positive("a threshold", value) for value in given.tolist()}))

    def _shares(self) -> tuple[float, ...]:
        given = (
            () if self.flip_shares is None else np.atleast_1d(np.asarray(self.flip_shares, object)).tolist()
        )
        return tuple(sorted({_check.open_unit("a flip share", value) for value in given}))

    def _plan(
        self, template: Template, request: Request, encode: TargetEncoder | None
    ) -> tuple[RegionPlan, Any]:
        """The joint plan, and the mechanism of the centre where it needs more than its plan."""
        estimator, mechanism = template.estimator, None
        if estimator.public_data is not None:
            encode = estimator.encoder(estimator.public_data[1]) if encode is None else encode
            centre, mechanism = tuned_plan(estimator, encode, request)
        else:
            centre = plan_gaussian_fit(request).plan
        request = replace(request, mechanism="auto", theorem=None)
        objective = RegionObjective.of(centre.problem, request.loss(None), template.alpha)
        reach = estimator.radius or request.shape.reach / centre.problem.row_norm
        plan = plan_region(
            centre,
            objective,
            thresholds=self._psi(),
            epsilon=self.epsilon,
            delta=self.delta,
            confidence=self.confidence,
            best=self.reference == "best",
            radius=reach,
            outer=_check.flag("outer", self.outer),
            flip_shares=self._shares(),
        )
        return plan, mechanism

    def _caution(self, plan: RegionPlan) -> None:
        """Said before anything is spent."""
        for psi in plan.thresholds:
            if plan.expected_scale(psi) < WORTHWHILE:
                warnings.warn(
                    f"at psi = {psi:g} the noise is expected to shrink the region below half its width in the "
                    f"directions it hides; about {plan.least_records(psi):,} records, a larger epsilon or psi of "
                    f"{plan.least_threshold:.2g} would do.",
                    UserWarning,
                    stacklevel=3,
                )

    def _told(self, words: str) -> None:
        if self.verbose:
            print(f"Region: {words}.")


def _narrow(psi: float, mean: float, plan: RegionPlan, release: RegionRelease) -> str:
    """What a small scale means, and which n or epsilon would do."""
    if release.gap is not None and release.gap >= psi:
        return (
            f"psi = {psi:g} certifies nothing relative to the best model: the bound on the gap is {release.gap:.3g}; "
            "ask for a larger threshold, or for reference='released'."
        )
    times = (
        1 / max(mean, 1e-3) - 1
    ) ** 2  # the lost part falls about as 1 / sqrt(n), and as 1 / sqrt(epsilon)
    return (
        f"at psi = {psi:g} the certified points are scaled to {mean:.2f} of the region on average: about "
        f"{math.ceil(times * plan.objective.n):,} records, or epsilon = {times * _spent(plan):.2g}, would bring a half."
    )


def _spent(plan: RegionPlan) -> float:
    return plan.guarantee.epsilon(plan.centre.delta)
