"""Plan a fit from public quantities only: the request, and a calibrated plan with its reasons and its predicted risk.

The predicted risk is the expected excess of the empirical risk if that risk were quadratic, every curvature were the
worst one for the run, and every coefficient (rows scaled to norm 1) had the size `coef_bound / 2` that the rules
expect. For a quadratic risk with coefficients of that size it is an upper bound; for other losses it is an estimate,
which on the benchmark data is one to four times what is measured. Sampling error is not part of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side
from dplangevin._templates import render_list, render_pairs
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.plan import Plan
from dplangevin.accounting.registry import (
    automatic_mechanisms,
    default_mechanism,
    mechanism_for_theorem,
    mechanisms_with,
    plannable_mechanisms,
    planner_capabilities,
    planner_for,
    theorem_covers_rounding,
)
from dplangevin.accounting.target import PrivacyTarget, make_target
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter, NotPrivateError
from dplangevin.planner.rules import DescentPlan
from dplangevin.problem import LOSSES, Ball, DataBounds, Loss, ModelDefaults, Problem, WholeSpace
from dplangevin.problem.constants import ADJACENCIES, MAX_EXACT_COLUMNS

AUTO = "auto"
"""The value of `mechanism` that leaves the choice to the planner."""
RiskObjective = Literal["empirical", "population"]
EXACT_EXPLANATION = (
    "exact: sums over records are integers, noise is drawn exactly, of the size that floating point would need, and "
    "what is released lies on public grids"
)
RISK_OBJECTIVES: tuple[RiskObjective, ...] = ("empirical", "population")


def model_losses() -> dict[str, type[Loss]]:
    """Return the loss of every model that can be requested, by the name of the model."""
    return {loss.defaults.model: loss for loss in LOSSES.values() if loss.defaults is not None}


MODELS = tuple(model_losses())


@dataclass(frozen=True, kw_only=True)
class Request:
    """The public parameters of a fit, stated before any record is read.

    Parameters
    ----------
    model : one of MODELS. n, n_features : public numbers of rows and of columns (without the intercept).
    epsilon, delta : the guarantee; delta = 0 requests pure epsilon. adjacency : "replace-one" or "add-remove".
    data_norm : bound on the norm of a row. fit_intercept : append a constant-one column to it.
    constant_feature : the value of the last column where it is the same in every row (a schema's constant), or None.
    target_bounds : range of the target in the problem. Regressors scale their target to [-1, 1] first (the default
        here); Poisson counts are not scaled.
    n_classes : number of classes of a multiclass model.
    radius, alpha : stated bound on the coefficients and ridge per record; None leaves them to the rules.
    mechanism : "auto" or the name of a mechanism. theorem : the theorem to certify with, None for the best.
    weight_bound : bound on sample weights.
    bad_rows : how a record that is not finite is treated, "refuse" or "zero".
    transition : of the Huber loss, in units of the scaled target. quantile : of the pinball loss.
    secure : None makes sums and noise exact wherever that is proved, and gives the reason where it is not; True
        refuses those cases; False computes in floating point.
    allow_more_rows : under add-remove, the data may hold more rows than the divisor n.
    curvature_fraction : fraction of the budget (in mu^2) for a release of the curvature, which intervals need.
    objective : "empirical" risk, or "population" risk: draws with a ridge chosen for new records.
    needs_gaussian : the guarantee is to be one of Gaussian DP where that is possible: it is composed with others.
    mechanism_options : for mechanism="langevin": a mapping with any of inverse_temperature, time and n_steps, which are
        then not chosen.

    Attributes
    ----------
    defaults : the planner's rules for the model. n_changed_records : s, records that differ between neighbours.
    n_columns : p, columns of the joint row. dimension : number of parameters.
    uses_defaults : whether mechanism, theorem, ridge and radius are all left to the planner.
    """

    model: str
    n: int
    n_features: int
    epsilon: float
    delta: float
    adjacency: str
    data_norm: float
    fit_intercept: bool
    target_bounds: tuple[float, float] | None = None
    n_classes: int | None = None
    radius: float | None = None
    alpha: float | None = None
    mechanism: str = AUTO
    theorem: str | None = None
    weight_bound: float = 1.0
    bad_rows: str = "refuse"
    transition: float | None = None
    quantile: float | None = None
    secure: bool | None = None
    allow_more_rows: bool = False
    objective: RiskObjective = "empirical"
    constant_feature: float | None = None
    curvature_fraction: float = 0.0
    needs_gaussian: bool = False
    mechanism_options: Mapping[str, float] | None = field(default=None, hash=False)
    defaults: ModelDefaults = field(init=False, repr=False, compare=False)
    n_changed_records: int = field(init=False, repr=False, compare=False)
    n_columns: int = field(init=False, repr=False, compare=False)
    dimension: int = field(init=False, repr=False, compare=False)
    uses_defaults: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.set_frozen(self, model=_check.check_choice("model", self.model, tuple(model_losses())))
        defaults = model_losses()[self.model].defaults
        assert defaults is not None
        is_multiclass = defaults.labels == "several classes"
        _check.set_frozen(self, objective=_check.check_choice("objective", self.objective, RISK_OBJECTIVES))
        _check.set_frozen(
            self, mechanism=_check.check_choice("mechanism", self.mechanism, (AUTO, *plannable_mechanisms()))
        )
        _check.set_frozen(self, adjacency=_check.check_choice("adjacency", self.adjacency, ADJACENCIES))
        _check.set_frozen(
            self,
            n=_check.check_count("n", self.n),
            n_features=_check.check_count("n_features", self.n_features),
        )
        _check.validate_fields(self, epsilon=_check.check_positive, weight_bound=_check.check_positive)
        if self.delta != 0:
            _check.validate_fields(self, delta=_check.check_open_unit)
        if self.curvature_fraction != 0:
            _check.validate_fields(self, curvature_fraction=_check.check_open_unit)
        if self.radius is not None:
            _check.validate_fields(self, radius=_check.check_positive)
        if self.alpha is not None:
            _check.validate_fields(self, alpha=_check.check_nonnegative)
        if is_multiclass:
            if self.n_classes is None:
                raise InvalidParameter(f"model={self.model!r} needs n_classes, the public number of classes.")
            _check.set_frozen(self, n_classes=_check.check_count("n_classes", self.n_classes, minimum=2))
        if defaults.labels == "counts" and self.target_bounds is None:
            raise InvalidParameter(
                f"model={self.model!r} needs target_bounds=(0, high), the range of the counts."
            )
        columns = self.n_features + int(self.fit_intercept)
        stated = (self.theorem, self.alpha, self.radius)
        _check.set_frozen(
            self,
            defaults=defaults,
            n_changed_records=2 if self.adjacency == "replace-one" else 1,
            n_columns=columns,
            dimension=columns * (self.n_classes or 2 if is_multiclass else 1),
            uses_defaults=self.mechanism == AUTO and all(value is None for value in stated),
        )

    @property
    def has_constant(self) -> bool:
        """Whether a column of the joint row is the same public number in every row."""
        return self.fit_intercept or self.constant_feature is not None

    @property
    def is_exact(self) -> bool:
        """Whether sums and noise are exact, once `resolve_arithmetic` has decided it."""
        return bool(self.secure)

    def resolve_arithmetic(self, obstacle: str | None) -> tuple[Request, str]:
        """Return the request with its arithmetic decided, and the reason; `obstacle` is why exact noise has no proof.

        Raises AssumptionFailed where exact noise is demanded and cannot be had.
        """
        if obstacle is None and not (self.n_columns <= MAX_EXACT_COLUMNS and 1e-60 < self.data_norm < 1e60):
            obstacle = (
                f"exact sums are for at most {MAX_EXACT_COLUMNS} columns, and row norms from 1e-60 to 1e60"
            )
        if self.secure and obstacle is not None:
            raise AssumptionFailed(f"secure=True has no proof here: {obstacle}.")
        if self.secure is False:
            return self, "floating point, as requested: no guarantee covers the low-order bits of its noise"
        if obstacle is not None:
            return replace(self, secure=False), (
                f"floating point, and no guarantee covers the low-order bits of its noise: {obstacle}"
            )
        return replace(self, secure=True), EXACT_EXPLANATION

    @property
    def mu(self) -> float:
        """The GDP parameter of (epsilon, delta)."""
        return cv.gdp_mu(self.epsilon, self.delta)

    def effective_n(self, pure: bool) -> float:
        """Return n mu / s, or n epsilon / (s sqrt p) for a pure guarantee."""
        if pure:
            return self.n * self.epsilon / (self.n_changed_records * math.sqrt(self.dimension))
        return self.n * self.mu / self.n_changed_records

    def make_loss(self, bound: float | None, sharpness: float = 1.0) -> Loss:
        """Return the model's loss with its slope clipped at `bound` (None: as the model requires).

        sharpness : multiplies the clip of a Poisson slope (at most the largest count) and divides the width of a
        pinball loss; large budgets allow more of it, so that the bias of either vanishes.
        """
        return model_losses()[self.model].for_model(self, bound, sharpness)

    @property
    def needed_clip(self) -> float | None:
        """The clip that an unbounded slope requires, else None (scaled targets lie within 1 of their centre)."""
        return 1.0 if math.isinf(self.make_loss(None).slope_bound) else None

    def make_problem(self, bound: float | None, ridge: float, sharpness: float = 1.0) -> Problem:
        """Return the problem with this clip and ridge; a stated alpha takes precedence over `ridge`."""
        labels: dict[str, Any] = {"target": self.target_bounds or (-1.0, 1.0)}
        if self.defaults.labels in ("two classes", "several classes"):
            labels = {"classes": self.n_classes or 2}
        return Problem(
            loss=self.make_loss(bound, sharpness),
            bounds=DataBounds(
                data_norm=self.data_norm, weight_bound=self.weight_bound, bad_rows=self.bad_rows, **labels
            ),
            n=self.n,
            n_features=self.n_features,
            constraint=WholeSpace() if self.radius is None else Ball(self.radius),
            ridge=ridge if self.alpha is None else self.alpha,
            fit_intercept=self.fit_intercept,
            constant_feature=self.constant_feature,
            adjacency=self.adjacency,  # type: ignore[arg-type]
            allow_more_rows=self.allow_more_rows,
        )


def explain_clip(problem: Problem, signal_to_noise: float) -> str:
    """Return a sentence with the clip of per-record gradients and the reason for it."""
    state = (
        "noise dominates"
        if signal_to_noise < 30
        else "signal and noise are comparable"
        if signal_to_noise < 100
        else "signal dominates"
    )
    return f"per-record gradients are clipped at {problem.loss.slope_bound:.3g} times the row norm: {state}"


def explain_counts(fraction: float, may_keep_answer: bool = False) -> tuple[str, ...]:
    """Return a sentence on the counts of the classes that have this fraction of the budget; none without counts.

    may_keep_answer : whether a fit of balanced classes keeps its answer where noise hides some second moments.
    """
    if not fraction:
        return ()
    return (
        f"{fraction:.0%} of the privacy budget is spent on the counts of the classes, or on the mean target: the fit "
        "starts at the model that predicts them for every row, and returns to it as far as noise hides what features "
        "add"
        + (
            "; if no class is rare and noise hides some second moments, it keeps its answer"
            if may_keep_answer
            else ""
        ),
    )


def explain_center(fraction: float) -> str:
    """Return a sentence on the choice of a center and a spread of the targets, with this fraction of the budget."""
    return (
        f"{fraction:.0%} of the privacy budget is spent on a center of the targets and their spread around it, chosen "
        "among public candidates: the fit starts at the model that predicts the center for every row, its loss is no "
        "wider than suits the spread, and it returns to that model as far as noise hides what features add"
    )


def low_signal_warning(request: Request, signal_to_noise: float) -> str | None:
    """Return which n or epsilon would bring the signal above the noise; None when it is above already."""
    if signal_to_noise >= 1:
        return None
    rows = math.ceil(request.n / signal_to_noise)
    return (
        f"n = {request.n} rows are few for {request.dimension} parameters at epsilon = {request.epsilon:g}: expect "
        f"little more than the intercept; about n = {rows} rows, or an epsilon {1 / signal_to_noise:.2g} times larger, "
        "would suffice."
    )


def descent_risk(
    descent: DescentPlan, *, curvature: float, noise: float, size: float, dimension: int
) -> float:
    """Return (p / 2) max_h h ((1 - phi(h))^2 size^2 + noise^2 sum_t q_t(h)^2) over curvatures h in (0, M].

    phi(h) is the fraction of the minimiser that the released mean reaches and q_t(h) the weight of step t's noise in
    it, both computed exactly for Nesterov's recursion. `noise` is the standard deviation on the mean gradient.
    """
    grid = curvature * np.geomspace(1e-9, 1.0, 73)
    reached, weights = _descent_response(descent, grid)
    risks = grid * ((1 - reached) ** 2 * size**2 + noise**2 * (weights**2).sum(axis=0))
    return float(dimension / 2 * risks.max())


def _descent_response(descent: DescentPlan, grid: Floats) -> tuple[Floats, Floats]:
    """Return phi(h), from the recursion towards 1, and q_t(h), from the recursion backwards from the mean."""
    steps, eta = descent.n_steps, descent.step_size
    weight = 1 / (steps - descent.average_from)
    theta = previous = reached = np.zeros_like(grid)
    for t in range(steps):
        point = theta + t / (t + 3) * (theta - previous)
        previous, theta = theta, point - eta * grid * (point - 1)
        if t >= descent.average_from:
            reached = reached + weight * theta
    weights = np.zeros((steps, len(grid)))
    # derivatives of the mean in iterates t + 1 and t + 2, without their own direct weight
    current = later = np.zeros_like(grid)
    for t in reversed(range(steps)):
        total = current + (weight if t >= descent.average_from else 0.0)
        weights[t] = eta * total
        propagated = (1 - eta * grid) * total
        current, later = (1 + t / (t + 3)) * propagated + later, -t / (t + 3) * propagated
    return reached, weights


def ridge_risk(*, ridge: float, noise_square: float, size: float, dimension: int, n: int) -> float:
    """Return (Lambda p size^2 + E|b|^2 / Lambda) / (8 n), for objective perturbation.

    Ridge Lambda and tilt b are on the SUM of losses.

    In a direction of curvature h the bias costs h (Lambda / (h + Lambda))^2 / 2 and the noise h / (h + Lambda)^2 / 2
    per unit of squared coefficient and of squared tilt, at most Lambda / 8 and 1 / (8 Lambda).
    """
    return (ridge * dimension * size**2 + noise_square / ridge) / (8 * n)


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """A calibrated plan with the reasons for its choices. Everything in it is public.

    Parameters
    ----------
    model : the model's name.
    plan : problem, spec and guarantee; the guarantee's epsilon is at most the requested one.
    reasons : what was chosen and why, one sentence each.
    predicted_excess_risk : expected excess of the mean loss over its minimum, in units of the scaled target. An
        estimate (see the module), not a bound.
    warning : which n or epsilon would suffice, when noise is expected to dominate the signal; None otherwise.

    Notes
    -----
    Prediction uses plan.problem.loss: a logistic slope clipped at C is calibrated for odds r(-z) / r(z) with
    r(z) = min(C, sigmoid(-z)); C = 1 is the usual sigmoid.
    """

    model: str
    plan: Plan
    reasons: tuple[str, ...]
    predicted_excess_risk: float
    warning: str | None = None

    def __str__(self) -> str:
        guarantee, problem = self.plan.guarantee, self.plan.problem
        lines = [
            f"Plan for {self.model}: {self.plan.spec.mechanism}, n = {problem.n}, {problem.n_features} features",
            f"  guarantee: {guarantee.summary_line}",
            *(f"  {reason}" for reason in self.reasons),
            f"  predicted excess risk (estimate): {self.predicted_excess_risk:.3g}",
        ]
        if self.warning is not None:
            lines.append(f"  warning: {self.warning}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        guarantee, problem = self.plan.guarantee, self.plan.problem
        pairs: list[tuple[str, object]] = [
            ("mechanism", self.plan.spec.mechanism),
            ("rows and features", f"{problem.n:,} and {problem.n_features}"),
            ("predicted excess risk", f"{self.predicted_excess_risk:.3g} (estimate)"),
        ]
        pairs += [] if self.warning is None else [("warning", self.warning)]
        notes = guarantee._repr_html_() + render_list("why this plan", self.reasons)
        return render_pairs(f"Plan for {self.model}", pairs, notes)


def plan_fit(
    *, advantage: float | None = None, tpr_at_fpr: tuple[float, float] | None = None, **options: Any
) -> FitPlan:
    """Plan the fit of a model on n rows under (epsilon, delta); delta = 0 requests a pure guarantee.

    Options are the fields of `Request`. In place of epsilon the risk may be stated: `advantage`, the largest TPR - FPR
    of a membership test, or `tpr_at_fpr` = (tpr, fpr), its largest TPR at an FPR; the plan's guarantee then gives the
    epsilon to state. No data are read. Raises when the requested mechanism cannot provide the requested guarantee.

    Examples
    --------
    >>> fit_plan = plan_fit(model="logistic", n=30_000, n_features=20, epsilon=1.0, delta=1e-6,
    ...                     adjacency="replace-one", data_norm=1.0, fit_intercept=False)
    >>> fit_plan.plan.spec.n_steps, bool(fit_plan.plan.guarantee.epsilon() <= 1.0)
    (12, True)
    """
    if advantage is None and tpr_at_fpr is None:
        return plan_request(Request(**options))
    if options.get("epsilon") is not None:
        raise InvalidParameter("state epsilon, advantage or tpr_at_fpr, and only one of them.")
    target = make_target(advantage=advantage, tpr_at_fpr=tpr_at_fpr, delta=options.get("delta") or None)
    return plan_for_risk(Request(**(options | {"epsilon": 1.0})), target)


def plan_for_risk(request: Request, target: PrivacyTarget) -> FitPlan:
    """Plan the fit of this request with the largest epsilon at which its guarantee meets the target."""
    plans: dict[float, FitPlan] = {}

    def meets_target(log_epsilon: float) -> bool:
        plan = plan_request(replace(request, epsilon=math.exp(log_epsilon)))
        plans[log_epsilon] = plan
        return target.cost(plan.plan.guarantee) <= target.goal

    low, high = math.log(MIN_RISK_EPSILON), math.log(MAX_RISK_EPSILON)
    if not meets_target(low):
        raise CalibrationFailed(
            f"no epsilon from {MIN_RISK_EPSILON:g} on meets {target}; allow a larger risk."
        )
    best = high if meets_target(high) else bisect_safe_side(meets_target, low, high, rounds=22)
    return plans[best] if best in plans else plan_request(replace(request, epsilon=math.exp(best)))


MIN_RISK_EPSILON, MAX_RISK_EPSILON = 1e-3, 100.0


def plan_request(request: Request, chosen: str | None = None) -> FitPlan:
    """Plan the fit of this request.

    chosen : the mechanism, where the request leaves it open: unlike a stated one, it takes nothing else from "auto".
    """
    mechanism = _resolve_mechanism(request, chosen)
    try:
        fit_plan = _plan_arithmetic(request, mechanism)
        spent = fit_plan.plan.guarantee.epsilon(request.delta)
    except (ArithmeticError, RuntimeError) as error:
        raise CalibrationFailed(
            f"no plan can be computed in double precision for these numbers ({error}); choose epsilon, delta, n and "
            "the bounds closer to 1."
        ) from None
    if not spent <= request.epsilon:
        raise CalibrationFailed(
            f"theorem {fit_plan.plan.guarantee.theorem} gives epsilon = {spent:.6g} for this plan, above "
            f"{request.epsilon:.6g}; leave theorem out."
        )
    return fit_plan


def _plan_arithmetic(request: Request, mechanism: str) -> FitPlan:
    """Plan this mechanism with exact sums and noise where they are proved, else in floating point with the reason."""
    planner, obstacle = planner_for(mechanism), _exactness_obstacle(request, mechanism)
    resolved, reason = request.resolve_arithmetic(obstacle)
    try:
        fit_plan: FitPlan = planner(resolved)
    except (AssumptionFailed, NotPrivateError) as error:
        if request.secure is False or not resolved.is_exact:
            raise
        if request.secure:
            planner(replace(request, secure=False))  # raises where exactness is not what is wrong
        refusal = str(error).splitlines()[-1].lstrip(" -").rstrip(".")
        resolved, reason = request.resolve_arithmetic(refusal)
        fit_plan = planner(resolved)
    return replace(fit_plan, reasons=(*fit_plan.reasons, reason))


def plan_gaussian_fit(request: Request, max_mu: float = math.inf) -> FitPlan:
    """Plan a fit whose guarantee is composed with Gaussian releases.

    "auto" then means the default mechanism wherever the planner's choice is not mu-GDP with mu <= max_mu, because a
    pure guarantee composes badly with Gaussian ones.
    """
    fit_plan = plan_request(replace(request, needs_gaussian=True))
    mu = fit_plan.plan.guarantee.mu
    if request.mechanism == AUTO and request.theorem is None and (mu is None or not mu <= max_mu):
        fit_plan = plan_request(replace(request, mechanism=default_mechanism()))
    return fit_plan


def _resolve_mechanism(request: Request, chosen: str | None) -> str:
    """Return the mechanism to plan; refuse requests that it cannot guarantee."""
    mechanism = request.mechanism
    if mechanism == AUTO:
        mechanism = chosen or _choose_mechanism(request)
    _check_objective(request, mechanism)
    capabilities = planner_capabilities(mechanism)
    if request.mechanism_options and not capabilities.stated_parameters:
        raise InvalidParameter(
            f"mechanism={mechanism!r} chooses its own parameters; leave {', '.join(request.mechanism_options)} out, or "
            f"use one of {', '.join(mechanisms_with('stated_parameters'))}."
        )
    if request.allow_more_rows and not capabilities.holds_beyond_n:
        raise InvalidParameter(
            f"mechanism={mechanism!r} is proved for at most n records, and with n_public the data may hold more: "
            "leave n_public out (the number of rows is then public), or use one of "
            f"{', '.join(mechanisms_with('holds_beyond_n'))}."
        )
    if request.curvature_fraction and not capabilities.curvature:
        raise InvalidParameter(
            f"mechanism={mechanism!r} releases no curvature; use one of {', '.join(mechanisms_with('curvature'))}."
        )
    if not capabilities.ridge_and_radius and (request.alpha is not None or request.radius is not None):
        raise InvalidParameter(
            f"mechanism={mechanism!r} has neither ridge nor radius; leave alpha and radius out, or use "
            f"mechanism={_choose_mechanism(request)!r}."
        )
    return mechanism


def _exactness_obstacle(request: Request, mechanism: str) -> str | None:
    """Return why this fit has no exact form; None where it has one."""
    if not planner_capabilities(mechanism).secure:
        return (
            f"the noise of mechanism={mechanism!r} is real-valued and passes through a sampler; exact "
            f"forms have {', '.join(mechanisms_with('secure'))}"
        )
    if request.theorem is not None and not theorem_covers_rounding(mechanism, request.theorem):
        return f"theorem={request.theorem!r} is about real-valued noise, and exact steps are rounded; leave it out"
    return None


def _check_objective(request: Request, mechanism: str) -> None:
    """Refuse an objective or a guarantee for which the mechanism has no theorem: population risk, or pure epsilon."""
    capabilities = planner_capabilities(mechanism)
    if request.objective == "population" and not capabilities.population_risk:
        raise InvalidParameter(
            f"objective='population' is for draws: use mechanism={AUTO!r} or one of "
            f"{', '.join(mechanisms_with('population_risk'))}."
        )
    if request.delta == 0 and not capabilities.pure:
        raise InvalidParameter(
            f"mechanism={mechanism!r} cannot guarantee pure epsilon; state a delta, or use one of "
            f"{', '.join(mechanisms_with('pure'))}."
        )


def _choose_mechanism(request: Request) -> str:
    """Return the mechanism of a stated theorem, else the first in the order of preference that suits the request."""
    if request.theorem is not None:
        return mechanism_for_theorem(request.theorem) or default_mechanism()
    for name, suits in automatic_mechanisms():
        capabilities = planner_capabilities(name)
        is_covered = capabilities.pure or request.delta > 0
        is_covered &= capabilities.population_risk or request.objective != "population"
        if is_covered and suits(request):
            return name
    return default_mechanism()
