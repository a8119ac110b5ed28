"""The theorems on offer: one is offered by being listed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dplangevin.errors import InvalidParameter
from dplangevin.families.draws.schedule import ExponentialSchedule, GibbsSchedule, IteratedExponentialSchedule
from dplangevin.families.draws.theorems.draws import (
    ExponentialMechanismTheorem,
    IteratedExponential,
    StronglyConvexGibbs,
)
from dplangevin.families.mirror_descent.schedule import PublicMirrorSchedule
from dplangevin.families.mirror_descent.theorem import PublicMirrorDescentTheorem
from dplangevin.families.moments.schedule import SufficientStatisticsSchedule
from dplangevin.families.moments.theorem import SufficientStatisticsTheorem
from dplangevin.families.noisy_answers.schedule import (
    CorrectedAnswersSchedule,
    NoisyAnswersSchedule,
    NoisyMaxSchedule,
    NoisySumsSchedule,
)
from dplangevin.families.noisy_answers.theorems.generalized_gaussian import CorrectedWorstShift, WorstShift
from dplangevin.families.noisy_answers.theorems.noisy_max import NoisyMaxTheorem
from dplangevin.families.noisy_answers.theorems.noisy_sums import NoisySumsTheorem
from dplangevin.families.noisy_gradient.discrete_schedule import DiscreteGradientSchedule
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import Theorem
from dplangevin.families.noisy_gradient.theorems.block_recursion import BlockRecursion
from dplangevin.families.noisy_gradient.theorems.block_sgd import BlockSGD
from dplangevin.families.noisy_gradient.theorems.composition import Composition
from dplangevin.families.noisy_gradient.theorems.cyclic_shift import CyclicShift
from dplangevin.families.noisy_gradient.theorems.discrete_composition import DiscreteComposition
from dplangevin.families.noisy_gradient.theorems.dobrushin import Dobrushin
from dplangevin.families.noisy_gradient.theorems.hidden_state_sgd import EveryStepShift, HiddenStateSGD
from dplangevin.families.noisy_gradient.theorems.optimal_shift import OptimalShift
from dplangevin.families.noisy_gradient.theorems.participation_start import ParticipationStart
from dplangevin.families.noisy_gradient.theorems.shuffled_shift import SecretPermutation, ShuffledShift
from dplangevin.families.perturbation.schedule import (
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
)
from dplangevin.families.perturbation.theorems.objective import (
    GaussianObjectivePerturbation,
    ObjectivePerturbationTheorem,
)
from dplangevin.families.perturbation.theorems.output import OutputPerturbationTheorem
from dplangevin.families.rashomon.schedule import RashomonChainSchedule, RashomonSchedule
from dplangevin.families.rashomon.theorem import RashomonChainsTheorem, RashomonDrawsTheorem
from dplangevin.privacy.schedule import Schedule
from dplangevin.privacy.theorem import TheoremFor

THEOREMS: dict[str, Theorem] = {
    theorem.name: theorem
    for theorem in (
        Composition(),
        OptimalShift(),
        CyclicShift(),
        ShuffledShift(),
        SecretPermutation(),
        BlockRecursion(),
        Dobrushin(),
        HiddenStateSGD(),
        EveryStepShift(),
        ParticipationStart(),
        BlockSGD(),
    )
}


def _listed(*theorems: TheoremFor[Any]) -> dict[str, TheoremFor[Any]]:
    return {theorem.name: theorem for theorem in theorems}


FAMILIES: dict[type[Schedule], Mapping[str, TheoremFor[Any]]] = {
    NoisyGradientSchedule: THEOREMS,
    DiscreteGradientSchedule: _listed(DiscreteComposition()),
    ObjectivePerturbationSchedule: _listed(ObjectivePerturbationTheorem(), GaussianObjectivePerturbation()),
    OutputPerturbationSchedule: _listed(OutputPerturbationTheorem()),
    PublicMirrorSchedule: _listed(PublicMirrorDescentTheorem()),
    SufficientStatisticsSchedule: _listed(SufficientStatisticsTheorem()),
    ExponentialSchedule: _listed(ExponentialMechanismTheorem(), StronglyConvexGibbs()),
    GibbsSchedule: _listed(ExponentialMechanismTheorem(), StronglyConvexGibbs()),
    IteratedExponentialSchedule: _listed(IteratedExponential()),
    RashomonSchedule: _listed(RashomonDrawsTheorem()),
    RashomonChainSchedule: _listed(RashomonChainsTheorem()),
    NoisySumsSchedule: _listed(NoisySumsTheorem()),
    NoisyMaxSchedule: _listed(NoisyMaxTheorem()),
    NoisyAnswersSchedule: _listed(WorstShift()),
    CorrectedAnswersSchedule: _listed(CorrectedWorstShift()),
}


def theorems_for(schedule: Schedule) -> Mapping[str, TheoremFor[Any]]:
    """The theorems about this family of runs."""
    return FAMILIES[type(schedule)]


def theorem_named(name: str, schedule: Schedule) -> TheoremFor[Any]:
    """The theorem a user pinned."""
    offered = theorems_for(schedule)
    if name not in offered:
        raise InvalidParameter(f"theorem = {name!r} is unknown; choose one of {', '.join(offered)}.")
    return offered[name]
