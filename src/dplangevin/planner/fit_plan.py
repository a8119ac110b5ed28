"""Plan a fit from public quantities only: a calibrated plan, the reasons for it, and its predicted risk.

It is the expected excess of the empirical risk if that risk were quadratic, every curvature were the worst one for
the run, and every coefficient (rows scaled to norm 1) had the size `coef_bound / 2` that the rules expect. For a
quadratic risk with coefficients of that size it is an upper bound; for other losses it is an estimate, which on the
benchmark data is one to four times what is measured. Sampling error is not part of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side
from dplangevin._templates import render_list, render_pairs
from dplangevin.accounting.plan import Plan
from dplangevin.accounting.registry import (
    automatic_mechanisms,
    default_mechanism,
    mechanism_for_theorem,
    mechanisms_with,
    planner_capabilities,
    planner_for,
    theorem_covers_rounding,
)
from dplangevin.accounting.target import PrivacyTarget, make_target
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter, NotPrivateError
from dplangevin.planner.request import AUTO, Request
from dplangevin.planner.rules import DescentPlan


def descent_risk(
    descent: DescentPlan, *, curvature: float, noise: float, size: float, dimension: int
) -> float:
    """Return (p / 2) max_h h ((1 - phi(h))^2 size^2 + noise^2 sum_t q_t(h)^2) over curvatures h in (0, M].

    phi(h) is the fraction of the minimiser that the released mean reaches and q_t(h) the weight of step t's noise in
    it, both computed exactly for Nesterov's recursion. `noise` is the standard deviation on the mean gradient.
    """
    grid = curvature * np.geomspace(1e-9, 1.0, 73)
    reached, weights = _descent_response(descent, grid)
    risks = grid * ((1 - reached) ** 2 * size**2 + noise**2 * (weights**2).sum(axis=0))
    return float(dimension / 2 * risks.max())


def _descent_response(descent: DescentPlan, grid: Floats) -> tuple[Floats, Floats]:
    """Return phi(h), from the recursion towards 1, and q_t(h), from the recursion backwards from the mean."""
    steps, eta = descent.n_steps, descent.step_size
    weight = 1 / (steps - descent.average_from)
    theta = previous = reached = np.zeros_like(grid)
    for t in range(steps):
        point = theta + t / (t + 3) * (theta - previous)
        previous, theta = theta, point - eta * grid * (point - 1)
        if t >= descent.average_from:
            reached = reached + weight * theta
    weights = np.zeros((steps, len(grid)))
    # derivatives of the mean in iterates t + 1 and t + 2, without their own direct weight
    current = later = np.zeros_like(grid)
    for t in reversed(range(steps)):
        total = current + (weight if t >= descent.average_from else 0.0)
        weights[t] = eta * total
        propagated = (1 - eta * grid) * total
        current, later = (1 + t / (t + 3)) * propagated + later, -t / (t + 3) * propagated
    return reached, weights


def ridge_risk(*, ridge: float, noise_square: float, size: float, dimension: int, n: int) -> float:
    """Return (Lambda p size^2 + E|b|^2 / Lambda) / (8 n), for objective perturbation.

    Ridge Lambda and tilt b are on the SUM of losses.

    In a direction of curvature h the bias costs h (Lambda / (h + Lambda))^2 / 2 and the noise h / (h + Lambda)^2 / 2
    per unit of squared coefficient and of squared tilt, at most Lambda / 8 and 1 / (8 Lambda).
    """
    return (ridge * dimension * size**2 + noise_square / ridge) / (8 * n)


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """A calibrated plan with the reasons for its choices. Everything in it is public.

    Parameters
    ----------
    model : the model's name.
    plan : problem, spec and guarantee; the guarantee's epsilon is at most the requested one.
    reasons : what was chosen and why, one sentence each.
    predicted_excess_risk : expected excess of the mean loss over its minimum, in units of the scaled target. An
        estimate (see `planner.risk`), not a bound.
    warning : which n or epsilon would suffice, when noise is expected to dominate the signal; None otherwise.

    Notes
    -----
    Prediction uses plan.problem.loss: a logistic slope clipped at C is calibrated for odds r(-z) / r(z) with
    r(z) = min(C, sigmoid(-z)); C = 1 is the usual sigmoid.
    """

    model: str
    plan: Plan
    reasons: tuple[str, ...]
    predicted_excess_risk: float
    warning: str | None = None

    def __str__(self) -> str:
        guarantee, problem = self.plan.guarantee, self.plan.problem
        lines = [
            f"Plan for {self.model}: {self.plan.spec.mechanism}, n = {problem.n}, {problem.n_features} features",
            f"  guarantee: {guarantee.summary_line}",
            *(f"  {reason}" for reason in self.reasons),
            f"  predicted excess risk (estimate): {self.predicted_excess_risk:.3g}",
        ]
        if self.warning is not None:
            lines.append(f"  warning: {self.warning}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        guarantee, problem = self.plan.guarantee, self.plan.problem
        pairs: list[tuple[str, object]] = [
            ("mechanism", self.plan.spec.mechanism),
            ("rows and features", f"{problem.n:,} and {problem.n_features}"),
            ("predicted excess risk", f"{self.predicted_excess_risk:.3g} (estimate)"),
        ]
        pairs += [] if self.warning is None else [("warning", self.warning)]
        notes = guarantee._repr_html_() + render_list("why this plan", self.reasons)
        return render_pairs(f"Plan for {self.model}", pairs, notes)


def plan_fit(
    *, advantage: float | None = None, tpr_at_fpr: tuple[float, float] | None = None, **options: Any
) -> FitPlan:
    """Plan the fit of a model on n rows under (epsilon, delta); delta = 0 requests a pure guarantee.

    Options are the fields of `Request`. In place of epsilon the risk may be stated: `advantage`, the largest TPR - FPR
    of a membership test, or `tpr_at_fpr` = (tpr, fpr), its largest TPR at an FPR; the plan's guarantee then gives the
    epsilon to state. No data are read. Raises when the requested mechanism cannot provide the requested guarantee.

    Examples
    --------
    >>> fit_plan = plan_fit(model="logistic", n=30_000, n_features=20, epsilon=1.0, delta=1e-6,
    ...                     adjacency="replace-one", data_norm=1.0, fit_intercept=False)
    >>> fit_plan.plan.spec.n_steps, bool(fit_plan.plan.guarantee.epsilon() <= 1.0)
    (12, True)
    """
    if advantage is None and tpr_at_fpr is None:
        return plan_request(Request(**options))
    if options.get("epsilon") is not None:
        raise InvalidParameter("state epsilon, advantage or tpr_at_fpr, and only one of them.")
    target = make_target(advantage=advantage, tpr_at_fpr=tpr_at_fpr, delta=options.get("delta") or None)
    return plan_for_risk(Request(**(options | {"epsilon": 1.0})), target)


def plan_for_risk(request: Request, target: PrivacyTarget) -> FitPlan:
    """Plan the fit of this request with the largest epsilon at which its guarantee meets the target."""
    plans: dict[float, FitPlan] = {}

    def meets_target(log_epsilon: float) -> bool:
        plan = plan_request(replace(request, epsilon=math.exp(log_epsilon)))
        plans[log_epsilon] = plan
        return target.cost(plan.plan.guarantee) <= target.goal

    low, high = math.log(MIN_RISK_EPSILON), math.log(MAX_RISK_EPSILON)
    if not meets_target(low):
        raise CalibrationFailed(
            f"no epsilon from {MIN_RISK_EPSILON:g} on meets {target}; allow a larger risk."
        )
    best = high if meets_target(high) else bisect_safe_side(meets_target, low, high, rounds=22)
    return plans[best] if best in plans else plan_request(replace(request, epsilon=math.exp(best)))


MIN_RISK_EPSILON, MAX_RISK_EPSILON = 1e-3, 100.0


def plan_request(request: Request, chosen: str | None = None) -> FitPlan:
    """Plan the fit of this request.

    chosen : the mechanism, where the request leaves it open: unlike a stated one, it takes nothing else from "auto".
    """
    mechanism = _resolve_mechanism(request, chosen)
    try:
        fit_plan = _plan_arithmetic(request, mechanism)
        spent = fit_plan.plan.guarantee.epsilon(request.delta)
    except (ArithmeticError, RuntimeError) as error:
        raise CalibrationFailed(
            f"no plan can be computed in double precision for these numbers ({error}); choose epsilon, delta, n and "
            "the bounds closer to 1."
        ) from None
    if not spent <= request.epsilon:
        raise CalibrationFailed(
            f"theorem {fit_plan.plan.guarantee.theorem} gives epsilon = {spent:.6g} for this plan, above "
            f"{request.epsilon:.6g}; leave theorem out."
        )
    return fit_plan


def _plan_arithmetic(request: Request, mechanism: str) -> FitPlan:
    """Plan this mechanism with exact sums and noise where they are proved, else in floating point with the reason."""
    planner, obstacle = planner_for(mechanism), _exactness_obstacle(request, mechanism)
    resolved, reason = request.resolve_arithmetic(obstacle)
    try:
        fit_plan: FitPlan = planner(resolved)
    except (AssumptionFailed, NotPrivateError) as error:
        if request.secure is False or not resolved.is_exact:
            raise
        if request.secure:
            planner(replace(request, secure=False))  # raises where exactness is not what is wrong
        refusal = str(error).splitlines()[-1].lstrip(" -").rstrip(".")
        resolved, reason = request.resolve_arithmetic(refusal)
        fit_plan = planner(resolved)
    return replace(fit_plan, reasons=(*fit_plan.reasons, reason))


def plan_gaussian_fit(request: Request, max_mu: float = math.inf) -> FitPlan:
    """Plan a fit whose guarantee is composed with Gaussian releases.

    "auto" then means the default mechanism wherever the planner's choice is not mu-GDP with mu <= max_mu, because a
    pure guarantee composes badly with Gaussian ones.
    """
    fit_plan = plan_request(request)
    mu = fit_plan.plan.guarantee.mu
    if request.mechanism == AUTO and request.theorem is None and (mu is None or not mu <= max_mu):
        fit_plan = plan_request(replace(request, mechanism=default_mechanism()))
    return fit_plan


def _resolve_mechanism(request: Request, chosen: str | None) -> str:
    """Return the mechanism to plan; refuse requests that it cannot guarantee."""
    mechanism = request.mechanism
    if mechanism == AUTO:
        mechanism = chosen or _choose_mechanism(request)
    _check_objective(request, mechanism)
    capabilities = planner_capabilities(mechanism)
    if request.mechanism_options and not capabilities.stated_parameters:
        raise InvalidParameter(
            f"mechanism={mechanism!r} chooses its own parameters; leave {', '.join(request.mechanism_options)} out, or "
            f"use one of {', '.join(mechanisms_with('stated_parameters'))}."
        )
    if request.allow_more_rows and not capabilities.holds_beyond_n:
        raise InvalidParameter(
            f"mechanism={mechanism!r} is proved for at most n records, and with n_public the data may hold more: "
            "leave n_public out (the number of rows is then public), or use one of "
            f"{', '.join(mechanisms_with('holds_beyond_n'))}."
        )
    if request.curvature_fraction and not capabilities.curvature:
        raise InvalidParameter(
            f"mechanism={mechanism!r} releases no curvature; use one of {', '.join(mechanisms_with('curvature'))}."
        )
    if not capabilities.ridge_and_radius and (request.alpha is not None or request.radius is not None):
        raise InvalidParameter(
            f"mechanism={mechanism!r} has neither ridge nor radius; leave alpha and radius out, or use "
            f"mechanism={_choose_mechanism(request)!r}."
        )
    return mechanism


def _exactness_obstacle(request: Request, mechanism: str) -> str | None:
    """Return why this fit has no exact form; None where it has one."""
    if not planner_capabilities(mechanism).secure:
        return (
            f"the noise of mechanism={mechanism!r} is real-valued and passes through a sampler; exact "
            f"forms have {', '.join(mechanisms_with('secure'))}"
        )
    if request.theorem is not None and not theorem_covers_rounding(mechanism, request.theorem):
        return f"theorem={request.theorem!r} is about real-valued noise, and exact steps are rounded; leave it out"
    return None


def _check_objective(request: Request, mechanism: str) -> None:
    """Refuse an objective or a guarantee for which the mechanism has no theorem: population risk, or pure epsilon."""
    capabilities = planner_capabilities(mechanism)
    if request.objective == "population" and not capabilities.population_risk:
        raise InvalidParameter(
            f"objective='population' is for draws: use mechanism={AUTO!r} or one of "
            f"{', '.join(mechanisms_with('population_risk'))}."
        )
    if request.delta == 0 and not capabilities.pure:
        raise InvalidParameter(
            f"mechanism={mechanism!r} cannot guarantee pure epsilon; state a delta, or use one of "
            f"{', '.join(mechanisms_with('pure'))}."
        )


def _choose_mechanism(request: Request) -> str:
    """Return the mechanism of a stated theorem, else the first in the order of preference that suits the request."""
    if request.theorem is not None:
        return mechanism_for_theorem(request.theorem) or default_mechanism()
    for name, suits in automatic_mechanisms():
        capabilities = planner_capabilities(name)
        is_covered = capabilities.pure or request.delta > 0
        is_covered &= capabilities.population_risk or request.objective != "population"
        if is_covered and suits(request):
            return name
    return default_mechanism()
