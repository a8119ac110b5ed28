"""Calibration of noisy gradient runs to the private side, and the planners of noisy gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dplangevin._search import bisect_integers, expand_bracket
from dplangevin.accounting.plan import CertifiedSpec, Plan, Theorem, format_refusals
from dplangevin.accounting.registry import find_theorem, theorems_for
from dplangevin.accounting.target import PrivacyTarget, make_target
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.noisy_gradient.mechanism import MIN_GATED_STEPS, check_states
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec, Sampling
from dplangevin.planner import fit_plan as risk, rules
from dplangevin.planner.fit_plan import FitPlan, Request, explain_clip, low_signal_warning
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import Problem

P = TypeVar("P", bound=CertifiedSpec)
FAST_TOLERANCE = 1e-9
SLOW_TOLERANCE = 1e-3
SLOW_THEOREMS = ("block-recursion", "dobrushin", "participation-start", "block-sgd")
STEP_MONOTONE_THEOREMS = ("composition", "optimal-shift", "hidden-state-sgd")


def calibrate_noise(
    constants: Constants, spec: NoisyGradientSpec, target: PrivacyTarget, theorem: str | None
) -> CertifiedSpec:
    """Return the certified spec with the least noise that meets the target; per-step noise is scaled as a whole."""
    calibrated, name = _find_least_noise(constants, spec, target, theorem)
    return _check_target_met(
        CertifiedSpec(constants=constants, spec=calibrated, delta=target.delta, theorem=name), target
    )


def calibrate_plan(
    problem: Problem,
    spec: NoisyGradientSpec,
    *,
    epsilon: float,
    delta: float,
    theorem: str | None = None,
) -> Plan:
    """Return the plan, for a problem, with the least noise that meets (epsilon, delta); see `calibrate_noise`."""
    target_cost = make_target(epsilon=epsilon, delta=delta)
    calibrated, name = _find_least_noise(problem.constants, spec, target_cost, theorem)
    return _check_target_met(Plan(problem=problem, spec=calibrated, delta=delta, theorem=name), target_cost)


def _check_target_met(plan: P, target: PrivacyTarget) -> P:
    if not target.cost(plan.guarantee) <= target.goal:
        raise CalibrationFailed(f"the calibrated run spends {target.cost(plan.guarantee)!r}, not {target}.")
    return plan


def _find_least_noise(
    constants: Constants, spec: NoisyGradientSpec, target: PrivacyTarget, theorem: str | None
) -> tuple[NoisyGradientSpec, str]:
    """Return the spec with the least noise, and the name of the theorem that certifies it."""
    names = [*theorems_for(type(spec))] if theorem is None else [find_theorem(theorem, type(spec)).name]
    best: tuple[float, str] | None = None
    reasons: dict[str, str] = {}
    refused = False
    for name in sorted(names, key=lambda item: item in SLOW_THEOREMS):
        try:
            factor = _find_least_factor(
                find_theorem(name, type(spec)),
                constants,
                spec,
                target,
                None if best is None else best[0],
            )
        except (AssumptionFailed, CalibrationFailed) as error:
            reasons[name] = str(error)
            refused = isinstance(error, AssumptionFailed)
            continue
        if factor is not None and (best is None or factor < best[0]):
            best = (factor, name)
    if best is None:
        if theorem is not None and refused:
            raise AssumptionFailed(reasons[names[0]])
        raise CalibrationFailed(
            "\n - ".join(("no theorem covers this run at any noise:", *format_refusals(reasons)))
        )
    return _scale_noise(spec, best[0]), best[1]


def _scale_noise(spec: NoisyGradientSpec, factor: float) -> NoisyGradientSpec:
    noise = spec.noise_std
    scaled = tuple(factor * value for value in noise) if isinstance(noise, tuple) else factor * noise
    return replace(spec, noise_std=scaled)


def _find_least_factor(
    theorem: Theorem[NoisyGradientSpec],
    constants: Constants,
    spec: NoisyGradientSpec,
    target: PrivacyTarget,
    best_factor: float | None,
) -> float | None:
    """Return the smallest factor on the noise found to meet the target; None if not below `best_factor`."""

    def cost(factor: float) -> float:
        return target.cost(theorem.certify(constants, _scale_noise(spec, factor)))

    slow = theorem.name in SLOW_THEOREMS or spec.sampling in ("without-replacement", "poisson")
    high = best_factor if best_factor is not None and slow else _guess_factor(constants, spec, target.goal)
    spent = cost(high)
    if best_factor is not None and slow and spent > target.goal:
        return None
    rounds = 0
    while not spent <= target.goal:
        high, rounds = high * (4 if rounds < 6 else 100), rounds + 1
        if rounds > 40:
            raise CalibrationFailed(f"{theorem.name} reaches no {target} at any noise.")
        spent = cost(high)
    return bisect_cost(cost, high, spent, target.goal, SLOW_TOLERANCE if slow else FAST_TOLERANCE)


def _guess_factor(constants: Constants, spec: NoisyGradientSpec, epsilon: float) -> float:
    """Return a first guess: noise of the order of one step's sensitivity over epsilon."""
    largest = max(spec.noise_std) if isinstance(spec.noise_std, tuple) else spec.noise_std
    return constants.gradient_sensitivity / (spec.divisor(constants.n) * min(epsilon, 10.0) * largest)


def bisect_cost(
    cost: Callable[[float], float], high: float, spent: float, target: float, tolerance: float
) -> float:
    """Find, by bisection in log scale from `high`, a small factor that was checked to meet the target."""
    ratio = 2.0
    low = high / ratio
    cost_at_low = cost(low)
    while cost_at_low <= target:
        if cost_at_low == 0 and low < 1e-12 * high:
            break
        high, spent = low, cost_at_low
        ratio = min(ratio * ratio, 1e6)
        low = high / ratio
        if low < 1e-250:
            raise CalibrationFailed("the target is met without any noise; check the bounds.")
        cost_at_low = cost(low)
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        if 0 < spent < math.inf and 0 < cost_at_low < math.inf and cost_at_low > target:
            # epsilon is close to a power of the noise: interpolate, kept inside the bracket
            slope = math.log(cost_at_low / spent) / math.log(high / low)
            step = math.log(target / spent) / slope if slope > 0 else 0.0
            guess = high * math.exp(-step * (1 - 1e-3)) if step > 0 else high
            inside = low * (high / low) ** 0.02 < guess < high * (low / high) ** 0.02
            middle = guess if inside else middle
        value = cost(middle)
        if value <= target:
            high, spent = middle, value
        else:
            low, cost_at_low = middle, value
        if high <= low * (1 + 4e-16):
            break
    return high


def calibrate_steps(
    constants: Constants, spec: NoisyGradientSpec, target: PrivacyTarget, theorem: str | None
) -> CertifiedSpec:
    """Return the certified spec with the most steps that meets the target; infinity if any number of steps does.

    Bisection is used only for theorems whose bound is monotone in the number of steps.
    """
    if not spec.is_constant:
        raise InvalidParameter(
            "the most steps are not defined for varying step size or noise; use one step_size and one noise_std."
        )
    names = (
        [find_theorem(theorem, type(spec)).name]
        if theorem is not None
        else [*theorems_for(NoisyGradientSpec)]
    )
    length = (
        math.ceil(constants.n / spec.divisor(constants.n)) if spec.sampling in ("cyclic", "shuffle") else 1
    )
    best: tuple[float, str] | None = None
    for name in sorted(names, key=lambda item: item in SLOW_THEOREMS):
        count = _find_max_steps(find_theorem(name, NoisyGradientSpec), constants, spec, target, length)
        if count > 0 and (best is None or count > best[0]):
            best = (count, name)
        if best is not None and math.isinf(best[0]):
            break
    if best is None:
        raise CalibrationFailed(
            f"not even {'one epoch' if length > 1 else 'one step'} meets {target}; raise noise_std or {target.name}."
        )
    return CertifiedSpec(
        constants=constants, spec=replace(spec, n_steps=best[0]), delta=target.delta, theorem=best[1]
    )


def _find_max_steps(
    theorem: Theorem[NoisyGradientSpec],
    constants: Constants,
    spec: NoisyGradientSpec,
    target: PrivacyTarget,
    length: int,
) -> float:
    def meets_target(count: float) -> bool:
        try:
            guarantee = theorem.certify(constants, replace(spec, n_steps=count))
        except AssumptionFailed:
            return False
        return target.cost(guarantee) <= target.goal

    if meets_target(math.inf):
        return math.inf
    if (theorem.name not in STEP_MONOTONE_THEOREMS and length == 1) or not meets_target(length):
        return 0
    failing_epochs = expand_bracket(lambda epochs: not meets_target(epochs * length), 2, 2**60)
    if failing_epochs is None:
        return 2**60 * length
    return (
        bisect_integers(lambda epochs: meets_target(epochs * length), failing_epochs // 2, failing_epochs)
        * length
    )


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
