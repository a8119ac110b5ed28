"""The public schedule of the iterated exponential mechanism: stages, budgets, radii and temperatures, before any data.

Stage i draws theta_i from exp(-beta_i F) on C_{i-1}, a set of diameter at most D_{i-1}, and C_i = C_{i-1}
cut with the ball of radius r_i around theta_i; D_i = min(D_{i-1}, 2 r_i). Privacy is the sum of the stages
whatever the radii; with probability 1 - fail every C_i still holds the minimiser of an m-strongly convex F.

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
from dplangevin.families.draws.theorems.exponential_mechanism import mean_gradient_sensitivity
from dplangevin.problem.constants import Constants

Currency = Literal["pure", "zcdp"]
_MOST_STAGES = 8
"""Budgets double from stage to stage: the first of more stages would get next to nothing."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One draw: its budget, the diameter bound of the set it is drawn on, its temperature, and the cut after it."""

    epsilon: float
    diameter: float
    inverse_temperature: float
    radius: float


@dataclass(frozen=True, kw_only=True)
class IteratedSchedule:
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


def iterated_schedule(
    constants: Constants,
    budget: float,
    fail: float,
    full_lipschitz: float,
    n_stages: int | None = None,
    currency: Currency = "pure",
    population: bool = False,
) -> IteratedSchedule:
    """The schedule with the smallest risk bound; everything here is public.

    Up to constants log(risk) = -sum_j 2^-j log epsilon_{k-j}, so budgets that double from stage to stage
    are best (in zCDP: that grow by sqrt(2)); the number of stages is tried out.

    Parameters
    ----------
    constants : needs a finite diameter, a dimension, convexity and a positive strong convexity.
    budget : total epsilon (currency "pure"), or total rho of zCDP, sum epsilon_i^2 / 8 (currency "zcdp").
    fail : probability that some set loses the minimiser; enters the radii and the risk, never privacy.
    full_lipschitz : Lipschitz constant of the full F, regulariser included.
    n_stages : None tries 1 to 8.
    population : widen the radii so that the sets keep the population minimiser.
    """
    budget, fail = _check.positive("budget", budget), _check.open_unit("fail", fail)
    _check.choice("currency", currency, ("pure", "zcdp"))
    _check.positive("full_lipschitz", full_lipschitz)
    _check_constants(constants)
    counts = range(1, _MOST_STAGES + 1) if n_stages is None else [_check.count("n_stages", n_stages)]
    tried = [_build(constants, _split(budget, k, currency), fail, full_lipschitz, population) for k in counts]
    return min(tried, key=lambda schedule: schedule.risk)


def _split(budget: float, k: int, currency: Currency) -> NDArray[np.float64]:
    weights = 2.0 ** np.arange(k)
    shares = budget * weights / weights.sum()
    if currency == "zcdp":
        return np.asarray(np.sqrt(8 * shares) * (1 - 1e-12))
    # rounding may not spend more than the budget
    while math.fsum(shares) > budget:
        shares *= 1 - 1e-16 * k
    return np.asarray(shares)


def _build(
    constants: Constants, epsilons: NDArray[np.float64], fail: float, full_lipschitz: float, population: bool
) -> IteratedSchedule:
    assert constants.dimension is not None
    sensitivity, k = mean_gradient_sensitivity(constants), len(epsilons)
    quantile = float(gammainccinv(constants.dimension, fail / k))
    ridge, n = constants.strong_convexity, constants.n
    widen = constants.lipschitz / (ridge * math.sqrt(n)) * (1 + math.sqrt(2 * math.log(k / fail)))
    diameter, stages = constants.diameter, []
    for epsilon in epsilons:
        beta = float(epsilon) / (sensitivity * diameter) * (1 - 1e-15)
        radius = math.sqrt(2 * quantile / (ridge * beta)) + (widen if population else 0.0)
        stages.append(
            Stage(epsilon=float(epsilon), diameter=diameter, inverse_temperature=beta, radius=radius)
        )
        diameter = min(diameter, 2 * radius)
    risk = constants.dimension / stages[-1].inverse_temperature + fail * full_lipschitz * constants.diameter
    return IteratedSchedule(stages=tuple(stages), risk=risk)


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
