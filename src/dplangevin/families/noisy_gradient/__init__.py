"""Noisy (stochastic) gradient descent: full batches, mini-batches, Langevin steps, integer noise."""

from __future__ import annotations

from dplangevin.privacy.registry import Member, RecipeEntry

MEMBERS: tuple[Member, ...] = (
    Member(
        "NoisyGradientSchedule",
        (
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
        "NoisyGradientDescent",
        recipes=(
            RecipeEntry("noisy-gd", rank=4, default=True),
            RecipeEntry("noisy-sgd", gains=("random_batches",)),
            RecipeEntry(
                "langevin_recipe:langevin", rank=5, gains=("population_risk",), lacks=("holds_beyond_n",)
            ),
        ),
        self_check=True,
        former=("langevin_schedule:LangevinSchedule",),
    ),
    Member(
        "discrete_schedule:DiscreteGradientSchedule",
        ("theorems.discrete_composition:DiscreteComposition",),
        "discrete_mechanism:DiscreteGradientDescent",
        recipes=(RecipeEntry("secure_recipe:noisy-gd-secure", secure_form=True),),
    ),
)
