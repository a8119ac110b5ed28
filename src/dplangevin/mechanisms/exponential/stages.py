"""Choose the stages of the iterated exponential mechanism: budgets, radii and temperatures, all public.

Stage i draws theta_i from exp(-beta_i F) on C_{i-1}, a set of diameter at most D_{i-1}; C_i is the intersection of
C_{i-1} with the ball of radius r_i around theta_i, and D_i = min(D_{i-1}, 2 r_i). The stages compose whatever the
radii; with probability 1 - failure_probability every C_i still contains the minimiser of an m-strongly convex F.

Reference: Ganesh, Thakurta and Upadhyay (2022), algorithm 3, theorems D.3 and E.6, with the Gamma quantile
as the tail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

from dplangevin import _check
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exponential.law_guarantees import mean_gradient_sensitivity
from dplangevin.problem.constants import Constants

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
