"""Calibrate each sampler tier, and choose the stages of the iterated mechanism, from public quantities only.

Stage i draws theta_i from exp(-beta_i F) on C_{i-1}, a set of diameter at most D_{i-1}; C_i is the intersection of
C_{i-1} with the ball of radius r_i around theta_i, and D_i = min(D_{i-1}, 2 r_i). The stages compose whatever the
radii; with probability 1 - failure_probability every C_i still contains the minimiser of an m-strongly convex F.

Reference: Ganesh, Thakurta and Upadhyay (2022), algorithm 3, theorems D.3 and E.6, with the Gamma quantile
as the tail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

from dplangevin import _check
from dplangevin.accounting import conversions as cv, proximal_certificate as chain
from dplangevin.accounting.registry import find_theorem
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.exponential.mechanism import (
    choose_cells_per_axis,
    choose_exact_method,
    envelope_slack,
)
from dplangevin.mechanisms.exponential.spec import (
    DrawSpec,
    ExponentialSpec,
    GibbsSpec,
    chain_start_and_rate,
    exponential_temperature,
    gibbs_temperature,
    mean_gradient_sensitivity,
    sup_norm_cost,
    total_variation_allowance,
)
from dplangevin.mechanisms.langevin.spec import LangevinSpec
from dplangevin.mechanisms.langevin.temperatures import (
    LangevinChoice,
    choose_langevin_run,
    max_start_distance,
)
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition
from dplangevin.problem import Problem, risk
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import full_lipschitz


@dataclass(frozen=True, kw_only=True)
class ChainPlan:
    """A chain that meets its certificate for every data set, with the expected number of evaluations of F."""

    step_size: float
    n_steps: int
    n_gradients: float
    n_values: float


def plan_certified_chain(
    constants: Constants, inverse_temperature: float, total_variation: float
) -> ChainPlan:
    """Return the cheapest chain that is within this total variation of exp(-beta F)."""

    def steps_needed(ratio: float, poincare: float, eta: float) -> int:
        return chain.total_variation_steps(total_variation, ratio, eta, poincare)

    return _plan_cheapest_chain(constants, inverse_temperature, steps_needed)


def plan_pure_chain(constants: Constants, inverse_temperature: float, sup_norm: float) -> ChainPlan:
    """Return the cheapest chain whose density is within a factor 1 +- sup_norm of exp(-beta F) everywhere."""

    def steps_needed(ratio: float, poincare: float, eta: float) -> int:
        return chain.sup_norm_steps(sup_norm, ratio, eta, poincare, constants.diameter)

    return _plan_cheapest_chain(constants, inverse_temperature, steps_needed)


def mean_curvature(constants: Constants) -> float:
    """Bound the mean eigenvalue of F's Hessian: that of one record has trace at most rank times its smoothness."""
    if constants.dimension is None:
        raise AssumptionFailed("the chain's cost needs the dimension; state it in the constants.")
    rank = min(constants.hessian_rank or constants.dimension, constants.dimension)
    return constants.strong_convexity + constants.data_smoothness * rank / constants.dimension


def _plan_cheapest_chain(
    constants: Constants, beta: float, steps: Callable[[float, float, float], int]
) -> ChainPlan:
    """Return the chain with the cheapest step size; steps(ratio, poincare, eta) is the number of steps it needs."""
    ratio, poincare = chain_start_and_rate(constants, beta)

    def n_steps_at(eta: float) -> int:
        return steps(ratio, poincare, eta)

    low, mean, p = (
        beta * constants.strong_convexity,
        beta * mean_curvature(constants),
        constants.dimension or 1,
    )
    eta = chain.best_step_size(n_steps_at, poincare, low, mean, p)
    count = n_steps_at(eta)
    proposals = chain.expected_proposals(eta, low, mean, p)
    # the start also needs a minimiser: a few hundred gradients at most
    return ChainPlan(
        step_size=eta, n_steps=count, n_gradients=count + 100.0, n_values=count * (1 + proposals)
    )


GibbsLaw = Literal["auto", "exponential", "gibbs"]
TANGENT_EVALUATIONS = {2: (500.0, 2_000.0), 3: (4_000.0, 20_000.0)}
"""Evaluations of F for the tangents of an exact draw by the number of parameters, for smooth losses and for corners.

Measured (264 and 1,600 for logistic regression, 810 and 11,188 for a hinge of width 1e-3); they depend on the data.
"""
MAX_SMOOTH_TURN = 10.0
"""A loss counts as smooth while its gradient needs a tenth of the set to turn around: M D <= 10 L."""
SUP_NORM_BUDGET_FRACTION = 0.005
SAMPLER_DELTA_FRACTION = 0.1
"""Fraction of delta for the total variation of a certified sampler, next to a Gaussian guarantee."""


@dataclass(frozen=True, kw_only=True)
class PopulationBounds:
    """Bounds on the expected loss of new records under one draw; None where none is known.

    stability : uniform stability of the draw, a bound on the mean loss of new records minus that of the records.
    population_risk : the expected excess of the mean loss of new records over its minimum.
    """

    stability: float | None = None
    population_risk: float | None = None


@dataclass(frozen=True, kw_only=True)
class TierPlan:
    """A spec with its theorem and expected passes over the data; has_bounded_cost when those are known beforehand.

    stability : of a process, whose released point need not have that of the stationary law.
    """

    tier: str
    spec: DrawSpec | LangevinSpec
    theorem: str | None
    n_evaluations: float
    excess_risk: float | None
    has_bounded_cost: bool = True
    stability: float | None = None


def plan_pure_tier(problem: Problem, epsilon: float, delta: float) -> TierPlan:
    """Plan the pure tier: a chain run until its density error everywhere costs half a percent of epsilon."""
    constants = problem.constants
    error = min(SUP_NORM_BUDGET_FRACTION * epsilon, 0.1)
    beta = exponential_temperature(constants, (epsilon - sup_norm_cost(error)) * (1 - 1e-9))
    chain = plan_pure_chain(constants, beta, error)
    spec = ExponentialSpec(
        inverse_temperature=beta, tier="pure", step_size=chain.step_size, n_steps=chain.n_steps
    )
    return TierPlan(
        tier="pure",
        spec=spec,
        theorem="exponential-mechanism",
        n_evaluations=chain.n_gradients + chain.n_values,
        excess_risk=draw_excess(problem, beta) * (1 + error),
    )


def plan_certified_tier(problem: Problem, epsilon: float, delta: float, law: GibbsLaw = "auto") -> TierPlan:
    """Plan the certified tier: the colder of exponential and Gibbs law, with total variation within delta."""
    beta, gibbs = _choose_temperature(problem, epsilon, delta, law, sampler_fraction=SAMPLER_DELTA_FRACTION)
    tau = total_variation_allowance(delta * (SAMPLER_DELTA_FRACTION if gibbs else 0.99), epsilon)
    for _ in range(200):
        chain = plan_certified_chain(problem.constants, beta, tau)
        fields: dict[str, Any] = {
            "tier": "certified",
            "step_size": chain.step_size,
            "n_steps": chain.n_steps,
        }
        spec, theorem = _make_draw_spec(beta, gibbs, **fields)
        if find_theorem(theorem, type(spec)).certify(problem.constants, spec).epsilon(delta) <= epsilon:
            break
        beta *= 0.9995  # the curve is interpolated on the safe side
    bound = draw_excess(problem, beta)
    width = problem.constants.diameter
    sampler_excess = tau * full_lipschitz(problem) * width if math.isfinite(width) else 0.0
    return TierPlan(
        tier="certified",
        spec=spec,
        theorem=theorem,
        n_evaluations=chain.n_gradients + chain.n_values,
        excess_risk=bound + sampler_excess,
    )


def plan_exact_tier(
    problem: Problem, epsilon: float, delta: float, law: GibbsLaw = "auto", grid: int = 0
) -> TierPlan:
    """Plan the exact tier, a rejection sampler whose cost is known beforehand only on a line, a grid or cells."""
    method = choose_exact_method(problem, grid)
    beta, gibbs = _choose_temperature(problem, epsilon, delta, "exponential" if grid else law)
    spec, theorem = _make_draw_spec(beta, gibbs, tier="exact", grid=grid)
    costs = {"grid": float(grid**problem.dimension), "line": 100.0, "gaussian": 2.0}
    if method == "tangents":
        limits = problem.constants
        has_corners = not limits.data_smoothness * limits.diameter <= MAX_SMOOTH_TURN * limits.lipschitz
        costs["tangents"] = TANGENT_EVALUATIONS[problem.dimension][has_corners]
    if method == "cells":
        cells = choose_cells_per_axis(problem, beta)
        # proposals per draw where the density is flat; where it slopes, the errors average out
        proposals = math.exp(envelope_slack(problem, beta, cells))
        costs["cells"] = 2.0 * cells**problem.dimension + 100.0 * proposals
    excess = grid_excess(problem, beta, grid) if grid else draw_excess(problem, beta)
    return TierPlan(
        tier="exact",
        spec=spec,
        theorem=theorem,
        n_evaluations=costs[method] if method in costs else 200.0 + _expected_proposals(problem, beta),
        excess_risk=excess,
        has_bounded_cost=method in ("grid", "line", "cells", "tangents"),
    )


def make_process_plan(choice: LangevinChoice) -> TierPlan:
    """Return the plan of a chosen Langevin run."""
    return TierPlan(
        tier="process",
        spec=choice.spec,
        theorem=choice.theorem,
        n_evaluations=float(choice.spec.n_steps),
        excess_risk=choice.excess_risk,
        stability=choice.stability,
    )


def plan_process_tier(
    problem: Problem, epsilon: float, delta: float, *, population: bool = False
) -> TierPlan:
    """Plan the process tier, Langevin steps: the run with the smallest risk bound, or one of length D^2 / (2 p).

    Losses that are not smooth, or not convex, have no such choice: the average (convex) or the last iterate of a run
    at constant temperature.
    """
    constants, mu = problem.constants, cv.gdp_mu(epsilon, delta) * (1 - 1e-7)
    if constants.convex and math.isfinite(constants.smoothness):
        return make_process_plan(choose_langevin_run(problem, mu, population=population))
    distance = max_start_distance(problem)
    p, sensitivity = problem.dimension, mean_gradient_sensitivity(constants)
    time = distance * mu / (sensitivity * math.sqrt(p))
    if math.isfinite(constants.smoothness):
        steps = max(10, math.ceil(2 * constants.smoothness * time))
    else:
        steps = max(10, math.ceil((_lipschitz_within(problem, distance) * time / distance) ** 2))
    rate = time / steps
    beta = 2 * mu**2 / (sensitivity**2 * rate * steps)
    spec = LangevinSpec(
        inverse_temperature=beta,
        time_step=rate / beta,
        n_steps=steps,
        release="average" if constants.convex else "last-iterate",
    )
    excess = None
    if constants.convex:
        excess = risk.sgld_nonsmooth_average_excess(
            p, beta, distance, rate, steps, _lipschitz_within(problem, distance)
        )
    return TierPlan(
        tier="process",
        spec=spec,
        theorem=Composition.name,
        n_evaluations=float(steps),
        excess_risk=excess,
    )


def draw_excess(problem: Problem, beta: float) -> float:
    """Return a bound on E F - min F of an exact draw: p / beta when convex, with a logarithm otherwise."""
    if problem.constants.convex:
        return risk.exponential_excess(problem.dimension, beta)
    return risk.nonconvex_excess(problem.dimension, beta, full_lipschitz(problem), problem.constants.diameter)


def grid_excess(problem: Problem, beta: float, grid: int) -> float:
    """Return a bound on E F - min F of a draw on the grid: log(points) / beta plus L_F times a cell's diagonal.

    Of a loss known by clipped values, min F is over the grid: nothing bounds F between its points.
    """
    p = problem.dimension
    if problem.constants.value_oscillation is not None:
        return p * math.log(grid) / beta
    cell = problem.constants.diameter / (grid - 1) * math.sqrt(p)
    return p * math.log(grid) / beta + full_lipschitz(problem) * cell


def _choose_temperature(
    problem: Problem, epsilon: float, delta: float, law: GibbsLaw, sampler_fraction: float = 0.0
) -> tuple[float, bool]:
    """Return (beta, whether it is the Gibbs law's): the larger inverse temperature that the two theorems allow."""
    constants, candidates = problem.constants, []
    if law != "exponential" and delta > 0 and (law == "gibbs" or constants.strong_convexity > 0):
        mu = cv.gdp_mu(epsilon, delta * (1 - sampler_fraction)) * (1 - 1e-8)
        candidates.append((gibbs_temperature(constants, mu), True))
    if law != "gibbs" and (law == "exponential" or math.isfinite(constants.diameter) or not candidates):
        candidates.append((exponential_temperature(constants, epsilon * (1 - 1e-9)), False))
    if not candidates:
        raise CalibrationFailed(
            "the Gibbs law has no pure guarantee; state a delta, or use law='exponential'."
        )
    return max(candidates)


def _make_draw_spec(beta: float, gibbs: bool, **fields: Any) -> tuple[DrawSpec, str]:
    if gibbs:
        return GibbsSpec(inverse_temperature=beta, **fields), "strongly-convex-gibbs"
    return ExponentialSpec(inverse_temperature=beta, **fields), "exponential-mechanism"


def _lipschitz_within(problem: Problem, distance: float) -> float:
    """Return the Lipschitz constant of F within `distance` of 0: finite on an unbounded set too."""
    return problem.constants.lipschitz + problem.ridge * distance


def _expected_proposals(problem: Problem, beta: float) -> float:
    """Estimate the proposals of an exact draw far from the boundary: exp((p/6) (h / (h + m)) s / sqrt(beta m)).

    s = 1.35 sqrt(p).
    """
    p, m = problem.dimension, problem.ridge
    mean = mean_curvature(problem.constants)
    if p / (beta * mean) > (problem.constants.diameter / 2) ** 2:
        raise AssumptionFailed(
            f"an exact draw of {p} parameters would be rejected almost always: the distribution is expected to be "
            "wider than the ball. Use tier='pure' or 'certified', or a larger radius."
        )
    fraction = 1 - m / mean
    return math.exp(
        min(700.0, p / 6 * fraction * 1.35 * math.sqrt(p) * problem.row_norm / math.sqrt(beta * m))
    )


BudgetUnit = Literal["pure", "zcdp"]
_MAX_STAGES = 8
"""Budgets double from stage to stage, so with more stages the first would get a negligible budget."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One draw: its budget, the diameter bound of its set, its inverse temperature, and the next set's radius."""

    epsilon: float
    diameter: float
    inverse_temperature: float
    radius: float


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """The stages in order and a bound on the last stage's expected excess empirical risk, p / beta_k + fail L_F D_0.

    The radius of the last stage is not used. The bound on population risk is indicative only: the last set
    depends on the data, which its stability argument ignores.
    """

    stages: tuple[Stage, ...]
    risk: float

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budget of each stage."""
        return tuple(stage.epsilon for stage in self.stages)


def plan_stages(
    constants: Constants,
    budget: float,
    failure_probability: float,
    full_lipschitz: float,
    n_stages: int | None = None,
    budget_unit: BudgetUnit = "pure",
    population: bool = False,
) -> StagePlan:
    """Return the stages with the smallest risk bound; everything here is public.

    Up to constants log(risk) = -sum_j 2^-j log epsilon_{k-j}, so budgets that double from stage to stage (in zCDP:
    grow by a factor sqrt(2)) are best; the number of stages is found by trying all.

    Parameters
    ----------
    constants : needs a finite diameter, a dimension, convexity and a positive strong convexity.
    budget : total epsilon (budget_unit "pure"), or total rho of zCDP, sum epsilon_i^2 / 8 (budget_unit "zcdp").
    failure_probability : that some set loses the minimiser; enters the radii and the risk, never privacy.
    full_lipschitz : Lipschitz constant of the full F, regulariser included.
    n_stages : None tries 1 to 8.
    population : widen the radii so that the sets keep the population minimiser.
    """
    budget, failure_probability = (
        _check.check_positive("budget", budget),
        _check.check_open_unit("failure_probability", failure_probability),
    )
    _check.check_choice("budget_unit", budget_unit, ("pure", "zcdp"))
    _check.check_positive("full_lipschitz", full_lipschitz)
    _check_constants(constants)
    counts = range(1, _MAX_STAGES + 1) if n_stages is None else [_check.check_count("n_stages", n_stages)]
    plans = [
        _build_stages(
            constants, _split_budget(budget, k, budget_unit), failure_probability, full_lipschitz, population
        )
        for k in counts
    ]
    return min(plans, key=lambda plan: plan.risk)


def _split_budget(budget: float, k: int, budget_unit: BudgetUnit) -> NDArray[np.float64]:
    weights = 2.0 ** np.arange(k)
    fractions = budget * weights / weights.sum()
    if budget_unit == "zcdp":
        return np.asarray(np.sqrt(8 * fractions) * (1 - 1e-12))
    # so that rounding never exceeds the budget
    while math.fsum(fractions) > budget:
        fractions *= 1 - 1e-16 * k
    return np.asarray(fractions)


def _build_stages(
    constants: Constants,
    epsilons: NDArray[np.float64],
    failure_probability: float,
    full_lipschitz: float,
    population: bool,
) -> StagePlan:
    assert constants.dimension is not None
    sensitivity, k = mean_gradient_sensitivity(constants), len(epsilons)
    quantile = float(gammainccinv(constants.dimension, failure_probability / k))
    ridge, n = constants.strong_convexity, constants.n
    statistical_width = (
        constants.lipschitz / (ridge * math.sqrt(n)) * (1 + math.sqrt(2 * math.log(k / failure_probability)))
    )
    diameter, stages = constants.diameter, []
    for epsilon in epsilons:
        beta = float(epsilon) / (sensitivity * diameter) * (1 - 1e-15)
        radius = math.sqrt(2 * quantile / (ridge * beta)) + (statistical_width if population else 0.0)
        stages.append(
            Stage(epsilon=float(epsilon), diameter=diameter, inverse_temperature=beta, radius=radius)
        )
        diameter = min(diameter, 2 * radius)
    risk = (
        constants.dimension / stages[-1].inverse_temperature
        + failure_probability * full_lipschitz * constants.diameter
    )
    return StagePlan(stages=tuple(stages), risk=risk)


def _check_constants(constants: Constants) -> None:
    if constants.dimension is None:
        raise InvalidParameter("the iterated exponential mechanism needs the dimension in its constants.")
    if not constants.convex or constants.strong_convexity <= 0:
        raise AssumptionFailed(
            "the iterated exponential mechanism's radii need a strongly convex objective; add a ridge, or use "
            "the plain exponential mechanism."
        )
    if math.isinf(constants.diameter):
        raise AssumptionFailed(
            "the iterated exponential mechanism needs a bounded set; constrain the parameter."
        )
