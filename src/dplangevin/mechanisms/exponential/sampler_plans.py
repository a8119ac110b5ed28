"""Plan draws before any record is read: the cheapest sampler tier, or the stages of the iterated mechanism."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from dplangevin import _check
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.accounting.plan import Plan
from dplangevin.accounting.registry import mechanism_for
from dplangevin.errors import AssumptionFailed, CalibrationFailed, DplangevinError, InvalidParameter
from dplangevin.mechanisms.exponential import tiers
from dplangevin.mechanisms.exponential.spec import (
    DrawSpec,
    ExponentialSpec,
    IteratedExponentialSpec,
    mean_gradient_sensitivity,
    total_variation_allowance,
)
from dplangevin.mechanisms.exponential.tiers import (
    SUP_NORM_BUDGET_FRACTION,
    PopulationBounds,
    StagePlan,
    TierPlan,
    plan_certified_chain,
    plan_pure_chain,
    plan_stages,
)
from dplangevin.mechanisms.langevin.temperatures import choose_stated_run, max_start_distance
from dplangevin.planner.fit_plan import RISK_OBJECTIVES, RiskObjective
from dplangevin.problem import Problem, RecordLoss, risk
from dplangevin.problem.problem import full_lipschitz

SamplerTier = Literal["auto", "exact", "pure", "certified", "process"]
SAMPLER_TIERS: tuple[SamplerTier, ...] = ("auto", "exact", "pure", "certified", "process")
MAX_SECONDS = 3600.0
SECONDS_PER_STEP = 2e-3
"""Seconds of a step of the proximal chain besides its passes over the data: one exact Gaussian draw on the set."""
_TIMING_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class SamplerPlan(PopulationBounds):
    """A calibrated plan with its expected cost. Everything in it is public.

    Parameters
    ----------
    plan : problem, spec and guarantee; run it with `dplangevin.run_plan`.
    tier : exact, pure, certified or process.
    n_gradient_evaluations : expected passes over the data, for gradients and for values of F.
    expected_seconds : the same in seconds, from a short measurement of this machine on artificial rows.
    excess_risk : bound on the expected excess of F over its minimum on the set; None when no bound is known.
    stability : uniform stability, for objective="population": the expected mean loss on new records exceeds that on
        the training records by at most this much. 2 L^2 / (m n) for draws.
    population_risk : bound on the expected excess of the mean loss (without the ridge) of new records over its
        minimum on the set: excess_risk, the bias m r^2 / 2 of the ridge, stability, and the sampler's error; None
        where the set is unbounded, or the run is a process on a loss that is not smooth.
    """

    plan: Plan
    tier: str
    n_gradient_evaluations: int
    expected_seconds: float
    excess_risk: float | None = None

    def __str__(self) -> str:
        guarantee, spec = self.plan.guarantee, self.plan.spec
        lines = [
            f"Sampler plan: {spec.mechanism} mechanism, tier {self.tier}",
            f"  guarantee: {guarantee.summary_line}",
            f"  expected cost: {self.n_gradient_evaluations} passes over the data, about "
            f"{self.expected_seconds:.3g} seconds",
        ]
        if self.excess_risk is not None:
            lines.append(
                f"  expected excess of the mean loss over its minimum: at most {self.excess_risk:.3g}"
            )
        if self.population_risk is not None:
            lines.append(
                f"  on new records: at most {self.population_risk:.3g} (uniform stability {self.stability:.3g}, ridge "
                f"{self.plan.problem.ridge:.3g})"
            )
        return "\n".join(lines)


def plan_sampler(
    problem: Problem,
    epsilon: float,
    delta: float = 0.0,
    tier: SamplerTier = "auto",
    *,
    law: tiers.GibbsLaw = "auto",
    grid: int = 0,
    padding: float = 0.0,
    max_seconds: float | None = MAX_SECONDS,
    objective: RiskObjective = "empirical",
    verbose: bool = True,
) -> SamplerPlan:
    """Plan a draw with the cheapest tier that meets (epsilon, delta), or with the stated tier.

    Parameters
    ----------
    delta : 0 requests a pure guarantee (tiers exact and pure); a positive one allows certified and process as well.
    tier : "auto" takes the fewest expected passes over the data among the tiers whose cost is known beforehand, but
        with a delta no plan whose risk bound is above that of the pure plan.
    law : "exponential" or "gibbs" fixes the temperature rule of the certified and exact tiers; "auto" takes the
        colder.
    grid : points per axis of a public grid, for losses that are not convex.
    padding : least number of seconds that every run takes; must cover the expected time.
    max_seconds : refuse, before anything runs, a plan that is expected to take longer; None never refuses.
    objective : "population" plans for the loss of new records: a problem without a ridge gets the one with the
        smallest bound (build the data from plan.problem), and stability and population_risk are reported.
    verbose : print the plan to standard error.

    Examples
    --------
    >>> from dplangevin.problem import Ball, DataBounds, Logistic
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=2000, n_features=20,
    ...                   constraint=Ball(1.0), ridge=0.01, fit_intercept=False)
    >>> planned = plan_sampler(problem, epsilon=1.0, verbose=False)
    >>> planned.tier, planned.plan.guarantee.epsilon(0.0) <= 1.0
    ('pure', True)
    """
    epsilon, delta = _check_target(epsilon, delta, tier)
    population = _check.check_choice("objective", objective, RISK_OBJECTIVES) == "population"
    if population:
        _check_stable(problem, grid)
    plan_for = partial(
        _plan_for_delta, problem, epsilon, law=law, grid=grid, padding=padding, max_seconds=max_seconds,
        population=population,
    )  # fmt: skip
    planned = plan_for(delta, tier)
    if delta and (tier, law) == ("auto", "auto"):
        # a pure plan meets (epsilon, delta) too: a delta must not choose a plan with a larger bound
        with contextlib.suppress(DplangevinError):
            pure = plan_for(0.0, tier)
            if _risk_of(pure, population) < _risk_of(planned, population):
                planned = replace(pure, plan=replace(pure.plan, delta=delta))
    if verbose:
        print(planned, file=sys.stderr)
    return planned


def _risk_of(planned: SamplerPlan, population: bool) -> float:
    """Return the bound that the objective is about; infinity where none is known."""
    bound = planned.population_risk if population else planned.excess_risk
    return math.inf if bound is None else bound


def _plan_for_delta(
    problem: Problem,
    epsilon: float,
    delta: float,
    tier: SamplerTier,
    *,
    law: tiers.GibbsLaw,
    grid: int,
    padding: float,
    max_seconds: float | None,
    population: bool,
) -> SamplerPlan:
    if population and tier != "process":  # a process is stable by stopping early, without a ridge
        problem = add_population_ridge(problem, epsilon, delta, law, grid)
    tier_plan = _choose_tier(problem, epsilon, delta, tier, law, grid, population=population)
    planned = _certify_tier_plan(problem, tier_plan, delta, padding)
    if population:
        planned = _with_population_risk(planned, tier_plan.stability)
    _check_time(problem, tier_plan, planned.expected_seconds, max_seconds, padding)
    spent = planned.plan.guarantee.epsilon(delta)
    if not spent <= epsilon:
        raise CalibrationFailed(
            f"tier {tier_plan.tier} gives epsilon = {spent:.6g}, above {epsilon:.6g}; try another tier."
        )
    return planned


def plan_stated_process(problem: Problem, epsilon: float, delta: float, **stated: float) -> SamplerPlan:
    """Plan the Langevin run with the stated inverse_temperature, time or n_steps (see `choose_stated_run`)."""
    epsilon, delta = _check_target(epsilon, delta, "process")
    choice = choose_stated_run(problem, gdp_mu(epsilon, delta) * (1 - 1e-7), **stated)  # type: ignore[arg-type]
    return _certify_tier_plan(problem, tiers.make_process_plan(choice), delta, 0.0)


def add_population_ridge(
    problem: Problem, epsilon: float, delta: float, law: tiers.GibbsLaw = "auto", grid: int = 0
) -> Problem:
    """Return the problem with the ridge that minimizes the population risk bound, unless it already has a ridge."""
    constants = problem.constants
    _check_stable(problem, grid)
    if problem.ridge > 0:
        return problem
    radius = max_start_distance(problem)
    if delta > 0 and law != "exponential":
        mu, slope = gdp_mu(epsilon, delta), mean_gradient_sensitivity(constants)
        variance = 2 * constants.lipschitz**2 / problem.n
        ridge, _ = risk.regularized_gibbs_ridge(problem.dimension, mu, slope, radius, variance)
    else:
        ridge = risk.regularized_exponential_ridge(constants.lipschitz, radius, problem.n)
    return replace(problem, ridge=ridge)


def _check_stable(problem: Problem, grid: int) -> None:
    if grid or not problem.constants.convex:
        raise AssumptionFailed(
            "population risk is bounded through the stability of convex losses; use objective='empirical' here."
        )


def _with_population_risk(planned: SamplerPlan, process_stability: float | None = None) -> SamplerPlan:
    """Add stability and population risk: in a coupling, a replaced record moves a draw by at most 2 L / (m n).

    A process has a stability of its own, and its excess risk already includes what a finite run adds.
    """
    problem, excess = planned.plan.problem, planned.excess_risk
    radius, lipschitz = max_start_distance(problem), problem.constants.lipschitz
    is_process = planned.tier == "process"
    if is_process and process_stability is None:  # a loss that is not smooth
        return planned
    stability = process_stability or risk.gibbs_stability(lipschitz, problem.ridge, problem.n)
    unbounded = not math.isfinite(problem.constants.diameter)  # the ridge's bias is then an assumption
    if excess is None or unbounded:
        return replace(planned, stability=stability)
    beta = getattr(planned.plan.spec, "inverse_temperature", None)
    error = 0.0
    if beta is not None and not is_process:
        error = max(0.0, excess - risk.exponential_excess(problem.dimension, beta))
    # the sampler's error enters both means, that of the training records and that of new ones
    bound = excess + problem.ridge / 2 * radius**2 + stability + 2 * error
    return replace(planned, stability=stability, population_risk=bound)


def _check_target(epsilon: float, delta: float, tier: str) -> tuple[float, float]:
    _check.check_choice("tier", tier, SAMPLER_TIERS)
    epsilon = _check.check_positive("epsilon", epsilon)
    if delta != 0:
        delta = _check.check_open_unit("delta", delta)
    elif tier in ("certified", "process"):
        raise CalibrationFailed(
            f"tier={tier!r} cannot guarantee delta = 0; state a delta, or use tier='pure' or 'exact'."
        )
    return epsilon, delta


def _certify_tier_plan(problem: Problem, tier_plan: TierPlan, delta: float, padding: float) -> SamplerPlan:
    spec, steps = tier_plan.spec, 0
    if isinstance(spec, DrawSpec):
        spec, steps = replace(spec, padding=padding), spec.n_steps
    return SamplerPlan(
        plan=Plan(problem=problem, spec=spec, delta=delta, theorem=tier_plan.theorem),
        tier=tier_plan.tier,
        n_gradient_evaluations=math.ceil(tier_plan.n_evaluations),
        expected_seconds=tier_plan.n_evaluations * seconds_per_pass(problem) + steps * SECONDS_PER_STEP,
        excess_risk=tier_plan.excess_risk,
    )


def _choose_tier(
    problem: Problem,
    epsilon: float,
    delta: float,
    tier: SamplerTier,
    law: tiers.GibbsLaw,
    grid: int,
    *,
    population: bool = False,
) -> TierPlan:
    builders: dict[str, Callable[[], TierPlan]] = {
        "exact": lambda: tiers.plan_exact_tier(problem, epsilon, delta, law, grid),
        "pure": lambda: tiers.plan_pure_tier(problem, epsilon, delta),
        "certified": lambda: tiers.plan_certified_tier(problem, epsilon, delta, law),
        "process": lambda: tiers.plan_process_tier(problem, epsilon, delta, population=population),
    }
    if tier != "auto":
        return _check_runnable(problem, builders[tier]())
    candidates, reasons = [], []
    for name in ("exact", "pure", "certified", "process")[: 4 if delta else 2]:
        try:
            candidate = _check_runnable(problem, builders[name]())
        except DplangevinError as error:
            reasons.append(f"{name}: {error}")
            continue
        if candidate.has_bounded_cost:
            candidates.append(candidate)
    if not candidates:
        raise AssumptionFailed("no tier meets the request. " + " ".join(reasons))
    return min(candidates, key=lambda candidate: candidate.n_evaluations)


def _check_runnable(problem: Problem, tier_plan: TierPlan) -> TierPlan:
    """Return the plan if its mechanism can run it on this problem: a guarantee is planned for what runs."""
    mechanism = mechanism_for(type(tier_plan.spec))
    mechanism.check_loss(problem)
    mechanism.check_problem(tier_plan.spec, problem)
    return tier_plan


def _check_time(
    problem: Problem, tier_plan: TierPlan, seconds: float, max_seconds: float | None, padding: float
) -> None:
    limit = math.inf if max_seconds is None else _check.check_positive("max_seconds", max_seconds)
    if not seconds <= limit:
        raise CalibrationFailed(
            f"tier {tier_plan.tier} is expected to take {seconds:.3g} seconds ({tier_plan.n_evaluations:.3g} passes "
            f"over the data) for {problem.dimension} parameters, above max_seconds = {limit:g}; raise the ridge or "
            "max_seconds, lower epsilon, or state a delta and use tier='process'. Nothing was run."
        )
    if padding and tier_plan.tier == "process":
        raise InvalidParameter(
            "padding is for draws; the time of the process tier does not depend on the data."
        )
    if 0 < _check.check_nonnegative("padding", padding) < seconds:
        raise InvalidParameter(
            f"padding = {padding:g} seconds is below the expected {seconds:.3g}, so it would not hide the running "
            "time; raise it."
        )


def seconds_per_pass(problem: Problem) -> float:
    """Return the seconds of one pass over n records on this machine, measured on a block of artificial rows."""
    rows = np.full((_TIMING_ROWS, problem.n_columns), 0.5 / problem.n_columns)
    theta, labels = np.zeros((problem.n_columns, problem.loss.score_dimension)), np.zeros((_TIMING_ROWS, 1))
    if isinstance(problem.loss, RecordLoss):
        return 2e-8 * problem.n * problem.n_columns + 2e-5
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        scores = rows @ theta
        slopes = problem.loss.slope(scores if scores.shape[1] == 1 else scores[:, None], labels)
        rows.T @ slopes.reshape(_TIMING_ROWS, -1)
        best = min(best, time.perf_counter() - start)
    return best * problem.n / _TIMING_ROWS + 2e-5


IteratedTier = Literal["auto", "exact", "pure", "certified"]


def plan_iterated(
    problem: Problem,
    epsilon: float,
    delta: float = 0.0,
    tier: IteratedTier = "auto",
    *,
    population: bool = False,
    failure_probability: float = 1e-6,
    n_stages: int | None = None,
    padding: float = 0.0,
    max_seconds: float | None = MAX_SECONDS,
) -> SamplerPlan:
    """Plan the iterated exponential mechanism with the smallest risk bound under (epsilon, delta).

    Parameters
    ----------
    tier : "auto" is exact for one parameter, else certified, or pure when delta = 0.
    population : keep the population minimiser in the sets, and report a population bound (indicative only: the last
        set depends on the data, which the stability argument ignores).
    failure_probability : probability that a set loses the minimiser; enters the radii and the risk, never privacy.
    n_stages : None tries 1 to 8.
    """
    _check.check_choice("tier", tier, ("auto", "exact", "pure", "certified"))
    _check.check_positive("epsilon", epsilon)
    if tier == "certified" and delta == 0:
        raise CalibrationFailed(
            "tier='certified' cannot guarantee delta = 0; state a delta, or use tier='pure'."
        )
    mechanism_for(IteratedExponentialSpec).check_loss(problem)
    resolved_tier: str = tier
    if tier == "auto":
        resolved_tier = "exact" if problem.dimension == 1 else "certified" if delta > 0 else "pure"
    planned = _calibrate_stages(
        problem, epsilon, delta, resolved_tier, population, failure_probability, n_stages, padding
    )
    if max_seconds is not None and not planned.expected_seconds <= max_seconds:
        raise CalibrationFailed(
            f"the stages are expected to take {planned.expected_seconds:.3g} seconds, above max_seconds = "
            f"{max_seconds:g}; raise the ridge or max_seconds. Nothing was run."
        )
    return planned


def _calibrate_stages(
    problem: Problem,
    epsilon: float,
    delta: float,
    tier: str,
    population: bool,
    failure_probability: float,
    n_stages: int | None,
    padding: float,
) -> SamplerPlan:
    """Return a plan whose stages, with the samplers' errors, compose to at most (epsilon, delta)."""
    full, budget = full_lipschitz(problem), epsilon
    for _ in range(50):
        law_budget = budget * _law_budget_fraction(tier)
        stages = plan_stages(
            problem.constants, law_budget, failure_probability, full, n_stages, "pure", population
        )
        spec, passes = _build_spec(problem, stages, delta, tier, padding)
        plan = Plan(problem=problem, spec=spec, delta=delta, theorem="iterated-exponential-mechanism")
        if plan.guarantee.epsilon(delta) <= epsilon:
            break
        budget *= 0.999
    else:
        raise CalibrationFailed(
            f"no budget of the stages meets epsilon = {epsilon:g}; use the exponential mechanism."
        )
    steps = sum(draw.n_steps for draw in spec.draws)
    bound = stages.risk
    if population:
        bound += risk.gibbs_stability(problem.constants.lipschitz, problem.ridge, problem.n)
    return SamplerPlan(
        plan=plan,
        tier=tier,
        n_gradient_evaluations=math.ceil(passes),
        expected_seconds=passes * seconds_per_pass(problem) + steps * SECONDS_PER_STEP,
        excess_risk=bound,
    )


def _law_budget_fraction(tier: str) -> float:
    """Return the fraction of a stage's epsilon for its law; the sampler's density error takes the rest."""
    # log((1 + z)/(1 - z)) <= 2.02 z for z <= 0.1, and z is a fraction of the stage's epsilon
    return 1 / (1 + 2.02 * SUP_NORM_BUDGET_FRACTION) if tier == "pure" else 1.0


def _build_spec(
    problem: Problem, stages: StagePlan, delta: float, tier: str, padding: float
) -> tuple[IteratedExponentialSpec, float]:
    draws, passes = [], 0.0
    for stage in stages.stages:
        constants = replace(problem.constants, diameter=stage.diameter)
        beta = stage.inverse_temperature * (1 - 1e-8)
        if tier == "exact":
            draws.append(ExponentialSpec(inverse_temperature=beta))
            passes += 100
            continue
        if tier == "pure":
            chain = plan_pure_chain(constants, beta, min(SUP_NORM_BUDGET_FRACTION * stage.epsilon, 0.1))
        else:
            delta_per_stage = 0.2 * delta / len(stages.stages) / math.exp(sum(stages.epsilons))
            chain = plan_certified_chain(
                constants, beta, total_variation_allowance(delta_per_stage, stage.epsilon)
            )
        draws.append(
            ExponentialSpec(
                inverse_temperature=beta,
                tier="pure" if tier == "pure" else "certified",
                step_size=chain.step_size,
                n_steps=chain.n_steps,
            )
        )
        passes += chain.n_gradients + chain.n_values
    radii = tuple(stage.radius for stage in stages.stages[:-1])
    return IteratedExponentialSpec(draws=tuple(draws), radii=radii, padding=padding), passes
