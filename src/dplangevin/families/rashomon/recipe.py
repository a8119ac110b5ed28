"""plan_rashomon: a calibrated plan for K models of a Rashomon set, and what may be expected of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from dplangevin import _check
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.families.draws.schedule import DRAW_TIERS
from dplangevin.families.draws.tiers import ForNewRecords
from dplangevin.families.rashomon.advice import WORTHWHILE, Advice, advise
from dplangevin.families.rashomon.calibrate import chain_hit, chain_schedule, draw_schedule
from dplangevin.families.rashomon.hit import law_hit_probability, rounded_down
from dplangevin.families.rashomon.schedule import RashomonChainSchedule, RashomonSchedule
from dplangevin.families.rashomon.theorem import sampler_error
from dplangevin.families.rashomon.work import expected_seconds, spoken
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Problem, risk
from dplangevin.problem.reach import largest_excess

Route = Literal["pure", "ramp", "trajectory"]
Tier = Literal["auto", "exact", "certified", "pure", "process"]
ROUTES: tuple[Route, ...] = get_args(Route)
TIERS: tuple[Tier, ...] = get_args(Tier)


@dataclass(frozen=True, kw_only=True)
class RashomonRecipe(ForNewRecords):
    """The plan of a run with the bound on hitting the set. Everything in it is public.

    hit_probability : a released model has F <= F* + hit_threshold with at least this probability, for every data set.
    hit_threshold : the threshold itself for draws, twice it for chains (only that is proved).
    advice : the pure route at the same numbers, and what would be worth running.
    stability, population_risk : of one draw of the pure route (None for others): uniform stability, and a bound on the
        expected excess of the objective for new records over its minimum, psi + p / beta + stability and what the
        sampler adds.
    """

    plan: Plan
    route: Route
    hit_probability: float
    hit_threshold: float
    advice: Advice

    @property
    def schedule(self) -> RashomonSchedule | RashomonChainSchedule:
        """The public parameters of the run."""
        assert isinstance(self.plan.schedule, RashomonSchedule | RashomonChainSchedule)
        return self.plan.schedule

    @property
    def seconds(self) -> float:
        """How long the run will take on this machine, about (a factor of three either way)."""
        return expected_seconds(self.plan.problem.constants, self.schedule)

    def caution(self) -> str | None:
        """What must be known before anything is spent: a hit bound of 0 and what to do instead."""
        if self.hit_probability > 0:
            return None
        other = (
            "RashomonRegion certifies all it reports"
            if self.plan.delta
            else "state delta > 0 and use RashomonRegion"
        )
        return f"The hit bound is 0 here: no draw is promised to be in the set; {other}."

    def sentence(self) -> str:
        """The bound in words, for every result."""
        problem = self.plan.problem
        return (
            f"At n = {problem.n}, psi = {self.schedule.threshold:g}, the models fall in the set (F within "
            f"{self.hit_threshold:g} of the minimum) with probability at least "
            f"{rounded_down(self.hit_probability)} each."
        )

    def __str__(self) -> str:
        promise, schedule = self.plan.guarantee, self.schedule
        delta = promise.at_delta or 0.0
        budget = f"epsilon = {promise.epsilon(delta):.4g}" + (
            f", delta = {delta:.3g}" if delta else " (pure)"
        )
        lines = [
            f"Rashomon set by the {self.route} route, tier {schedule.tier}: {schedule.n_models} models, psi = "
            f"{schedule.threshold:g}, beta = {schedule.inverse_temperature:.4g}",
            f"  promise for all of them together: {budget}, {promise.adjacency}, theorem {promise.theorem}",
            f"  {self.sentence()}",
        ]
        if self.population_risk is not None:
            lines.append(
                f"  on new records: excess of at most {self.population_risk:.3g}, uniform stability "
                f"{self.stability:.3g}"
            )
        if schedule.n_steps:
            lines.append(
                f"  work: {schedule.n_steps} steps of {schedule.n_models} chains side by side, about "
                f"{spoken(self.seconds)} on this machine (estimate)"
            )
        if (caution := self.caution()) is not None:
            lines.insert(0, caution)
        if self.hit_probability < WORTHWHILE:
            lines.append(f"  caution, the pure route would give: {self.advice}".replace("\n", "\n    "))
        return "\n".join(lines)


def plan_rashomon(
    problem: Problem,
    *,
    threshold: float,
    n_models: int,
    epsilon: float,
    delta: float = 0.0,
    route: str = "pure",
    tier: str = "auto",
    ramp: float | None = None,
    n_steps: int | None = None,
    release: str = "last-iterate",
) -> RashomonRecipe:
    """The plan for n_models draws under (epsilon, delta) in all; nothing is measured from data.

    Parameters
    ----------
    threshold : psi, models whose objective is within psi of the best are in the set.
    route : "pure" (sharp threshold, draws of the law), "ramp" (smooth edge; draws or chains) or "trajectory" (sharp
        threshold, chains; needs interior minimisers and delta > 0).
    tier : "auto", or how models are made: "exact", "pure" (delta = 0), "certified" (delta > 0), "process" (chains).
    ramp : width of the smooth edge; default psi / 20 for draws, psi for chains. n_steps : most steps of a chain.
    release : of chains: "last-iterate", or "trajectory", every point of every chain at the price of composition.
    """
    route, chosen = _check.choice("route", route, ROUTES), _check.choice("tier", tier, TIERS)
    psi = _threshold(problem, threshold)
    models, budget = _check.count("n_models", n_models), _check.positive("epsilon", epsilon)
    slack = 0.0 if delta == 0 else _check.open_unit("delta", delta)
    if not problem.ridge > 0:
        raise AssumptionFailed(
            "the minimum F* is certified through the ridge, and there is none; state alpha > 0 (a small one will do)."
        )
    if problem.more_rows:
        raise InvalidParameter(
            "draws of a Rashomon set are proved for at most n records, and with a stated n the data may hold more: "
            "leave n out (the number of rows is then public)."
        )
    chosen = _tier(route, chosen, slack)
    edge = _ramp(route, chosen, psi, ramp)
    common = {"threshold": psi, "n_models": models, "epsilon": budget, "delta": slack, "ramp": edge}
    schedule = _schedule(problem, chosen, n_steps, release, common)
    plan = Plan(problem=problem, schedule=schedule, delta=slack)
    spent = plan.guarantee.epsilon(slack)
    if not spent <= budget * (1 + 1e-9):
        raise CalibrationFailed(
            f"the plan would cost epsilon = {spent:.6g}, above {budget:.6g}; raise delta."
        )
    probability, within = _hit(problem, schedule)
    advice = advise(problem.constants, threshold=psi, n_models=models, epsilon=budget, delta=slack)
    stability, risk_bound = _population(problem, schedule, route)
    return RashomonRecipe(
        plan=plan,
        route=route,
        hit_probability=probability,
        hit_threshold=within,
        advice=advice,
        stability=stability,
        population_risk=risk_bound,
    )


def _schedule(
    problem: Problem, tier: Tier, n_steps: int | None, release: str, common: dict[str, Any]
) -> RashomonSchedule | RashomonChainSchedule:
    """Chains for the process tier, draws for the others."""
    if tier == "process":
        return replace(chain_schedule(problem, n_steps=n_steps, **common), release=release)  # type: ignore[arg-type]
    if n_steps is not None:
        raise InvalidParameter("n_steps is for the process tier; draws need as many steps as are proved.")
    if release != "last-iterate":
        raise InvalidParameter("release is for the process tier; draws have no other points.")
    return draw_schedule(problem, tier=_check.choice("tier", tier, DRAW_TIERS), **common)


def _population(
    problem: Problem, schedule: RashomonSchedule | RashomonChainSchedule, route: Route
) -> tuple[float | None, float | None]:
    """Stability and population risk of one draw of exp(-beta max(F - F*, psi))."""
    if route != "pure" or not isinstance(schedule, RashomonSchedule):
        return None, None
    constants, psi = problem.constants, schedule.threshold
    stability = risk.thresholded_stability(constants.lipschitz, problem.ridge, problem.n, psi)
    excess = risk.exponential_excess(problem.dimension, schedule.inverse_temperature, psi)
    return stability, excess + stability + 3 * sampler_error(constants, schedule) * largest_excess(problem)


def _threshold(problem: Problem, threshold: float) -> float:
    psi = _check.nonnegative("threshold", threshold)
    if psi == 0:
        raise InvalidParameter(
            "threshold = 0 leaves only the minimiser in the set; state psi > 0, or fit one model instead."
        )
    if math.isinf(problem.constants.diameter):
        raise InvalidParameter(
            "a Rashomon set needs a bounded set of models: state radius, the largest norm of the coefficients."
        )
    most = largest_excess(problem)
    if psi >= most:
        raise InvalidParameter(
            f"threshold = {psi:g} makes every model a member: the objective never exceeds its minimum by more than "
            f"{most:.4g} on this set. Lower the threshold (or raise the radius)."
        )
    return psi


def _tier(route: Route, tier: Tier, delta: float) -> Tier:
    if route == "trajectory":
        if tier not in ("auto", "process"):
            raise InvalidParameter(
                f"route='trajectory' runs chains (tier 'process'), not tier {tier!r}; use route='pure' for draws."
            )
        if delta == 0:
            raise InvalidParameter("route='trajectory' needs delta > 0; use route='pure' for a pure promise.")
        return "process"
    if tier == "process" and route == "pure":
        raise InvalidParameter(
            "tier='process' needs a score whose gradient moves little between neighbours; use route='ramp' (or "
            "'trajectory'), or another tier."
        )
    if tier == "auto":
        return "pure" if delta == 0 else "certified"
    return tier


def _ramp(route: Route, tier: Tier, psi: float, ramp: float | None) -> float:
    if route != "ramp":
        if ramp is not None:
            raise InvalidParameter(f"ramp is for route='ramp', not for route={route!r}; leave it out.")
        return 0.0
    return psi * (1.0 if tier == "process" else 0.05) if ramp is None else _check.positive("ramp", ramp)


def _hit(problem: Problem, schedule: RashomonSchedule | RashomonChainSchedule) -> tuple[float, float]:
    """(probability, threshold it is about), sampler's error included."""
    psi, beta, p = schedule.threshold, schedule.inverse_temperature, problem.dimension
    if isinstance(schedule, RashomonSchedule):
        law = law_hit_probability(p, beta, psi, schedule.ramp)
        error = sampler_error(problem.constants, schedule)
        return max(0.0, law * (1 - error) if schedule.tier == "pure" else law - error), psi
    return chain_hit(problem.constants, schedule), 2 * psi
