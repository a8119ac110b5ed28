"""Numbers with noise: counts, sums, the largest score, the sparse vector."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

MEMBERS: tuple[Member, ...] = (
    Member("NoisySumsSchedule", ("theorems.noisy_sums:NoisySumsTheorem",), "NoisySums"),
    Member("NoisyMaxSchedule", ("theorems.noisy_max:NoisyMaxTheorem",), "NoisyMax"),
    Member(
        "NoisyAnswersSchedule",
        ("theorems.generalized_gaussian:WorstShift",),
        "generalized_gaussian_mechanism:GeneralizedGaussianNoise",
        options=("counting",),
        knob=Knob(stored="sigma"),
    ),
    Member(
        "LargestNormSchedule",
        ("theorems.largest_norm:LargestNormTheorem",),
        "generalized_gaussian_mechanism:LargestNormNoise",
        options=("largest-norm",),
        knob=Knob(stored="scale"),
    ),
    Member(
        "CorrectedAnswersSchedule",
        ("theorems.generalized_gaussian:CorrectedWorstShift",),
        "sparse_vector:SparseVector",
    ),
)
