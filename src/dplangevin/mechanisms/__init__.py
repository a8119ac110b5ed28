"""How a plan is run: one algorithm per file, and `run`, which picks the one the schedule belongs to."""

from __future__ import annotations

from typing import Any

from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.generalized_gaussian import GeneralizedGaussianMechanism
from dplangevin.mechanisms.noisy_gradient import NoisyGradientDescent
from dplangevin.mechanisms.objective_perturbation import ObjectivePerturbation
from dplangevin.mechanisms.output_perturbation import OutputPerturbation
from dplangevin.mechanisms.release import Release
from dplangevin.mechanisms.sufficient_statistics import SufficientStatistics
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.spender import Spender
from dplangevin.schedules import (
    NoisyGradientSchedule,
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
    Schedule,
    SufficientStatisticsSchedule,
)

MECHANISMS: dict[type[Schedule], Any] = {
    NoisyGradientSchedule: NoisyGradientDescent(),
    ObjectivePerturbationSchedule: ObjectivePerturbation(),
    OutputPerturbationSchedule: OutputPerturbation(),
    SufficientStatisticsSchedule: SufficientStatistics(),
}


def run(plan: Plan, data: Dataset, random_state: object = None, *, ledger: Spender | None = None) -> Release:
    """Run a plan on data with the mechanism its schedule belongs to."""
    mechanism = MECHANISMS.get(type(plan.schedule))
    if mechanism is None:
        raise InvalidParameter(f"no mechanism runs a {type(plan.schedule).__name__}.")
    release: Release = mechanism.run(plan, data, random_state, ledger=ledger)
    return release


__all__ = ["MECHANISMS", "GeneralizedGaussianMechanism", "NoisyGradientDescent", "Release", "run"]
