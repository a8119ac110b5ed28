"""Recipes for noisy gradient descent, full batch and stochastic."""

from __future__ import annotations

import math

from dplangevin.errors import CalibrationFailed
from dplangevin.families.noisy_gradient.calibrate import least_noise_plan
from dplangevin.families.noisy_gradient.gated import FEWEST
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule, Sampling
from dplangevin.planner import risk, rules
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request, caution, clip_reason
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Problem

EPOCHS = 10
BATCHES = 20
SAMPLINGS: dict[str, Sampling] = {
    "cyclic-shift": "cyclic",
    "shuffled-shift": "shuffle",
    "secret-permutation": "shuffle",
}


def noisy_gd(request: Request) -> Recipe:
    """Accelerated descent with the mean of the last iterates, accounted by composition.

    A pinned theorem about the last iterate gets plain descent with a ridge instead, and the last iterate.
    """
    if request.theorem not in (None, "composition"):
        return _last_iterate(request)
    records = request.records(pure=False)
    signal = records / request.columns
    problem = request.problem(rules.clip(request.shape, signal), 0.0)
    slope, curvature = problem.loss.slope_bound, problem.loss.step_curvature
    most = rules.most_steps(request.n, request.columns, curvature)
    descent = rules.descent(request.shape, records, signal, slope, curvature, most)
    predicted = risk.descent_risk(
        descent,
        curvature=curvature,
        noise=slope * math.sqrt(descent.n_steps) / records,
        size=request.shape.reach / 2,
        dimension=request.dimension,
    )
    slopes, warned = clip_reason(problem, signal), caution(request, signal)
    schedule = NoisyGradientSchedule(
        step_size=step_size(problem, descent.step_size),
        noise_std=_noise(request, problem, descent.n_steps),
        n_steps=descent.n_steps,
        release="average",
        average_from=descent.average_from,
        momentum=True,
        weights="gated" if gated(request, descent) else "uniform",
    )
    tail = descent.n_steps - descent.average_from
    return Recipe(
        model=request.model,
        reasons=(
            f"{slopes} (n mu / (s p) = {signal:.3g}, mu = {request.mu:.4g})",
            f"{descent.n_steps} accelerated full-batch steps of size {schedule.step_size:.3g}: as much time as the "
            f"noise allows, at most {most}",
            f"the mean of the last {tail} iterates is released; it averages the noise at no cost"
            + (", and is shrunk where the path shows weak effects" if schedule.weights == "gated" else ""),
            *_branch(request),
        ),
        predicted_excess_risk=predicted,
        caution=warned,
        plan=Plan(problem=problem, schedule=schedule, delta=request.delta, theorem="composition"),
    )


def gated(request: Request, descent: rules.Descent) -> bool:
    """Whether weights of the iterates follow: for models that gain by it, where nothing else was asked for."""
    return request.shape.shrinks and request.free and descent.n_steps >= FEWEST


def _branch(request: Request) -> tuple[str, ...]:
    """Why the default fit buys no second moment here."""
    if not request.free:
        return ()
    edge = rules.Looks.of(request).edge
    return (
        f"no second moment of the rows is bought: {rules.SHARE:.0%} of mu^2 would resolve only directions with more "
        f"than {edge / 2:.2g} of the squared row norm",
    )


def step_size(problem: Problem, size: float) -> float:
    """A step for rows of norm 1 as a step for the problem's rows, weights and ridge."""
    scale = problem.row_norm**2 * problem.bounds.weight_bound
    return 1 / (scale / size + problem.ridge)


def _noise(request: Request, problem: Problem, steps: int) -> float:
    """noise_std with T (Delta / (n noise_std))^2 = mu^2, a hair above for the accountant's rounding."""
    each = (request.mu / math.sqrt(steps) - 2e-12) / (1 + 2e-9)
    if not each > 0:
        raise CalibrationFailed(
            f"epsilon = {request.epsilon:g} at delta = {request.delta:g} is too small for double precision; raise it."
        )
    return problem.constants.gradient_sensitivity / (problem.n * each)


def _last_iterate(request: Request) -> Recipe:
    records = request.records(pure=False)
    signal = records / request.columns
    plain = request.problem(rules.convex_clip(request.shape, signal), 0.0)
    noise = request.sides * math.sqrt(request.dimension) / request.mu
    total = rules.objective_ridge(request.shape, noise, signal, pure=False)
    problem = request.problem(
        rules.convex_clip(request.shape, signal),
        total * plain.row_norm**2 * request.weight_bound / request.n,
    )
    schedule = NoisyGradientSchedule(
        step_size=1 / problem.constants.smoothness, noise_std=1.0, n_steps=2 * rules.MOST_STEPS
    )
    plan = least_noise_plan(
        problem,
        schedule,
        epsilon=request.epsilon,
        delta=request.delta,
        theorem=request.theorem,
    )
    calibrated = plan.schedule
    assert isinstance(calibrated, NoisyGradientSchedule)
    slope = problem.loss.slope_bound
    return Recipe(
        model=request.model,
        plan=plan,
        reasons=(
            f"theorem {request.theorem} is about the last iterate: {calibrated.n_steps} plain steps of size "
            f"{calibrated.step_size:.3g} with ridge alpha = {problem.ridge:.3g}",
            clip_reason(problem, signal),
        ),
        predicted_excess_risk=risk.ridge_risk(
            ridge=total,
            noise_square=request.dimension * (request.sides * slope / request.mu) ** 2,
            size=request.shape.reach / 2,
            dimension=request.dimension,
            n=request.n,
        ),
        caution=caution(request, signal),
    )


def noisy_sgd(request: Request) -> Recipe:
    """A few epochs of noisy mini-batch steps. Composition covers momentum and averages; other theorems do not."""
    records = request.records(pure=False)
    signal = records / request.columns
    hidden = request.theorem not in (None, "composition")
    bound = (rules.convex_clip if hidden else rules.clip)(request.shape, signal)
    problem = request.problem(bound, 0.0)
    size = max(1, request.n // BATCHES)
    steps = EPOCHS * math.ceil(request.n / size)
    sampling = SAMPLINGS.get(
        request.theorem or "", "poisson" if request.adjacency == "add-remove" else "without-replacement"
    )
    slope, curvature = problem.loss.slope_bound, problem.loss.step_curvature
    most = rules.most_steps(request.n, request.columns, curvature)
    descent = rules.descent(request.shape, records, signal, slope, curvature, most)
    eta = min(1 / curvature, descent.step_size * (descent.n_steps / steps) ** 2)
    start = steps - math.ceil(request.shape.tail * steps)
    schedule = NoisyGradientSchedule(
        step_size=step_size(problem, eta),
        noise_std=problem.constants.gradient_sensitivity / size,
        n_steps=steps,
        batch_size=size,
        sampling=sampling,
        release="last-iterate" if hidden else "average",
        average_from=0 if hidden else start,
        momentum=not hidden,
    )
    plan = least_noise_plan(
        problem,
        schedule,
        epsilon=request.epsilon,
        delta=request.delta,
        theorem=request.theorem or "composition",
    )
    calibrated = plan.schedule
    assert isinstance(calibrated, NoisyGradientSchedule)
    assert not isinstance(calibrated.noise_std, tuple)
    used = rules.Descent(n_steps=steps, step_size=eta, average_from=start)
    noise = calibrated.noise_std / (problem.row_norm * request.weight_bound)
    return Recipe(
        model=request.model,
        plan=plan,
        reasons=(
            clip_reason(problem, signal),
            f"{EPOCHS} epochs of {sampling} batches of {size} rows: {steps} steps of size {calibrated.step_size:.3g}",
        ),
        predicted_excess_risk=risk.descent_risk(
            used, curvature=curvature, noise=noise, size=request.shape.reach / 2, dimension=request.dimension
        ),
        caution=caution(request, signal),
    )
