"""plan_sampler: the cheapest sampler tier that meets a promise, with its expected cost, before any record is read."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dplangevin import _check
from dplangevin.errors import AssumptionFailed, CalibrationFailed, DplangevinError, InvalidParameter
from dplangevin.families.draws import tiers
from dplangevin.families.draws.schedule import DrawSchedule
from dplangevin.families.draws.theorems.exponential_mechanism import mean_gradient_sensitivity
from dplangevin.families.draws.tiers import ForNewRecords, TierOffer
from dplangevin.planner.request import OBJECTIVES, Objective
from dplangevin.privacy.conversions import gdp_mu
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Problem, RecordLoss, risk

Tier = Literal["auto", "exact", "pure", "certified", "process"]
TIERS: tuple[Tier, ...] = ("auto", "exact", "pure", "certified", "process")
LONGEST = 3600.0
STEP_SECONDS = 2e-3
"""What a step of the proximal chain takes beside its passes over the data: one exact Gaussian draw on the set."""
_BLOCK = 4096


@dataclass(frozen=True, kw_only=True)
class SamplerPlan(ForNewRecords):
    """A calibrated plan with what it is expected to cost. Everything in it is public.

    Parameters
    ----------
    plan : problem, schedule and guarantee; run it with `dplangevin.mechanisms.run`.
    tier : exact, pure, certified or process.
    gradient_evaluations : expected passes over the data, for gradients and for values of F.
    seconds : the same in time, from a short measurement of this machine on made-up rows.
    excess_risk : bound on the expected excess of F over its minimum on the set; None when no bound is known.
    stability : uniform stability of the draw, 2 L^2 / (m n), for objective="population": what the mean loss of new
        records exceeds that of the records by, at most, in expectation.
    population_risk : bound on the expected excess of the mean loss (without the ridge) of new records over its minimum
        on the set: excess_risk, the bias m r^2 / 2 of the ridge, stability, and the sampler's error; None where the set
        is unbounded or the run is a process.
    """

    plan: Plan
    tier: str
    gradient_evaluations: int
    seconds: float
    excess_risk: float | None = None

    def __str__(self) -> str:
        promise, schedule = self.plan.guarantee, self.plan.schedule
        lines = [
            f"Sampler plan: {schedule.mechanism} mechanism, tier {self.tier}",
            f"  promise: {promise.in_short}",
            f"  expected cost: {self.gradient_evaluations} passes over the data, about {self.seconds:.3g} seconds",
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
    tier: Tier = "auto",
    *,
    law: tiers.Law = "auto",
    grid: int = 0,
    padding: float = 0.0,
    max_seconds: float | None = LONGEST,
    objective: Objective = "empirical",
    verbose: bool = True,
) -> SamplerPlan:
    """The cheapest tier that meets (epsilon, delta), or the tier asked for; never another promise than the one asked.

    Parameters
    ----------
    delta : 0 asks for a pure promise: tiers exact and pure. Positive: certified and process as well.
    tier : "auto" takes the fewest expected passes over the data among the tiers whose cost is known beforehand.
    law : "exponential" or "gibbs" fixes the temperature rule of the certified and exact tiers; "auto" takes the colder.
    grid : points per axis of a public grid, for losses that are not convex.
    padding : seconds that every run takes at least; must cover the expected time.
    max_seconds : refuse, before anything runs, a plan expected to take longer; None never refuses.
    objective : "population" plans for the loss of new records: a problem without a ridge gets the one with the smallest
        bound (build the data from plan.problem), and stability and population_risk are reported.
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
    epsilon, delta = _checked(epsilon, delta, tier)
    if _check.choice("objective", objective, OBJECTIVES) == "population":
        problem = regularised(problem, epsilon, delta, law, grid)
    chosen = _candidate(problem, epsilon, delta, tier, law, grid)
    planned = _priced(problem, chosen, delta, padding)
    if objective == "population":
        planned = _generalised(planned)
    _check_time(problem, chosen, planned.seconds, max_seconds, padding)
    spent = planned.plan.guarantee.epsilon(delta)
    if not spent <= epsilon:
        raise CalibrationFailed(
            f"tier {chosen.tier} gives epsilon = {spent:.6g}, above {epsilon:.6g}; try another tier."
        )
    if verbose:
        print(planned, file=sys.stderr)
    return planned


def regularised(
    problem: Problem, epsilon: float, delta: float, law: tiers.Law = "auto", grid: int = 0
) -> Problem:
    """The problem with the ridge whose bound on population risk is smallest, unless it has a ridge already."""
    constants = problem.constants
    if grid or not constants.convex:
        raise AssumptionFailed(
            "population risk is bounded through the stability of convex losses; use objective='empirical' here."
        )
    if problem.ridge > 0:
        return problem
    reach = tiers.start_distance(problem)
    if delta > 0 and law != "exponential":
        mu, slope = gdp_mu(epsilon, delta), mean_gradient_sensitivity(constants)
        variance = 2 * constants.lipschitz**2 / problem.n
        ridge, _ = risk.regularised_gibbs(problem.dimension, mu, slope, reach, variance)
    else:
        ridge = risk.regularised_exponential_ridge(constants.lipschitz, reach, problem.n)
    return replace(problem, ridge=ridge)


def _generalised(planned: SamplerPlan) -> SamplerPlan:
    """With stability and population risk: a replaced record moves every draw by at most 2 L / (m n) in a coupling."""
    problem, excess = planned.plan.problem, planned.excess_risk
    reach, lipschitz = tiers.start_distance(problem), problem.constants.lipschitz
    stability = risk.gibbs_stability(lipschitz, problem.ridge, problem.n)
    unbounded = not math.isfinite(problem.constants.diameter)  # the ridge's bias is then an assumption
    if excess is None or unbounded or planned.tier == "process":  # a finite run has a start-up error as well
        return replace(planned, stability=stability)
    beta = getattr(planned.plan.schedule, "inverse_temperature", None)
    error = 0.0 if beta is None else max(0.0, excess - risk.exponential_excess(problem.dimension, beta))
    # the sampler's error moves both means
    bound = excess + problem.ridge / 2 * reach**2 + stability + 2 * error
    return replace(planned, stability=stability, population_risk=bound)


def _checked(epsilon: float, delta: float, tier: str) -> tuple[float, float]:
    _check.choice("tier", tier, TIERS)
    epsilon = _check.positive("epsilon", epsilon)
    if delta != 0:
        delta = _check.open_unit("delta", delta)
    elif tier in ("certified", "process"):
        raise CalibrationFailed(
            f"tier={tier!r} cannot promise delta = 0; state a delta, or use tier='pure' or 'exact'."
        )
    return epsilon, delta


def _priced(problem: Problem, chosen: TierOffer, delta: float, padding: float) -> SamplerPlan:
    schedule, steps = chosen.schedule, 0
    if isinstance(schedule, DrawSchedule):
        schedule, steps = replace(schedule, padding=padding), schedule.n_steps
    return SamplerPlan(
        plan=Plan(problem=problem, schedule=schedule, delta=delta, theorem=chosen.theorem),
        tier=chosen.tier,
        gradient_evaluations=math.ceil(chosen.evaluations),
        seconds=chosen.evaluations * pass_seconds(problem) + steps * STEP_SECONDS,
        excess_risk=chosen.excess_risk,
    )


def _candidate(
    problem: Problem, epsilon: float, delta: float, tier: Tier, law: tiers.Law, grid: int
) -> TierOffer:
    builders: dict[str, Callable[[], TierOffer]] = {
        "exact": lambda: tiers.exact(problem, epsilon, delta, law, grid),
        "pure": lambda: tiers.pure(problem, epsilon, delta),
        "certified": lambda: tiers.certified(problem, epsilon, delta, law),
        "process": lambda: tiers.process(problem, epsilon, delta),
    }
    if tier != "auto":
        return builders[tier]()
    candidates, reasons = [], []
    for name in ("exact", "pure", "certified", "process")[: 4 if delta else 2]:
        try:
            candidate = builders[name]()
        except DplangevinError as error:
            reasons.append(f"{name}: {error}")
            continue
        if candidate.bounded:
            candidates.append(candidate)
    if not candidates:
        raise AssumptionFailed("no tier meets the request. " + " ".join(reasons))
    return min(candidates, key=lambda candidate: candidate.evaluations)


def _check_time(
    problem: Problem, chosen: TierOffer, seconds: float, max_seconds: float | None, padding: float
) -> None:
    limit = math.inf if max_seconds is None else _check.positive("max_seconds", max_seconds)
    if not seconds <= limit:
        raise CalibrationFailed(
            f"tier {chosen.tier} is expected to take {seconds:.3g} seconds ({chosen.evaluations:.3g} passes over the "
            f"data) for {problem.dimension} parameters, above max_seconds = {limit:g}; raise the ridge or max_seconds, "
            "lower epsilon, or state a delta and use tier='process'. Nothing was run."
        )
    if padding and chosen.tier == "process":
        raise InvalidParameter(
            "padding is for draws; the time of the process tier does not depend on the data."
        )
    if 0 < _check.nonnegative("padding", padding) < seconds:
        raise InvalidParameter(
            f"padding = {padding:g} seconds is below the expected {seconds:.3g}, so runs would show through; raise it."
        )


def pass_seconds(problem: Problem) -> float:
    """Seconds of one pass over n records on this machine, measured on a block of made-up rows."""
    rows = np.full((_BLOCK, problem.n_columns), 0.5 / problem.n_columns)
    theta, labels = np.zeros((problem.n_columns, problem.loss.score_dimension)), np.zeros((_BLOCK, 1))
    if isinstance(problem.loss, RecordLoss):
        return 2e-8 * problem.n * problem.n_columns + 2e-5
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        scores = rows @ theta
        slopes = problem.loss.slope(scores if scores.shape[1] == 1 else scores[:, None], labels)
        rows.T @ slopes.reshape(_BLOCK, -1)
        best = min(best, time.perf_counter() - start)
    return best * problem.n / _BLOCK + 2e-5
