"""Step size and number of steps of the proximal chain, and what it is expected to cost: public quantities only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dplangevin.errors import AssumptionFailed
from dplangevin.families.draws.theorems.draws import start_and_rate
from dplangevin.privacy import proximal_certificate as chain
from dplangevin.problem.constants import Constants


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A chain that meets its certificate for every data set, with the expected number of evaluations of F."""

    step_size: float
    n_steps: int
    gradients: float
    values: float


def certified_chain(constants: Constants, inverse_temperature: float, total_variation: float) -> Chain:
    """The cheapest chain within this total variation of exp(-beta F)."""

    def steps(ratio: float, poincare: float, eta: float) -> int:
        return chain.total_variation_steps(total_variation, ratio, eta, poincare)

    return _cheapest(constants, inverse_temperature, steps)


def pure_chain(constants: Constants, inverse_temperature: float, sup_norm: float) -> Chain:
    """The cheapest chain whose density is within a factor 1 +- sup_norm of exp(-beta F) everywhere."""

    def steps(ratio: float, poincare: float, eta: float) -> int:
        return chain.sup_norm_steps(sup_norm, ratio, eta, poincare, constants.diameter)

    return _cheapest(constants, inverse_temperature, steps)


def mean_curvature(constants: Constants) -> float:
    """A bound on the mean of F's curvatures: a record's Hessian has trace at most rank times its smoothness."""
    if constants.dimension is None:
        raise AssumptionFailed("the chain's cost needs the dimension; state it in the constants.")
    rank = min(constants.hessian_rank or constants.dimension, constants.dimension)
    return constants.strong_convexity + constants.data_smoothness * rank / constants.dimension


def _cheapest(constants: Constants, beta: float, steps: Callable[[float, float, float], int]) -> Chain:
    """steps(ratio, poincare, eta): how many steps of size eta the certificate needs."""
    ratio, poincare = start_and_rate(constants, beta)

    def needed(eta: float) -> int:
        return steps(ratio, poincare, eta)

    low, mean, p = (
        beta * constants.strong_convexity,
        beta * mean_curvature(constants),
        constants.dimension or 1,
    )
    eta = chain.best_step_size(needed, poincare, low, mean, p)
    count = needed(eta)
    proposals = chain.expected_proposals(eta, low, mean, p)
    # the minimiser that the start needs comes on top: a few hundred gradients at most
    return Chain(step_size=eta, n_steps=count, gradients=count + 100.0, values=count * (1 + proposals))
