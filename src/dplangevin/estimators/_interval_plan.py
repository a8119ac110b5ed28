"""Plans for confidence intervals: a fit whose error has a known distribution, and the release of its curvature.

Both share one (epsilon, delta); a fraction of the budget is spent on the curvature. Where the planner's choice can
release its curvature itself, it stays the choice. Elsewhere the fit is objective perturbation, followed by a release of
the curvature. Nothing here depends on the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.accounting.registry import mechanisms_with
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.noisy_answers.curvature import curvature_groups
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec
from dplangevin.mechanisms.noisy_answers.theorem import calibrate_noisy_sums
from dplangevin.mechanisms.perturbation.spec import (
    ObjectivePerturbationSpec,
    calibrate_objective_perturbation,
)
from dplangevin.mechanisms.whitened.spec import CURVATURE_ROW_FACTOR
from dplangevin.planner.fit_plan import AUTO, FitPlan, Request, plan_request
from dplangevin.problem import Problem, WholeSpace

DEFAULT_CURVATURE_FRACTION = 0.05
LARGEST_FRACTION, MAX_RELATIVE_EDGE = 0.2, 0.5
"""Unless a fraction is stated, it is raised up to this one, until the spectrum of the noise reaches no further
than half of the curvature."""
MIN_OBJECTIVE_FRACTION, MAX_CURVATURE_FRACTION, TARGET_RELATIVE_NOISE = 0.15, 0.5, 0.2
"""With objective perturbation the curvature is released in the coordinates of the columns, and unless a fraction is
stated it gets more of the budget: 0.15, and with many coefficients up to a half, until its noise is at most a fifth of
the largest curvature that n records can have."""
MAX_COEF_NORM = 1000.0
"""Norm of the coefficients, for rows of norm 1, up to which intervals are valid."""
MAX_RELATIVE_NOISE = 1 / 3
"""A coefficient whose curvature is less than 3 standard deviations of its noise gets an infinite standard error."""


@dataclass(frozen=True, kw_only=True)
class IntervalPlan:
    """Plan of a fit and of its curvature release: charged together, run one after the other.

    Parameters
    ----------
    plan : of the fit.
    curvature : spec of the noisy curvature sums.

    Attributes
    ----------
    guarantee : of both releases, composed.
    """

    plan: Plan
    curvature: CertifiedSpec
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        both = self.plan.guarantee + self.curvature.guarantee
        _check.set_frozen(
            self, guarantee=replace(both, release="draw + noisy-answers", at_delta=self.plan.delta)
        )

    @property
    def noise_stds(self) -> list[float]:
        """Standard deviations of the noise on one entry of each of the curvature's sums."""
        sums = self.curvature.spec
        assert isinstance(sums, NoisySumsSpec)
        return [group.noise_std(sums.noise) for group in sums.groups]


def interval_budget_fraction(model: Any) -> float:
    """Return the fraction of the budget that a model spends on its intervals: 0 without them."""
    if not isinstance(model.intervals, bool | np.bool_):
        raise InvalidParameter(
            f"intervals must be True or False, got {model.intervals!r}; state the fraction of the budget to spend on "
            "them with interval_budget=."
        )
    if not model.intervals:
        return 0.0
    if model.interval_budget is None:
        return DEFAULT_CURVATURE_FRACTION
    return _check.check_open_unit("interval_budget", model.interval_budget)


def epsilon_left_for_fit(epsilon: float, delta: float, budget_fraction: float) -> float:
    """Return the epsilon left for the fit, which gets 1 - budget_fraction of mu^2 (of epsilon when delta = 0)."""
    if delta == 0:
        return (1 - budget_fraction) * epsilon
    return cv.gdp_epsilon(math.sqrt(1 - budget_fraction) * cv.gdp_mu(epsilon, delta), delta)


def plan_with_intervals(
    budget_fraction: float,
    request: Request,
    *,
    rows_per_person: int = 1,
    weighted: bool = False,
    is_fraction_stated: bool = True,
) -> tuple[FitPlan, IntervalPlan | None]:
    """Return the plan of a fit with intervals, and the joint plan with its curvature where that is a release apart.

    Together they cost the request's (epsilon, delta). Raise for options without intervals; nothing here depends on the
    data.

    Parameters
    ----------
    budget_fraction : of the budget, for the curvature.
    request : of the fit, with the (epsilon, delta) of both.
    rows_per_person : that the guarantee covers.
    weighted : whether records have weights, for which there are no intervals.
    is_fraction_stated : use `budget_fraction` as it is; otherwise a public rule may raise it for a noisy curvature.
    """
    own = mechanisms_with("curvature")
    if request.mechanism not in (AUTO, *own, *mechanisms_with("intervals")):
        raise InvalidParameter(
            f"intervals need a mechanism whose noise distribution is known ({', '.join(own)}, objective perturbation); "
            f"got mechanism={request.mechanism!r}. Leave mechanism='auto'."
        )
    if weighted or request.weight_bound != 1:
        raise InvalidParameter(
            "intervals need equally weighted records; leave sample_weight, class_weight and weight_bound out."
        )
    if not is_fraction_stated:
        budget_fraction = _raise_for_noise(budget_fraction, request)
    if (mechanism := _mechanism_with_curvature(request, budget_fraction)) is not None:
        return plan_request(replace(request, curvature_fraction=budget_fraction), mechanism), None
    return _plan_objective_perturbation(
        budget_fraction if is_fraction_stated else max(budget_fraction, MIN_OBJECTIVE_FRACTION),
        request,
        rows_per_person=rows_per_person,
        is_fraction_stated=is_fraction_stated,
    )


def _raise_for_noise(budget_fraction: float, request: Request) -> float:
    """Return a fraction at which noise leaves the curvature in whitened coordinates visible, at most LARGEST_FRACTION.

    There it is near M R^2 / p times the identity, and noise alone spreads its eigenvalues by sqrt(2 p) deviations.
    """
    if request.delta == 0:
        return budget_fraction
    size = request.n_columns
    unit = CURVATURE_ROW_FACTOR * size * math.sqrt(request.n_changed_records)
    edge = unit * math.sqrt(2 * size) / (request.n * request.mu * math.sqrt(budget_fraction))
    return max(budget_fraction, min(budget_fraction * (edge / MAX_RELATIVE_EDGE) ** 2, LARGEST_FRACTION))


def _mechanism_with_curvature(request: Request, budget_fraction: float) -> str | None:
    """Return the planner's choice if it can release its curvature for this model's intervals, else None."""
    loss, own = request.make_loss(request.needed_clip), mechanisms_with("curvature")
    if request.delta == 0 or loss.score_dimension > 1 or loss.unclipped_loss.slope_variance == "measured":
        if request.mechanism in own:
            raise InvalidParameter(
                f"mechanism={request.mechanism!r} has intervals for logistic, squared, Huber and Poisson losses with "
                "delta > 0; leave mechanism='auto', which then uses objective perturbation."
            )
        return None
    if request.mechanism != AUTO:
        return request.mechanism if request.mechanism in own else None
    epsilon = epsilon_left_for_fit(request.epsilon, request.delta, budget_fraction)
    name = plan_request(replace(request, epsilon=epsilon)).plan.spec.mechanism
    return name if name in own else None


def _plan_objective_perturbation(
    budget_fraction: float, request: Request, *, rows_per_person: int, is_fraction_stated: bool
) -> tuple[FitPlan, IntervalPlan]:
    """Return the fit plan and the joint plan of objective perturbation and of its curvature."""
    epsilon, delta = request.epsilon, request.delta
    if request.secure:
        raise InvalidParameter(
            "these intervals have no secure implementation: the curvature that they release is a sum in floating "
            "point. Leave them out with secure=True."
        )
    if rows_per_person > 1 and delta > 0:
        raise InvalidParameter(
            f"intervals with max_rows_per_person={rows_per_person} use objective perturbation here, which is available "
            "for pure epsilon-DP only; set delta=0."
        )
    epsilon_for_fit = epsilon_left_for_fit(epsilon, delta, budget_fraction)
    fit_plan = plan_request(
        replace(request, mechanism=ObjectivePerturbationSpec.mechanism, epsilon=epsilon_for_fit)
    )
    fit_plan = adapt_plan_for_intervals(fit_plan, epsilon_for_fit, request.alpha)
    interval_plan = add_curvature_release(fit_plan.plan, epsilon)
    wanted_fraction = min(
        MAX_CURVATURE_FRACTION,
        budget_fraction * _relative_curvature_noise(interval_plan) / TARGET_RELATIVE_NOISE,
    )
    if not is_fraction_stated and wanted_fraction > budget_fraction:
        return _plan_objective_perturbation(
            wanted_fraction, request, rows_per_person=rows_per_person, is_fraction_stated=True
        )
    return replace(
        fit_plan, warning=fit_plan.warning or _curvature_noise_warning(interval_plan)
    ), interval_plan


def interval_assumption(problem: Problem) -> str:
    """Return the assumptions of the intervals, which the guarantee does not need."""
    model = problem.loss.unclipped_loss.interval_model
    return (
        f"confidence intervals assume independent records, {model} and no clipped rows or targets; "
        "the guarantee assumes none of this"
    )


def _relative_curvature_noise(interval_plan: IntervalPlan) -> float:
    """Return the noise on the curvature over the largest mean curvature that n records can have.

    The noise is three standard deviations of one entry, or the largest eigenvalue of a random symmetric matrix.
    """
    problem = interval_plan.plan.problem
    classes, size = problem.loss.score_dimension, _n_curvature_rows(interval_plan)
    # With several classes, the trace of diag(p) - p p^T.
    max_mean_curvature = problem.loss.typical_curvature_bound if classes == 1 else 1 - 1 / classes
    noise = interval_plan.noise_stds[0] * max(1 / MAX_RELATIVE_NOISE, math.sqrt(2 * size))
    return noise * size / (problem.n * max_mean_curvature * problem.row_norm**2)


def _n_curvature_rows(interval_plan: IntervalPlan) -> int:
    problem = interval_plan.plan.problem
    return problem.n_columns * max(problem.loss.score_dimension - 1, 1)


def _curvature_noise_warning(interval_plan: IntervalPlan) -> str | None:
    """Return a warning if the noise dominates the curvature, else None."""
    size = _n_curvature_rows(interval_plan)
    if _relative_curvature_noise(interval_plan) <= 1:
        return None
    return (
        f"the noise on the {size} x {size} curvature matrix exceeds the largest curvature that "
        f"{interval_plan.plan.problem.n} records can have: expect infinite confidence intervals. More records, a "
        "larger epsilon or fewer coefficients help."
    )


@lru_cache(maxsize=64)
def adapt_plan_for_intervals(fit_plan: FitPlan, epsilon: float, alpha: float | None) -> FitPlan:
    """Return the fit plan with a consistent loss (gradients of likelihoods are not clipped) and a small ridge.

    The ridge Lambda = 10 rank M / epsilon spends about a tenth of epsilon on the determinant; it is so small that its
    bias can be removed.
    """
    problem, delta = fit_plan.plan.problem, fit_plan.plan.delta
    if not isinstance(problem.constraint, WholeSpace):
        raise InvalidParameter("intervals need an unconstrained fit; leave radius out.")
    loss = problem.loss.unclipped_loss.for_intervals
    problem = replace(problem, loss=loss, ridge=0.0)
    curvature = (problem.constants.hessian_rank or 1) * problem.constants.data_smoothness
    problem = replace(problem, ridge=10 * curvature / epsilon / problem.n if alpha is None else alpha)
    spec = calibrate_objective_perturbation(
        problem.constants, epsilon=epsilon, delta=delta, coef_bound=MAX_COEF_NORM / problem.row_norm
    )
    plan = Plan(problem=problem, spec=spec, delta=delta)
    return replace(
        fit_plan,
        plan=plan,
        reasons=(
            f"objective perturbation with {spec.noise} noise, whose distribution is exact, as intervals need (with "
            "delta > 0, logistic, ridge, Huber and Poisson fits that whiten need no other mechanism)",
            f"per-record gradients are at most {loss.slope_bound:.3g} times the row norm; ridge alpha = "
            f"{problem.ridge:.3g} per sample, whose bias the intervals remove",
            "the rest of the budget is spent on the curvature at the released point",
            "floating point, and no guarantee covers the low-order bits of its noise: the curvature that these "
            "intervals need is a sum in floating point",
        ),
    )


@lru_cache(maxsize=64)
def add_curvature_release(plan: Plan, epsilon: float) -> IntervalPlan:
    """Return the plan together with a curvature release that takes what is left of (epsilon, plan.delta)."""
    problem, delta = plan.problem, plan.delta
    if delta == 0:
        return _attach_curvature(plan, problem, epsilon - plan.guarantee.epsilon(0.0), 0.0)
    goal_mu, fit_mu = cv.gdp_mu(epsilon, delta), cv.gdp_mu(plan.guarantee.epsilon(delta), delta)
    mu = 0.95 * math.sqrt(max(goal_mu**2 - fit_mu**2, 0.0))
    best: IntervalPlan | None = None
    for _ in range(6):
        if not mu > 0:
            break
        candidate = _attach_curvature(plan, problem, cv.gdp_epsilon(mu, delta), delta)
        spent = candidate.guarantee.epsilon(delta)
        if spent <= epsilon:
            best = candidate
            if spent > 0.998 * epsilon:
                break
        fit_square = cv.gdp_mu(spent, delta) ** 2 - mu**2  # treats the fit as Gaussian, which it nearly is
        mu = 0.999 * math.sqrt(max(goal_mu**2 - fit_square, 0.0))
    if best is None:
        raise CalibrationFailed(
            f"no part of epsilon = {epsilon:g} is left for the curvature; raise interval_budget or epsilon."
        )
    return best


def _attach_curvature(plan: Plan, problem: Problem, epsilon: float, delta: float) -> IntervalPlan:
    """Return the plan with a curvature release calibrated to (epsilon, delta)."""
    curvature = calibrate_noisy_sums(
        curvature_groups(
            problem,
            dispersion=problem.loss.slope_variance == "proportional",
            slope_moment=problem.loss.slope_variance == "measured",
        ),
        epsilon=epsilon,
        delta=delta,
        noise="gamma" if delta == 0 else "gaussian",
        adjacency=problem.adjacency,
    )
    return IntervalPlan(plan=plan, curvature=CertifiedSpec(spec=curvature, delta=delta))
