"""How a plan is run: one algorithm per file, and `run`, which picks the one the schedule belongs to."""

from __future__ import annotations

from typing import Any

from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.families.draws.mechanism import ExponentialMechanism, IteratedExponentialMechanism
from dplangevin.families.draws.schedule import ExponentialSchedule, GibbsSchedule, IteratedExponentialSchedule
from dplangevin.families.mechanism import Mechanism
from dplangevin.families.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.families.mirror_descent.schedule import PublicMirrorSchedule
from dplangevin.families.moments.mechanism import SufficientStatistics
from dplangevin.families.moments.schedule import SufficientStatisticsSchedule
from dplangevin.families.noisy_answers.generalized_gaussian_mechanism import (
    GeneralizedGaussianMechanism,
    GeneralizedGaussianNoise,
)
from dplangevin.families.noisy_answers.mechanism import NoisyMax, NoisySums
from dplangevin.families.noisy_answers.schedule import (
    CorrectedAnswersSchedule,
    NoisyAnswersSchedule,
    NoisyMaxSchedule,
    NoisySumsSchedule,
)
from dplangevin.families.noisy_answers.sparse_vector import SparseVector
from dplangevin.families.noisy_gradient.discrete_mechanism import DiscreteGradientDescent
from dplangevin.families.noisy_gradient.discrete_schedule import DiscreteGradientSchedule
from dplangevin.families.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.perturbation.mechanism import ObjectivePerturbation, OutputPerturbation
from dplangevin.families.perturbation.schedule import (
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
)
from dplangevin.families.rashomon.mechanism import RashomonChains, RashomonDraws
from dplangevin.families.rashomon.schedule import RashomonChainSchedule, RashomonSchedule
from dplangevin.families.release import Release
from dplangevin.families.run_state import StatePath
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.schedule import Schedule
from dplangevin.privacy.spender import Spender

MECHANISMS: dict[type[Schedule], Mechanism[Any, Any, Any]] = {
    NoisyGradientSchedule: NoisyGradientDescent(),
    DiscreteGradientSchedule: DiscreteGradientDescent(),
    ObjectivePerturbationSchedule: ObjectivePerturbation(),
    OutputPerturbationSchedule: OutputPerturbation(),
    SufficientStatisticsSchedule: SufficientStatistics(),
    ExponentialSchedule: ExponentialMechanism(),
    GibbsSchedule: ExponentialMechanism(),
    IteratedExponentialSchedule: IteratedExponentialMechanism(),
    RashomonSchedule: RashomonDraws(),
    RashomonChainSchedule: RashomonChains(),
    NoisySumsSchedule: NoisySums(),
    NoisyMaxSchedule: NoisyMax(),
    NoisyAnswersSchedule: GeneralizedGaussianNoise(),
    CorrectedAnswersSchedule: SparseVector(),
}


def run(
    plan: Plan,
    data: Dataset,
    random_state: object = None,
    *,
    ledger: Spender | None = None,
    secure: bool = False,
    state: StatePath = None,
    rows_per_person: int | None = None,
) -> Release:
    """Run a plan on data with the mechanism its schedule belongs to.

    secure=True insists on noise that is exact in integers: a plan whose proof is about real-valued noise is refused.
    state names a private file from which the same call goes on after a crash: with the same noise, charged once.
    rows_per_person is to whom the request promises, where it says so; the ledger must say the same.
    """
    if secure and plan.guarantee.arithmetic != "discrete-grid":
        raise AssumptionFailed(
            f"secure mode has no proof for {plan.guarantee.theorem} ({plan.schedule.mechanism}): its noise is "
            "real-valued. Plan with a DiscreteGradientSchedule, or with secure=True of an estimator; hidden-state "
            "bounds, Gamma noise and generalised Gaussian noise have no secure form."
        )
    mechanism = MECHANISMS.get(type(plan.schedule))
    if isinstance(plan.schedule, PublicMirrorSchedule):
        raise InvalidParameter(
            "this plan needs a public mirror map; use PublicMirrorDescent(mirror).run(plan, data)."
        )
    if mechanism is None:
        raise InvalidParameter(f"no mechanism runs a {type(plan.schedule).__name__}.")
    release: Release = mechanism.run(
        plan, data, random_state, ledger=ledger, state=state, rows_per_person=rows_per_person
    )
    return release


__all__ = [
    "MECHANISMS",
    "GeneralizedGaussianMechanism",
    "NoisyGradientDescent",
    "PublicMirrorDescent",
    "Release",
    "run",
]
