"""Each sampler tier's calibrated schedule for a promise, and what it is expected to cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from scipy.optimize import brentq

from dplangevin.errors import AssumptionFailed, CalibrationFailed
from dplangevin.families.draws.chains import certified_chain, mean_curvature, pure_chain
from dplangevin.families.draws.exact_methods import cells_per_axis, envelope_slack, exact_method
from dplangevin.families.draws.schedule import DrawSchedule, ExponentialSchedule, GibbsSchedule
from dplangevin.families.draws.theorems.exponential_mechanism import (
    exponential_temperature,
    mean_gradient_sensitivity,
)
from dplangevin.families.draws.theorems.gibbs import gibbs_temperature
from dplangevin.families.draws.theorems.sampler_certificates import sup_norm_cost, total_variation_allowance
from dplangevin.families.noisy_gradient.langevin_schedule import LangevinSchedule
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems.composition import Composition
from dplangevin.families.noisy_gradient.theorems.optimal_shift import OptimalShift
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.registry import theorem_named
from dplangevin.problem import Problem, risk
from dplangevin.problem.reach import full_lipschitz, largest_norm

Law = Literal["auto", "exponential", "gibbs"]
SUP_NORM_SHARE = 0.005
SAMPLER_SHARE = 0.1
"""Share of delta that a certified sampler's total variation may take beside a Gaussian promise."""
START_DISTANCE = 4.0
"""Assumed distance to the minimiser (rows of norm 1) where the set does not bound it; enters utility only."""


@dataclass(frozen=True, kw_only=True)
class ForNewRecords:
    """Bounds on the expected loss of new records under one draw; None where none is known.

    stability : uniform stability of the draw: what the mean loss of new records is above that of the records, at most.
    population_risk : the expected excess of the mean loss of new records over its minimum.
    """

    stability: float | None = None
    population_risk: float | None = None


@dataclass(frozen=True, kw_only=True)
class TierOffer:
    """A schedule with its theorem and expected passes over the data; bounded when those are known beforehand."""

    tier: str
    schedule: DrawSchedule | NoisyGradientSchedule
    theorem: str | None
    evaluations: float
    excess_risk: float | None
    bounded: bool = True


def pure(problem: Problem, epsilon: float, delta: float) -> TierOffer:
    """The chain run until its density is right everywhere; half a percent of epsilon pays for the rest."""
    constants = problem.constants
    error = min(SUP_NORM_SHARE * epsilon, 0.1)
    beta = exponential_temperature(constants, (epsilon - sup_norm_cost(error)) * (1 - 1e-9))
    chain = pure_chain(constants, beta, error)
    schedule = ExponentialSchedule(
        inverse_temperature=beta, tier="pure", step_size=chain.step_size, n_steps=chain.n_steps
    )
    return TierOffer(
        tier="pure",
        schedule=schedule,
        theorem="exponential-mechanism",
        evaluations=chain.gradients + chain.values,
        excess_risk=draw_excess(problem, beta) * (1 + error),
    )


def certified(problem: Problem, epsilon: float, delta: float, law: Law = "auto") -> TierOffer:
    """The colder of the exponential and the Gibbs law, sampled within a total variation that fits into delta."""
    beta, gibbs = _temperature(problem, epsilon, delta, law, share=SAMPLER_SHARE)
    tau = total_variation_allowance(delta * (SAMPLER_SHARE if gibbs else 0.99), epsilon)
    for _ in range(200):
        chain = certified_chain(problem.constants, beta, tau)
        fields: dict[str, Any] = {"tier": "certified", "step_size": chain.step_size, "n_steps": chain.n_steps}
        schedule, theorem = _drawn(beta, gibbs, **fields)
        if (
            theorem_named(theorem, type(schedule)).certify(problem.constants, schedule).epsilon(delta)
            <= epsilon
        ):
            break
        beta *= 0.9995  # the curve is interpolated on the safe side
    bound = draw_excess(problem, beta)
    width = problem.constants.diameter
    far = tau * full_lipschitz(problem) * width if math.isfinite(width) else 0.0
    return TierOffer(
        tier="certified",
        schedule=schedule,
        theorem=theorem,
        evaluations=chain.gradients + chain.values,
        excess_risk=bound + far,
    )


def exact(problem: Problem, epsilon: float, delta: float, law: Law = "auto", grid: int = 0) -> TierOffer:
    """A proved rejection sampler; how often it rejects is known beforehand only on a line or a grid."""
    method = exact_method(problem, grid)
    beta, gibbs = _temperature(problem, epsilon, delta, "exponential" if grid else law)
    schedule, theorem = _drawn(beta, gibbs, tier="exact", grid=grid)
    costs = {"grid": float(grid**problem.dimension), "line": 100.0, "gaussian": 2.0}
    if method == "cells":
        cells = cells_per_axis(problem, beta)
        rejected = math.exp(envelope_slack(problem, beta, cells))  # where the law is flat; slopes average out
        costs["cells"] = 2.0 * cells**problem.dimension + 100.0 * rejected
    excess = draw_excess(problem, beta)
    if grid:
        excess = grid_excess(problem, beta, grid)
    return TierOffer(
        tier="exact",
        schedule=schedule,
        theorem=theorem,
        evaluations=costs[method] if method in costs else 200.0 + _logistic_proposals(problem, beta),
        excess_risk=excess,
        bounded=method in ("grid", "line", "cells"),
    )


def process(problem: Problem, epsilon: float, delta: float) -> TierOffer:
    """SGLD: the last iterate with a ridge, the average without one, the last iterate of the trajectory otherwise."""
    constants, mu = problem.constants, cv.gdp_mu(epsilon, delta) * (1 - 1e-7)
    if constants.convex and math.isfinite(constants.smoothness) and constants.strong_convexity > 0:
        return _last_iterate(problem, mu)
    distance = start_distance(problem)
    p, sensitivity = problem.dimension, mean_gradient_sensitivity(constants)
    time = distance * mu / (sensitivity * math.sqrt(p))
    smooth = constants.smoothness
    if math.isfinite(smooth):
        steps = max(10, math.ceil(2 * smooth * time))
    else:
        steps = max(10, math.ceil((_steepness(problem, distance) * time / distance) ** 2))
    rate = time / steps
    beta = 2 * mu**2 / (sensitivity**2 * rate * steps)
    release: Literal["average", "last-iterate"] = "average" if constants.convex else "last-iterate"
    schedule = LangevinSchedule(
        inverse_temperature=beta, step_size=rate / beta, n_steps=steps, release=release
    )
    excess = None
    if constants.convex and math.isfinite(smooth):
        excess = risk.sgld_average(p, beta, distance, rate, steps, smooth)
    elif constants.convex:
        excess = risk.sgld_average_nonsmooth(p, beta, distance, rate, steps, _steepness(problem, distance))
    return TierOffer(
        tier="process",
        schedule=schedule,
        theorem=Composition.name,
        evaluations=float(steps),
        excess_risk=excess,
    )


def _last_iterate(problem: Problem, mu: float) -> TierOffer:
    constants = problem.constants
    rate = 1 / (2 * constants.smoothness)
    steps = math.ceil(math.log(1e3) / -math.log1p(-rate * constants.strong_convexity))
    theorem = OptimalShift.name

    def schedule(log_beta: float) -> NoisyGradientSchedule:
        beta = math.exp(log_beta)
        return LangevinSchedule(inverse_temperature=beta, step_size=rate / beta, n_steps=steps)

    def over(log_beta: float) -> float:
        made = schedule(log_beta)
        spent = theorem_named(theorem, type(made)).certify(constants, made).mu
        return math.log((spent or math.inf) / mu)

    guess = math.log(gibbs_temperature(constants, mu))
    root = float(brentq(over, guess - 12, guess + 12, xtol=1e-12))
    while over(root) > 0:
        root -= 1e-9
    beta = math.exp(root)
    # of the stationary law; the distance to it has shrunk a thousandfold
    excess = risk.sgld_stationary(problem.dimension, beta, rate, constants.smoothness)
    return TierOffer(
        tier="process",
        schedule=schedule(root),
        theorem=theorem,
        evaluations=float(steps),
        excess_risk=excess,
    )


def draw_excess(problem: Problem, beta: float) -> float:
    """Bound on E F - min F of an exact draw: p / beta when convex, with a logarithm otherwise."""
    if problem.constants.convex:
        return risk.exponential_excess(problem.dimension, beta)
    return risk.nonconvex_excess(problem.dimension, beta, full_lipschitz(problem), problem.constants.diameter)


def grid_excess(problem: Problem, beta: float, grid: int) -> float:
    """log(points) / beta, and what the grid misses: its points are within a cell's diagonal of every point."""
    p = problem.dimension
    cell = problem.constants.diameter / (grid - 1) * math.sqrt(p)
    return p * math.log(grid) / beta + full_lipschitz(problem) * cell


def _temperature(
    problem: Problem, epsilon: float, delta: float, law: Law, share: float = 0.0
) -> tuple[float, bool]:
    """(beta, whether it is the Gibbs law's): the larger of what the two theorems allow."""
    constants, offers = problem.constants, []
    if law != "exponential" and delta > 0 and (law == "gibbs" or constants.strong_convexity > 0):
        mu = cv.gdp_mu(epsilon, delta * (1 - share)) * (1 - 1e-8)
        offers.append((gibbs_temperature(constants, mu), True))
    if law != "gibbs" and (law == "exponential" or math.isfinite(constants.diameter) or not offers):
        offers.append((exponential_temperature(constants, epsilon * (1 - 1e-9)), False))
    if not offers:
        raise CalibrationFailed("the Gibbs law has no pure promise; state a delta, or use law='exponential'.")
    return max(offers)


def _drawn(beta: float, gibbs: bool, **fields: Any) -> tuple[DrawSchedule, str]:
    if gibbs:
        return GibbsSchedule(inverse_temperature=beta, **fields), "strongly-convex-gibbs"
    return ExponentialSchedule(inverse_temperature=beta, **fields), "exponential-mechanism"


def start_distance(problem: Problem) -> float:
    """Largest distance from the start (0, projected) to a point of the set; an assumption where it is unbounded."""
    reach = largest_norm(problem.constraint, problem.dimension)
    return reach if math.isfinite(reach) else START_DISTANCE / problem.row_norm


def _steepness(problem: Problem, distance: float) -> float:
    """Lipschitz constant of F within `distance` of 0: finite on an unbounded set too."""
    return problem.constants.lipschitz + problem.ridge * distance


def _logistic_proposals(problem: Problem, beta: float) -> float:
    """exp((p/6) (h / (h + m)) s / sqrt(beta m)), s = 1.35 sqrt(p): an estimate, for a law far from the edge."""
    p, m = problem.dimension, problem.ridge
    mean = mean_curvature(problem.constants)
    if p / (beta * mean) > (problem.constants.diameter / 2) ** 2:
        raise AssumptionFailed(
            f"an exact draw of {p} parameters would be rejected almost always: the law is expected to be wider than "
            "the ball. Use tier='pure' or 'certified', or a larger radius."
        )
    share = 1 - m / mean
    return math.exp(min(700.0, p / 6 * share * 1.35 * math.sqrt(p) * problem.row_norm / math.sqrt(beta * m)))
