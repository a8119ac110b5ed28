"""The theorems on offer: one is offered by being listed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dplangevin.errors import InvalidParameter
from dplangevin.privacy.theorem import Theorem, TheoremFor
from dplangevin.privacy.theorems.block_recursion import BlockRecursion
from dplangevin.privacy.theorems.block_sgd import BlockSGD
from dplangevin.privacy.theorems.composition import Composition
from dplangevin.privacy.theorems.cyclic_shift import CyclicShift
from dplangevin.privacy.theorems.discrete_gradient import DiscreteComposition
from dplangevin.privacy.theorems.dobrushin import Dobrushin
from dplangevin.privacy.theorems.draws import (
    ExponentialMechanismTheorem,
    IteratedExponential,
    StronglyConvexGibbs,
)
from dplangevin.privacy.theorems.generalized_gaussian import CorrectedWorstShift, WorstShift
from dplangevin.privacy.theorems.hidden_state_sgd import EveryStepShift, HiddenStateSGD
from dplangevin.privacy.theorems.noisy_max import NoisyMaxTheorem
from dplangevin.privacy.theorems.noisy_sums import NoisySumsTheorem
from dplangevin.privacy.theorems.objective_perturbation import (
    GaussianObjectivePerturbation,
    ObjectivePerturbationTheorem,
)
from dplangevin.privacy.theorems.optimal_shift import OptimalShift
from dplangevin.privacy.theorems.output_perturbation import OutputPerturbationTheorem
from dplangevin.privacy.theorems.participation_start import ParticipationStart
from dplangevin.privacy.theorems.public_mirror_descent import PublicMirrorDescentTheorem
from dplangevin.privacy.theorems.rashomon import RashomonChainsTheorem, RashomonDrawsTheorem
from dplangevin.privacy.theorems.shuffled_shift import SecretPermutation, ShuffledShift
from dplangevin.privacy.theorems.sufficient_statistics import SufficientStatisticsTheorem
from dplangevin.schedules import (
    CorrectedAnswersSchedule,
    DiscreteGradientSchedule,
    ExponentialSchedule,
    GibbsSchedule,
    IteratedExponentialSchedule,
    NoisyAnswersSchedule,
    NoisyGradientSchedule,
    NoisyMaxSchedule,
    NoisySumsSchedule,
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
    PublicMirrorSchedule,
    RashomonChainSchedule,
    RashomonSchedule,
    Schedule,
    SufficientStatisticsSchedule,
)

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
