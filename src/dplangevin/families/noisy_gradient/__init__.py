"""Noisy (stochastic) gradient descent: full batches, mini-batches, Langevin steps, integer noise."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

MEMBERS: tuple[Member, ...] = (
    Member(
        schedule="schedule:NoisyGradientSchedule",
        theorems=(
            "theorems.composition:Composition",
            "theorems.opposite_records:OppositeRecords",
            "theorems.optimal_shift:OptimalShift",
            "theorems.cyclic_shift:CyclicShift",
            "theorems.shuffled_shift:ShuffledShift",
            "theorems.shuffled_shift:SecretPermutation",
            "theorems.block_recursion:BlockRecursion",
            "theorems.dobrushin:Dobrushin",
            "theorems.hidden_state_sgd:HiddenStateSGD",
            "theorems.hidden_state_sgd:EveryStepShift",
            "theorems.participation_start:ParticipationStart",
            "theorems.block_sgd:BlockSGD",
        ),
        mechanism="mechanism:NoisyGradientDescent",
        recipes={
            "noisy-gd": "recipe:noisy_gd",
            "noisy-sgd": "recipe:noisy_sgd",
            "langevin": "langevin_recipe:langevin",
        },
        known_leak="self_check:known_leak",
        former={"LangevinSchedule": "langevin_schedule:LangevinSchedule"},
    ),
    Member(
        schedule="discrete_schedule:DiscreteGradientSchedule",
        theorems=("theorems.discrete_composition:DiscreteComposition",),
        mechanism="discrete_mechanism:DiscreteGradientDescent",
        recipes={"noisy-gd-secure": "secure_recipe:secure_recipe"},
    ),
)
