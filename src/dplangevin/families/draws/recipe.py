"""Recipes for draws: the exponential, Gibbs and iterated exponential mechanisms, and Langevin diffusion."""

from __future__ import annotations

import math
from dataclasses import replace

from dplangevin.families.draws.plan_iterated import plan_iterated
from dplangevin.families.draws.plan_sampler import SamplerPlan, Tier, plan_sampler
from dplangevin.families.draws.theorems.exponential_mechanism import (
    exponential_temperature,
    mean_gradient_sensitivity,
)
from dplangevin.families.draws.tiers import START_DISTANCE
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request
from dplangevin.problem import Problem, risk

RIDGE_SHARE = 0.1
"""The ridge's bias, as a share of the bound p / beta of the draw."""


def exponential(request: Request) -> Recipe:
    """One draw of exp(-beta F) on a ball: pure for delta = 0, certified otherwise."""
    problem = _on_ball(request)
    tier: Tier = "exact" if problem.dimension == 1 else "certified" if request.delta > 0 else "pure"
    planned = plan_sampler(
        problem,
        request.epsilon,
        request.delta,
        tier,
        law="exponential",
        objective=request.objective,
        verbose=False,
    )
    return _recipe(request, planned)


def iterated_exponential(request: Request) -> Recipe:
    """The exponential mechanism on ever smaller balls; one stage where they would not shrink."""
    population = request.objective == "population"
    return _recipe(
        request, plan_iterated(_on_ball(request), request.epsilon, request.delta, population=population)
    )


def gibbs(request: Request) -> Recipe:
    """One draw of exp(-beta F) with the Gaussian promise of strong convexity."""
    problem = _with_ridge(request)
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
    return _recipe(request, planned)


def langevin(request: Request) -> Recipe:
    """Noisy gradient flow with a ridge, last iterate released."""
    problem, objective = _with_ridge(request), request.objective
    return _recipe(
        request,
        plan_sampler(problem, request.epsilon, request.delta, "process", objective=objective, verbose=False),
    )


def _on_ball(request: Request) -> Problem:
    """The problem on a ball, with a ridge whose bias is a tenth of the draw's own bound."""
    row = request.problem(request.needed_clip, 0.0).row_norm
    bounded = replace(request, radius=request.radius or START_DISTANCE / row)
    plain = bounded.problem(request.needed_clip, 0.0)
    beta = exponential_temperature(plain.constants, request.epsilon)
    reach = plain.constants.diameter / 2
    if request.objective == "population":
        ridge = risk.regularised_exponential_ridge(plain.constants.lipschitz, reach, request.n)
        return bounded.problem(request.needed_clip, ridge)
    return bounded.problem(request.needed_clip, 2 * RIDGE_SHARE * plain.dimension / (beta * reach**2))


def _with_ridge(request: Request) -> Problem:
    """The problem with the ridge that balances its bias against p / beta of a Gaussian promise."""
    plain = request.problem(request.needed_clip, 0.0)
    reach = request.radius or START_DISTANCE / plain.row_norm
    stability = 2 * plain.constants.lipschitz**2 / request.n if request.objective == "population" else 0.0
    ridge, _ = risk.regularised_gibbs(
        plain.dimension, request.mu, mean_gradient_sensitivity(plain.constants), reach, stability
    )
    return request.problem(request.needed_clip, ridge)


def _recipe(request: Request, planned: SamplerPlan) -> Recipe:
    problem = planned.plan.problem
    width = problem.constants.diameter
    where = f"a ball of radius {width / 2:.3g}" if math.isfinite(width) else "the whole space"
    bias = problem.ridge / 2 * (request.radius or START_DISTANCE / problem.row_norm) ** 2
    reasons: tuple[str, ...] = (
        f"sampler tier {planned.tier}, about {planned.gradient_evaluations} passes over the data and "
        f"{planned.seconds:.2g} seconds",
        f"drawn on {where} with ridge alpha = {problem.ridge:.3g} per sample",
    )
    if planned.population_risk is not None:
        reasons += (
            f"on new records: excess of at most {planned.population_risk:.3g}, uniform stability "
            f"{planned.stability:.3g}",
        )
    elif planned.stability is not None:
        reasons += (
            f"uniform stability {planned.stability:.3g}; the excess on new records of a run of finite length is not "
            "bounded",
        )
    return Recipe(
        model=request.model,
        plan=planned.plan,
        reasons=reasons,
        predicted_excess_risk=planned.population_risk or (planned.excess_risk or math.inf) + bias,
    )
