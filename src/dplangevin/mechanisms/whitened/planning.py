"""The planner of whitened descent: budget fractions, moment releases and steps from public quantities."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dplangevin.accounting import conversions as cv
from dplangevin.accounting.plan import Plan
from dplangevin.errors import CalibrationFailed
from dplangevin.mechanisms.whitened.spec import N_SLOPE_MEANS, PURE_TO_GAUSSIAN, WhitenedSpec
from dplangevin.planner import rules
from dplangevin.planner.fit_plan import (
    FitPlan,
    Request,
    explain_center,
    explain_clip,
    explain_counts,
    low_signal_warning,
)
from dplangevin.planner.rules import MOMENT_BUDGET_FRACTION, MomentBudget
from dplangevin.problem import Problem

DEFAULT_STEPS = 32
RIDGE_STEPS = 16
"""Steps of ridge regression after two moment releases, which make its curvature known in every direction."""
APPROACH_STEPS, APPROACH_BUDGET_FRACTION = 6, 0.3
"""First steps of logistic regression after two moment releases, and their fraction of the descent's budget. They show
how flat the loss is (with rare labels, flatter than its bound by a factor of 10 and more)."""
EQUAL_APPROACH_STEPS = 8
"""Steps of a descent of equal steps after which the classes may be counted again instead of the rest."""
LOGISTIC_MIN_STEPS = 12
"""Steps, including the approach, where the loss is not flat."""
LOGISTIC_MAX_STEPS = 64
"""Most steps where a pass is short and the signal is above MIN_SHARP_SIGNAL; DEFAULT_STEPS elsewhere."""
TAIL_FRACTION = 2 / 3
MIN_SHARP_SIGNAL = 400.0
"""Signal-to-noise above which per-record Poisson gradients are clipped less, and pinball losses smoothed less."""
SLOPE_BUDGET_FRACTION = 0.15
"""Of the budget of a curvature release, the fraction for squared slopes, where the variance of slopes is not known from
the curvature."""
NOISE_COST_QUADRATIC, NOISE_COST_FACTORS = 0.75, 1.7


def prefers_whitening(request: Request) -> bool:
    """Return True where mechanism="auto" whitens: options leave the choice open, and second moments are worthwhile.

    So are the counts of the classes where noise hides the features.
    """
    if not request.uses_defaults:
        return False
    return MomentBudget.for_request(request).is_worthwhile or (
        rules.hides_features(request) and rules.count_budget_fraction(request) > 0
    )


def plan_whitened_gd(request: Request) -> FitPlan:
    """Plan second-moment releases with a tenth of the budget, then accelerated steps in whitened coordinates."""
    return _plan_with_curvature(request) if request.curvature_fraction else _plan_descent(request)


def _plan_with_curvature(request: Request) -> FitPlan:
    """Plan a release of the curvature after the descent that the rest of the budget would give without it.

    Slopes of likelihoods are not clipped, because a clip would move the minimiser away from the coefficients.
    """
    fraction = request.curvature_fraction
    epsilon = cv.gdp_epsilon(math.sqrt(1 - fraction) * request.mu, request.delta)
    rest = replace(request, epsilon=epsilon, curvature_fraction=0.0)
    fit_plan = _plan_descent(rest, for_intervals=True)
    problem, spec, squares = fit_plan.plan.problem, fit_plan.plan.spec, 0.0
    assert isinstance(spec, WhitenedSpec)
    if problem.loss.unclipped_loss.slope_variance != "curvature":
        squares = SLOPE_BUDGET_FRACTION
    fraction *= 1 - 1e-7  # epsilon was rounded
    noise_stds: dict[str, Any] = {
        "curvature_noise_std": release_noise_std(
            request, problem, fraction * (1 - squares), math.sqrt(request.n_changed_records)
        )
    }
    if squares:
        mu_per_mean = request.mu * math.sqrt(fraction * squares / N_SLOPE_MEANS) / (1 + 2e-9)
        noise_stds["slope_noise_std"] = 1 / (problem.n * mu_per_mean)
    reasons = [
        f"{request.curvature_fraction:.0%} of the privacy budget (in mu^2) is spent on the curvature in whitened "
        "coordinates at the released coefficients; intervals follow from it and from the noisy path of the descent, "
        "which is the one that the rest of the budget, with the shares above, gives without intervals"
    ]
    clip = _plan_descent(rest).plan.problem.loss.slope_bound
    if clip < problem.loss.slope_bound:
        reasons[0] += (
            f", but for the clip: {clip:.3g} without intervals, none with them, because clipped slopes move the "
            "minimiser"
        )
    return replace(
        fit_plan,
        plan=Plan(
            problem=problem,
            spec=replace(spec, **noise_stds),
            delta=request.delta,
            theorem=request.theorem,
        ),
        reasons=(*fit_plan.reasons, *reasons),
    )


def _plan_descent(request: Request, for_intervals: bool = False) -> FitPlan:
    """Plan the moments and the descent; for intervals no bounded loss has its slopes clipped, or is narrowed."""
    count_fraction, center = rules.count_budget_fraction(request), {}
    if not for_intervals and rules.chooses_center(request):
        count_fraction, center = rules.center_budget_fraction(request), _center_fields(request)
    counted = count_fraction
    if center and not center["gaussian_center"]:
        request = replace(request, epsilon=(1 - count_fraction) * request.epsilon)
        count_fraction = 0.0
    moment_budget = MomentBudget.for_request(request)
    effective_n = moment_budget.effective_n * math.sqrt((1 - MOMENT_BUDGET_FRACTION) * (1 - count_fraction))
    signal_to_noise = effective_n / request.n_columns
    # the bias of clipping and smoothing falls as the sharpness grows
    sharpness = min(max(math.sqrt(signal_to_noise / MIN_SHARP_SIGNAL), 1.0), request.defaults.max_sharpness)
    # clipping at 1 biases a softmax gradient, so it is avoided where the signal allows it
    is_unclipped = (
        not request.defaults.clip_is_convex and signal_to_noise >= request.defaults.unclipped_signal
    )
    clip = None if is_unclipped else rules.choose_clip(request.defaults, signal_to_noise)
    if for_intervals and math.isfinite(request.make_loss(None, sharpness).slope_bound):
        clip = None
    problem = request.make_problem(clip, 0.0, sharpness)
    curvature, clip_explanation = problem.loss.step_curvature, explain_clip(problem, signal_to_noise)
    warning = low_signal_warning(request, moment_budget.effective_n / request.n_columns)
    spec = WhitenedSpec(
        moment_noise_std=release_noise_std(
            request,
            problem,
            (1 - count_fraction) * MOMENT_BUDGET_FRACTION / moment_budget.n_moment_releases,
            math.sqrt(request.n_changed_records),
        ),
        step_size=1 / (curvature * request.weight_bound),
        coef_bound=request.defaults.coef_bound * min(1.0, 0.4 * signal_to_noise),
        n_moment_releases=moment_budget.n_moment_releases,
        row_norm_factor=moment_budget.row_norm_factor,
        shrink=request.defaults.shrinks,
        secure=request.is_exact,
        **_phase_fields(request, problem, moment_budget, signal_to_noise, sharpness, count_fraction),
    )
    if center:
        spec = replace(spec, count_noise_std=None, recount_noise_std=None, **center)
    return FitPlan(
        model=request.model,
        reasons=_explain_plan(request, spec, counted, moment_budget, signal_to_noise, clip_explanation),
        predicted_excess_risk=_predict_risk(request, problem, effective_n / moment_budget.row_norm_factor),
        warning=warning,
        plan=Plan(problem=problem, spec=spec, delta=request.delta, theorem=request.theorem),
    )


def _center_fields(request: Request) -> dict[str, Any]:
    """Return the spec's fields for the choice of a center and a spread of the targets."""
    fraction, is_gaussian = rules.center_budget_fraction(request), rules.has_gaussian_center(request)
    epsilon = (
        request.mu * math.sqrt(fraction) / PURE_TO_GAUSSIAN if is_gaussian else fraction * request.epsilon
    )
    center, spread = (2 / (share * epsilon * (1 - 1e-7)) for share in rules.center_shares(request))
    return {"center_scale": center, "spread_scale": spread, "gaussian_center": is_gaussian or None}


def _phase_fields(
    request: Request,
    problem: Problem,
    moment_budget: MomentBudget,
    signal_to_noise: float,
    sharpness: float,
    count_fraction: float,
) -> dict[str, Any]:
    """Return the spec's fields for the phases of the descent: equal steps, or an approach that sets how many follow.

    The time of accelerated descent is T^2 times the step size, which for a pinball loss is proportional to its
    smoothing width. Where a pass is short, sharper losses get more steps, so that the biases of early stopping and of
    smoothing both fall.
    """
    descent_fraction = (1 - count_fraction) * (1 - MOMENT_BUDGET_FRACTION)
    slope = request.n_changed_records * problem.constants.lipschitz / problem.row_norm
    is_short_pass, shape = request.n * request.n_columns <= rules.MAX_SHORT_PASS_CELLS, request.defaults
    steps = math.ceil(
        DEFAULT_STEPS * math.pow(sharpness, shape.steps_power if is_short_pass else shape.steps_power_long)
    )
    if moment_budget.n_moment_releases == 2 and problem.loss.unclipped_loss.is_quadratic:
        steps = RIDGE_STEPS
    if moment_budget.n_moment_releases == 1 or not shape.adapts_steps:
        noise = release_noise_std(request, problem, descent_fraction / steps, slope)
        tail = steps - math.ceil(TAIL_FRACTION * steps)
        equal = {"n_steps": steps, "noise_std": noise, "average_from": tail}
        if not count_fraction:
            return equal
        approach = min(EQUAL_APPROACH_STEPS, tail)
        counts = _count_fields(request, problem, count_fraction, noise, steps - approach)
        return equal | {"n_approach_steps": approach, "approach_noise_std": noise} | counts
    fractions = (
        APPROACH_BUDGET_FRACTION / APPROACH_STEPS,
        (1 - APPROACH_BUDGET_FRACTION) / (LOGISTIC_MIN_STEPS - APPROACH_STEPS),
    )
    first, later = (
        release_noise_std(request, problem, descent_fraction * fraction, slope) for fraction in fractions
    )
    counts = _count_fields(request, problem, count_fraction, later, LOGISTIC_MIN_STEPS - APPROACH_STEPS)
    return counts | {
        "n_steps": LOGISTIC_MIN_STEPS,
        "noise_std": later,
        "average_from": APPROACH_STEPS,
        "n_approach_steps": APPROACH_STEPS,
        "approach_noise_std": first,
        "max_steps": LOGISTIC_MAX_STEPS
        if is_short_pass and signal_to_noise >= MIN_SHARP_SIGNAL
        else DEFAULT_STEPS,
    }


RECOUNT_MARGIN = 1e-6
"""By how much a second count costs less than the steps it takes the place of: more than any rounding."""


def _count_fields(
    request: Request, problem: Problem, count_fraction: float, step_noise: float, n_later_steps: int
) -> dict[str, Any]:
    """Return the spec's fields for the counts of the classes, the second of which may replace the later steps."""
    if not count_fraction:
        return {}
    sensitivity = math.sqrt(request.n_changed_records) * request.weight_bound
    step_sensitivity = request.n_changed_records * problem.constants.lipschitz / problem.row_norm
    recount = step_noise * sensitivity / (step_sensitivity * math.sqrt(n_later_steps))
    counts = {"count_noise_std": release_noise_std(request, problem, count_fraction, sensitivity)}
    if request.defaults.counts_again or rules.hides_features(request):
        counts["recount_noise_std"] = recount * (1 + RECOUNT_MARGIN)
    return counts


def release_noise_std(
    request: Request, problem: Problem, budget_fraction: float, sensitivity: float
) -> float:
    """Return the noise at which one release costs this fraction of mu^2, slightly larger for rounding.

    sensitivity : of the sum over records.
    """
    mu_per_release = (request.mu * math.sqrt(budget_fraction) - 2e-12) / (1 + 2e-9)
    if not mu_per_release > 0:
        raise CalibrationFailed(
            f"epsilon = {request.epsilon:g} at delta = {request.delta:g} is too small for double precision; raise it."
        )
    return sensitivity / (problem.n * mu_per_release)


def _predict_risk(request: Request, problem: Problem, effective_n: float) -> float:
    """Predict the excess risk: k p^2 C^2 / (M effective_n^2) of noise, and 5% of p / (2 n) for weights of rows.

    k = T u N(u) / 2 hardly depends on T; u is the curvature of the risk as a fraction of the largest one: 1 for a
    squared loss, between .36 and .6 elsewhere.
    """
    constant = NOISE_COST_QUADRATIC if problem.loss.unclipped_loss.is_quadratic else NOISE_COST_FACTORS
    noise = constant * request.n_columns * (problem.loss.slope_bound / effective_n) ** 2
    return request.dimension * (noise / problem.loss.step_curvature + 0.05 / (2 * request.n))


def _explain_plan(
    request: Request,
    spec: WhitenedSpec,
    counted: float,
    moment_budget: MomentBudget,
    signal_to_noise: float,
    clip_explanation: str,
) -> tuple[str, ...]:
    releases_text = "twice" if spec.n_moment_releases == 2 else "once"
    steps = str(spec.n_steps)
    if spec.max_steps:
        steps += f" (up to {spec.max_steps} if the first {spec.n_approach_steps} indicate a flat loss, "
        steps += "at the same cost)"
    return (
        f"{clip_explanation} (n mu / (s p) = {signal_to_noise:.3g}, mu = {request.mu:.4g})",
        *(
            explain_counts(counted, request.target_bounds is None and spec.n_moment_releases == 1)
            if spec.center_scales is None
            else (explain_center(counted),)
        ),
        f"{(1 - counted) * MOMENT_BUDGET_FRACTION:.0%} of the privacy budget (in mu^2) is spent on the feature "
        f"second-moment matrix, released {releases_text}: eigenvalues above {moment_budget.edge / 2:.2g} of the "
        "squared row norm stand above the noise, and whitening then spreads the noise evenly over the directions",
        f"{(1 - counted) * (1 - MOMENT_BUDGET_FRACTION):.0%} is spent on {steps} accelerated full-batch steps in "
        "whitened coordinates",
        f"the mean of the last {'half' if spec.max_steps else 'two thirds'} of the iterates is released"
        + (", shrunk where the noisy path indicates weak effects" if spec.shrink else "")
        + "; this has no privacy cost",
    )
