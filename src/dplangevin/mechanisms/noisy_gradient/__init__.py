"""Noisy (stochastic) gradient descent: full batches, mini-batches, Langevin steps."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry, PlannerEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        "NoisyGradientSpec",
        (
            "theorems.composition:Composition",
            "theorems.composition:OppositeRecords",
            "theorems.optimal_shift:OptimalShift",
            "theorems.epoch_shift:CyclicShift",
            "theorems.epoch_shift:ShuffledShift",
            "theorems.epoch_shift:SecretPermutation",
            "theorems.block_recursion:BlockRecursion",
            "theorems.dobrushin:Dobrushin",
            "theorems.hidden_state:HiddenStateSGD",
            "theorems.hidden_state:EveryStepShift",
            "theorems.hidden_state:ParticipationStart",
            "theorems.block_sgd:BlockSGD",
        ),
        "NoisyGradientDescent",
        planners=(
            PlannerEntry("noisy-gd", rank=4, is_default=True),
            PlannerEntry("noisy-sgd", added_capabilities=("random_batches",)),
            PlannerEntry(
                "langevin",
                rank=5,
                added_capabilities=("population_risk",),
                removed_capabilities=("holds_beyond_n", "secure"),
            ),
        ),
        lower_bound="lower_bounds",
    ),
)
