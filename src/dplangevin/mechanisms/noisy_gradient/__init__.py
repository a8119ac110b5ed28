"""Noisy (stochastic) gradient descent: full batches and mini-batches."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry, PlannerEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        "NoisyGradientSpec",
        (
            "theorems.composition:Composition",
            "theorems.composition:OppositeRecords",
            "theorems.optimal_shift:OptimalShift",
            "theorems.optimal_shift:CyclicShift",
            "theorems.optimal_shift:ShuffledShift",
            "theorems.optimal_shift:SecretPermutation",
            "theorems.block_recursion:BlockRecursion",
            "theorems.block_recursion:Dobrushin",
            "theorems.hidden_state:HiddenStateSGD",
            "theorems.hidden_state:EveryStepShift",
            "theorems.hidden_state:ParticipationStart",
            "theorems.block_recursion:BlockSGD",
        ),
        "NoisyGradientDescent",
        planners=(
            PlannerEntry("noisy-gd", rank=4, is_default=True),
            PlannerEntry("noisy-sgd", added_capabilities=("random_batches",)),
        ),
        lower_bound="lower_bounds",
    ),
)
