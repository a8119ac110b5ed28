"""Fit plans for the exponential, Gibbs and iterated exponential mechanisms."""

from __future__ import annotations

import math
from dataclasses import replace

from dplangevin.mechanisms.exponential.sampler_plans import (
    SamplerPlan,
    SamplerTier,
    plan_iterated,
    plan_sampler,
)
from dplangevin.mechanisms.exponential.spec import (
    exponential_temperature,
    mean_gradient_sensitivity,
)
from dplangevin.mechanisms.langevin.temperatures import DEFAULT_START_DISTANCE
from dplangevin.planner.fit_plan import FitPlan, Request
from dplangevin.problem import Problem, risk

RIDGE_BIAS_FRACTION = 0.1
"""Bias of the ridge, as a fraction of the bound p / beta on the excess risk of the draw."""


def plan_exponential(request: Request) -> FitPlan:
    """Plan one draw of exp(-beta F) on a ball: exact for one parameter, else pure (delta = 0) or certified."""
    problem = _ball_problem(request)
    tier: SamplerTier = "exact" if problem.dimension == 1 else "certified" if request.delta > 0 else "pure"
    planned = plan_sampler(
        problem,
        request.epsilon,
        request.delta,
        tier,
        law="exponential",
        objective=request.objective,
        verbose=False,
    )
    return _make_fit_plan(request, planned)


def plan_iterated_exponential(request: Request) -> FitPlan:
    """Plan the exponential mechanism on smaller and smaller balls; one stage where they would not shrink."""
    population = request.objective == "population"
    return _make_fit_plan(
        request, plan_iterated(_ball_problem(request), request.epsilon, request.delta, population=population)
    )


def plan_gibbs(request: Request) -> FitPlan:
    """Plan one draw of exp(-beta F) with the Gaussian guarantee that strong convexity implies."""
    problem = add_gaussian_ridge(request)
    exact = problem.dimension == 1 and math.isfinite(problem.constants.diameter)
    planned = plan_sampler(
        problem,
        request.epsilon,
        request.delta,
        "exact" if exact else "certified",
        law="gibbs",
        objective=request.objective,
        verbose=False,
    )
    return _make_fit_plan(request, planned)


def _ball_problem(request: Request) -> Problem:
    """Return the problem on a ball, with a ridge whose bias is a tenth of the draw's own bound."""
    row = request.make_problem(request.needed_clip, 0.0).row_norm
    bounded = replace(request, radius=request.radius or DEFAULT_START_DISTANCE / row)
    plain = bounded.make_problem(request.needed_clip, 0.0)
    beta = exponential_temperature(plain.constants, request.epsilon)
    radius = plain.constants.diameter / 2
    if request.objective == "population":
        ridge = risk.regularized_exponential_ridge(plain.constants.lipschitz, radius, request.n)
        return bounded.make_problem(request.needed_clip, ridge)
    return bounded.make_problem(
        request.needed_clip, 2 * RIDGE_BIAS_FRACTION * plain.dimension / (beta * radius**2)
    )


def add_gaussian_ridge(request: Request) -> Problem:
    """Return the problem with the ridge that balances its bias against p / beta under a Gaussian guarantee."""
    plain = request.make_problem(request.needed_clip, 0.0)
    radius = request.radius or DEFAULT_START_DISTANCE / plain.row_norm
    stability = 2 * plain.constants.lipschitz**2 / request.n if request.objective == "population" else 0.0
    ridge, _ = risk.regularized_gibbs_ridge(
        plain.dimension, request.mu, mean_gradient_sensitivity(plain.constants), radius, stability
    )
    return request.make_problem(request.needed_clip, ridge)


def _make_fit_plan(request: Request, planned: SamplerPlan) -> FitPlan:
    problem = planned.plan.problem
    width = problem.constants.diameter
    where = f"a ball of radius {width / 2:.3g}" if math.isfinite(width) else "the whole space"
    bias = problem.ridge / 2 * (request.radius or DEFAULT_START_DISTANCE / problem.row_norm) ** 2
    reasons: tuple[str, ...] = (
        f"sampler tier {planned.tier}, about {planned.n_gradient_evaluations} passes over the data and "
        f"{planned.expected_seconds:.2g} seconds",
        f"drawn on {where} with ridge alpha = {problem.ridge:.3g} per record",
    )
    if planned.population_risk is not None:
        reasons += (
            f"on new records: excess of at most {planned.population_risk:.3g}, uniform stability "
            f"{planned.stability:.3g}",
        )
    elif planned.stability is not None:
        reasons += (
            f"uniform stability {planned.stability:.3g}; no bound is known on the excess risk of a finite run on new "
            "records",
        )
    return FitPlan(
        model=request.model,
        plan=planned.plan,
        reasons=reasons,
        predicted_excess_risk=planned.population_risk or (planned.excess_risk or math.inf) + bias,
    )
