"""Planners of objective and output perturbation."""

from __future__ import annotations

import math

from dplangevin.accounting.plan import Plan
from dplangevin.mechanisms.exact_minimizer import check_exact_minimizer
from dplangevin.mechanisms.perturbation.spec import (
    calibrate_objective_perturbation,
    calibrate_output_perturbation,
)
from dplangevin.planner import fit_plan as risk, rules
from dplangevin.planner.fit_plan import FitPlan, Request, explain_clip, low_signal_warning

SOLVER_BUDGET_FRACTION = 0.01
COEF_BOUND_FACTOR = 100.0
"""A minimiser whose norm exceeds this many times the bound on one coefficient is scaled back."""
EXPECTED_MINIMIZER_NORM = 4.0
"""Expected norm of the minimiser (rows of norm 1), for the ridge of output perturbation."""


def prefers_objective_perturbation(request: Request) -> bool:
    """Return True where mechanism="auto" perturbs the objective: delta = 0, or few parameters and a smooth loss."""
    if request.delta == 0:
        return True
    is_refused = request.secure is True and request.radius is not None  # a constraint has no exact minimiser
    return (
        not is_refused
        and request.alpha is None
        and math.isfinite(request.make_loss(None).curvature_bound)
        and rules.prefers_pure_noise(request.dimension, request.epsilon, request.mu)
    )


def plan_objective_perturbation(request: Request) -> FitPlan:
    """Plan objective perturbation, with Gamma-norm noise where required or smaller, else Gaussian noise."""
    gaussian = request.delta > 0 and not _uses_gamma_noise(request)
    budget = request.mu if gaussian else request.epsilon
    signal_to_noise = request.effective_n(pure=not gaussian) / request.dimension
    bound = rules.convex_clip(request.defaults, signal_to_noise, not gaussian)
    noise = request.n_changed_records * math.sqrt(request.dimension) / budget
    plain = request.make_problem(bound, 0.0)
    total = rules.objective_ridge(request.defaults, noise, signal_to_noise, pure=not gaussian)
    total = max(
        total, min_ridge(request, plain.loss.curvature_bound, plain.constants.hessian_rank or 1, gaussian)
    )
    problem = request.make_problem(bound, total * plain.row_norm**2 * request.weight_bound / request.n)
    if request.is_exact:
        check_exact_minimizer(problem)
    spec = calibrate_objective_perturbation(
        problem.constants,
        epsilon=request.epsilon,
        delta=request.delta if gaussian else 0.0,
        solver_budget_fraction=SOLVER_BUDGET_FRACTION,
        coef_bound=COEF_BOUND_FACTOR * request.defaults.coef_bound / problem.row_norm,
        secure=request.is_exact,
    )
    scale = spec.density_scale / (problem.row_norm * request.weight_bound)
    square = request.dimension * scale**2 * (1 if gaussian else request.dimension + 1)
    ridge = max(problem.ridge * request.n / (problem.row_norm**2 * request.weight_bound), 1e-300)
    reasons = [
        f"{explain_clip(problem, signal_to_noise)} "
        f"(n {'mu / (s p)' if gaussian else 'eps / (s p^1.5)'} = {signal_to_noise:.3g})",
        f"ridge alpha = {problem.ridge:.3g} per sample balances its bias against the noise it damps",
        f"one exact minimisation of the objective perturbed by {spec.noise} noise{explain_solver(spec.secure)}",
    ]
    if request.delta > 0 and not gaussian:
        reasons.append(
            "Gamma-norm noise is smaller than Gaussian noise for so few parameters: the guarantee is pure (delta = 0)"
        )
    return FitPlan(
        model=request.model,
        plan=Plan(problem=problem, spec=spec, delta=request.delta, theorem=request.theorem),
        reasons=tuple(reasons),
        predicted_excess_risk=risk.ridge_risk(
            ridge=ridge,
            noise_square=square,
            size=request.defaults.coef_bound / 2,
            dimension=request.dimension,
            n=request.n,
        ),
        warning=low_signal_warning(request, signal_to_noise),
    )


def _uses_gamma_noise(request: Request) -> bool:
    if request.theorem is not None:
        return request.theorem == "objective-perturbation"
    return rules.prefers_pure_noise(request.dimension, request.epsilon, request.mu)


def explain_solver(secure: bool) -> str:
    """Return the end of a sentence: what the solver costs."""
    return ", rounded exactly" if secure else "; a hundredth of it covers the solver"


def min_ridge(request: Request, curvature: float, rank: int, gaussian: bool) -> float:
    """Return the Lambda at which the determinant takes 49% (pure) or 30% (Gaussian) of epsilon."""
    fraction = 0.3 if gaussian else 0.5 - SOLVER_BUDGET_FRACTION
    return curvature / math.expm1(min(fraction * request.epsilon / rank, 700.0))


def plan_output_perturbation(request: Request) -> FitPlan:
    """Plan the exact minimiser plus noise, with a ridge that balances its bias against the noise it allows."""
    pure = request.delta == 0
    budget = request.epsilon if pure else request.mu
    signal_to_noise = request.effective_n(pure) / request.dimension
    bound = rules.convex_clip(request.defaults, signal_to_noise)
    plain = request.make_problem(bound, 1.0)
    curvature, p = plain.loss.curvature_bound, request.dimension
    unit = request.n_changed_records * plain.loss.slope_bound / (request.n * budget)
    square = unit**2 * (p * (p + 1) if pure else p)
    scale = plain.row_norm**2 * request.weight_bound
    problem = request.make_problem(
        bound, rules.output_ridge(square, curvature, EXPECTED_MINIMIZER_NORM) * scale
    )
    spec = calibrate_output_perturbation(
        problem.constants, epsilon=request.epsilon, delta=request.delta, secure=request.is_exact
    )
    ridge = max(problem.ridge / scale, 1e-300)
    return FitPlan(
        model=request.model,
        plan=Plan(problem=problem, spec=spec, delta=request.delta, theorem=request.theorem),
        reasons=(
            explain_clip(problem, signal_to_noise),
            f"ridge alpha = {problem.ridge:.3g} per sample balances its bias against the noise it allows",
            f"the exact minimiser plus {spec.noise} noise",
        ),
        predicted_excess_risk=curvature / 2 * square / ridge**2 + ridge / 2 * EXPECTED_MINIMIZER_NORM**2,
        warning=low_signal_warning(request, signal_to_noise),
    )
