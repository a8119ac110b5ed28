"""plan_iterated: stages, budgets, radii and chains of the iterated exponential mechanism, before any data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from dplangevin import _check
from dplangevin.errors import CalibrationFailed
from dplangevin.families.draws.chains import certified_chain, pure_chain
from dplangevin.families.draws.plan_sampler import LONGEST, STEP_SECONDS, SamplerPlan, pass_seconds
from dplangevin.families.draws.schedule import ExponentialSchedule, IteratedExponentialSchedule
from dplangevin.families.draws.theorems.iterated_exponential import IteratedSchedule, iterated_schedule
from dplangevin.families.draws.theorems.sampler_certificates import total_variation_allowance
from dplangevin.families.draws.tiers import SUP_NORM_SHARE
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Problem, risk
from dplangevin.problem.reach import full_lipschitz

IteratedTier = Literal["auto", "exact", "pure", "certified"]


def plan_iterated(
    problem: Problem,
    epsilon: float,
    delta: float = 0.0,
    tier: IteratedTier = "auto",
    *,
    population: bool = False,
    fail: float = 1e-6,
    n_stages: int | None = None,
    padding: float = 0.0,
    max_seconds: float | None = LONGEST,
) -> SamplerPlan:
    """The iterated exponential mechanism with the smallest risk bound under (epsilon, delta).

    Parameters
    ----------
    tier : "auto" is exact for one parameter, else certified, or pure when delta = 0.
    population : keep the population minimiser in the sets, and report a population bound (an indication: the last
        set depends on the data, which the stability argument ignores).
    fail : probability that a set loses the minimiser; enters the radii and the risk, never privacy.
    n_stages : None tries 1 to 8.
    """
    _check.choice("tier", tier, ("auto", "exact", "pure", "certified"))
    _check.positive("epsilon", epsilon)
    if tier == "certified" and delta == 0:
        raise CalibrationFailed(
            "tier='certified' cannot promise delta = 0; state a delta, or use tier='pure'."
        )
    chosen: str = tier
    if tier == "auto":
        chosen = "exact" if problem.dimension == 1 else "certified" if delta > 0 else "pure"
    planned = _calibrated(problem, epsilon, delta, chosen, population, fail, n_stages, padding)
    if max_seconds is not None and not planned.seconds <= max_seconds:
        raise CalibrationFailed(
            f"the stages are expected to take {planned.seconds:.3g} seconds, above max_seconds = {max_seconds:g}; "
            "raise the ridge or max_seconds. Nothing was run."
        )
    return planned


def _calibrated(
    problem: Problem,
    epsilon: float,
    delta: float,
    tier: str,
    population: bool,
    fail: float,
    n_stages: int | None,
    padding: float,
) -> SamplerPlan:
    """The stages whose composed promise, samplers included, fits into (epsilon, delta)."""
    full, budget = full_lipschitz(problem), epsilon
    for _ in range(50):
        share = budget * _law_share(tier)
        stages = iterated_schedule(problem.constants, share, fail, full, n_stages, "pure", population)
        schedule, passes = _schedule(problem, stages, delta, tier, padding)
        plan = Plan(problem=problem, schedule=schedule, delta=delta, theorem="iterated-exponential-mechanism")
        if plan.guarantee.epsilon(delta) <= epsilon:
            break
        budget *= 0.999
    else:
        raise CalibrationFailed(
            f"no budget of the stages meets epsilon = {epsilon:g}; use the exponential mechanism."
        )
    steps = sum(draw.n_steps for draw in schedule.draws)
    bound = stages.risk
    if population:
        bound += risk.gibbs_stability(problem.constants.lipschitz, problem.ridge, problem.n)
    return SamplerPlan(
        plan=plan,
        tier=tier,
        gradient_evaluations=math.ceil(passes),
        seconds=passes * pass_seconds(problem) + steps * STEP_SECONDS,
        excess_risk=bound,
    )


def _law_share(tier: str) -> float:
    """What is left of a stage's epsilon for its law when the sampler's density error takes the rest."""
    # log((1 + z)/(1 - z)) <= 2.02 z for z <= 0.1, and z is a share of the stage's epsilon
    return 1 / (1 + 2.02 * SUP_NORM_SHARE) if tier == "pure" else 1.0


def _schedule(
    problem: Problem, stages: IteratedSchedule, delta: float, tier: str, padding: float
) -> tuple[IteratedExponentialSchedule, float]:
    draws, passes = [], 0.0
    for stage in stages.stages:
        constants = replace(problem.constants, diameter=stage.diameter)
        beta = stage.inverse_temperature * (1 - 1e-8)
        if tier == "exact":
            draws.append(ExponentialSchedule(inverse_temperature=beta))
            passes += 100
            continue
        if tier == "pure":
            chain = pure_chain(constants, beta, min(SUP_NORM_SHARE * stage.epsilon, 0.1))
        else:
            share = 0.2 * delta / len(stages.stages) / math.exp(sum(stages.epsilons))
            chain = certified_chain(constants, beta, total_variation_allowance(share, stage.epsilon))
        draws.append(
            ExponentialSchedule(
                inverse_temperature=beta,
                tier="pure" if tier == "pure" else "certified",
                step_size=chain.step_size,
                n_steps=chain.n_steps,
            )
        )
        passes += chain.gradients + chain.values
    radii = tuple(stage.radius for stage in stages.stages[:-1])
    return IteratedExponentialSchedule(draws=tuple(draws), radii=radii, padding=padding), passes
