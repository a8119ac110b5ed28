"""RashomonSampler: many equally good models under one guarantee; and whether it or a region suits a table."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.errors import DplangevinError, InvalidParameter, NotPrivateError
from dplangevin.estimators.adapter import Outline, TargetEncoder, WithCallContext
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.rashomon.calibrate import MIN_USEFUL_HIT_PROBABILITY, format_rounded_down
from dplangevin.mechanisms.rashomon.planning import RashomonPlan, choose_ridge, format_duration, plan_rashomon
from dplangevin.mechanisms.rashomon.spec import RashomonSpec
from dplangevin.mechanisms.run_state import CheckpointPath
from dplangevin.problem import Ball
from dplangevin.rashomon.estimator_adapter import EstimatorAdapter
from dplangevin.rashomon.measures import rashomon_ratio
from dplangevin.rashomon.multiplicity import Multiplicity
from dplangevin.rashomon.region import RashomonRegion


def _refusing_method(reason: str, message: str) -> Callable[..., NoReturn]:
    """Return a method that raises NotPrivateError: its result would reveal private data."""

    def method(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise NotPrivateError(message)

    method.__doc__ = f"Refused: {reason}"
    return method


@dataclass(eq=False, repr=False)
class RashomonSampler(WithCallContext, BaseEstimator):  # type: ignore[misc]
    """K models drawn privately from the set of models whose objective is within `threshold` of the best.

    Parameters
    ----------
    estimator : an unfitted estimator of this library; its model, data_norm or schema, classes or target_bounds, radius,
        alpha, fit_intercept, adjacency and weight_bound are used. Its epsilon, delta and mechanism are not.
        alpha="auto" takes the ridge with the best hit bound among those that move the objective by at most psi.
    thresholds : psi, one number, on the objective (1/n) sum loss + (alpha/2) |theta|^2 of the scaled problem.
    n_models : K. epsilon, delta : the guarantee for ALL models together; delta = 0 asks for a pure one.
    radius : bound on the norm of the coefficients; default the estimator's.
    route : "pure", "ramp" or "trajectory"; tier : "auto", "exact", "pure", "certified" or "process"; ramp, n_steps :
        see `plan_rashomon`.
    ledger : a BudgetAccount that is charged before the data is read.
    random_state : None takes randomness from the operating system; with a seed the guarantee does not hold against
        those who know it.
    checkpoint : path of a private file from which the same fit resumes after a crash, with its noise and its charge.
    verbose : print the plan before running.

    Attributes
    ----------
    models_ : K fitted estimators, each released.
    hit_probability_ : lower bound on the probability that a model is in the set.
    privacy_ : the guarantee for all models. plan_ : what was chosen, and advice on better choices.
    ledger_head_ : head of the ledger's chain after the charge, or None.

    Notes
    -----
    **Privacy.** privacy_ covers all K models together; they are draws of an exponential mechanism, and nothing else
    depends on the data. Whether a model is in the set, its training loss and the number of proposals are not
    released.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2023); Semenova, Rudin and Parr (2022) for Rashomon sets.

    Examples
    --------
    >>> from dplangevin import DPLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2)) / 2**0.5
    >>> y = X[:, 0] + 0.3 * rng.standard_normal(4000) > 0
    >>> model = DPLogisticRegression(data_norm=1.0, classes=[False, True], radius=3.0, fit_intercept=False)
    >>> sampler = RashomonSampler(model, thresholds=0.1, n_models=4, epsilon=2.0, random_state=0).fit(X, y)
    >>> len(sampler.models_), round(sampler.privacy_.epsilon(), 2), sampler.hit_probability_ > 0.5
    (4, 2.0, True)
    >>> bool(sampler.multiplicity(X[:100]).ambiguity < 0.5)  # X[:100] is public here
    True
    """

    estimator: Any = None
    _: KW_ONLY
    thresholds: float = 0.05
    n_models: int = 10
    epsilon: float = 1.0
    delta: float = 0.0
    radius: float | None = None
    route: str = "pure"
    tier: str = "auto"
    ramp: float | None = None
    n_steps: int | None = None
    ledger: BudgetAccount | None = None
    random_state: Any = None
    checkpoint: CheckpointPath = None
    verbose: bool = False

    def plan(self, n: int, n_features: int, n_classes: int = 2) -> RashomonPlan:
        """Plan a fit on n rows of n_features encoded columns; no data is needed."""
        adapter = self._build_adapter()
        return self._plan_problem(adapter, adapter.build_problem(n, n_features, n_classes))

    def plan_for_records(self, X: Any, y: Any) -> RashomonPlan:
        """Plan a fit on these records, of which only their number and their columns are used."""
        return self._plan_outline(self._build_adapter(), X, y)[0]

    def _plan_outline(
        self, adapter: EstimatorAdapter, X: Any, y: Any
    ) -> tuple[RashomonPlan, Outline, TargetEncoder]:
        outline, target_encoder = adapter.outline(X, y)
        divisor = adapter.estimator.public_divisor(outline.shape[0])
        problem = adapter.build_problem(divisor, outline.shape[1], target_encoder.n_classes)
        return self._plan_problem(adapter, problem), outline, target_encoder

    def fit(self, X: Any, y: Any) -> RashomonSampler:
        """Draw the models; the guarantee covers all of them, and nothing else is stored of the data."""
        adapter = self._build_adapter()
        sampler_plan, outline, target_encoder = self._plan_outline(adapter, X, y)
        problem = sampler_plan.plan.problem
        if sampler_plan.hit_probability < MIN_USEFUL_HIT_PROBABILITY:
            warnings_text = [
                sampler_plan.warning(),
                sampler_plan.describe_hit_bound(),
                str(sampler_plan.advice),
            ]
            warnings.warn(" ".join(filter(None, warnings_text)), UserWarning, stacklevel=2)
        if self.verbose:
            print(sampler_plan)
        data = adapter.estimator.reader(outline, problem, target_encoder)
        release = run_plan(
            sampler_plan.plan,
            data,
            self.random_state,
            ledger=self.ledger,
            checkpoint=self.checkpoint,
            rows_per_person=1,
        )
        self.plan_, self.ledger_head_ = sampler_plan, release.ledger_head
        guarantee = adapter.guarantee_of_fit(sampler_plan.plan.guarantee, release.seeded)
        self.privacy_ = replace(guarantee, at_delta=sampler_plan.plan.delta)
        self.hit_probability_ = sampler_plan.hit_probability
        self.parameters_ = np.array(release.value)
        self.models_ = [
            adapter.build_model(theta, problem, self.privacy_, sampler_plan, head=release.ledger_head)
            for theta in self.parameters_.T
        ]
        self.feature_names_ = tuple(map(str, self.models_[0].get_feature_names_out()))
        self.n_features_in_ = adapter.estimator.n_features_in_
        if hasattr(adapter.estimator, "classes_"):
            self.classes_ = adapter.estimator.classes_
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of the models' coefficients."""
        check_is_fitted(self, "models_")
        return self.models_[0].get_feature_names_out(input_features)

    def multiplicity(self, X: Any, y: Any = None, **options: Any) -> Multiplicity:
        """Compare the models on PUBLIC inputs X (and labels y): post-processing, at no cost in privacy.

        Options are those of `Multiplicity.from_models`. X must not be the training data.
        """
        check_is_fitted(self, "models_")
        return Multiplicity.from_models(
            self.models_, X, y, sentence=self.plan_.describe_hit_bound(), **options
        )

    def ratio(self) -> float:
        """Estimate the Rashomon ratio, the volume of the set over that of the ball, from the draws alone."""
        check_is_fitted(self, "models_")
        spec, constraint = self.plan_.spec, self.plan_.plan.problem.constraint
        if not isinstance(spec, RashomonSpec) or not isinstance(constraint, Ball):
            raise InvalidParameter("the ratio is estimated from draws of route='pure' on a ball.")
        return rashomon_ratio(self.parameters_, constraint.radius, spec.threshold, spec.inverse_temperature)

    def _build_adapter(self) -> EstimatorAdapter:
        return EstimatorAdapter(self.estimator, self.radius, self.thresholds, ledger=self.ledger, owner=self)

    def _plan_problem(self, adapter: EstimatorAdapter, problem: Any) -> RashomonPlan:
        if adapter.chooses_ridge:
            request = {"n_models": self.n_models, "epsilon": self.epsilon, "delta": self.delta}
            problem = replace(problem, ridge=choose_ridge(problem, threshold=self.thresholds, **request))
        return plan_rashomon(
            problem,
            threshold=self.thresholds,
            n_models=self.n_models,
            epsilon=self.epsilon,
            delta=self.delta,
            route=self.route,
            tier=self.tier,
            ramp=self.ramp,
            n_steps=self.n_steps,
        )

    filter_members = _refusing_method(
        "keeping only the draws inside the set reveals where the set is.",
        "membership is not released: the set depends on every record, so keeping only the draws inside it would "
        "condition on the data. Use hit_probability_, which holds for every data set.",
    )
    training_loss = _refusing_method(
        "the loss on the private records is a statistic of them.",
        "the training loss of a draw is not released: it is a statistic of the private records. Release it with "
        "private_score(model, X, y, epsilon=...), or measure it on public records.",
    )
    acceptance = _refusing_method(
        "how many proposals a draw took depends on the data.",
        "acceptance rates and proposal counts are not stored: they depend on the private records and are not covered "
        "by the guarantee.",
    )
    redraw_until_member = _refusing_method(
        "retrying until a draw is inside conditions on the data, and every draw costs budget.",
        "drawing again until a model is in the set conditions on the data, and every draw costs epsilon. Raise the "
        "threshold or the budget until hit_probability_ is what you need.",
    )


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The recommended route, and what region and sampler are expected to give for each threshold.

    Parameters
    ----------
    route : "region" or "pure" (the sampler).
    reason : of the recommendation, in a sentence.
    expected_scales : by threshold, expected fraction of the region that is certified (estimate); empty where a region
        cannot be planned.
    min_threshold : smallest useful psi of the region.
    hit_probabilities : by threshold, the sampler's lower bound on the probability that a draw is in the set; empty
        where it cannot be planned.
    seconds : approximate time of the sampler at the largest threshold.
    refusals : by route, why it cannot be planned.
    """

    route: str
    reason: str
    expected_scales: dict[float, float]
    min_threshold: float | None
    hit_probabilities: dict[float, float]
    seconds: float | None
    refusals: dict[str, str]

    def __str__(self) -> str:
        lines = [f"Use --route {self.route}: {self.reason}"]
        if self.expected_scales:
            values_text = ", ".join(
                f"{scale:.2f} at psi = {psi:g}" for psi, scale in self.expected_scales.items()
            )
            lines.append(f"  region: every model certified; expected scale {values_text} or more (estimate); smallest "
                         f"useful psi about {self.min_threshold:.2g}")  # fmt: skip
        if self.hit_probabilities:
            values_text = ", ".join(
                f"{format_rounded_down(hit)} at psi = {psi:g}" for psi, hit in self.hit_probabilities.items()
            )
            assert self.seconds is not None
            lines.append(
                f"  sampler: a draw is in the set with probability at least {values_text}; about "
                f"{format_duration(self.seconds)}"
            )
        lines += [f"  {name}: {reason}" for name, reason in self.refusals.items()]
        return "\n".join(lines)


def recommend_route(
    estimator: Any,
    n: int,
    n_features: int,
    *,
    thresholds: Any,
    epsilon: float,
    delta: float = 0.0,
    n_models: int = 10,
    radius: float | None = None,
    n_classes: int = 2,
) -> Recommendation:
    """Recommend region or sampler for n rows of n_features encoded columns; no data is needed.

    Examples
    --------
    >>> from dplangevin import DPLogisticRegression
    >>> model = DPLogisticRegression(data_norm=1.0, classes=[0, 1], radius=2.0, fit_intercept=False)
    >>> recommend_route(model, 30_000, 20, thresholds=(0.02,), epsilon=1.0, delta=1e-6).route
    'region'
    >>> recommend_route(model, 30_000, 2, thresholds=(0.1,), epsilon=1.0).route
    'pure'
    """
    sorted_thresholds = sorted({_check.check_positive("a threshold", psi) for psi in _as_list(thresholds)})
    if not sorted_thresholds:
        raise InvalidParameter("thresholds must be one positive number or a list of them.")
    refusals: dict[str, str] = {}
    scales, min_threshold = _plan_region_scales(
        estimator, n, n_features, n_classes, sorted_thresholds, epsilon, delta, refusals
    )
    hit_probabilities, seconds = {}, None
    options: dict[str, Any] = {"n_models": n_models, "epsilon": epsilon, "delta": delta, "radius": radius}
    for psi in sorted_thresholds:
        try:
            sampler_plan = RashomonSampler(estimator, thresholds=psi, **options).plan(
                n, n_features, n_classes
            )
        except DplangevinError as error:
            refusals.setdefault("sampler", str(error))
            continue
        hit_probabilities[psi], seconds = sampler_plan.hit_probability, sampler_plan.expected_seconds
    if not scales and not hit_probabilities:
        raise InvalidParameter(f"neither region nor sampler can be planned: {' '.join(refusals.values())}")
    route, reason = _choose_route(scales, hit_probabilities, min_threshold)
    return Recommendation(
        route=route,
        reason=reason,
        expected_scales=scales,
        min_threshold=min_threshold,
        hit_probabilities=hit_probabilities,
        seconds=seconds,
        refusals=refusals,
    )


def _as_list(thresholds: Any) -> list[Any]:
    return list(thresholds) if hasattr(thresholds, "__iter__") else [thresholds]


def _plan_region_scales(
    estimator: Any,
    n: int,
    n_features: int,
    n_classes: int,
    thresholds: list[float],
    epsilon: float,
    delta: float,
    refusals: dict[str, str],
) -> tuple[dict[float, float], float | None]:
    try:
        region = RashomonRegion(estimator, thresholds=thresholds, epsilon=epsilon, delta=delta)
        plan = region.plan(n, n_features, n_classes)
    except DplangevinError as error:
        refusals["region"] = str(error)
        return {}, None
    return {psi: plan.expected_scale(psi) for psi in thresholds}, plan.min_threshold


def _choose_route(
    scales: dict[float, float], hit_probabilities: dict[float, float], min_threshold: float | None
) -> tuple[str, str]:
    """Return route and reason: the region, unless it shows mostly noise and the sampler does not."""
    if not scales:
        is_useful = min(hit_probabilities.values()) >= MIN_USEFUL_HIT_PROBABILITY
        tail = (
            "" if is_useful else " The bound is low: raise psi or epsilon, or state delta > 0 for a region."
        )
        return "pure", f"only the sampler offers this guarantee.{tail}"
    scale, hit_probability = min(scales.values()), min(hit_probabilities.values(), default=0.0)
    if scale >= MIN_USEFUL_HIT_PROBABILITY or hit_probability < MIN_USEFUL_HIT_PROBABILITY:
        tail = (
            ""
            if scale >= MIN_USEFUL_HIT_PROBABILITY
            else f" Thresholds below about {min_threshold:.2g} show mostly noise."
        )
        return "region", f"one release certifies any number of models.{tail}"
    return "pure", "the noise would shrink the region, and the draws are likely enough to be in the set."
