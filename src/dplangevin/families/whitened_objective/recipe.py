"""The recipe of whitened objective perturbation: shares, clip and ridge from public quantities."""

from __future__ import annotations

import math
from dataclasses import replace

from dplangevin.errors import CalibrationFailed
from dplangevin.families._minimiser import deflated
from dplangevin.families.perturbation.recipe import REACHES, SOLVER_SHARE, least_ridge
from dplangevin.families.perturbation.theorems.objective import calibrated_objective_perturbation
from dplangevin.families.whitened_objective.excess import planned_excess
from dplangevin.families.whitened_objective.schedule import WhitenedObjectiveSchedule
from dplangevin.families.whitened_objective.theorem import whitened_constants
from dplangevin.planner import risk, rules
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request, caution, clip_reason
from dplangevin.planner.rules import PureLook
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Problem

STIFFER = 1.2
"""Times the ridge of objective perturbation: short directions, which that ridge keeps quiet, are heard here."""


def second_moment_pays(request: Request) -> bool:
    """Whether mechanism="auto" whitens under a pure guarantee, for models where that was measured to help."""
    pure = request.free and request.delta == 0 and request.shape.whitens_purely
    return pure and PureLook.of(request).pay


def whitened_objective(request: Request) -> Recipe:
    """A share of epsilon for the second moment of the rows, the rest for the minimiser in its coordinates."""
    look = PureLook.of(request)
    rest = replace(request, epsilon=(1 - look.share) * request.epsilon, delta=0.0)
    signal = rest.records(pure=True) / request.dimension
    bound = rules.convex_clip(request.shape, signal, True)
    problem = request.problem(bound, 0.0)
    total = _ridge(rest, problem, signal)
    unit = problem.row_norm**2 * request.weight_bound
    ridge = total * unit / request.n
    objective = calibrated_objective_perturbation(
        whitened_constants(problem.constants, ridge),
        epsilon=rest.epsilon,
        solver_share=SOLVER_SHARE,
        reach=REACHES * request.shape.reach / problem.row_norm,
    )
    schedule = WhitenedObjectiveSchedule(
        moment_density_scale=_moment_noise(request, look.share),
        ridge=ridge,
        density_scale=objective.density_scale,
        tolerance=objective.tolerance,
        release_density_scale=objective.release_density_scale,
        reach=objective.reach,
    )
    scale = schedule.density_scale / (problem.row_norm * request.weight_bound)
    planned = planned_excess(schedule, problem)
    if planned is None:
        planned = risk.ridge_risk(
            ridge=total,
            noise_square=request.dimension * (request.dimension + 1) * scale**2,
            size=request.shape.reach / 2,
            dimension=request.dimension,
            n=request.n,
        )
    return Recipe(
        model=request.model,
        plan=Plan(problem=problem, schedule=schedule, delta=request.delta, theorem=request.theorem),
        reasons=_reasons(look, problem, schedule, signal),
        predicted_excess_risk=planned,
        caution=caution(request, signal),
    )


def _ridge(rest: Request, problem: Problem, signal: float) -> float:
    """Lambda on the SUM of losses, rows of norm 1: the rule of objective perturbation, a little stiffer."""
    noise = rest.sides * math.sqrt(rest.dimension) / rest.epsilon
    rank = problem.constants.hessian_rank or 1
    return max(
        STIFFER * rules.objective_ridge(rest.shape, noise, signal, pure=True),
        least_ridge(rest, problem.loss.curvature_bound, rank, False),
    )


def _moment_noise(request: Request, share: float) -> float:
    """The scale at which the moment costs its share of epsilon, a hair above for the accountant's rounding."""
    cost = deflated(share * request.epsilon)
    if not cost > 0:
        raise CalibrationFailed(
            f"epsilon = {request.epsilon:g} is too small for double precision; raise epsilon."
        )
    return request.sides / (request.n * cost)


def _reasons(
    look: PureLook, problem: Problem, schedule: WhitenedObjectiveSchedule, signal: float
) -> tuple[str, ...]:
    share, edge = look.share, look.edge(look.share)
    return (
        f"{clip_reason(problem, signal)} (n eps / (s p^1.5) = {signal:.3g})",
        f"{share:.0%} of epsilon buys one second moment of the rows: directions with more than {edge / 2:.2g} "
        "of the squared row norm are resolved, and noise then costs every direction alike",
        f"{1 - share:.0%} buys one exact minimisation in those coordinates, tilted by Gamma-norm noise; a "
        "hundredth of it covers the solver",
        f"its ridge, {schedule.ridge:.3g} per sample on whitened coefficients, balances bias against noise",
    )
