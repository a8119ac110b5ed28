"""Recipes of perturbed objectives and perturbed minimisers."""

from __future__ import annotations

import math

from dplangevin.families.perturbation.theorems.objective import calibrated_objective_perturbation
from dplangevin.families.perturbation.theorems.output import calibrated_output_perturbation
from dplangevin.planner import risk, rules
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request, caution, clip_reason
from dplangevin.privacy.plan import Plan

SOLVER_SHARE = 0.01
REACHES = 100.0
"""A minimiser longer than so many times the reach of one coefficient is scaled back."""
RADIUS = 4.0
"""Expected norm of the minimiser (rows of norm 1), for the ridge of output perturbation."""


def gamma_noise_pays(request: Request) -> bool:
    """Whether mechanism="auto" perturbs the objective: pure guarantees, and few parameters of a smooth loss."""
    if request.delta == 0:
        return True
    return (
        request.alpha is None
        and math.isfinite(request.loss(None).curvature_bound)
        and rules.pure_pays(request.dimension, request.epsilon, request.mu)
    )


def objective_perturbation(request: Request) -> Recipe:
    """Gamma-norm noise where it is asked for or pays, else Gaussian; a ridge that balances noise and bias."""
    gaussian = request.delta > 0 and not _gamma(request)
    budget = request.mu if gaussian else request.epsilon
    signal = request.records(pure=not gaussian) / request.dimension
    bound = rules.convex_clip(request.shape, signal, not gaussian)
    noise = request.sides * math.sqrt(request.dimension) / budget
    plain = request.problem(bound, 0.0)
    total = rules.objective_ridge(request.shape, noise, signal, pure=not gaussian)
    total = max(
        total, least_ridge(request, plain.loss.curvature_bound, plain.constants.hessian_rank or 1, gaussian)
    )
    problem = request.problem(bound, total * plain.row_norm**2 * request.weight_bound / request.n)
    schedule = calibrated_objective_perturbation(
        problem.constants,
        epsilon=request.epsilon,
        delta=request.delta if gaussian else 0.0,
        solver_share=SOLVER_SHARE,
        reach=REACHES * request.shape.reach / problem.row_norm,
    )
    scale = schedule.density_scale / (problem.row_norm * request.weight_bound)
    square = request.dimension * scale**2 * (1 if gaussian else request.dimension + 1)
    ridge = max(problem.ridge * request.n / (problem.row_norm**2 * request.weight_bound), 1e-300)
    reasons = [
        f"{clip_reason(problem, signal)} (n {'mu / (s p)' if gaussian else 'eps / (s p^1.5)'} = {signal:.3g})",
        f"ridge alpha = {problem.ridge:.3g} per sample balances its bias against the noise it damps",
        f"one exact minimisation of the objective tilted by {schedule.noise} noise; 1% of epsilon covers the solver",
    ]
    if request.delta > 0 and not gaussian:
        reasons.append(
            "Gamma-norm noise is shorter than Gaussian noise for so few parameters: the promise is pure"
        )
    return Recipe(
        model=request.model,
        plan=Plan(problem=problem, schedule=schedule, delta=request.delta, theorem=request.theorem),
        reasons=tuple(reasons),
        predicted_excess_risk=risk.ridge_risk(
            ridge=ridge,
            noise_square=square,
            size=request.shape.reach / 2,
            dimension=request.dimension,
            n=request.n,
        ),
        caution=caution(request, signal),
    )


def _gamma(request: Request) -> bool:
    if request.theorem is not None:
        return request.theorem == "objective-perturbation"
    return rules.pure_pays(request.dimension, request.epsilon, request.mu)


def least_ridge(request: Request, curvature: float, rank: int, gaussian: bool) -> float:
    """The Lambda at which the determinant takes 49% (pure) or 30% (Gaussian) of epsilon, and no more."""
    share = 0.3 if gaussian else 0.5 - SOLVER_SHARE
    return curvature / math.expm1(min(share * request.epsilon / rank, 700.0))


def output_perturbation(request: Request) -> Recipe:
    """The exact minimiser plus noise; the ridge balances its bias against the noise it allows."""
    pure = request.delta == 0
    budget = request.epsilon if pure else request.mu
    signal = request.records(pure) / request.dimension
    bound = rules.convex_clip(request.shape, signal)
    plain = request.problem(bound, 1.0)
    curvature, p = plain.loss.curvature_bound, request.dimension
    unit = request.sides * plain.loss.slope_bound / (request.n * budget)
    square = unit**2 * (p * (p + 1) if pure else p)
    scale = plain.row_norm**2 * request.weight_bound
    problem = request.problem(bound, rules.output_ridge(square, curvature, RADIUS) * scale)
    schedule = calibrated_output_perturbation(
        problem.constants, epsilon=request.epsilon, delta=request.delta, secure=request.secure
    )
    ridge = max(problem.ridge / scale, 1e-300)
    return Recipe(
        model=request.model,
        plan=Plan(problem=problem, schedule=schedule, delta=request.delta, theorem=request.theorem),
        reasons=(
            clip_reason(problem, signal),
            f"ridge alpha = {problem.ridge:.3g} per sample balances its bias against the noise it allows",
            f"the exact minimiser plus {schedule.noise} noise",
        ),
        predicted_excess_risk=curvature / 2 * square / ridge**2 + ridge / 2 * RADIUS**2,
        caution=caution(request, signal),
    )
