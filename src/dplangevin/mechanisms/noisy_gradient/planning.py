"""Planners of noisy gradient descent: full batch and stochastic."""

from __future__ import annotations

import math

from dplangevin.accounting.plan import Plan
from dplangevin.errors import CalibrationFailed
from dplangevin.mechanisms.noisy_gradient.calibrate import calibrate_plan
from dplangevin.mechanisms.noisy_gradient.mechanism import MIN_GATED_STEPS, check_states
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec, Sampling
from dplangevin.planner import fit_plan as risk, rules
from dplangevin.planner.fit_plan import FitPlan, Request, explain_clip, low_signal_warning
from dplangevin.problem import Problem

N_EPOCHS = 10
N_BATCHES = 20
SAMPLING_OF_THEOREM: dict[str, Sampling] = {
    "cyclic-shift": "cyclic",
    "shuffled-shift": "shuffle",
    "secret-permutation": "shuffle",
}


def plan_noisy_gd(request: Request) -> FitPlan:
    """Plan accelerated descent that releases the mean of the last iterates, accounted by composition.

    With a stated theorem about the last iterate, plan plain descent with a ridge that releases the last iterate.
    """
    if request.theorem not in (None, "composition"):
        return _plan_last_iterate(request)
    effective_n = request.effective_n(pure=False)
    signal_to_noise = effective_n / request.n_columns
    problem = request.make_problem(rules.choose_clip(request.defaults, signal_to_noise), 0.0)
    slope, curvature = problem.loss.slope_bound, problem.loss.step_curvature
    max_n_steps = rules.max_descent_steps(request.n, request.n_columns, curvature)
    descent = rules.plan_descent(
        request.defaults, effective_n, signal_to_noise, slope, curvature, max_n_steps
    )
    predicted = risk.descent_risk(
        descent,
        curvature=curvature,
        noise=slope * math.sqrt(descent.n_steps) / effective_n,
        size=request.defaults.coef_bound / 2,
        dimension=request.dimension,
    )
    clip_explanation, warning = (
        explain_clip(problem, signal_to_noise),
        low_signal_warning(request, signal_to_noise),
    )
    spec = NoisyGradientSpec(
        step_size=rescale_step_size(problem, descent.step_size),
        noise_std=_noise_per_step(request, problem, descent.n_steps),
        n_steps=descent.n_steps,
        release="average",
        average_from=descent.average_from,
        momentum=True,
        weights="gated" if uses_gated_weights(request, descent) else "uniform",
        secure=request.is_exact,
    )
    tail = descent.n_steps - descent.average_from
    return FitPlan(
        model=request.model,
        reasons=(
            f"{clip_explanation} (n mu / (s p) = {signal_to_noise:.3g}, mu = {request.mu:.4g})",
            f"{descent.n_steps} accelerated full-batch steps of size {spec.step_size:.3g}: as many as the "
            f"noise allows, at most {max_n_steps}",
            f"the mean of the last {tail} iterates is released"
            + (", shrunk where the noisy path indicates weak effects" if spec.weights == "gated" else "")
            + "; averaging reduces the noise at no privacy cost",
            *_explain_no_moments(request),
        ),
        predicted_excess_risk=predicted,
        warning=warning,
        plan=Plan(problem=problem, spec=spec, delta=request.delta, theorem="composition"),
    )


def uses_gated_weights(request: Request, descent: rules.DescentPlan) -> bool:
    """Return True where the average is gated: for models that gain by it, unless options state how to fit."""
    return request.defaults.shrinks and request.uses_defaults and descent.n_steps >= MIN_GATED_STEPS


def _explain_no_moments(request: Request) -> tuple[str, ...]:
    """Explain why the default fit releases no second-moment matrix here."""
    if not request.uses_defaults:
        return ()
    edge = rules.MomentBudget.for_request(request).edge
    return (
        f"no feature second-moment matrix is released: with {rules.MOMENT_BUDGET_FRACTION:.0%} of the privacy budget "
        f"(in mu^2) only eigenvalues above {edge / 2:.2g} of the squared row norm would stand above the noise",
    )


def rescale_step_size(problem: Problem, size: float) -> float:
    """Return the step size for the problem's rows, weights and ridge, given that for rows of norm 1."""
    scale = problem.row_norm**2 * problem.bounds.weight_bound
    return 1 / (scale / size + problem.ridge)


def _noise_per_step(request: Request, problem: Problem, steps: int) -> float:
    """Return noise_std with T (Delta / (n noise_std))^2 = mu^2, slightly larger for the accountant's rounding."""
    mu_per_step = (request.mu / math.sqrt(steps) - 2e-12) / (1 + 2e-9)
    if not mu_per_step > 0:
        raise CalibrationFailed(
            f"epsilon = {request.epsilon:g} at delta = {request.delta:g} is too small for double precision; raise it."
        )
    return problem.constants.gradient_sensitivity / (problem.n * mu_per_step)


def _plan_last_iterate(request: Request) -> FitPlan:
    effective_n = request.effective_n(pure=False)
    signal_to_noise = effective_n / request.n_columns
    plain = request.make_problem(rules.convex_clip(request.defaults, signal_to_noise), 0.0)
    noise = request.n_changed_records * math.sqrt(request.dimension) / request.mu
    total = rules.objective_ridge(request.defaults, noise, signal_to_noise, pure=False)
    problem = request.make_problem(
        rules.convex_clip(request.defaults, signal_to_noise),
        total * plain.row_norm**2 * request.weight_bound / request.n,
    )
    if request.is_exact:
        check_states(problem)
    spec = NoisyGradientSpec(
        step_size=1 / problem.constants.smoothness,
        noise_std=1.0,
        n_steps=2 * rules.MAX_STEPS,
        release="last-state" if request.is_exact else "last-iterate",
        secure=request.is_exact,
    )
    plan = calibrate_plan(
        problem,
        spec,
        epsilon=request.epsilon,
        delta=request.delta,
        theorem=request.theorem,
    )
    calibrated = plan.spec
    assert isinstance(calibrated, NoisyGradientSpec)
    slope = problem.loss.slope_bound
    return FitPlan(
        model=request.model,
        plan=plan,
        reasons=(
            f"theorem {request.theorem} is about the last iterate: {calibrated.n_steps} plain steps of size "
            f"{calibrated.step_size:.3g} with ridge alpha = {problem.ridge:.3g}",
            explain_clip(problem, signal_to_noise),
        ),
        predicted_excess_risk=risk.ridge_risk(
            ridge=total,
            noise_square=request.dimension * (request.n_changed_records * slope / request.mu) ** 2,
            size=request.defaults.coef_bound / 2,
            dimension=request.dimension,
            n=request.n,
        ),
        warning=low_signal_warning(request, signal_to_noise),
    )


def plan_noisy_sgd(request: Request) -> FitPlan:
    """Plan epochs of noisy mini-batch steps. Composition covers momentum and averages; other theorems do not."""
    effective_n = request.effective_n(pure=False)
    signal_to_noise = effective_n / request.n_columns
    hides_state = request.theorem not in (None, "composition")
    bound = (rules.convex_clip if hides_state else rules.choose_clip)(request.defaults, signal_to_noise)
    problem = request.make_problem(bound, 0.0)
    size = max(1, request.n // N_BATCHES)
    steps = N_EPOCHS * math.ceil(request.n / size)
    sampling = SAMPLING_OF_THEOREM.get(
        request.theorem or "", "poisson" if request.adjacency == "add-remove" else "without-replacement"
    )
    slope, curvature = problem.loss.slope_bound, problem.loss.step_curvature
    max_n_steps = rules.max_descent_steps(request.n, request.n_columns, curvature)
    descent = rules.plan_descent(
        request.defaults, effective_n, signal_to_noise, slope, curvature, max_n_steps
    )
    eta = min(1 / curvature, descent.step_size * (descent.n_steps / steps) ** 2)
    start = steps - math.ceil(request.defaults.averaged_fraction * steps)
    spec = NoisyGradientSpec(
        step_size=rescale_step_size(problem, eta),
        noise_std=problem.constants.gradient_sensitivity / size,
        n_steps=steps,
        batch_size=size,
        sampling=sampling,
        release="last-iterate" if hides_state else "average",
        average_from=0 if hides_state else start,
        momentum=not hides_state,
        secure=request.is_exact,
    )
    plan = calibrate_plan(
        problem,
        spec,
        epsilon=request.epsilon,
        delta=request.delta,
        theorem=request.theorem or "composition",
    )
    calibrated = plan.spec
    assert isinstance(calibrated, NoisyGradientSpec)
    assert not isinstance(calibrated.noise_std, tuple)
    descent_used = rules.DescentPlan(n_steps=steps, step_size=eta, average_from=start)
    noise = calibrated.noise_std / (problem.row_norm * request.weight_bound)
    return FitPlan(
        model=request.model,
        plan=plan,
        reasons=(
            explain_clip(problem, signal_to_noise),
            f"{N_EPOCHS} epochs of {sampling} batches of {size} rows: {steps} steps of size {calibrated.step_size:.3g}",
        ),
        predicted_excess_risk=risk.descent_risk(
            descent_used,
            curvature=curvature,
            noise=noise,
            size=request.defaults.coef_bound / 2,
            dimension=request.dimension,
        ),
        warning=low_signal_warning(request, signal_to_noise),
    )
