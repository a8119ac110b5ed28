"""Plans for intervals: a fit whose error has a known law, and the curvature that its standard errors need.

The two share one (epsilon, delta): `interval_share` of it pays for the curvature. Nothing here depends on the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.families.noisy_answers.curvature import curvature_groups
from dplangevin.families.noisy_answers.schedule import NoisySumsSchedule
from dplangevin.families.noisy_answers.theorems.noisy_sums import calibrated_sums
from dplangevin.families.perturbation.schedule import ObjectivePerturbationSchedule
from dplangevin.families.perturbation.theorems.objective import calibrated_objective_perturbation
from dplangevin.planner.choose import chosen
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import AUTO, Request
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Plan, Price
from dplangevin.privacy.registry import recipes_with
from dplangevin.problem import Problem, WholeSpace

DEFAULT_SHARE = 0.15
MOST_SHARE, FINE_DOUBT = 0.5, 0.2
"""The curvature of many coefficients gets more, up to a half, until its noise is a fifth of what n records can show."""
LONGEST = 1000.0  # norm of the coefficients, for rows of norm 1, beyond which no interval is meant to hold
MOST_DOUBT = 1 / 3  # a coefficient whose curvature is within 3 noises of 0 gets an infinite standard error


@dataclass(frozen=True, kw_only=True)
class IntervalPlan:
    """The plan of a fit and that of its curvature: charged together, run one after the other."""

    plan: Plan
    curvature: Price
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        both = self.plan.guarantee + self.curvature.guarantee
        _check.put(self, guarantee=replace(both, release="draw + noisy-answers", at_delta=self.plan.delta))

    @property
    def deviations(self) -> list[float]:
        """Of the noise on one entry of each of the curvature's sums."""
        sums = self.curvature.schedule
        assert isinstance(sums, NoisySumsSchedule)
        return [group.deviation(sums.noise) for group in sums.groups]

    @property
    def words(self) -> str:
        """What the intervals assume."""
        model = self.plan.problem.loss.plain.interval_model
        return (
            f"confidence intervals assume independent records, {model} and no clipped rows or targets; "
            "the guarantee assumes none of this"
        )


def interval_share(intervals: Any) -> float:
    """The share of the budget that intervals=False, True or a number asks for."""
    if isinstance(intervals, bool | np.bool_):
        return DEFAULT_SHARE if intervals else 0.0
    return _check.open_unit("intervals", intervals)


def fit_epsilon(epsilon: float, delta: float, share: float) -> float:
    """The epsilon left to the fit: 1 - share of mu^2 (of epsilon when delta = 0)."""
    if delta == 0:
        return (1 - share) * epsilon
    return cv.gdp_epsilon(math.sqrt(1 - share) * cv.gdp_mu(epsilon, delta), delta)


def plan_with_intervals(
    share: float, request: Request, *, rows: int = 1, weighted: bool = False, stated: bool = True
) -> tuple[Recipe, IntervalPlan]:
    """The recipe and the joint plan for a request whose (epsilon, delta) pays for both.

    stated : the share is as it is; otherwise a curvature that needs more gets it, by a rule on public numbers.

    What has no interval is refused; nothing here depends on the data.
    """
    mechanism, epsilon, delta = request.mechanism, request.epsilon, request.delta
    if mechanism not in (AUTO, *recipes_with("intervals")):
        raise InvalidParameter(
            f"intervals need objective perturbation, whose noise law is exact; got mechanism={mechanism!r}. "
            "Leave mechanism='auto'."
        )
    if weighted or request.weight_bound != 1:
        raise InvalidParameter(
            "intervals need equally weighted records; leave sample_weight and weight_bound out."
        )
    if rows > 1 and delta > 0:
        raise InvalidParameter(
            f"intervals for max_rows_per_person={rows} are offered with a pure promise only; set delta=0."
        )
    left = fit_epsilon(epsilon, delta, share)
    recipe = chosen(replace(request, mechanism=ObjectivePerturbationSchedule.mechanism, epsilon=left))
    recipe = recipe_for_intervals(recipe, left, request.alpha)
    both = interval_plan(recipe.plan, epsilon)
    wanted = min(MOST_SHARE, share * _doubt(both) / FINE_DOUBT)
    if not stated and wanted > share:
        return plan_with_intervals(wanted, request, rows=rows, weighted=weighted, stated=True)
    return replace(recipe, caution=recipe.caution or _caution(both)), both


def _doubt(both: IntervalPlan) -> float:
    """The noise on the curvature over the largest mean curvature that n records can have.

    Noise is three deviations of one entry, or the largest eigenvalue of a random symmetric matrix.
    """
    problem = both.plan.problem
    classes, size = problem.loss.score_dimension, _rows(both)
    largest = (
        problem.loss.typical_curvature_bound if classes == 1 else 1 - 1 / classes
    )  # trace of diag(p) - p p^T
    noise = both.deviations[0] * max(1 / MOST_DOUBT, math.sqrt(2 * size))
    return noise * size / (problem.n * largest * problem.row_norm**2)


def _rows(both: IntervalPlan) -> int:
    problem = both.plan.problem
    return problem.n_columns * max(problem.loss.score_dimension - 1, 1)


def _caution(both: IntervalPlan) -> str | None:
    """Said when the curvature is lost in its noise."""
    size = _rows(both)
    if _doubt(both) <= 1:
        return None
    return (
        f"the noise on the {size} x {size} curvature matrix exceeds what {both.plan.problem.n} records can show at "
        "this budget: expect infinite confidence intervals. More records, a larger epsilon or fewer coefficients help."
    )


@lru_cache(maxsize=64)
def recipe_for_intervals(recipe: Recipe, epsilon: float, alpha: float | None) -> Recipe:
    """The recipe with a consistent loss (likelihoods' slopes are not clipped) and a ridge small enough to be undone.

    The ridge Lambda = 10 rank M / epsilon spends about a tenth of epsilon on the determinant; its bias is undone.
    """
    problem, delta = recipe.plan.problem, recipe.plan.delta
    if not isinstance(problem.constraint, WholeSpace):
        raise InvalidParameter("intervals need an unconstrained fit; leave radius out.")
    loss = problem.loss.plain.for_intervals
    problem = replace(problem, loss=loss, ridge=0.0)
    curvature = (problem.constants.hessian_rank or 1) * problem.constants.data_smoothness
    problem = replace(problem, ridge=10 * curvature / epsilon / problem.n if alpha is None else alpha)
    schedule = calibrated_objective_perturbation(
        problem.constants, epsilon=epsilon, delta=delta, reach=LONGEST / problem.row_norm
    )
    plan = Plan(problem=problem, schedule=schedule, delta=delta)
    return replace(
        recipe,
        plan=plan,
        reasons=(
            f"objective perturbation with {schedule.noise} noise: the law of its error is exact, for intervals",
            f"slopes are bounded by {loss.slope_bound:.3g}; ridge alpha = {problem.ridge:.3g} per sample, whose bias "
            "the intervals remove",
            "the rest of the budget pays for the curvature at the released point",
        ),
    )


@lru_cache(maxsize=64)
def interval_plan(plan: Plan, epsilon: float) -> IntervalPlan:
    """The plan together with a curvature release that takes what is left of (epsilon, plan.delta)."""
    problem, delta = plan.problem, plan.delta
    if delta == 0:
        return _with_curvature(plan, problem, epsilon - plan.guarantee.epsilon(0.0), 0.0)
    goal, fit = cv.gdp_mu(epsilon, delta), cv.gdp_mu(plan.guarantee.epsilon(delta), delta)
    mu = 0.95 * math.sqrt(max(goal**2 - fit**2, 0.0))
    best: IntervalPlan | None = None
    for _ in range(6):
        if not mu > 0:
            break
        both = _with_curvature(plan, problem, cv.gdp_epsilon(mu, delta), delta)
        spent = both.guarantee.epsilon(delta)
        if spent <= epsilon:
            best = both
            if spent > 0.998 * epsilon:
                break
        fit_square = cv.gdp_mu(spent, delta) ** 2 - mu**2  # the fit as if it were Gaussian: nearly so
        mu = 0.999 * math.sqrt(max(goal**2 - fit_square, 0.0))
    if best is None:
        raise CalibrationFailed(
            f"nothing of epsilon = {epsilon:g} is left for the curvature; raise intervals or epsilon."
        )
    return best


def _with_curvature(plan: Plan, problem: Problem, epsilon: float, delta: float) -> IntervalPlan:
    curvature = calibrated_sums(
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
    return IntervalPlan(plan=plan, curvature=Price(schedule=curvature, delta=delta))
