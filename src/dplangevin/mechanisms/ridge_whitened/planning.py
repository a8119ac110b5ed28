"""The planner of ridge-whitened descent: budget fractions, noise and steps from public quantities."""

from __future__ import annotations

import math

from dplangevin.accounting.plan import Plan
from dplangevin.mechanisms.ridge_whitened.mechanism import MAX_SCORE_NOISE, MIN_SCORE_NOISE
from dplangevin.mechanisms.ridge_whitened.spec import (
    MAX_MOMENT_RELEASES,
    PLAIN_STEP_FACTOR,
    RidgeWhitenedSpec,
)
from dplangevin.mechanisms.whitened.planning import release_noise_std
from dplangevin.planner import rules
from dplangevin.planner.fit_plan import FitPlan, Request, explain_clip, explain_counts, low_signal_warning
from dplangevin.planner.rules import MOMENT_BUDGET_FRACTION
from dplangevin.problem import Problem

FURTHER_BUDGET_FRACTION = 0.05
"""Fraction of the budget (in mu^2) for each moment after the first."""
MAX_EDGE = 1.0
"""Edge of the noise, in squared row norms, from which no eigenvalue can stand above it, and no moment is released."""
STEP_CAP_PER_CLASS = 0.5
"""Largest step of a softmax model in a direction of second moment 1, times the clip, over the number of classes: half
of what is stable, since the curvatures of a record's clipped slopes add up to at most twice the clip over K classes."""
SOFTMAX_CLIP = 0.125
"""Norm to which slopes of several scores are clipped."""
MAX_MEAN_OVER_EDGE, CLASSES_OF_FULL_FRACTION, CLASSES_POWER, LEAST_OF_FRACTION = 0.5, 10, 0.3, 0.5
"""Beyond so many classes, and where the mean eigenvalue is at most so much of the edge, the first moment gets less of
the budget, by this power of the number of classes: noise in the steps costs more accuracy then."""
FRACTION_MARGIN = 1e-6
"""By how much a further moment costs less than its fraction: more than any rounding."""
COUNT_BUDGET_FRACTION = 0.02
MIN_COLUMNS, MIN_COLUMNS_IN_NOISE, MAX_NOISY_SIGNAL = 128, 48, 15.0
"""Columns from which a floor under the eigenvalues is better than full whitening, by measurement: at any
signal-to-noise ratio, and at ratios up to MAX_NOISY_SIGNAL."""


def prefers_ridge_whitening(request: Request) -> bool:
    """Return True where mechanism="auto" takes it: options leave the choice open, and the model is measured there."""
    if not request.uses_defaults or request.curvature_fraction or request.delta == 0:
        return False
    columns = request.n_columns
    is_noisy = request.effective_n(pure=False) <= MAX_NOISY_SIGNAL * columns
    return request.defaults.ridge_whitens and columns >= (MIN_COLUMNS_IN_NOISE if is_noisy else MIN_COLUMNS)


def plan_ridge_whitened_gd(request: Request) -> FitPlan:
    """Plan a second moment with a tenth of the budget, and let what it shows decide on further ones and on steps."""
    counted = COUNT_BUDGET_FRACTION if request.defaults.counts_classes and request.has_constant else 0.0
    effective_n = request.effective_n(pure=False)
    first = (1 - counted) * first_fraction(request)
    rest = 1 - counted - first
    is_multiclass = request.dimension > request.n_columns
    defaults = request.defaults
    clip = rules.choose_clip(defaults, effective_n / request.n_columns)
    if is_multiclass and clip is not None:
        clip = SOFTMAX_CLIP
    problem = request.make_problem(clip, 0.0)
    matrix = math.sqrt(request.n_changed_records)
    slope = request.n_changed_records * problem.constants.lipschitz / problem.row_norm
    fraction = FURTHER_BUDGET_FRACTION / rest
    spec = RidgeWhitenedSpec(
        moment_noise_std=release_noise_std(request, problem, first or MOMENT_BUDGET_FRACTION, matrix),
        noise_std=release_noise_std(request, problem, rest, slope),
        step_cap=step_cap(problem, is_multiclass and clip is not None),
        max_moment_releases=MAX_MOMENT_RELEASES if first else 0,
        further_noise_std=release_noise_std(
            request, problem, FURTHER_BUDGET_FRACTION * (1 - FRACTION_MARGIN), matrix
        ),
        further_fraction=fraction,
        count_noise_std=release_noise_std(request, problem, counted, matrix * request.weight_bound)
        if counted
        else None,
        secure=request.is_exact,
    )
    return FitPlan(
        model=request.model,
        reasons=_explain_plan(request, problem, spec, counted, first, rest),
        predicted_excess_risk=_predict_risk(request, problem, spec),
        warning=low_signal_warning(request, effective_n / request.n_columns),
        plan=Plan(problem=problem, spec=spec, delta=request.delta, theorem=request.theorem),
    )


def first_fraction(request: Request) -> float:
    """Return the fraction of the budget (in mu^2) for the first moment; 0 where it could not show anything."""
    edge = first_edge(request)
    if edge >= MAX_EDGE:
        return 0.0
    n_classes = request.dimension / request.n_columns
    if n_classes <= CLASSES_OF_FULL_FRACTION or request.n_columns * edge * MAX_MEAN_OVER_EDGE < 1:
        return MOMENT_BUDGET_FRACTION
    less = math.pow(CLASSES_OF_FULL_FRACTION / n_classes, CLASSES_POWER)
    return MOMENT_BUDGET_FRACTION * max(less, LEAST_OF_FRACTION)


def first_edge(request: Request) -> float:
    """Return the edge of the noise of a first moment that has its full fraction, in squared row norms."""
    sensitivity = math.sqrt(0.5) if request.adjacency == "replace-one" else 1.0
    noise_std = sensitivity / (request.effective_n(pure=False) * math.sqrt(MOMENT_BUDGET_FRACTION))
    return noise_std * math.sqrt(2 * request.n_columns)


def step_cap(problem: Problem, is_softmax: bool) -> float:
    """Return the largest step in a direction of second moment 1."""
    if is_softmax:
        return STEP_CAP_PER_CLASS / SOFTMAX_CLIP * problem.loss.score_dimension / problem.bounds.weight_bound
    return 1 / (problem.loss.step_curvature * problem.bounds.weight_bound)


def _predict_risk(request: Request, problem: Problem, spec: RidgeWhitenedSpec) -> float:
    """Predict the excess risk: the noise that the steps give to the scores, at half the curvature of the loss.

    The rule fixes the size of that noise, so that the prediction is the cap of the excess where noise is the limit, and
    less than it where time is.
    """
    spread = (MIN_SCORE_NOISE + MAX_SCORE_NOISE) / 2 * spec.min_steps * PLAIN_STEP_FACTOR
    return problem.loss.step_curvature * spread**2 / 2


def _explain_plan(
    request: Request, problem: Problem, spec: RidgeWhitenedSpec, counted: float, first: float, rest: float
) -> tuple[str, ...]:
    signal_to_noise = request.effective_n(pure=False) / request.n_columns
    further = spec.further_fraction * rest
    edge = spec.moment_noise_std * math.sqrt(2 * request.n_columns)
    moments = (
        f"{first:.0%} of the privacy budget (in mu^2) is spent on the feature second-moment matrix, whose noise has "
        f"the edge {edge:.2g} of the squared row norm: coordinates are white above a quarter of it; up "
        f"to {spec.max_moment_releases - 1} further moments in these coordinates, {further:.0%} each, follow where "
        "what was released shows that they are worth it"
        if first
        else "no feature second-moment matrix is released: no eigenvalue would stand above its noise"
    )
    return (
        f"{explain_clip(problem, signal_to_noise)} (n mu / (s p) = {signal_to_noise:.3g}, mu = {request.mu:.4g})",
        *explain_counts(counted),
        moments,
        f"the rest is spent on {spec.min_steps} to {spec.max_steps} steps of size at most {spec.step_cap:.3g}, plain "
        "where noise is the limit and accelerated where time is; the effective dimension of the released spectrum "
        "decides, at the same cost",
    )
