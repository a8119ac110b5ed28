"""Plan K models of a Rashomon set: a calibrated plan, its hit bound, and an estimate of its running time.

Nothing here reads a record: the speed of this machine is measured on random numbers.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from dplangevin import _check
from dplangevin.accounting.plan import Plan
from dplangevin.accounting.proximal_certificate import expected_proposals
from dplangevin.accounting.registry import mechanism_for
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.exponential.spec import DRAW_TIERS, exponential_temperature
from dplangevin.mechanisms.exponential.tiers import PopulationBounds
from dplangevin.mechanisms.rashomon.calibrate import (
    MIN_USEFUL_HIT_PROBABILITY,
    SamplingAdvice,
    advise_sampling,
    budget_per_draw,
    calibrate_chains,
    calibrate_draws,
    chain_hit_bound,
    format_rounded_down,
    law_hit_probability,
    score_curvature,
)
from dplangevin.mechanisms.rashomon.spec import RashomonChainSpec, RashomonSpec, sampler_error
from dplangevin.problem import Problem, risk
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import max_excess, max_norm

_TIMING_ROWS, _TIMING_COLUMNS, _TIMING_POINTS = 4096, 16, 16
_SECONDS_PER_STEP = 4e-4  # seconds of a step or proposal, whatever its size


def expected_passes(constants: Constants, spec: RashomonSpec | RashomonChainSpec) -> float:
    """Return the expected number of passes over the records, for all models together."""
    if isinstance(spec, RashomonChainSpec):
        return 0.75 * spec.n_steps * spec.n_models  # chains stop uniformly between half and all of the steps
    p = constants.dimension or 1
    if not spec.n_steps:  # rejection from an envelope
        return 20.0 * spec.n_models
    curvature = spec.inverse_temperature * score_curvature(constants)
    proposals = expected_proposals(spec.step_size, 0.0, curvature, p)
    return spec.n_steps * (2 + proposals) * spec.n_models


def expected_seconds(constants: Constants, spec: RashomonSpec | RashomonChainSpec) -> float:
    """Return an estimate of the running time in seconds, accurate to a factor of about three."""
    passes = expected_passes(constants, spec)
    cell = (constants.dimension or 1) / _TIMING_COLUMNS * _measure_pace()[0] + _measure_pace()[1]
    return passes * constants.n * cell + _SECONDS_PER_STEP * passes / spec.n_models


@lru_cache(maxsize=1)
def _measure_pace() -> tuple[float, float]:
    """Return the seconds per row and model of the scores (of _TIMING_COLUMNS columns), and of the loss."""
    rng = np.random.default_rng(0)
    rows, points = (
        rng.standard_normal((_TIMING_ROWS, _TIMING_COLUMNS)),
        rng.standard_normal((_TIMING_COLUMNS, _TIMING_POINTS)),
    )
    scores = rows @ points
    best = [np.inf, np.inf]
    for _ in range(3):
        start = time.perf_counter()
        scores = rows @ points
        middle = time.perf_counter()
        np.logaddexp(0.0, scores).sum(axis=0)
        end = time.perf_counter()
        best = [min(best[0], middle - start), min(best[1], end - middle)]
    return best[0] / scores.size, best[1] / scores.size


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours.

    Examples
    --------
    >>> format_duration(0.2), format_duration(42.0), format_duration(600.0), format_duration(20_000.0)
    ('a second', '42 seconds', '10 minutes', '5.6 hours')
    """
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


RELATIVE_RIDGES = (0.1, 0.3, 1.0, 2.0, 6.0, 20.0)
"""Ridges that are compared, in units of psi / (largest norm)^2: 2 moves the objective by psi at most."""


@dataclass(frozen=True, kw_only=True)
class RidgeOutcome:
    """What a ridge would give: the hit bound of exact draws, and how much it moves the objective at most."""

    ridge: float
    hit_probability: float
    shift: float


def compare_ridges(
    problem: Problem, *, threshold: float, n_models: int, epsilon: float, delta: float
) -> tuple[RidgeOutcome, ...]:
    """Return the outcomes of a grid of ridges; no data are read. With delta = 0 the hit bound is the same for all.

    A model within psi of the minimum of the objective with a ridge is within psi + shift of that without.
    """
    psi, largest = _check_threshold(problem, threshold), max_norm(problem.constraint, problem.dimension)
    outcomes = []
    for relative in RELATIVE_RIDGES:
        with_ridge = replace(problem, ridge=relative * psi / largest**2)
        spec = calibrate_draws(
            with_ridge, threshold=psi, n_models=n_models, epsilon=epsilon, delta=delta, tier="exact"
        )
        hit = law_hit_probability(problem.dimension, spec.inverse_temperature, psi)
        outcomes.append(
            RidgeOutcome(ridge=with_ridge.ridge, hit_probability=hit, shift=with_ridge.ridge / 2 * largest**2)
        )
    return tuple(outcomes)


def choose_ridge(problem: Problem, **request: Any) -> float:
    """Return the smallest ridge that moves the objective by at most psi and has nearly the best hit bound of those."""
    psi = float(request["threshold"])
    outcomes = [item for item in compare_ridges(problem, **request) if item.shift <= psi * (1 + 1e-9)]
    best = max(item.hit_probability for item in outcomes)
    return min(item.ridge for item in outcomes if item.hit_probability >= 0.99 * best)


Route = Literal["pure", "ramp", "trajectory"]
RashomonTier = Literal["auto", "exact", "certified", "pure", "process"]
ROUTES: tuple[Route, ...] = get_args(Route)
RASHOMON_TIERS: tuple[RashomonTier, ...] = get_args(RashomonTier)


@dataclass(frozen=True, kw_only=True)
class RashomonPlan(PopulationBounds):
    """The plan of a run with the bound on hitting the set. Everything in it is public.

    Parameters
    ----------
    plan, route : the calibrated plan, and the route it takes.
    hit_probability : a released model has F <= F* + hit_threshold with at least this probability, for every data set.
    hit_threshold : the threshold itself for draws, twice the threshold for chains and on a grid (only that is proved).
    advice : the hit bound of the pure route with the same parameters, and what would be worth running; None on a grid.
    stability, population_risk : of one draw of the pure route (None for others): uniform stability, and a bound on
        the expected excess of the objective for new records over its minimum, psi + p / beta + stability and what the
        sampler adds.
    """

    plan: Plan
    route: Route
    hit_probability: float
    hit_threshold: float
    advice: SamplingAdvice | None

    @property
    def spec(self) -> RashomonSpec | RashomonChainSpec:
        """The public parameters of the run."""
        assert isinstance(self.plan.spec, RashomonSpec | RashomonChainSpec)
        return self.plan.spec

    @property
    def expected_seconds(self) -> float:
        """Estimated running time on this machine in seconds, accurate to a factor of about three."""
        return expected_seconds(self.plan.problem.constants, self.spec)

    def warning(self) -> str | None:
        """Return a warning, to be given before the budget is charged, if the hit bound is 0; else None."""
        if self.hit_probability > 0:
            return None
        other = (
            "use RashomonRegion, which certifies every model it reports"
            if self.plan.delta
            else "state delta > 0 and use RashomonRegion"
        )
        return f"The hit bound is 0: nothing guarantees that a draw is in the set; {other}."

    def describe_hit_bound(self) -> str:
        """Return the hit bound as a sentence, which accompanies every result."""
        problem = self.plan.problem
        return (
            f"At n = {problem.n}, psi = {self.spec.threshold:g}, each model is in the set (F within "
            f"{self.hit_threshold:g} of the minimum) with probability at least "
            f"{format_rounded_down(self.hit_probability)}."
        )

    def _describe_ridges(self, epsilon: float, delta: float) -> list[str]:
        """Return the hit bounds that other ridges would give, one line each; the ridge is part of the objective."""
        outcomes = compare_ridges(
            self.plan.problem,
            threshold=self.spec.threshold,
            n_models=self.spec.n_models,
            epsilon=epsilon,
            delta=delta,
        )
        return [
            f"  the ridge decides: this one is {self.plan.problem.ridge:.3g}; others (alpha, or alpha='auto'):",
            *(
                f"    {item.ridge:<10.3g} hit bound {format_rounded_down(item.hit_probability):<7} moves the objective "
                f"by at most {item.shift:.3g}"
                for item in outcomes
            ),
        ]

    def __str__(self) -> str:
        guarantee, spec = self.plan.guarantee, self.spec
        delta = guarantee.at_delta or 0.0
        budget = f"epsilon = {guarantee.epsilon(delta):.4g}" + (
            f", delta = {delta:.3g}" if delta else " (pure)"
        )
        lines = [
            f"Rashomon set by the {self.route} route, tier {spec.tier}: {spec.n_models} models, psi = "
            f"{spec.threshold:g}, beta = {spec.inverse_temperature:.4g}",
            f"  guarantee for all of them together: {budget}, {guarantee.adjacency}, theorem {guarantee.theorem}",
            f"  {self.describe_hit_bound()}",
        ]
        if self.population_risk is not None:
            lines.append(
                f"  on new records: excess of at most {self.population_risk:.3g}, uniform stability "
                f"{self.stability:.3g}"
            )
        if delta and self.route == "pure" and self.advice is not None:
            lines += self._describe_ridges(guarantee.epsilon(delta), delta)
        if spec.n_steps:
            lines.append(
                f"  cost: {spec.n_steps} steps of {spec.n_models} parallel chains, about "
                f"{format_duration(self.expected_seconds)} on this machine (estimate)"
            )
        if (warning := self.warning()) is not None:
            lines.insert(0, warning)
        if self.hit_probability < MIN_USEFUL_HIT_PROBABILITY and self.advice is not None:
            lines.append(f"  warning, the pure route would give: {self.advice}".replace("\n", "\n    "))
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
    grid: int = 0,
) -> RashomonPlan:
    """Plan n_models draws under (epsilon, delta) for all of them together; no data are read.

    Parameters
    ----------
    threshold : psi, models whose objective is within psi of the best are in the set.
    route : "pure" (sharp threshold, draws of the law), "ramp" (smooth edge; draws or chains) or "trajectory" (sharp
        threshold, chains; needs interior minimisers and delta > 0).
    tier : "auto", or the sampler: "exact", "pure" (delta = 0), "certified" (delta > 0), "process" (chains).
    ramp : width of the smooth edge; default psi / 20 for draws, psi for chains.
    n_steps : maximum number of steps of a chain.
    release : of chains: "last-iterate", or "trajectory", every point of every chain, accounted by composition.
    grid : points per axis of a public grid that replaces the set, for losses that are not convex or have no ridge, and
        for losses known by clipped values; at most a million points. F* is the minimum over the grid.

    Examples
    --------
    >>> from dplangevin.problem import Box, DataBounds, Sigmoid
    >>> problem = Problem(loss=Sigmoid(), bounds=DataBounds(data_norm=1.0, classes=2), n=30_000, n_features=2,
    ...                   constraint=Box(-2.0, 2.0), fit_intercept=False)
    >>> planned = plan_rashomon(problem, threshold=0.005, n_models=1, epsilon=1.0, grid=100)
    >>> round(planned.hit_probability, 4), planned.hit_threshold
    (1.0, 0.01)
    """
    route, resolved_tier = (
        _check.check_choice("route", route, ROUTES),
        _check.check_choice("tier", tier, RASHOMON_TIERS),
    )
    mechanism_for(RashomonSpec).check_loss(problem)
    psi = _check_threshold(problem, threshold)
    models, budget = _check.check_count("n_models", n_models), _check.check_positive("epsilon", epsilon)
    checked_delta = 0.0 if delta == 0 else _check.check_open_unit("delta", delta)
    if not problem.ridge > 0 and not grid:
        raise AssumptionFailed(
            "the minimum F* is certified through the ridge, and alpha is 0; state alpha > 0 (a small one suffices), or "
            "grid=, a public grid, which needs neither a ridge nor convexity (few parameters)."
        )
    if problem.allow_more_rows:
        raise InvalidParameter(
            "draws of a Rashomon set are proved for at most n records, and with n_public the data may hold more: "
            "leave n_public out (the number of rows is then public)."
        )
    if grid:
        if route != "pure" or resolved_tier not in ("auto", "exact"):
            raise InvalidParameter(
                "draws on a grid are exact draws of route='pure'; leave route and tier out."
            )
        resolved_tier = "exact"
    resolved_tier = _resolve_tier(route, resolved_tier, checked_delta)
    ramp_width = _resolve_ramp(route, resolved_tier, psi, ramp)
    common = {
        "threshold": psi,
        "n_models": models,
        "epsilon": budget,
        "delta": checked_delta,
        "ramp": ramp_width,
    }
    if grid:
        budget_of_draw = budget_per_draw(budget, checked_delta, models)
        spec: RashomonSpec | RashomonChainSpec = RashomonSpec(
            n_models=models,
            threshold=psi,
            inverse_temperature=exponential_temperature(problem.constants, budget_of_draw * (1 - 1e-9)),
            tolerance=1.0,  # no solver runs
            max_excess=max_excess(problem),
            grid=grid,
            target_epsilon=budget,
        )
        mechanism_for(RashomonSpec).check_problem(spec, problem)
    else:
        spec = _make_spec(problem, resolved_tier, n_steps, release, common)
    plan = Plan(problem=problem, spec=spec, delta=checked_delta)
    spent = plan.guarantee.epsilon(checked_delta)
    if not spent <= budget * (1 + 1e-9):
        raise CalibrationFailed(
            f"the plan would cost epsilon = {spent:.6g}, above {budget:.6g}; raise delta."
        )
    probability, hit_threshold = _hit_bound(problem, spec)
    advice = (
        None
        if grid
        else advise_sampling(
            problem.constants, threshold=psi, n_models=models, epsilon=budget, delta=checked_delta
        )
    )
    stability, risk_bound = _population_bounds(problem, spec, route)
    return RashomonPlan(
        plan=plan,
        route=route,
        hit_probability=probability,
        hit_threshold=hit_threshold,
        advice=advice,
        stability=stability,
        population_risk=risk_bound,
    )


def _make_spec(
    problem: Problem, tier: RashomonTier, n_steps: int | None, release: str, common: dict[str, Any]
) -> RashomonSpec | RashomonChainSpec:
    """Calibrate chains for the process tier, draws for the others."""
    if tier == "process":
        return replace(calibrate_chains(problem, n_steps=n_steps, **common), release=release)  # type: ignore[arg-type]
    if n_steps is not None:
        raise InvalidParameter(
            "n_steps is for the process tier; the steps of draws follow from their certificate."
        )
    if release != "last-iterate":
        raise InvalidParameter("release is for the process tier; draws have no other points.")
    return calibrate_draws(problem, tier=_check.check_choice("tier", tier, DRAW_TIERS), **common)


def _population_bounds(
    problem: Problem, spec: RashomonSpec | RashomonChainSpec, route: Route
) -> tuple[float | None, float | None]:
    """Return (stability, population risk) of one draw of exp(-beta max(F - F*, psi)); None for other routes."""
    if route != "pure" or not isinstance(spec, RashomonSpec) or spec.grid:
        return None, None
    constants, psi = problem.constants, spec.threshold
    stability = risk.thresholded_stability(constants.lipschitz, problem.ridge, problem.n, psi)
    excess = risk.exponential_excess(problem.dimension, spec.inverse_temperature, psi)
    return stability, excess + stability + 3 * sampler_error(constants, spec) * max_excess(problem)


def _check_threshold(problem: Problem, threshold: float) -> float:
    psi = _check.check_nonnegative("threshold", threshold)
    if psi == 0:
        raise InvalidParameter(
            "threshold = 0 leaves only the minimiser in the set; state psi > 0, or fit one model instead."
        )
    if math.isinf(problem.constants.diameter):
        raise InvalidParameter(
            "a Rashomon set needs a bounded set of models: state radius, the largest norm of the coefficients."
        )
    max_threshold = max_excess(problem)
    if psi >= max_threshold:
        raise InvalidParameter(
            f"threshold = {psi:g} admits every model: the objective never exceeds its minimum by more than "
            f"{max_threshold:.4g} on this set. Lower the threshold (or raise the radius)."
        )
    return psi


def _resolve_tier(route: Route, tier: RashomonTier, delta: float) -> RashomonTier:
    if route == "trajectory":
        if tier not in ("auto", "process"):
            raise InvalidParameter(
                f"route='trajectory' runs chains (tier 'process'), not tier {tier!r}; use route='pure' for draws."
            )
        if delta == 0:
            raise InvalidParameter(
                "route='trajectory' needs delta > 0; use route='pure' for a pure guarantee."
            )
        return "process"
    if tier == "process" and route == "pure":
        raise InvalidParameter(
            "tier='process' needs a score whose gradient has a small sensitivity; use route='ramp' (or 'trajectory'), "
            "or another tier."
        )
    if tier == "auto":
        return "pure" if delta == 0 else "certified"
    return tier


def _resolve_ramp(route: Route, tier: RashomonTier, psi: float, ramp: float | None) -> float:
    if route != "ramp":
        if ramp is not None:
            raise InvalidParameter(f"ramp is for route='ramp', not for route={route!r}; leave it out.")
        return 0.0
    return psi * (1.0 if tier == "process" else 0.05) if ramp is None else _check.check_positive("ramp", ramp)


def _hit_bound(problem: Problem, spec: RashomonSpec | RashomonChainSpec) -> tuple[float, float]:
    """Return (hit probability, threshold to which it refers), with the sampler's error included."""
    psi, beta, p = spec.threshold, spec.inverse_temperature, problem.dimension
    if (
        isinstance(spec, RashomonSpec) and spec.grid
    ):  # one point at least is in the set; beyond 2 psi: e^(-beta psi)
        others = p * math.log(spec.grid) - beta * psi
        return (1 / (1 + math.exp(others)) * (1 - 1e-9) if others < 700 else 0.0), 2 * psi
    if isinstance(spec, RashomonSpec):
        law = law_hit_probability(p, beta, psi, spec.ramp)
        error = sampler_error(problem.constants, spec)
        return max(0.0, law * (1 - error) if spec.tier == "pure" else law - error), psi
    return chain_hit_bound(problem.constants, spec), 2 * psi
