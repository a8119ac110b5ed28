"""Numbers with noise: counts, sums, the largest score, the sparse vector."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

MEMBERS: tuple[Member, ...] = (
    Member(
        schedule="schedule:NoisySumsSchedule",
        theorems=("theorems.noisy_sums:NoisySumsTheorem",),
        mechanism="mechanism:NoisySums",
    ),
    Member(
        schedule="schedule:NoisyMaxSchedule",
        theorems=("theorems.noisy_max:NoisyMaxTheorem",),
        mechanism="mechanism:NoisyMax",
    ),
    Member(
        schedule="schedule:NoisyAnswersSchedule",
        theorems=("theorems.generalized_gaussian:WorstShift",),
        mechanism="generalized_gaussian_mechanism:GeneralizedGaussianNoise",
        options={"counting": "options:counting"},
        knob=Knob(stored="sigma"),
    ),
    Member(
        schedule="schedule:LargestNormSchedule",
        theorems=("theorems.largest_norm:LargestNormTheorem",),
        mechanism="generalized_gaussian_mechanism:LargestNormNoise",
        options={"largest-norm": "options:largest_norm"},
        knob=Knob(stored="scale"),
    ),
    Member(
        schedule="schedule:CorrectedAnswersSchedule",
        theorems=("theorems.generalized_gaussian:CorrectedWorstShift",),
        mechanism="sparse_vector:SparseVector",
    ),
)
