"""The planner of whitened objective perturbation: budget fractions, clip and ridge from public quantities."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dplangevin.accounting.plan import Plan, round_down
from dplangevin.errors import CalibrationFailed
from dplangevin.mechanisms.exact_minimizer import check_exact_minimizer
from dplangevin.mechanisms.perturbation.planning import (
    COEF_BOUND_FACTOR,
    SOLVER_BUDGET_FRACTION,
    explain_solver,
    min_ridge,
)
from dplangevin.mechanisms.perturbation.spec import calibrate_objective_perturbation
from dplangevin.mechanisms.whitened_objective.mechanism import predict_excess
from dplangevin.mechanisms.whitened_objective.spec import WhitenedObjectiveSpec, whitened_constants
from dplangevin.planner import fit_plan as risk, rules
from dplangevin.planner.fit_plan import (
    FitPlan,
    Request,
    explain_center,
    explain_clip,
    explain_counts,
    low_signal_warning,
)
from dplangevin.planner.rules import PureMomentBudget
from dplangevin.problem import Problem

RIDGE_FACTOR = 1.2
"""Factor on the ridge of objective perturbation: whitening enlarges the short directions that the ridge damped."""


def prefers_pure_whitening(request: Request) -> bool:
    """Return True where mechanism="auto" whitens under a pure guarantee: models where that was measured to help."""
    if request.delta == 0 and rules.chooses_center(request):
        return True
    pure = request.uses_defaults and request.delta == 0 and request.defaults.whitens_purely
    is_guarded = (
        rules.count_budget_fraction(request) > 0
    )  # only this mechanism falls back to the constant model
    return pure and (is_guarded or PureMomentBudget.for_request(request).is_worthwhile)


def plan_whitened_objective(request: Request) -> FitPlan:
    """Plan a second-moment release with a fraction of epsilon, and the whitened minimiser with the rest."""
    moment_budget, has_center = PureMomentBudget.for_request(request), rules.chooses_center(request)
    count_fraction = (rules.center_budget_fraction if has_center else rules.count_budget_fraction)(request)
    rest = (1 - count_fraction) * request.epsilon
    remaining_request = replace(request, epsilon=(1 - moment_budget.budget_fraction) * rest, delta=0.0)
    signal_to_noise = remaining_request.effective_n(pure=True) / request.dimension
    bound = rules.convex_clip(request.defaults, signal_to_noise, True)
    problem = request.make_problem(bound, 0.0)
    total = _choose_ridge(remaining_request, problem, signal_to_noise)
    unit = problem.row_norm**2 * request.weight_bound
    ridge = total * unit / request.n
    if request.is_exact:
        check_exact_minimizer(problem)
    objective = calibrate_objective_perturbation(
        whitened_constants(problem.constants, ridge),
        epsilon=remaining_request.epsilon,
        solver_budget_fraction=SOLVER_BUDGET_FRACTION,
        coef_bound=COEF_BOUND_FACTOR * request.defaults.coef_bound / problem.row_norm,
        secure=request.is_exact,
    )
    spec = WhitenedObjectiveSpec(
        moment_density_scale=_noise_scale(
            request, moment_budget.budget_fraction * (1 - count_fraction), request.n_changed_records
        ),
        **_count_fields(request, has_center, count_fraction, remaining_request.epsilon / request.epsilon),
        ridge=ridge,
        density_scale=objective.density_scale,
        tolerance=objective.tolerance,
        release_density_scale=objective.release_density_scale,
        coef_bound=objective.coef_bound,
        secure=request.is_exact,
    )
    scale = spec.density_scale / (problem.row_norm * request.weight_bound)
    predicted = predict_excess(spec, problem)
    if predicted is None:
        predicted = risk.ridge_risk(
            ridge=total,
            noise_square=request.dimension * (request.dimension + 1) * scale**2,
            size=request.defaults.coef_bound / 2,
            dimension=request.dimension,
            n=request.n,
        )
    return FitPlan(
        model=request.model,
        plan=Plan(problem=problem, spec=spec, delta=request.delta, theorem=request.theorem),
        reasons=_explain_plan(moment_budget, problem, spec, signal_to_noise, count_fraction),
        predicted_excess_risk=predicted,
        warning=low_signal_warning(request, signal_to_noise),
    )


def _choose_ridge(request: Request, problem: Problem, signal_to_noise: float) -> float:
    """Return Lambda on the SUM of losses, rows of norm 1: the rule of objective perturbation, slightly larger."""
    noise = request.n_changed_records * math.sqrt(request.dimension) / request.epsilon
    rank = problem.constants.hessian_rank or 1
    return max(
        RIDGE_FACTOR * rules.objective_ridge(request.defaults, noise, signal_to_noise, pure=True),
        min_ridge(request, problem.loss.curvature_bound, rank, False),
    )


def _count_fields(
    request: Request, has_center: bool, count_fraction: float, recount_fraction: float
) -> dict[str, Any]:
    """Return the spec's fields for a center, or for counts, the second of which may replace the minimiser."""
    if not count_fraction:
        return {}
    if has_center:
        epsilon = round_down(round_down(count_fraction * request.epsilon))
        center, spread = (2 / (share * epsilon) for share in rules.center_shares(request))
        return {"center_scale": center, "spread_scale": spread}
    sensitivity = math.sqrt(request.n_changed_records) * request.weight_bound
    first, second = (
        _noise_scale(request, fraction, sensitivity)
        for fraction in (count_fraction, (1 - 1e-6) * recount_fraction)
    )
    return {"count_density_scale": first, "recount_density_scale": second}


def _noise_scale(request: Request, budget_fraction: float, sensitivity: float) -> float:
    """Return the scale at which a mean costs its fraction of epsilon, slightly larger for rounding.

    sensitivity : of the sum over records, in the norm of the noise.
    """
    cost = round_down(budget_fraction * request.epsilon)
    if not cost > 0:
        raise CalibrationFailed(
            f"epsilon = {request.epsilon:g} is too small for double precision; raise epsilon."
        )
    return sensitivity / (request.n * cost)


def _explain_plan(
    moment_budget: PureMomentBudget,
    problem: Problem,
    spec: WhitenedObjectiveSpec,
    signal_to_noise: float,
    count_fraction: float,
) -> tuple[str, ...]:
    fit_fraction = (1 - count_fraction) * (1 - moment_budget.budget_fraction)
    budget_fraction, edge = moment_budget.budget_fraction, moment_budget.edge(moment_budget.budget_fraction)
    return (
        f"{explain_clip(problem, signal_to_noise)} (n eps / (s p^1.5) = {signal_to_noise:.3g})",
        *(
            explain_counts(
                count_fraction, problem.bounds.classes is not None and problem.loss.score_dimension == 1
            )
            if spec.center_scales is None
            else (explain_center(count_fraction),)
        ),
        f"{(1 - count_fraction) * budget_fraction:.0%} of epsilon is spent on the feature second-moment matrix, "
        f"released once: eigenvalues above {edge / 2:.2g} of the squared row norm stand above the noise, and "
        "whitening then spreads the noise evenly over the directions",
        f"{fit_fraction:.0%} is spent on one exact minimisation in whitened coordinates, perturbed by "
        f"Gamma-norm noise{explain_solver(spec.secure)}",
        f"its ridge, {spec.ridge:.3g} per sample on whitened coefficients, balances bias against noise",
    )
